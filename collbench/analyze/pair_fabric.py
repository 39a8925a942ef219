"""What lies between nodes: single paths, the uplinks of leaves, collisions, oversubscription."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_groups import (
    SMALLEST_EFFECT,
    IntArray,
    distinct,
    group_medians,
    group_scores,
    partner_counts,
    robust_cut,
)
from collbench.analyze.pair_screen import Screen, blocks
from collbench.analyze.pair_state import PairwiseState
from collbench.stats import FloatArray

MOST_PATHS = 16
"""Followed up; the lowest."""

_MANY_SHARE = 0.05
"""More low pairs of a class than this (and than ``_FEW_PATHS``) are how the class is."""
_FEW_PATHS = 8

_CHANCE_OF_A_PATH = 0.05
"""That a healthy pair of all is taken for a slow path at the first look."""

_BEHIND = 0.10
"""A collision halves a rate; 10 % behind the others of its round is no noise."""

_LEAF_MARGIN = 0.10
"""By which two leaves' pairs may lie below those inside: more hops, no fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowPath:
    """A pair that is low while both of its nodes are good."""

    a: int
    b: int
    deviation: float
    """Log of value over what its slower node gives with others."""
    level: float
    """That node's own level, against the class."""
    value: float
    tested: int
    """Pairs that were tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowLeaf:
    """A leaf whose pairs to all others are low; two leaves where there are just two."""

    leaves: tuple[int, ...]
    deviation: float
    measured: float
    expected: float
    pairs: int
    rounds_low: int
    """Rounds in which it was low as well ..."""
    rounds: int
    """... of those that it was in."""
    tested: int


def slow_paths(
    screen: Screen, good: NDArray[np.bool_], explained: NDArray[np.bool_]
) -> tuple[SlowPath, ...]:
    """Returns the pairs that stand out below what both of their nodes give, the lowest first.

    Where many pairs of a class are low it is the class (hash collisions, noise with two levels):
    ``collisions`` says that, and no path is named.

    Args:
        screen: the first look.
        good: by node, whether it is known to be good.
        explained: by value, whether a slow leaf explains it already.
    """
    found: list[SlowPath] = []
    # A node that is a little slow, too little to be named, is no slow path to all others.
    node_levels = np.minimum(np.nan_to_num(screen.scores - screen.cut.center), 0.0)
    levels = np.minimum(node_levels[screen.a], node_levels[screen.b])
    tested = int(partner_counts(screen.a, screen.b, good.size).sum()) // 2
    for across in (False, True):
        rows = np.flatnonzero(
            (screen.across == across)
            & ~screen.crowded
            & good[screen.a]
            & good[screen.b]
            & ~explained
        )
        if rows.size < 2:
            continue
        values = screen.relative[rows] - levels[rows]
        # An upper quartile of the values themselves: the low ones are what is looked for.
        cut = robust_cut(values)
        z = NormalDist().inv_cdf(1 - min(0.25, _CHANCE_OF_A_PATH / rows.size))
        depth = max(z * cut.scale, -math.log1p(-SMALLEST_EFFECT))
        low = np.flatnonzero(values < cut.center - depth)
        if low.size > max(_FEW_PATHS, _MANY_SHARE * rows.size):
            continue
        found += [
            SlowPath(
                a=int(screen.a[row]),
                b=int(screen.b[row]),
                deviation=float(screen.relative[row] - levels[row]),
                level=float(levels[row]),
                value=math.exp(float(screen.logs[row])),
                tested=tested,
            )
            for row in rows[low]
        ]
    return tuple(sorted(found, key=lambda path: path.deviation)[:MOST_PATHS])


def slow_leaves(
    state: PairwiseState, screen: Screen, good: NDArray[np.bool_]
) -> tuple[SlowLeaf, ...]:
    """Returns the leaves whose uplinks look slow.

    A pair of leaves shows the slower of two uplinks as a pair of nodes shows the slower node, so
    leaves are scored alike: the best block below 4, the upper quartile of blocks from 4 on. With
    two leaves there is one block, which is held against the pairs inside leaves.
    """
    rows = np.flatnonzero(screen.across & ~screen.crowded & good[screen.a] & good[screen.b])
    if not rows.size or len(state.leaf_names) < 2:
        return ()
    if len(state.leaf_names) == 2:
        return _two_leaves(screen, rows)
    return _many_leaves(state, screen, rows)


def _two_leaves(screen: Screen, rows: IntArray) -> tuple[SlowLeaf, ...]:
    inside, between = float(screen.centers[0]), float(np.median(screen.logs[rows]))
    deviation = between - inside
    if math.isnan(inside) or deviation > math.log1p(-_LEAF_MARGIN):
        return ()
    return (
        SlowLeaf(
            leaves=(0, 1),
            deviation=deviation,
            measured=math.exp(between),
            expected=math.exp(inside),
            pairs=rows.size,
            rounds_low=0,
            rounds=0,
            tested=1,
        ),
    )


def _many_leaves(state: PairwiseState, screen: Screen, rows: IntArray) -> tuple[SlowLeaf, ...]:
    count = len(state.leaf_names)
    numbers = blocks(state, screen.a[rows], screen.b[rows])
    present = distinct(numbers)
    place = np.searchsorted(present, numbers)
    medians = group_medians(screen.relative[rows], place, present.size)
    ends = np.concatenate([present // count, present % count])
    scores = group_scores(np.tile(medians, 2), ends, count)
    cut = robust_cut(scores)
    found = []
    with np.errstate(invalid="ignore"):
        low = np.flatnonzero(scores < cut.low)
    for leaf in low:
        mine = (state.leaf_numbers[screen.a[rows]] == leaf) | (
            state.leaf_numbers[screen.b[rows]] == leaf
        )
        values = screen.relative[rows[mine]]
        rounds = state.values["round"][screen.rows[rows[mine]]]
        per_round = [float(np.median(values[rounds == number])) for number in distinct(rounds)]
        deviation = float(scores[leaf] - cut.center)
        measured = float(np.median(screen.logs[rows[mine]]))
        found.append(
            SlowLeaf(
                leaves=(int(leaf),),
                deviation=deviation,
                measured=math.exp(measured),
                expected=math.exp(measured - deviation),
                pairs=values.size,
                rounds_low=sum(value < cut.center + deviation / 2 for value in per_round),
                rounds=len(per_round),
                tested=count,
            )
        )
    return tuple(found)


def explained_by(
    state: PairwiseState, screen: Screen, leaves: tuple[SlowLeaf, ...]
) -> NDArray[np.bool_]:
    """Returns by value whether it crosses the uplink of a slow leaf."""
    slow = np.zeros(max(1, len(state.leaf_names)), bool)
    for leaf in leaves:
        slow[list(leaf.leaves)] = True
    of_node = slow[state.leaf_numbers]
    return np.asarray(screen.across & (of_node[screen.a] | of_node[screen.b]))


def collisions(
    screen: Screen, good: NDArray[np.bool_], explained: NDArray[np.bool_]
) -> float | None:
    """Returns the share of pairs across leaves that fell behind the others; None without any.

    Args:
        screen: the first look.
        good: by node.
        explained: by value: a slow uplink holds it up.
    """
    rows = screen.across & ~screen.calm & good[screen.a] & good[screen.b] & ~explained
    return share_behind(screen.relative[rows]) if rows.any() else None


def share_behind(values: FloatArray) -> float:
    """Returns the share of values well below their median: of flows that collide; 0 of none."""
    if not values.size:
        return 0.0
    return float(np.mean(values < np.median(values) + math.log1p(-_BEHIND)))


def uplink_share(state: PairwiseState) -> float | None:
    """Returns mean rate across leaves / median rate inside, all at once; None where one is missing.

    The mean, since it is what the uplinks carry, however flows collide on them. Of several kinds
    and rails the lowest.
    """
    shares = []
    for kind, rail in state.judged:
        rows = state.rows_of(kind, rail) & ~state.again & ~state.calm
        inside = state.values["value"][rows & ~state.across]
        between = state.values["value"][rows & state.across]
        if inside.size and between.size:
            shares.append(float(between.mean() / np.median(inside)))
    return min(shares, default=None)


def across_share(screen: Screen) -> float | None:
    """Returns median rate across leaves / inside leaves, all at once; None where one is missing."""
    inside, between, _ = screen.centers
    share = math.exp(float(between - inside))
    return None if math.isnan(share) else share


def throttled_share(screen: Screen) -> float | None:
    """Returns the same of throttled rounds; None without any."""
    inside, _, calm = screen.centers
    share = math.exp(float(calm - inside))
    return None if math.isnan(share) else share
