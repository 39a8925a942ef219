"""Pairs that gave no value: which node hangs, fails or returns wrong data; where a fabric is split.

A hang is no zero. It is said of a node only with two different partners, and a fabric that is in
two parts is nobody's hang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collbench.analyze.pair_groups import IntArray
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import STATUSES
from collbench.analyze.pair_verdicts import FabricCode, FabricVerdict, NodeCode
from collbench.model import Status

_CODES = {
    Status.HUNG: NodeCode.HANGS,
    Status.NODE_LOST: NodeCode.HANGS,
    Status.CRASHED: NodeCode.FAILS,
    Status.FAILED: NodeCode.FAILS,
    Status.DATA_WRONG: NodeCode.DATA_WRONG,
}
"""The statuses that speak against a pair."""

FEWEST_PARTNERS = 2
"""Different ones, for a status to be a node's."""

_MOST_IN_DOUBT = 16
"""Pairs that are run again because they broke."""

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """What pairs without a value say."""

    pairs: dict[Pair, Counter[Status]]
    """Every broken pair, the smaller number first: how it ended, how often."""
    nodes: dict[int, Counter[Status]]
    """The nodes that it is said of, with the ends of their pairs."""
    partners: dict[int, int]
    """Of those nodes: different partners with which they broke."""
    split: tuple[FabricVerdict, ...]
    in_doubt: tuple[Pair, ...]
    """Broken pairs that no node and no split explains."""

    @cached_property
    def ends(self) -> frozenset[int]:
        """Every node of a broken pair."""
        return frozenset(node for pair in self.pairs for node in pair)

    def code(self, node: int) -> NodeCode:
        """Returns what is wrong with a node: what most of its pairs ended with."""
        return _CODES[self.nodes[node].most_common(1)[0][0]]


def broken(state: PairwiseState) -> Broken:
    """Returns what pairs without a value say of nodes and of the fabric."""
    pairs = _broken_pairs(state)
    if not pairs:
        return Broken(pairs={}, nodes={}, partners={}, split=(), in_doubt=())
    parts = _parts(state)
    met = _partners(pairs)
    # Whoever works with nobody is cut off: that is no part of a fabric.
    lonely = np.bincount(parts, minlength=state.size)[parts] == 1
    guilty = {node for node in met if lonely[node] and len(met[node]) >= FEWEST_PARTNERS}
    left = {pair for pair in pairs if not guilty & set(pair)}
    split = _splits(left, parts)
    for fault in split:
        part = set(fault.nodes)
        left = {pair for pair in left if (pair[0] in part) == (pair[1] in part)}
    while left:
        counts = {node: len(others) for node, others in _partners(left).items()}
        worst = max(counts, key=lambda node: (counts[node], -node))
        if counts[worst] < FEWEST_PARTNERS:
            break
        guilty.add(worst)
        left = {pair for pair in left if worst not in pair}
    return Broken(
        pairs=pairs,
        nodes={node: _ends_of(node, pairs) for node in sorted(guilty)},
        partners={node: len(met[node]) for node in guilty},
        split=split,
        in_doubt=tuple(sorted(left))[:_MOST_IN_DOUBT],
    )


def _broken_pairs(state: PairwiseState) -> dict[Pair, Counter[Status]]:
    found: dict[Pair, Counter[Status]] = {}
    numbers = [STATUSES.index(status) for status in _CODES]
    rows = np.flatnonzero(np.isin(state.values["status"], numbers))
    ends = np.sort(np.stack([state.ends[0][rows], state.ends[1][rows]]), axis=0)
    statuses = state.values["status"][rows].tolist()
    for a, b, status in zip(*ends.tolist(), statuses, strict=True):
        found.setdefault((a, b), Counter())[STATUSES[status]] += 1
    return found


def _partners(pairs: Iterable[Pair]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for a, b in pairs:
        found.setdefault(a, set()).add(b)
        found.setdefault(b, set()).add(a)
    return found


def _ends_of(node: int, pairs: dict[Pair, Counter[Status]]) -> Counter[Status]:
    return sum((ends for pair, ends in pairs.items() if node in pair), Counter())


def _parts(state: PairwiseState) -> IntArray:
    """Returns for each node the smallest node that it reaches over pairs that worked."""
    ok = state.values["status"] == STATUSES.index(Status.OK)
    a, b = state.ends[0][ok], state.ends[1][ok]
    part = np.arange(state.size)
    while True:
        lowest = np.minimum(part[a], part[b])
        found = part.copy()
        np.minimum.at(found, a, lowest)
        np.minimum.at(found, b, lowest)
        found = found[found]
        if np.array_equal(found, part):
            return part
        part = found


def _splits(pairs: set[Pair], parts: IntArray) -> tuple[FabricVerdict, ...]:
    """Returns the pairs of parts between which every pair that was tried broke.

    Two broken pairs without a common node at least: else it could be a node or a path.
    """
    between: dict[Pair, list[Pair]] = {}
    for a, b in pairs:
        low, high = sorted((int(parts[a]), int(parts[b])))
        if low != high:
            between.setdefault((low, high), []).append((a, b))
    found = []
    for (low, high), tried in sorted(between.items()):
        sides = [set(np.flatnonzero(parts == part).tolist()) for part in (low, high)]
        smaller = min(sides, key=len)
        ends = [{node for pair in tried for node in pair if node in side} for side in sides]
        if min(map(len, ends)) < FEWEST_PARTNERS:
            continue
        words = (
            f"none of {len(tried)} pairs between {len(sides[0])} and {len(sides[1])} nodes worked;"
            " each part works in itself"
        )
        found.append(
            FabricVerdict(
                code=FabricCode.SPLIT_FABRIC,
                nodes=tuple(sorted(smaller)),
                pairs=len(tried),
                confirmed=True,
                evidence=(words,),
            )
        )
    return tuple(found)
