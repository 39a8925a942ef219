"""What a pair is held against: others of its class, in its round.

Classes are: inside a leaf, across leaves, and across with no more at once than the uplinks carry.

What a whole round shares (a loaded spine, heat, a neighbour's job) is no pair's fault. In logs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_groups import IntArray, distinct, group_medians
from collbench.stats import FloatArray

ENOUGH_PAIRS = 6
"""Of a class in a round, for that round's own median."""

ENOUGH_BLOCKS = 3
"""Pairs of leaves in a round: with fewer, one slow uplink would be the round's median."""


CLASSES = 3


class Classes:
    """Which values are of one class, and of one class and round."""

    def __init__(
        self,
        across: NDArray[np.bool_],
        calm: NDArray[np.bool_],
        rounds: IntArray,
        blocks: IntArray,
    ) -> None:
        """Args: one entry a value; ``calm``: throttled; ``blocks``: a number for the leaves."""
        self.place = across.astype(np.intp) + calm
        self.group = np.asarray((rounds - rounds.min(initial=0)) * CLASSES + self.place, np.intp)
        self.groups = int(self.group.max(initial=-1)) + 1
        self._place_of_group = np.arange(self.groups) % CLASSES
        counts = np.bincount(self.group, minlength=self.groups)
        width = int(blocks.max(initial=0)) + 1
        met = distinct(self.group * width + blocks) // width
        kinds = np.bincount(met, minlength=self.groups)
        one_leaf_pair = (self._place_of_group > 0) & (kinds < ENOUGH_BLOCKS)
        self._own = (counts >= ENOUGH_PAIRS) & ~one_leaf_pair
        self._shares = (counts >= 2) & (counts < ENOUGH_PAIRS) & (self._place_of_group == 0)

    def centers(self, logs: FloatArray) -> FloatArray:
        """Returns the medians of [inside, across, throttled], NaN where there is none."""
        return group_medians(logs, self.place, CLASSES)

    def baselines(self, logs: FloatArray) -> FloatArray:
        """Returns what each value is held against.

        The median of its class in its round where there are enough pairs. Else the class's median
        over all rounds, moved by what all of its round's pairs of the class have in common: the
        smallest deviation, where all lie on one side.

        Args:
            logs: values less what is known of their slower nodes.
        """
        centers = self.centers(logs)
        found = centers[self._place_of_group]
        medians = group_medians(logs, self.group, self.groups)
        found = np.where(self._own, medians, found + np.where(self._shares, self._common(logs), 0))
        return np.asarray(found[self.group])

    def _common(self, logs: FloatArray) -> FloatArray:
        deviations = logs - self.centers(logs)[self.place]
        lowest = np.full(self.groups, np.inf)
        highest = np.full(self.groups, -np.inf)
        np.minimum.at(lowest, self.group, deviations)
        np.maximum.at(highest, self.group, deviations)
        return np.where(lowest > 0, lowest, np.where(highest < 0, highest, 0.0))
