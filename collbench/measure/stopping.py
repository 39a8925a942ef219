"""When to stop sampling, and when the warm-up is over: decided alike on every rank.

Both rules see only numbers that are equal on all ranks (the slowest rank's time of each sample,
the largest elapsed time), so no further agreement is needed.
"""

from __future__ import annotations

import math

import numpy as np

from collbench.model import Policy, StopReason
from collbench.stats import SMALLEST_SAMPLE, FloatArray, median_interval

LOOK_EVERY = 10
"""Samples between two looks at the interval."""
HITS_NEEDED = 2
"""Looks in a row that must find the interval narrow: one alone is often luck."""
MOST_SAMPLES = 10_000
WARM_UP_SHARE = 0.2
"""Part of ``max_time_s`` that detected warm-up may take."""
WARM_ENOUGH = 0.95
"""Warm-up goes on while a chunk's median is below this share of the one before."""


class Stopping:
    """Stops by precision, time, or a fixed number; see ``StopReason``.

    The criterion is the half-width of the nonparametric 95 % interval of the median, with the
    effective number of samples (``stats.median_interval``), as a share of the median.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._slowest_us: FloatArray = np.empty(0)
        self._hits = 0

    def next_count(self, elapsed_s: float, sample_us: float) -> int:
        """Returns how many samples to take before the next look, at least 1.

        Fewer than ``LOOK_EVERY`` where a sample is so long that the time would be overrun.
        """
        taken = self._slowest_us.size
        if self._policy.samples is not None:
            return min(LOOK_EVERY, self._policy.samples - taken)
        left_s = self._policy.max_time_s - elapsed_s
        fitting = math.ceil(left_s * 1e6 / sample_us) if sample_us > 0 else LOOK_EVERY
        return max(1, min(LOOK_EVERY - taken % LOOK_EVERY, fitting))

    def update(self, slowest_us: FloatArray, elapsed_s: float) -> StopReason | None:
        """Takes new samples; returns why to stop, or None to go on."""
        self._slowest_us = np.concatenate([self._slowest_us, slowest_us])
        taken = self._slowest_us.size
        if self._policy.samples is not None:
            return StopReason.FIXED if taken >= self._policy.samples else None
        if taken % LOOK_EVERY == 0 and taken >= SMALLEST_SAMPLE:
            found = median_interval(self._slowest_us)
            narrow = found is not None and found.half_width <= self._policy.precision
            self._hits = self._hits + 1 if narrow else 0
            if self._hits >= HITS_NEEDED:
                return StopReason.PRECISE
        if elapsed_s >= self._policy.max_time_s:
            return StopReason.TIME
        return StopReason.FULL if taken >= MOST_SAMPLES else None


class WarmUp:
    """Detects the end of warm-up: times no longer fall, or the time for it is over."""

    def __init__(self, policy: Policy) -> None:
        self._limit_s = policy.max_time_s * WARM_UP_SHARE
        self._previous_us: float | None = None

    def over(self, slowest_us: FloatArray, elapsed_s: float) -> bool:
        """Takes one chunk of warm-up samples; returns whether sampling may begin."""
        median_us = float(np.median(slowest_us))
        settled = self._previous_us is not None and median_us >= WARM_ENOUGH * self._previous_us
        self._previous_us = median_us
        return settled or elapsed_s >= self._limit_s
