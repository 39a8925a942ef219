"""A map of many nodes: a row a leaf, a cell a node, coloured by its better pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collbench.analyze.pair_groups import IntArray
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeVerdict
from collbench.report.drain_line import percent
from collbench.report.pair_ranks import all_ranks, worst_shares
from collbench.report.pair_shades import Shades

_MOST_ROWS = 64
_MOST_COLUMNS = 64
_MOST_ROW_NAMES = 32
_FLATTEST = 0.6
"""Height over width: a few leaves are to fill their half of the picture."""


def draw_node_map(
    axes: Any, state: PairwiseState, marked: Sequence[NodeVerdict], shades: Shades
) -> None:
    """Draws each node's better pairs, of several rails the slowest one's.

    Args:
        axes: where.
        state: what was measured.
        marked: nodes that get a frame and a number, which is explained below the map.
        shades: the scale.
    """
    rows, names = _rows(state)
    shares = worst_shares(state, all_ranks(state))
    width = max(map(len, rows))
    cells = np.full((len(rows), width), np.nan)
    place_of: dict[int, tuple[int, int]] = {}
    for number, row in enumerate(rows):
        cells[number, : len(row)] = shares[row]
        place_of |= {int(node): (number, column) for column, node in enumerate(row)}
    axes.imshow(np.ma.masked_invalid(cells), cmap=shades.colours, norm=shades.norm, aspect="auto")
    axes.set_anchor("N")
    axes.set_box_aspect(min(1.0, max(len(rows) / width, _FLATTEST)))
    _mark(axes, [place_of[node.node] for node in marked])
    step = math.ceil(len(rows) / _MOST_ROW_NAMES)
    axes.set_yticks(range(0, len(rows), step), names[::step], fontsize=10)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    rails = len({rail for _, rail in state.judged}) > 1
    better = "the better pairs of each node" + (", its slowest rail" if rails else "")
    where = "a row a leaf" if state.leaves is not None and len(names) > 1 else "in their order"
    axes.set_title(f"Nodes, {where}: {better}", loc="left", fontsize=11, pad=18)
    axes.set_xlabel(_words(state, marked), loc="left", fontsize=11, labelpad=8)


def _rows(state: PairwiseState) -> tuple[list[IntArray], list[str]]:
    """Returns the nodes of each row and its name: a row a leaf where that makes a map."""
    leaves = [np.flatnonzero(state.leaf_numbers == leaf) for leaf in range(len(state.leaf_names))]
    fits = 1 < len(leaves) <= _MOST_ROWS and max(map(len, leaves)) <= 2 * _MOST_COLUMNS
    if fits:
        return leaves, list(state.leaf_names)
    order = np.argsort(state.leaf_numbers, kind="stable")
    width = min(_MOST_COLUMNS, math.ceil(math.sqrt(2 * state.size)))
    if state.size > _MOST_ROWS * width:
        width = math.ceil(state.size / _MOST_ROWS)
    rows = [order[begin : begin + width] for begin in range(0, state.size, width)]
    return rows, [state.names[row[0]] for row in rows]


def _mark(axes: Any, places: Sequence[tuple[int, int]]) -> None:
    from matplotlib.patches import Rectangle

    for number, (row, column) in enumerate(places, start=1):
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, linewidth=1.5, zorder=3)
        axes.add_patch(frame)
        axes.annotate(
            str(number),
            (column, row - 0.5),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=10,
            fontweight="bold",
            annotation_clip=False,
        )


def _words(state: PairwiseState, marked: Sequence[NodeVerdict]) -> str:
    lines = []
    for number, node in enumerate(marked, start=1):
        words = [str(number), state.names[node.node], str(node.code or node.verdict)]
        if node.rail is not None and len(node.rails) <= 1:
            words.append(f"rail {node.rail}")
        if node.effect is not None:
            words.append(f"{percent(node.effect.share)} %")
        lines.append(" ".join(words))
    return "\n".join("      ".join(lines[at : at + 2]) for at in range(0, len(lines), 2))
