"""Whether values in the order of time rise or fall: Kendall's test and Theil and Sen's slope.

Source: Mann (1945), Kendall (1975), Sen (1968). The test takes values for independent; samples of
one trial are not, so they are first taken together in blocks that hardly depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collbench.stats import FloatArray, lag1_autocorrelation

_MOST_BLOCKS = 20
"""All pairs are looked at."""
_PARTS = 5
"""What changes over more than a fifth of the samples is drift, what changes faster is noise."""
_LENGTH = 3.0
"""Of a block, in correlation times: neighbours then correlate by less than 0.1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """How values change from the first to the last one."""

    change: float
    """As a share of their median; below zero where they fall."""
    p: float
    """Of no trend, two-sided."""


def trend(values: FloatArray) -> Trend:
    """Returns the trend of independent values in the order of time.

    Args:
        values: above zero; outliers turn neither the slope nor the test. Fewer than 3 have none.
    """
    n = values.size
    if n < 3:
        return Trend(change=0.0, p=1.0)
    first, last = np.triu_indices(n, 1)
    steps = values[last] - values[first]
    slope = float(np.median(steps / (last - first)))
    middle = float(np.median(values))
    return Trend(
        change=slope * (n - 1) / middle if middle > 0 else 0.0,
        p=_p(int(np.sign(steps).sum()), values),
    )


def independent_blocks(samples: FloatArray) -> FloatArray:
    """Returns the medians of blocks of samples, at most 20, that hardly depend on each other.

    The more the samples depend on the ones before, the fewer blocks there are.
    """
    parts = np.array_split(samples, _PARTS)
    length = samples.size / _PARTS
    r = float(np.mean([lag1_autocorrelation(_without_slope(part)) for part in parts]))
    # In so short a part with its line taken off the estimate is low by (2 + 4 r) / length.
    r = min(max(0.0, r + (2 + 4 * r) / length), 0.99)
    block = max(samples.size / _MOST_BLOCKS, _LENGTH * (1 + r) / (1 - r))
    count = max(1, int(samples.size / block))
    return np.array([float(np.median(part)) for part in np.array_split(samples, count)])


def _without_slope(values: FloatArray) -> FloatArray:
    places = np.arange(values.size) - (values.size - 1) / 2
    slope = float(places @ values) / max(float(places @ places), 1.0)
    return values - slope * places


def _p(kendall: int, values: FloatArray) -> float:
    n = values.size
    _, shared = np.unique(values, return_counts=True)
    pairs = n * (n - 1) * (2 * n + 5) - float(np.sum(shared * (shared - 1) * (2 * shared + 5)))
    if pairs <= 0:
        return 1.0
    # The sum moves in steps of two: one is taken off (continuity).
    return math.erfc(max(0, abs(kendall) - 1) / math.sqrt(pairs / 9))
