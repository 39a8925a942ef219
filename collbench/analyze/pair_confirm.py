"""Suspects run again with known-good partners: confirmed, cleared, or still open.

Whoever is found by looking at all nodes may be found by chance; what is measured afterwards is
not chosen for being low.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_baselines import ENOUGH_PAIRS
from collbench.analyze.pair_groups import (
    SMALLEST_EFFECT,
    SMALLEST_SCALE,
    IntArray,
    clipped_spread,
    distinct,
    tail,
)
from collbench.analyze.pair_screen import Screen
from collbench.analyze.pair_state import PairwiseState
from collbench.stats import FloatArray

FALSE_NAME = 0.005
"""The chance that a whole run names any node wrongly."""

MOST_TRIES = 8
"""Of a suspect; then it is inconclusive."""

FEWEST_CONTROLS = 3
"""Over all confirming rounds, to be the baseline instead of the first look's median."""


class Outcome(StrEnum):
    """What running a suspect again has shown."""

    OPEN = "open"
    CONFIRMED = "confirmed"
    CLEARED = "cleared"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True, slots=True)
class Again:
    """How often a suspect was run again, and how often it was low."""

    tries: int
    low: int
    chance: float
    """That a healthy one is low."""
    tested: int
    """How many could have become suspects."""
    controls: int = FEWEST_CONTROLS
    """Pairs of good nodes that it was held against; too few: open."""
    chance_of_gap: float = 0.0
    """That a healthy one's mean lies so far below the controls' mean."""

    @property
    def outcome(self) -> Outcome:
        """Confirmed where chance would name anyone of all with less than ``FALSE_NAME``.

        With every try low this is N x p^k < 0.005; a try that is not low costs more tries. The
        mean of the tries must be as clear of the controls' mean: with few controls, what all tries
        are held against is itself uncertain. Two or more that are not low, and at least half of
        them: cleared.
        """
        # Half of all tries must be low at any rate: a few bad pairs are no bad node.
        if 2 * self.low > self.tries:
            chance = max(tail(self.tries, self.chance, self.low), self.chance_of_gap)
            if self.controls >= FEWEST_CONTROLS and self.tested * chance < FALSE_NAME:
                return Outcome.CONFIRMED
        elif self.tries - self.low >= 2:
            return Outcome.CLEARED
        return Outcome.UNDECIDED if self.tries >= MOST_TRIES else Outcome.OPEN


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """What the confirming rounds gave for a (kind, rail); logs."""

    a: IntArray
    b: IntArray
    relative: FloatArray
    logs: FloatArray
    alone: NDArray[np.bool_]
    expected: FloatArray
    """The baseline of each."""
    controls: int
    """Pairs of good nodes among them; as many as are wanted where no two nodes are good."""
    healthy: FloatArray
    """Relative values, sorted: those of controls and the first look's healthy pairs."""

    def chance_below(self, relative: float) -> float:
        """Returns the chance that a healthy pair lies below, never 0: (count + 1/2) / (n + 1)."""
        count = int(np.searchsorted(self.healthy, relative))
        return (count + 0.5) / (self.healthy.size + 1)

    def chance_of_gap(self, relative: FloatArray) -> float:
        """Returns the chance that values of a healthy node have so low a mean (one-sided t)."""
        if self.healthy.size < 2 or not relative.size:
            return 1.0
        freedom = self.healthy.size - 1
        spread = max(clipped_spread(self.healthy), SMALLEST_SCALE)
        # What they are held against is a median: pi / 2 times the variance of a mean.
        error = spread * math.sqrt(1 / relative.size + math.pi / 2 / max(self.controls, 1))
        t = -float(relative.mean()) / error
        # Student's t as a normal deviate: Abramowitz & Stegun 26.7.8.
        z = t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom))
        return 1 - NormalDist().cdf(z)

    def with_good(self, node: int, good: NDArray[np.bool_]) -> IntArray:
        """Returns the rows in which a node ran with a partner that is known to be good."""
        mine = ((self.a == node) & good[self.b]) | ((self.b == node) & good[self.a])
        return np.flatnonzero(mine)

    def of_pair(self, a: int, b: int) -> IntArray:
        """Returns the rows of a pair of nodes."""
        there, back = (self.a == a) & (self.b == b), (self.a == b) & (self.b == a)
        return np.flatnonzero(there | back)


def rerun(
    state: PairwiseState, screen: Screen, good: NDArray[np.bool_], suspected: NDArray[np.bool_]
) -> Rerun:
    """Returns the confirming rounds' values against their controls, or else the first look.

    Controls are pairs of good nodes over paths that nobody suspects. Those of the same round and
    class are the baseline from 6 on, those of all confirming rounds from 3 on.

    Args:
        state: all values.
        screen: the first look.
        good: by node.
        suspected: by value of the state, whether its path or its leaf's uplink is suspect.
    """
    rows = np.flatnonzero(state.rows_of(screen.kind, screen.rail) & state.again)
    a, b = state.ends[0][rows], state.ends[1][rows]
    logs = np.log(state.values["value"][rows])
    across, alone = state.across[rows], state.values["alone"][rows]
    rounds = state.values["round"][rows]
    expected = _first_look(screen, across, alone)
    control = good[a] & good[b] & ~suspected[rows]
    for place in (False, True):
        for single in (False, True):
            members = (across == place) & (alone == single)
            chosen = control & members
            if chosen.sum() >= FEWEST_CONTROLS:
                expected[members] = np.median(logs[chosen])
            for number in distinct(rounds[members]):
                here = chosen & (rounds == number)
                if here.sum() >= ENOUGH_PAIRS:
                    expected[members & (rounds == number)] = np.median(logs[here])
    relative = logs - expected
    return Rerun(
        a=a,
        b=b,
        relative=relative,
        logs=logs,
        alone=alone,
        expected=expected,
        controls=int(control.sum()) if good.sum() >= 2 else FEWEST_CONTROLS,
        healthy=np.sort(np.concatenate([screen.healthy, relative[control & ~across]])),
    )


def _first_look(screen: Screen, across: NDArray[np.bool_], alone: NDArray[np.bool_]) -> FloatArray:
    """Returns medians of the class; alone, nobody shares a link: as inside a leaf."""
    inside, between, _ = screen.centers.tolist()
    inside = between if math.isnan(inside) else inside
    between = inside if math.isnan(between) else between
    return np.asarray(np.where(across & ~alone, between, inside))


def node_again(
    screen: Screen, again: Rerun, node: int, good: NDArray[np.bool_], tested: int
) -> Again:
    """Returns how a node that stands out did when it was run again."""
    mine = again.with_good(node, good)
    if screen.below_bar[node] and screen.bar is not None:
        low = again.logs[mine] < screen.bar
        chance = again.chance_below(screen.bar - float(np.nanmax(screen.centers)))
        if not screen.slow[node]:
            return Again(tries=mine.size, low=int(low.sum()), chance=chance, tested=tested)
    cut = screen.pair_cut(node)
    low = again.relative[mine] < cut
    chance = again.chance_below(cut)
    return Again(
        tries=mine.size,
        low=int(low.sum()),
        chance=chance,
        tested=tested,
        controls=again.controls,
        chance_of_gap=again.chance_of_gap(again.relative[mine]),
    )


def path_again(
    again: Rerun, ends: tuple[int, int], deviation: float, level: float, tested: int
) -> Again:
    """Returns how a path that stands out did when its pair was run again, alone.

    Args:
        again: the confirming rounds.
        ends: both nodes.
        deviation: how low it was against its slower node's level, in logs.
        level: that node's.
        tested: paths that were tried.
    """
    rows = again.of_pair(*ends)
    cut = min(deviation / 2, math.log1p(-SMALLEST_EFFECT))
    low = int((again.relative[rows] - level < cut).sum())
    return Again(tries=rows.size, low=low, chance=again.chance_below(cut), tested=tested)


def joint(found: Iterable[Again]) -> Outcome:
    """Returns the outcome of one node over several rails: open where any is."""
    words = {one.outcome for one in found}
    for outcome in (Outcome.OPEN, Outcome.CONFIRMED, Outcome.UNDECIDED):
        if outcome in words:
            return outcome
    return Outcome.CLEARED
