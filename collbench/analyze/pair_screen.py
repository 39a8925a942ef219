"""The first look at one kind of value on one rail: a score a node, and who stands out.

A pair shows about min(b_i, b_j) times what the path does, so an additive model and medians accuse
partners and the ends of slow paths (docs/pairwise_statistics.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_baselines import Classes
from collbench.analyze.pair_groups import (
    SMALLEST_EFFECT,
    Cut,
    IntArray,
    clipped_spread,
    distinct,
    group_medians,
    group_scores,
    partner_counts,
    robust_cut,
)
from collbench.analyze.pair_state import AT_SCALE, PairwiseState
from collbench.analyze.pair_types import PairKind
from collbench.stats import FloatArray

_PASSES = 2
"""The second one knows the slow nodes, so that rounds full of them do not look slow."""

_AS_STEADY = 1.5
"""Times the spread inside leaves, up to which pairs across are as steady."""

_ENOUGH_PARTNERS = 2
"""Inside its leaf, for a node to be judged by those alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Screen:
    """The first look at a (kind, rail). Logs throughout; rows are places in the state's table."""

    kind: PairKind
    rail: int | None
    rows: IntArray
    a: IntArray
    b: IntArray
    across: NDArray[np.bool_]
    crowded: NDArray[np.bool_]
    """By row: across, and more at once than the uplinks carry."""
    calm: NDArray[np.bool_]
    """By row: across, and no more than they carry."""
    logs: FloatArray
    relative: FloatArray
    """Each value less its baseline."""
    centers: FloatArray
    """Of the values themselves: [inside, across, throttled]."""
    accuses: NDArray[np.bool_]
    """[2, row]: whether a value counts for its end a, its end b."""
    scores: FloatArray
    """A node's better pairs, relative; NaN without any."""
    cut: Cut
    slow: NDArray[np.bool_]
    """By node: it stands out."""
    below_bar: NDArray[np.bool_]
    """By node: even its better pairs are below the absolute bar."""
    healthy: FloatArray
    """Relative values, sorted, of the pairs of which neither end stands out."""
    bar: float | None

    @property
    def suspects(self) -> NDArray[np.bool_]:
        """By node: slow against the others or against the bar."""
        return np.asarray(self.slow | self.below_bar)

    @property
    def spread(self) -> float:
        """Standard deviation of healthy pairs without far ones; 1 % where there are none."""
        return clipped_spread(self.healthy) if self.healthy.size >= 3 else 0.01

    def pair_cut(self, node: int) -> float:
        """Returns below which relative value another run accuses a node: half of what was seen.

        At least the smallest effect: what is as likely a healthy pair's tells nothing.
        """
        return min((float(self.scores[node]) - self.cut.center) / 2, math.log1p(-SMALLEST_EFFECT))

    def chance_below(self, relative: float) -> float:
        """Returns the chance that a healthy pair lies below, never 0: (count + 1/2) / (n + 1)."""
        count = int(np.searchsorted(self.healthy, relative))
        return (count + 0.5) / (self.healthy.size + 1)


def screen(state: PairwiseState, kind: PairKind, rail: int | None) -> Screen:
    """Returns the first look at a kind and a rail that has values."""
    rows = np.flatnonzero(state.rows_of(kind, rail) & ~state.again)
    a, b = state.ends[0][rows], state.ends[1][rows]
    across, crowded, calm = state.across[rows], state.crowded[rows], state.calm[rows]
    logs = np.log(state.values["value"][rows])
    classes = Classes(
        across, calm, state.values["round"][rows].astype(np.intp), blocks(state, a, b)
    )
    apart = np.zeros_like(across) if _steady(state, a, b, across, logs) else across
    accuses = _accusing(state.size, a, b, apart)
    ends = np.concatenate([a[accuses[0]], b[accuses[1]]])
    levels = np.zeros(state.size)
    for _ in range(_PASSES):
        relative = logs - classes.baselines(logs - np.minimum(levels[a], levels[b]))
        both = np.concatenate([relative[accuses[0]], relative[accuses[1]]])
        scores = group_scores(both, ends, state.size)
        cut = robust_cut(scores)
        with np.errstate(invalid="ignore"):
            slow = scores < cut.low
        levels = np.where(slow, scores - cut.center, 0.0)
    bar = None if state.reference is None else state.reference.at_least.get((kind, rail))
    below_bar = np.zeros(state.size, bool)
    if bar is not None:
        absolute = np.concatenate([logs[accuses[0]], logs[accuses[1]]])
        below_bar = np.nan_to_num(group_scores(absolute, ends, state.size), nan=np.inf) < np.log(
            bar
        )
    bad = slow | below_bar
    fine = accuses.any(axis=0) & ~bad[a] & ~bad[b]
    return Screen(
        kind=kind,
        rail=rail,
        rows=rows,
        a=a,
        b=b,
        across=across,
        crowded=crowded,
        calm=calm,
        logs=logs,
        relative=relative,
        centers=classes.centers(logs - np.minimum(levels[a], levels[b])),
        accuses=accuses,
        scores=scores,
        cut=cut,
        slow=slow,
        below_bar=below_bar,
        healthy=np.sort(relative[fine]),
        bar=None if bar is None else math.log(bar),
    )


def blocks(state: PairwiseState, a: IntArray, b: IntArray) -> IntArray:
    """Returns a number for the pair of leaves of each pair of nodes, without order."""
    one, other = state.leaf_numbers[a], state.leaf_numbers[b]
    count = max(1, len(state.leaf_names))
    return np.asarray(np.minimum(one, other) * count + np.maximum(one, other))


def _steady(
    state: PairwiseState, a: IntArray, b: IntArray, across: NDArray[np.bool_], logs: FloatArray
) -> bool:
    """Returns whether pairs across leaves are as good as those inside, for every pair of leaves.

    In a small cluster they then count for nodes as well: inside a leaf each node has few partners.
    """
    if state.size > AT_SCALE or not across.any() or across.all():
        return False
    inside, between = robust_cut(logs[~across]), robust_cut(logs[across])
    numbers = blocks(state, a, b)[across]
    present = distinct(numbers)
    medians = group_medians(logs[across], np.searchsorted(present, numbers), present.size)
    as_fast = float(medians.min()) > inside.center + math.log1p(-SMALLEST_EFFECT)
    return as_fast and between.scale < _AS_STEADY * inside.scale


def _accusing(size: int, a: IntArray, b: IntArray, across: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns [2, row]: values inside a leaf, and all of a node that has too few of these."""
    partners = partner_counts(a[~across], b[~across], size)
    few = partners < _ENOUGH_PARTNERS
    return np.stack([~across | few[a], ~across | few[b]])
