"""Whom to run again, with whom: suspects with known-good partners, and controls beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collbench.analyze.pair_analysis import IDENTIFIABLE, Analysis, analyse
from collbench.analyze.pair_confirm import Outcome
from collbench.analyze.pair_groups import IntArray
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import KINDS, PairKind
from collbench.analyze.pair_verdicts import FabricCode, NodeCode

CONTROLS = 8
"""Pairs of good nodes beside the suspects: what is usual in that very round."""

_ONE_WAY_PARTNERS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class SuspectPair:
    """A pair to be run again."""

    suspect: int
    partner: int
    why: NodeCode | FabricCode
    alone: bool = False
    """It tells something only if nothing else runs: it crosses links that are shared."""


def next_suspects(state: PairwiseState) -> tuple[SuspectPair, ...]:
    """Returns the pairs to run next to settle who is suspect; empty when nothing is open.

    Each suspect once, with the known-good partner that it met least, of its own leaf if it can be;
    no node is in two of the pairs but for paths and uplinks, which run alone. Values go into the
    state as rounds that are ``confirming``, together with ``control_pairs``; then ask again.
    """
    found = analyse(state)
    if state.size < IDENTIFIABLE:
        return ()
    picker = _Picker(found)
    pairs = [pair for node, why in _open_nodes(found) if (pair := picker.pair(node, why))]
    return (*pairs, *_open_paths(found), *_open_leaves(found))


def control_pairs(
    state: PairwiseState, pairs: tuple[SuspectPair, ...]
) -> tuple[tuple[int, int], ...]:
    """Returns up to 8 pairs of good nodes, inside leaves where there are such.

    Of nodes that are in none of the pairs, so that they run beside them; where that leaves none,
    one pair of any good nodes, which takes a round of its own: without it a lucky pair of the first
    look would be what suspects are held against. One alone too in a large fabric of which the
    leaves are unknown: several would share links.
    """
    if not pairs:
        return ()
    good = analyse(state).good
    busy = [node for pair in pairs for node in (pair.suspect, pair.partner)]
    free = good.copy()
    free[busy] = False
    turn = int(state.again.sum())
    several = 1 if state.shares_unknown else CONTROLS
    for leaves in (state.leaf_numbers, np.zeros_like(state.leaf_numbers)):
        for nodes, most in ((free, several), (good, 1)):
            picked = _within(leaves, np.flatnonzero(nodes), most, turn)
            if picked:
                return picked
    return ()


def _within(leaves: IntArray, nodes: IntArray, most: int, turn: int) -> tuple[tuple[int, int], ...]:
    """Returns pairs of nodes of one leaf, of many leaves, other ones at each turn."""
    by_leaf: dict[int, list[int]] = {}
    for node in np.roll(nodes, turn):
        by_leaf.setdefault(int(leaves[node]), []).append(int(node))
    found = [
        (members[k], members[-1 - k])
        for k in range(most)
        for members in by_leaf.values()
        if k < len(members) // 2
    ]
    return tuple(found[:most])


def one_way_pairs(state: PairwiseState) -> tuple[tuple[int, int], ...]:
    """Returns (slow node, good partner) to be run one way and then the other.

    For every node that is confirmed slow and has no one-way values yet: they tell sending from
    receiving.
    """
    found = analyse(state)
    sends = state.values["kind"] == KINDS.index(PairKind.SEND)
    known = set(np.concatenate([state.ends[0][sends], state.ends[1][sends]]).tolist())
    slow = [
        node
        for node in found.slow_nodes
        if node not in known and found.node_outcome(node) is Outcome.CONFIRMED
    ]
    picker = _Picker(found)
    return tuple(
        (node, partner)
        for _ in range(_ONE_WAY_PARTNERS)
        for node in slow
        if (partner := picker.partner(node)) is not None
    )


def _open_nodes(found: Analysis) -> list[tuple[int, NodeCode]]:
    nodes = {
        node: NodeCode.NODE_SLOW
        for node in sorted(found.slow_nodes)
        if found.node_outcome(node) is Outcome.OPEN
    }
    for node in sorted(found.lossy_nodes):
        if node not in nodes and found.node_outcome(node) is Outcome.OPEN:
            nodes[node] = NodeCode.LOSSY
    for node, _ in found.doubts():
        if node not in nodes and not found.settled_doubt(node):
            nodes[node] = NodeCode.HANGS
    return list(nodes.items())


def _open_paths(found: Analysis) -> list[SuspectPair]:
    slow = [
        (path.a, path.b)
        for one, path in found.paths
        if found.path_again(one, path).outcome is Outcome.OPEN
    ]
    broken = [
        (a, b)
        for a, b in found.broken.in_doubt
        if sum(found.broken.pairs[a, b].values()) == 1 and not _worked_again(found, a, b)
    ]
    lossy = [pair for pair in found.lossy_pairs if not _looked_again(found, *pair)]
    return [
        SuspectPair(suspect=a, partner=b, why=FabricCode.SLOW_PATH, alone=True)
        for a, b in dict.fromkeys([*slow, *broken, *lossy])
    ]


def _looked_again(found: Analysis, a: int, b: int) -> bool:
    """Whether a pair's latency was taken again."""
    seen = found.loss
    return bool(
        np.any(seen.again & (np.minimum(seen.a, seen.b) == a) & (np.maximum(seen.a, seen.b) == b))
    )


def _worked_again(found: Analysis, a: int, b: int) -> bool:
    state = found.state
    ends = state.ends
    same = ((ends[0] == a) & (ends[1] == b)) | ((ends[0] == b) & (ends[1] == a))
    return bool(np.any(same & state.again & state.measured))


def _open_leaves(found: Analysis) -> list[SuspectPair]:
    pairs = []
    numbers = found.state.leaf_numbers
    for one, leaf in found.leaves:
        again = found.leaf_again(one, leaf)
        if again.outcome is not Outcome.OPEN or found.leaf_confirmed(one, leaf):
            continue
        slow = {other.leaves for _, other in found.leaves}
        mine = np.flatnonzero(found.good & (numbers == leaf.leaves[0]))
        others = [
            node
            for node in np.flatnonzero(found.good & (numbers != leaf.leaves[0]))
            if len(leaf.leaves) == 2 or (int(numbers[node]),) not in slow
        ]
        if mine.size and others:
            pairs.append(
                SuspectPair(
                    suspect=int(mine[again.tries % mine.size]),
                    partner=int(others[again.tries % len(others)]),
                    why=FabricCode.LEAF_UPLINK_SLOW,
                    alone=True,
                )
            )
    return pairs


class _Picker:
    """Hands out good partners, each to one suspect."""

    def __init__(self, found: Analysis) -> None:
        self._found = found
        self._free = found.good.copy()

    def pair(self, node: int, why: NodeCode) -> SuspectPair | None:
        """Returns a node's next pair, or None while no good partner is free."""
        partner = self.partner(node)
        if partner is None:
            return None
        state = self._found.state
        crosses = bool(state.leaf_numbers[node] != state.leaf_numbers[partner])
        alone = crosses or state.shares_unknown
        return SuspectPair(suspect=node, partner=partner, why=why, alone=alone)

    def partner(self, node: int) -> int | None:
        """Returns the free good node that a node met least, of its own leaf first."""
        free = np.flatnonzero(self._free)
        free = free[free != node]
        if not free.size:
            return None
        state = self._found.state
        again, before = self._meetings(node)
        other_leaf = state.leaf_numbers[free] != state.leaf_numbers[node]
        if not other_leaf.all():
            free = free[~other_leaf]
        distance = (free - node) % state.size
        order = np.lexsort((distance, before[free], again[free]))
        partner = int(free[order[0]])
        self._free[partner] = False
        return partner

    def _meetings(self, node: int) -> tuple[IntArray, IntArray]:
        """Returns how often a node met each other: in confirming rounds, in the first look."""
        state = self._found.state
        a, b = state.ends
        mine = np.flatnonzero((a == node) | (b == node))
        partners = np.where(a[mine] == node, b[mine], a[mine])
        again = state.again[mine]
        return (
            np.bincount(partners[again], minlength=state.size),
            np.bincount(partners[~again], minlength=state.size),
        )
