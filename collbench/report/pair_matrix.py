"""The matrix of pairs, A x B: nodes in the order of their leaves, a cell for one pair or more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_groups import IntArray, group_medians
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import STATUSES, PairKind
from collbench.analyze.rate_unit import RateUnit, rate_unit
from collbench.model import Status
from collbench.stats import FloatArray

LETTERS = {
    Status.DATA_WRONG: "W",
    Status.HUNG: "H",
    Status.NODE_LOST: "L",
    Status.CRASHED: "C",
    Status.FAILED: "F",
    Status.PATH_NOT_USED: "P",
    Status.UNSUPPORTED: "U",
    Status.SKIPPED: "S",
}
"""How a pair without a value is marked; of several the first one here."""

_ORDER = tuple(LETTERS)
_NONE = len(_ORDER)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairMatrix:
    """Pairs as a square, or ``nodes_a_cell`` nodes a row and a column."""

    kind: PairKind
    of_rails: bool
    """Each pair's slowest rail."""
    order: IntArray
    """The node at each place."""
    bounds: tuple[int, ...]
    """The places at which a leaf begins, and the end."""
    nodes_a_cell: int
    values: FloatArray
    """[row, column] in GB/s, the lowest where there are several; NaN where there is none."""
    shares: FloatArray
    """Of what is usual for a pair on the same rail: inside a leaf, or across leaves."""
    broken: NDArray[np.int8]
    """Place of the gravest status in ``LETTERS``; their number where nothing broke."""
    usual: float
    """GB/s of a usual pair inside a leaf; NaN where there is none."""
    usual_across: float
    """GB/s of a usual pair across leaves; NaN where there is none."""

    @property
    def has_values(self) -> bool:
        """Whether any pair gave a value."""
        return not np.isnan(self.values).all()

    @property
    def unit(self) -> RateUnit:
        """The unit of all values."""
        return rate_unit(self.values[~np.isnan(self.values)])

    def statuses(self) -> tuple[Status, ...]:
        """Returns the ways in which pairs broke, the gravest first."""
        return tuple(_ORDER[place] for place in np.unique(self.broken) if place < _NONE)

    def status_at(self, row: int, column: int) -> Status | None:
        """Returns how a cell broke; None where it did not."""
        place = int(self.broken[row, column])
        return _ORDER[place] if place < _NONE else None

    def places_of(self, status: Status) -> NDArray[np.bool_]:
        """Returns the cells that broke in a way."""
        return np.asarray(self.broken == _ORDER.index(status))


def pair_matrix(state: PairwiseState, *, most_cells: int | None = None) -> PairMatrix:
    """Returns the matrix of the first look, and of later rounds where a pair was first met there.

    send_recv where it was run, else all_reduce.

    Args:
        state: all that is known.
        most_cells: on a side; more nodes than this share cells.
    """
    sends = any(kind is PairKind.SEND_RECV for kind, _ in state.judged)
    kind = PairKind.SEND_RECV if sends else PairKind.ALL_REDUCE
    rails = [rail for one, rail in state.judged if one is kind]
    width = 1 if most_cells is None else max(1, math.ceil(state.size / most_cells))
    order = np.argsort(state.leaf_numbers, kind="stable")
    cell_of = np.empty(state.size, np.intp)
    cell_of[order] = np.arange(state.size) // width
    first = _Cells(state, cell_of, again=False)
    later = _Cells(state, cell_of, again=True)
    usual = np.array([first.usual_logs(kind, rail) for rail in rails]).reshape(-1, 2)
    for rail, logs in zip(rails, usual, strict=True):
        first.add(kind, rail, logs)
        later.add(kind, rail, logs)
    inside, across = np.exp(group_medians(usual.T.ravel(), np.repeat([0, 1], len(rails)), 2))
    unseen = np.isinf(first.values) & (first.broken == _NONE)
    return PairMatrix(
        kind=kind,
        of_rails=len(rails) > 1,
        order=order,
        bounds=_bounds(state, order),
        nodes_a_cell=width,
        values=_known(np.where(unseen, later.values, first.values)),
        shares=_known(np.where(unseen, later.shares, first.shares)),
        broken=np.where(unseen, later.broken, first.broken),
        usual=float(inside),
        usual_across=float(across),
    )


class _Cells:
    """Gathers the lowest values and the gravest statuses by cell."""

    def __init__(self, state: PairwiseState, cell_of: IntArray, *, again: bool) -> None:
        self._state, self._cell_of = state, cell_of
        self._size = int(cell_of.max()) + 1
        self._mine = (state.again == again) & ~state.crowded
        self.values = np.full((self._size, self._size), np.inf)
        self.shares = self.values.copy()
        self.broken = np.full(self.values.shape, _NONE, np.int8)
        for place, status in enumerate(_ORDER):
            ended = state.values["status"] == STATUSES.index(status)
            rows = np.flatnonzero(self._mine & ended)
            self._lower(self.broken, rows, np.full(rows.size, place, np.int8))

    def usual_logs(self, kind: PairKind, rail: int | None) -> FloatArray:
        """Returns the logs of what pairs usually give: inside leaves, across."""
        rows = np.flatnonzero(self._state.rows_of(kind, rail) & self._mine)
        logs = np.log(self._state.values["value"][rows])
        return group_medians(logs, self._state.across[rows].astype(np.intp), 2)

    def add(self, kind: PairKind, rail: int | None, usual_logs: FloatArray) -> None:
        """Adds the values of a kind and a rail."""
        rows = np.flatnonzero(self._state.rows_of(kind, rail) & self._mine)
        values = self._state.values["value"][rows]
        usual = np.exp(usual_logs)
        # A class that was met in later rounds alone is held against the other one.
        usual = np.where(np.isnan(usual), usual[::-1], usual)
        self._lower(self.values, rows, values)
        self._lower(self.shares, rows, values / usual[self._state.across[rows].astype(np.intp)])

    def _lower(self, cells: NDArray[Any], rows: IntArray, values: NDArray[Any]) -> None:
        a, b = (self._cell_of[ends[rows]] for ends in self._state.ends)
        np.minimum.at(cells, (a, b), values)
        np.minimum.at(cells, (b, a), values)


def _known(cells: FloatArray) -> FloatArray:
    return np.where(np.isinf(cells), np.nan, cells)


def _bounds(state: PairwiseState, order: IntArray) -> tuple[int, ...]:
    leaves = state.leaf_numbers[order]
    return (0, *(int(place) + 1 for place in np.flatnonzero(np.diff(leaves))), state.size)
