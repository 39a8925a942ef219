"""The matrix of pairs as a picture, PNG and SVG; where nodes are many, beside a map of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeState, NodeVerdict, PairwiseResult
from collbench.report.album import Album
from collbench.report.pair_matrix import LETTERS, PairMatrix, pair_matrix
from collbench.report.pair_node_map import draw_node_map
from collbench.report.pair_picture_words import conclusion, what_is_shown
from collbench.report.pair_points import nodes_table, pair_spots
from collbench.report.pair_shades import GREY, UNTRIED, Shades, shades_of
from collbench.report.pairwise_about import PairwiseAbout
from collbench.report.pairwise_words import gravest_first
from collbench.report.picture import SETTINGS, draw_mark, heading_text

_MOST_NAMED = 32
"""Nodes whose names and figures have room."""
_MOST_CELLS = 512
"""On a side: what a slide can show."""
_MOST_SPARSE_CELLS = 96
"""Where few pairs were tried: single ones would be specks."""
_SPARSE = 0.25
_MOST_LEAF_NAMES = 24
MOST_MARKED = 8
"""Bad nodes with a number in the picture."""
_STATUS_COLOURS = dict(
    zip(
        LETTERS,
        ("#CC79A7", "#000000", "#7F7F7F", "#009E73", "#E69F00", "#F0E442", "#999933", "#BBBBBB"),
        strict=True,
    )
)
"""Told apart by the colour-blind, and from the red and blue of rates."""


def draw_pair_matrix(
    state: PairwiseState, result: PairwiseResult, about: PairwiseAbout, album: Album
) -> list[Path]:
    """Draws the matrix and returns the files written, ``RUN_ID-pairs.png`` and ``.svg``.

    Nodes stand in the order of their leaves. Red is slower than usual, blue is faster; pairs
    without a value have the colour of their status. From 33 nodes on nodes have a map beside it,
    and cells are drawn as one image; where cells hold several pairs the slowest one is shown.

    Args:
        state: what was measured.
        result: the verdict on it.
        about: for title and footer.
        album: takes the picture.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matrix = _matrix(state)
    shades = shades_of(matrix.shares)
    bad = _bad(result)
    many = state.size > _MOST_NAMED
    with matplotlib.rc_context(SETTINGS):
        size = (16.0, 9.0) if many else (10.0, 9.2) if state.size <= 16 else (13.0, 11.8)
        figure = pyplot.figure(figsize=size, layout="constrained")
        if many:
            left, right = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
            draw_node_map(right, state, bad[:MOST_MARKED], shades)
        else:
            left = figure.subplots()
        image = _draw(left, matrix, shades)
        if many:
            _label_leaves(left, state, matrix)
            _number_bad(left, matrix, bad[:MOST_MARKED])
        else:
            _label_nodes(left, state, matrix, bad)
            _write_values(left, matrix, shades)
        shades.bar(figure, image, left)
        _say_what_it_is(figure, left, state, result, about, matrix)
        name, title = f"{about.run.run_id}-pairs", "Pairs of nodes"
        paths = album.add(
            figure,
            name,
            title,
            lambda: (list(pair_spots(left, state, matrix)), nodes_table(state, result)),
        )
        pyplot.close(figure)
    return paths


def _bad(result: PairwiseResult) -> list[NodeVerdict]:
    """Returns the nodes to be looked at, those that fail first."""
    fails = gravest_first(result.of(NodeState.FAIL))
    suspects = [node for node in result.of(NodeState.SUSPECT) if not node.cleared]
    return [*fails, *gravest_first([*suspects, *result.of(NodeState.INCONCLUSIVE)])]


def _matrix(state: PairwiseState) -> PairMatrix:
    """Returns a cell a pair, or fewer where single pairs would not be seen."""
    if state.size <= _MOST_SPARSE_CELLS:
        return pair_matrix(state)
    a, b = (ends.astype(np.int64) for ends in state.ends)
    pairs = np.unique(np.minimum(a, b) * state.size + np.maximum(a, b)).size
    sparse = pairs < _SPARSE * state.size * (state.size - 1) / 2
    return pair_matrix(state, most_cells=_MOST_SPARSE_CELLS if sparse else _MOST_CELLS)


def _draw(axes: Any, matrix: PairMatrix, shades: Shades) -> Any:
    """Draws the cells, those that broke, and the bounds of leaves."""
    from matplotlib.colors import ListedColormap

    size = len(matrix.shares)
    image = axes.imshow(
        np.ma.masked_invalid(matrix.shares), cmap=shades.colours, norm=shades.norm, aspect="equal"
    )
    handles = []
    for status in matrix.statuses():
        colour = _STATUS_COLOURS[status]
        axes.imshow(
            np.ma.masked_equal(matrix.places_of(status), False), cmap=ListedColormap([colour])
        )
        handles.append((colour, str(status).replace("_", " ")))
    untried = np.isnan(matrix.shares) & (matrix.broken == len(LETTERS))
    if matrix.nodes_a_cell == 1:
        itself = np.eye(size, dtype=bool)
        axes.imshow(np.ma.masked_equal(itself, False), cmap=ListedColormap(["white"]))
        untried &= ~itself
    if untried.any():
        handles.append((UNTRIED, "not tried"))
    width, colour = (1.6, GREY) if size <= _MOST_NAMED else (0.6, "#BBBBBB")
    for bound in matrix.bounds[1:-1]:
        place = bound / matrix.nodes_a_cell - 0.5
        axes.axhline(place, color=colour, linewidth=width)
        axes.axvline(place, color=colour, linewidth=width)
    _legend(axes, handles)
    return image


def _legend(axes: Any, handles: Sequence[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    if handles:
        axes.legend(
            handles=[Patch(facecolor=colour, label=words) for colour, words in handles],
            loc="upper left",
            bbox_to_anchor=(0.0, -0.02 if axes.get_xticks().size > _MOST_NAMED else -0.04),
            ncols=4,
            fontsize=10,
            frameon=False,
        )


def _label_nodes(
    axes: Any, state: PairwiseState, matrix: PairMatrix, bad: Sequence[NodeVerdict]
) -> None:
    names = [state.names[node] for node in matrix.order]
    upright = max(map(len, names)) * len(names) > 90
    axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0, fontsize=10)
    axes.set_yticks(range(len(names)), names, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    marked = {node.node for node in bad}
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        for label, node in zip(labels, matrix.order, strict=True):
            if int(node) in marked:
                label.set_fontweight("bold")


def _write_values(axes: Any, matrix: PairMatrix, shades: Shades) -> None:
    """Writes each pair's rate into its cell, the letter of its status where it broke."""
    unit = matrix.unit
    size = len(matrix.values)
    font = 13 if size <= 8 else 10 if size <= 16 else 7
    for row in range(size):
        for column in range(size):
            status = matrix.status_at(row, column)
            value = matrix.values[row, column]
            if row == column or (status is None and math.isnan(value)):
                continue
            text = LETTERS[status] if status else unit.text(value)
            dark = status is not None or shades.is_dark(matrix.shares[row, column])
            if status is None and size > 16:
                text = f"{value * unit.factor:.{min(1, unit.digits(value))}f}"
            axes.text(
                column,
                row,
                text,
                ha="center",
                va="center",
                fontsize=font,
                color="white" if dark else "#222222",
            )


def _label_leaves(axes: Any, state: PairwiseState, matrix: PairMatrix) -> None:
    spans = list(zip(matrix.bounds, matrix.bounds[1:], strict=False))
    axes.tick_params(length=0)
    if state.leaves is None:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_ylabel("nodes in their order; leaves are unknown")
        return
    step = math.ceil(len(spans) / _MOST_LEAF_NAMES)
    shown = spans[::step]
    places = [((begin + end) / 2) / matrix.nodes_a_cell - 0.5 for begin, end in shown]
    names = [state.leaves[matrix.order[begin]] for begin, _ in shown]
    axes.set_yticks(places, names, fontsize=10)
    axes.set_xticks([])


def _number_bad(axes: Any, matrix: PairMatrix, bad: Sequence[NodeVerdict]) -> None:
    """Writes above the columns of bad nodes the numbers that they have in the map."""
    place_of = {int(node): place for place, node in enumerate(matrix.order)}
    for number, node in enumerate(bad, start=1):
        place = place_of[node.node] // matrix.nodes_a_cell
        axes.annotate(
            str(number),
            (place, -0.5),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=10,
            fontweight="bold",
            annotation_clip=False,
        )


def _say_what_it_is(
    figure: Any,
    axes: Any,
    state: PairwiseState,
    result: PairwiseResult,
    about: PairwiseAbout,
    matrix: PairMatrix,
) -> None:
    figure.suptitle(
        "\n".join(
            textwrap.wrap(conclusion(state, result), 130 if state.size > _MOST_NAMED else 85)
        ),
        fontsize=15,
        fontweight="bold",
        ha="left",
        x=0.02,
    )
    columns = 100 if state.size > _MOST_NAMED else 105
    axes.set_title(
        "\n".join(textwrap.wrap(what_is_shown(matrix, about), columns)),
        loc="left",
        fontsize=11,
        pad=18 if state.size > _MOST_NAMED else 8,
    )
    figure.supxlabel(
        heading_text(about.run, about.topology), fontsize=9, ha="left", x=0.02, color=GREY
    )
    draw_mark(figure, about.run)
