"""One pass over the state: the first looks, who is good, and how suspects did when run again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_confirm import (
    Again,
    Outcome,
    Rerun,
    joint,
    node_again,
    path_again,
    rerun,
)
from collbench.analyze.pair_fabric import (
    SlowLeaf,
    SlowPath,
    explained_by,
    share_behind,
    slow_leaves,
    slow_paths,
)
from collbench.analyze.pair_faults import FEWEST_PARTNERS, Broken, broken
from collbench.analyze.pair_groups import distinct, tail
from collbench.analyze.pair_loss import HEALTHY_CHANCE, Loss, loss
from collbench.analyze.pair_screen import Screen, screen
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import PairKind

_FEW_COLLIDE = 0.05
_LOW_ALONE = 0.15
"""A pair alone across an uplink that is slow loses at least so much."""
IDENTIFIABLE = 3
"""Nodes; of two nobody can tell which is the slow one."""


@lru_cache(maxsize=1)
def analyse(state: PairwiseState) -> Analysis:
    """Returns the analysis of a state; the same one while the same state is asked about."""
    return Analysis(state)


@dataclass(frozen=True, eq=False)
class Analysis:
    """What the state says, each part worked out when it is asked for."""

    state: PairwiseState

    @cached_property
    def screens(self) -> tuple[Screen, ...]:
        """The first look at each (kind, rail)."""
        return tuple(screen(self.state, kind, rail) for kind, rail in self.state.judged)

    @cached_property
    def broken(self) -> Broken:
        """What pairs without a value say."""
        return broken(self.state)

    @cached_property
    def loss(self) -> Loss:
        """What the latency pass says."""
        return loss(self.state)

    @cached_property
    def good(self) -> NDArray[np.bool_]:
        """By node: nothing speaks against it, and it was measured."""
        bad = self.loss.suspects.copy()
        for one in self.screens:
            bad |= one.suspects
        doubtful = [*self.broken.nodes, *self.state.config_differs, *self.state.not_tested]
        doubtful += [node for pair in self.broken.in_doubt for node in pair]
        doubtful += [node for fault in self.broken.split for node in fault.nodes]
        bad[doubtful] = True
        return np.asarray(self.known & ~bad)

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """By node: it gave values."""
        known = np.zeros(self.state.size, bool)
        known[np.concatenate([self.loss.a, self.loss.b])] = True
        for one in self.screens:
            known |= ~np.isnan(one.scores)
        return known

    @cached_property
    def reruns(self) -> dict[tuple[PairKind, int | None], Rerun]:
        """The confirming rounds' values by (kind, rail)."""
        return {
            (one.kind, one.rail): rerun(self.state, one, self.good, self._suspected)
            for one in self.screens
        }

    @cached_property
    def _suspected(self) -> NDArray[np.bool_]:
        """By value of the state: its path or its leaf's uplink is suspect."""
        a, b = self.state.ends
        size = self.state.size
        ends = [(path.a, path.b) for _, path in self.paths] + list(self.broken.in_doubt)
        pairs = [min(pair) * size + max(pair) for pair in ends]
        leaves = [number for _, leaf in self.leaves for number in leaf.leaves]
        numbers = self.state.leaf_numbers
        uplink = np.isin(numbers[a], leaves) | np.isin(numbers[b], leaves)
        path = np.isin(np.minimum(a, b) * size + np.maximum(a, b), pairs)
        return np.asarray(path | (uplink & self.state.across))

    def rerun_of(self, one: Screen) -> Rerun:
        """Returns the confirming rounds' values of a first look."""
        return self.reruns[one.kind, one.rail]

    @cached_property
    def tested(self) -> int:
        """How many (node, rail) could have been named by chance."""
        return self.state.size * max(1, len(self.screens))

    @cached_property
    def slow_nodes(self) -> dict[int, dict[Screen, Again]]:
        """By node that stands out: how it did again, by first look."""
        found: dict[int, dict[Screen, Again]] = {}
        if self.state.size < IDENTIFIABLE:
            return found
        for one in self.screens:
            for node in map(int, np.flatnonzero(one.suspects)):
                if node not in self.broken.nodes:
                    again = node_again(one, self.rerun_of(one), node, self.good, self.tested)
                    found.setdefault(node, {})[one] = again
        return found

    @cached_property
    def lossy_nodes(self) -> dict[int, Again]:
        """By node whose pairs lose: how it did again."""
        found, seen = {}, self.loss
        for node in map(int, np.flatnonzero(seen.suspects)):
            mine = ((seen.a == node) & self.good[seen.b]) | ((seen.b == node) & self.good[seen.a])
            mine &= seen.again
            found[node] = Again(
                tries=int(mine.sum()),
                low=int(seen.lossy[mine].sum()),
                chance=HEALTHY_CHANCE,
                tested=self.state.size,
            )
        return found

    @cached_property
    def lossy_pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs that lose while neither of their nodes does with others, the lower number first."""
        seen, size = self.loss, self.state.size
        bad = np.zeros(size, bool)
        bad[list(self.lossy_nodes)] = True
        rows = seen.lossy & ~bad[seen.a] & ~bad[seen.b]
        low, high = np.minimum(seen.a, seen.b)[rows], np.maximum(seen.a, seen.b)[rows]
        return tuple(divmod(int(one), size) for one in distinct(low * size + high))

    @cached_property
    def leaves(self) -> tuple[tuple[Screen, SlowLeaf], ...]:
        """Leaves whose uplinks look slow; of several looks the one that shows it most."""
        found: dict[tuple[int, ...], tuple[Screen, SlowLeaf]] = {}
        for one in self.screens:
            for leaf in slow_leaves(self.state, one, self.good):
                known = found.get(leaf.leaves)
                if known is None or leaf.deviation < known[1].deviation:
                    found[leaf.leaves] = one, leaf
        return tuple(found[leaves] for leaves in sorted(found))

    @cached_property
    def paths(self) -> tuple[tuple[Screen, SlowPath], ...]:
        """Pairs that are low while both nodes are good; of several looks the lowest."""
        found: dict[tuple[int, int], tuple[Screen, SlowPath]] = {}
        leaves = tuple(leaf for _, leaf in self.leaves)
        for one in self.screens:
            for path in slow_paths(one, self.good, explained_by(self.state, one, leaves)):
                ends = min(path.a, path.b), max(path.a, path.b)
                if ends not in found or path.deviation < found[ends][1].deviation:
                    found[ends] = one, path
        return tuple(found[ends] for ends in sorted(found))

    def path_again(self, one: Screen, path: SlowPath) -> Again:
        """Returns how a slow path did when it was run again."""
        again, ends = self.rerun_of(one), (path.a, path.b)
        return path_again(again, ends, path.deviation, path.level, path.tested)

    def leaf_again(self, one: Screen, leaf: SlowLeaf) -> Again:
        """Returns how single pairs across a slow leaf's uplink did, alone."""
        again = self.rerun_of(one)
        numbers = self.state.leaf_numbers
        ends = numbers[again.a], numbers[again.b]
        mine = (ends[0] != ends[1]) & self.good[again.a] & self.good[again.b] & again.alone
        mine &= np.isin(ends[0], leaf.leaves) | np.isin(ends[1], leaf.leaves)
        inside = float(one.centers[0])
        expected = again.expected if np.isnan(inside) else inside
        # All pairs at once fall further than one alone: a pair by itself need not be half as low.
        depth = max(leaf.deviation / 2, math.log1p(-_LOW_ALONE))
        low = again.logs - expected < depth
        return Again(
            tries=int(mine.sum()),
            low=int((low & mine).sum()),
            chance=one.chance_below(depth),
            tested=leaf.tested,
        )

    def leaf_confirmed(self, one: Screen, leaf: SlowLeaf) -> bool:
        """Returns whether a leaf's uplink is slow beyond chance: alone, or in several rounds.

        Rounds say it where all uplinks had the same to carry. Leaves of other sizes load theirs
        otherwise, and where flows collide one leaf has bad luck for as long as its hashes last.
        """
        if self.leaf_again(one, leaf).outcome is Outcome.CONFIRMED:
            return True
        if not self._loaded_alike(one, leaf):
            return False
        chance = max(one.chance_below(leaf.deviation / 2), 0.01)
        return leaf.rounds > 2 and leaf.tested * tail(leaf.rounds, chance, leaf.rounds_low) < 0.005

    def _loaded_alike(self, one: Screen, leaf: SlowLeaf) -> bool:
        sizes = np.bincount(self.state.leaf_numbers)
        numbers = self.state.leaf_numbers
        mine = np.isin(numbers[one.a], leaf.leaves) | np.isin(numbers[one.b], leaf.leaves)
        others = one.relative[one.across & ~mine]
        return bool(sizes.min() == sizes.max() and share_behind(others) < _FEW_COLLIDE)

    def node_outcome(self, node: int) -> Outcome:
        """Returns what running a slow or lossy node again has shown, over all rails."""
        found = list(self.slow_nodes.get(node, {}).values())
        if node in self.lossy_nodes:
            found.append(self.lossy_nodes[node])
        outcome = joint(found)
        if outcome is Outcome.CONFIRMED and not self._majority:
            return Outcome.UNDECIDED
        return outcome

    @cached_property
    def _majority(self) -> bool:
        """Whether more than half of all nodes are good, or were cleared.

        Else nobody can tell the slow ones from the usual ones.
        """
        looks = self.slow_nodes
        cleared = sum(joint(one.values()) is Outcome.CLEARED for one in looks.values())
        known = self.known.sum()
        return bool(2 * (self.good.sum() + cleared) > known)

    def doubts(self) -> Iterator[tuple[int, int]]:
        """Yields (end, partner it broke with) of broken pairs of which nothing is known yet."""
        for a, b in self.broken.in_doubt:
            yield a, b
            yield b, a

    def fine_again(self, node: int) -> int:
        """Returns with how many good partners a node worked in confirming rounds."""
        state = self.state
        a, b = state.ends
        mine = state.again & state.measured & ((a == node) | (b == node))
        partners = distinct(np.where(a[mine] == node, b[mine], a[mine]))
        return int(self.good[partners].sum())

    def settled_doubt(self, node: int) -> bool:
        """Returns whether an end of a broken pair is known to work: two good partners again."""
        return self.fine_again(node) >= FEWEST_PARTNERS
