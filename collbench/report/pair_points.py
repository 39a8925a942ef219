"""The cells of a matrix of pairs: words for each, and the table of nodes behind the picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeState, PairwiseResult
from collbench.analyze.rate_unit import rate_unit
from collbench.report.album import Spot, Table
from collbench.report.pair_matrix import LETTERS, PairMatrix
from collbench.report.pairwise_words import gravest_first

MOST_CELLS = 4096
"""With words of their own; beyond, only those below 90 % and those that broke."""
_LOW = 0.9
MOST_ROWS = 4096
_ORDER = (
    NodeState.FAIL,
    NodeState.SUSPECT,
    NodeState.INCONCLUSIVE,
    NodeState.NOT_TESTED,
    NodeState.PASS,
)


def pair_spots(axes: Any, state: PairwiseState, matrix: PairMatrix) -> Iterator[Spot]:
    """Yields the cells that were tried, the slowest first where there are too many."""
    tried = ~np.isnan(matrix.shares) | (matrix.broken < len(LETTERS))
    rows, columns = np.nonzero(tried)
    shares = np.nan_to_num(matrix.shares[rows, columns], nan=-1.0)
    order = np.argsort(shares, kind="stable")
    if order.size > MOST_CELLS:
        order = order[shares[order] < _LOW][:MOST_CELLS]
    for place in order.tolist():
        row, column = int(rows[place]), int(columns[place])
        text = _words(state, matrix, row, column)
        if text:
            yield Spot(axes=axes, x=column, y=row, width=1.0, height=1.0, text=text)


def _words(state: PairwiseState, matrix: PairMatrix, row: int, column: int) -> str:
    value, share = float(matrix.values[row, column]), float(matrix.shares[row, column])
    status = matrix.status_at(row, column)
    if matrix.nodes_a_cell == 1:
        ends = [state.names[matrix.order[place]] for place in (row, column)]
        name = " - ".join(ends)
    else:
        name = " - ".join(_span(state, matrix, place) for place in (row, column))
    words = []
    if not math.isnan(value):
        words.append(f"{matrix.unit.text(value)} {matrix.unit.name}, {100 * share:.0f} % of usual")
    if status is not None:
        words.append(str(status).replace("_", " "))
    return f"{name}: {', '.join(words)}" if words else ""


def _span(state: PairwiseState, matrix: PairMatrix, place: int) -> str:
    first = place * matrix.nodes_a_cell
    last = min(first + matrix.nodes_a_cell, state.size) - 1
    names = [state.names[matrix.order[number]] for number in (first, last)]
    return names[0] if first == last else f"{names[0]} to {names[1]}"


def nodes_table(state: PairwiseState, result: PairwiseResult) -> Table:
    """Returns a row a node, those that fail first."""
    ordered = [node for kind in _ORDER for node in gravest_first(result.of(kind))]
    rows = [
        (
            state.names[node.node],
            str(node.verdict).replace("_", " "),
            "" if node.code is None else str(node.code),
            _figure(node.measured, node.unit),
            _figure(node.expected, node.unit),
            "" if node.effect is None else f"{100 * node.effect.share:+.1f} %",
            str(node.partners),
            "; ".join(node.evidence),
        )
        for node in ordered
    ]
    return Table(
        columns=("node", "verdict", "code", "measured", "expected", "effect", "partners", "why"),
        rows=rows[:MOST_ROWS],
        left_out=max(0, len(rows) - MOST_ROWS),
    )


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit != "GB/s":
        return f"{100 * value:.2g} % {unit}"
    shown = rate_unit(np.array([value]))
    return f"{shown.text(value)} {shown.name}"
