"""The matrix of pairs for a terminal: figures in one unit, letters where a pair broke."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

import numpy as np

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeState, PairwiseResult
from collbench.analyze.rate_unit import RateUnit
from collbench.report.pair_matrix import LETTERS, PairMatrix, pair_matrix
from collbench.report.table import WIDTH

MOST_IN_TERMINAL = 32
"""Nodes."""

_SELF = "."
_UNTRIED = "-"
_LONGEST_NAME = 24
_LONGEST_HEAD = 4
_FEWEST_DIGITS = 10
"""A highest value below this has less than two digits without a point."""


def matrix_lines(state: PairwiseState, result: PairwiseResult) -> list[str]:
    """Returns the matrix as lines of at most 120 columns; none above 32 nodes or without pairs.

    Where it is wider, columns stand in blocks below each other.
    """
    if state.size > MOST_IN_TERMINAL or not state.values.size:
        return []
    matrix = pair_matrix(state)
    names = [state.names[node] for node in matrix.order]
    marks = [_mark(result, int(node)) for node in matrix.order]
    sheet = _sheet(matrix, names, WIDTH - 2 - max(map(len, marks)))
    lines = [_title(matrix, sheet.unit)]
    for begin, end in sheet.blocks():
        lines.append(" " * sheet.label + sheet.row(sheet.heads, begin, end))
        for label, cells, mark in zip(sheet.labels, sheet.cells, marks, strict=True):
            row = sheet.row(cells, begin, end)
            lines.append(f"{label:<{sheet.label}}{row}  {mark}".rstrip())
    return [*lines, *_legend(matrix, sheet.cells)]


@dataclass(frozen=True, kw_only=True)
class _Sheet:
    """Cells with so many digits, and what stands around them."""

    unit: RateUnit
    labels: Sequence[str]
    heads: Sequence[str]
    cells: Sequence[Sequence[str]]
    separators: frozenset[int]
    room: int
    """Columns for a row, its label with it."""

    @property
    def label(self) -> int:
        """Columns of the labels."""
        return max(map(len, self.labels))

    @property
    def cell(self) -> int:
        """Columns of a cell."""
        return 1 + max(len(text) for line in [*self.cells, self.heads] for text in line)

    def blocks(self) -> list[tuple[int, int]]:
        """Returns the columns of each block: as few blocks as fit, as even as can be."""
        size, count = len(self.heads), 1
        while True:
            edges = [size * block // count for block in range(count + 1)]
            spans = list(pairwise(edges))
            if count == size or all(self._columns(*span) <= self.room for span in spans):
                return spans
            count += 1

    def _columns(self, begin: int, end: int) -> int:
        return self.label + len(self.row([""] * len(self.heads), begin, end))

    def row(self, texts: Sequence[str], begin: int, end: int) -> str:
        """Returns the cells of a block; a bar parts leaves."""
        return "".join(
            (" |" if place in self.separators and place > begin else "")
            + f"{texts[place]:>{self.cell}}"
            for place in range(begin, end)
        )


def _sheet(matrix: PairMatrix, names: Sequence[str], room: int) -> _Sheet:
    """Returns the sheet with the fewest blocks, and of those the one with the most digits."""
    heads = _heads(names)
    labels = shown_names(names, _LONGEST_NAME)
    if heads is None:
        heads = [str(place) for place in range(len(names))]
        labels = [f"{place:>2} {label}" for place, label in zip(heads, labels, strict=True)]
    unit = matrix.unit
    highest = float(np.nanmax(matrix.values)) if matrix.has_values else 0.0
    least = 1 if highest * unit.factor < _FEWEST_DIGITS else 0
    sheets = [
        _Sheet(
            unit=unit,
            labels=labels,
            heads=heads,
            cells=_cells(matrix, unit, digits),
            separators=frozenset(matrix.bounds[1:-1]),
            room=room,
        )
        for digits in range(max(unit.digits(highest), least), least - 1, -1)
    ]
    return min(sheets, key=lambda sheet: len(sheet.blocks()))


def _cells(matrix: PairMatrix, unit: RateUnit, digits: int) -> list[list[str]]:
    places = range(len(matrix.order))
    return [[_cell(matrix, unit, digits, row, column) for column in places] for row in places]


def _cell(matrix: PairMatrix, unit: RateUnit, digits: int, row: int, column: int) -> str:
    if row == column:
        return _SELF
    status = matrix.status_at(row, column)
    if status is not None:
        return LETTERS[status]
    value = matrix.values[row, column]
    return _UNTRIED if math.isnan(value) else f"{value * unit.factor:.{digits}f}"


def _title(matrix: PairMatrix, unit: RateUnit) -> str:
    if not matrix.has_values:
        return "No pair gave a value"
    rails = ", the slowest rail of each pair" if matrix.of_rails else ""
    leaves = "; bars part leaves" if len(matrix.bounds) > 2 else ""
    return f"{matrix.kind} in {unit.name}{rails}{leaves}"


def _mark(result: PairwiseResult, node: int) -> str:
    verdict = result.nodes[node].verdict
    return "" if verdict is NodeState.PASS else str(verdict).upper().replace("_", " ")


def _legend(matrix: PairMatrix, cells: Sequence[Sequence[str]]) -> list[str]:
    words = [f"{LETTERS[status]} {str(status).replace('_', ' ')}" for status in matrix.statuses()]
    if any(_UNTRIED in row for row in cells):
        words.append(f"{_UNTRIED} not tried")
    return [f"  {', '.join(words)}"] if words else []


def shown_names(names: Sequence[str], longest: int) -> list[str]:
    """Returns names without the domain that all share, the longer ones cut in their middle.

    What is cut is what they have in common, as far as that is enough.
    """
    domains = {name.partition(".")[2] for name in names}
    hosts = [name.partition(".")[0] for name in names] if len(domains) == 1 else list(names)
    first, last = min(hosts), max(hosts)
    ends = zip(first, last, strict=False)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    return [_cut(host, alike, longest) for host in hosts]


def _cut(name: str, alike: int, longest: int) -> str:
    if len(name) <= longest:
        return name
    tail = min(max(len(name) - alike, longest // 2), longest - 2)
    return f"{name[: longest - 1 - tail]}~{name[len(name) - tail :]}"


def _heads(names: Sequence[str]) -> list[str] | None:
    """Returns heads for narrow columns: the numbers by which names differ, or short names.

    None where neither tells them apart.
    """
    hosts = shown_names(names, 253)
    digits = [len(host) - len(host.rstrip("0123456789")) for host in hosts]
    stems = {host[: len(host) - count] for host, count in zip(hosts, digits, strict=True)}
    if len(stems) == 1 and all(digits):
        hosts = [host[len(host) - count :] for host, count in zip(hosts, digits, strict=True)]
    fits = max(map(len, hosts)) <= _LONGEST_HEAD and len(set(hosts)) == len(hosts)
    return hosts if fits else None
