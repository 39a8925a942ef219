"""Nodes and rails in order of how fast their better pairs were, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_groups import group_medians, group_scores
from collbench.analyze.pair_state import AT_SCALE, PairwiseState
from collbench.analyze.pair_types import PairKind
from collbench.stats import FloatArray

_AS_FAST = 0.96
"""Pairs across leaves, of those inside: nothing is named that is nearer."""


@dataclass(frozen=True, eq=False, slots=True)
class Ranks:
    """One kind on one rail: a figure a node, from the rounds before anything was run again."""

    kind: PairKind
    rail: int | None
    shares: FloatArray
    """By node: its better pairs over what is usual for their class; NaN without any."""
    usual: float
    """GB/s of a usual pair of good nodes inside a leaf (across, where there are no others)."""
    pairs: NDArray[np.intp]
    """By node: values that its figure is made of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """A node, or a node's rail, in the list."""

    node: int
    kind: PairKind
    rail: int | None
    value: float
    """GB/s."""
    share: float
    """Of what is usual."""
    pairs: int


def all_ranks(state: PairwiseState, bad: Collection[int] = ()) -> tuple[Ranks, ...]:
    """Returns the figures of each kind and rail.

    A node's better pairs are its best of up to 3, the upper quartile of more: a pair is as slow as
    the slower of its two nodes.

    Args:
        state: all that is known.
        bad: nodes whose pairs are not what is usual: of few nodes they would be the median.
    """
    return tuple(_ranks(state, kind, rail, list(bad)) for kind, rail in state.judged)


def _ranks(state: PairwiseState, kind: PairKind, rail: int | None, bad: list[int]) -> Ranks:
    rows = np.flatnonzero(state.rows_of(kind, rail) & ~state.again & ~state.crowded)
    place = state.across[rows].astype(np.intp)
    logs = np.log(state.values["value"][rows])
    every = group_medians(logs, place, 2)
    fine = ~np.isin([ends[rows] for ends in state.ends], bad).any(axis=0)
    usual = group_medians(logs[fine], place[fine], 2)
    centers = np.where(np.isnan(usual), every, usual)
    relative = logs - centers[place]
    first, second = tells_of_ends(state, rows)
    ends = np.concatenate([state.ends[0][rows[first]], state.ends[1][rows[second]]])
    both = np.concatenate([relative[first], relative[second]])
    scores = group_scores(both, ends, state.size)
    known = centers[~np.isnan(centers)]
    return Ranks(
        kind=kind,
        rail=rail,
        shares=np.asarray(np.exp(scores)),
        usual=float(np.exp(known[0])),
        pairs=np.bincount(ends, minlength=state.size),
    )


def tells_of_ends(state: PairwiseState, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Returns [2, row]: whether a value tells something of its end a, its end b.

    Those across leaves tell of the fabric, and of a node only where it has no others; in a small
    cluster whose pairs across are as fast as those inside they tell of both.

    Args:
        state: all that is known.
        rows: of its table, of one kind and rail, with a rate.
    """
    across, values = state.across[rows], state.values["value"][rows]
    both = across.any() and not across.all()
    if both and state.size <= AT_SCALE:
        as_fast = np.median(values[across]) >= _AS_FAST * np.median(values[~across])
        across = np.zeros_like(across) if as_fast else across
    inside = np.zeros(state.size, bool)
    for ends in state.ends:
        inside[ends[rows[~across]]] = True
    return np.stack([~across | ~inside[ends[rows]] for ends in state.ends])


def lowest(ranks: Sequence[Ranks], most: int) -> list[Rank]:
    """Returns the lowest nodes and rails, the lowest first."""
    found = [
        Rank(
            node=int(node),
            kind=one.kind,
            rail=one.rail,
            value=float(one.shares[node]) * one.usual,
            share=float(one.shares[node]),
            pairs=int(one.pairs[node]),
        )
        for one in ranks
        for node in np.argsort(one.shares, kind="stable")[:most]
        if not np.isnan(one.shares[node])
    ]
    return sorted(found, key=lambda rank: (rank.share, rank.node))[:most]


def worst_shares(state: PairwiseState, ranks: Sequence[Ranks]) -> FloatArray:
    """Returns each node's lowest share over kinds and rails; NaN without any."""
    if not ranks:
        return np.full(state.size, np.nan)
    shares = np.stack([one.shares for one in ranks])
    found = np.where(np.isnan(shares), np.inf, shares).min(axis=0)
    return np.where(np.isinf(found), np.nan, found)


def spread_within(ranks: Sequence[Ranks], nodes: Sequence[int]) -> float | None:
    """Returns by which share the lowest of some nodes lies below the highest, at worst."""
    found = []
    for one in ranks:
        shares = one.shares[list(nodes)]
        shares = shares[~np.isnan(shares)]
        if shares.size > 1:
            found.append(1 - float(shares.min() / shares.max()))
    return max(found, default=None)
