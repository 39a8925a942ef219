"""Estimators on arrays of times: quantiles, the interval of a median, dependence, shape.

Quantiles interpolate linearly (numpy's default, Hyndman & Fan type 7). Nothing here knows what
the numbers are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

SMALLEST_SAMPLE = 10
"""Below this many values a median stands without an interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MedianInterval:
    """A median with its nonparametric 95 % interval, in the unit of the values."""

    median: float
    low: float
    high: float
    effective_n: float
    """Values left after the correction for lag-1 autocorrelation."""

    @property
    def half_width(self) -> float:
        """The larger distance from the median to an end, as a share of the median."""
        if self.median <= 0:
            return math.inf
        return max(self.high - self.median, self.median - self.low) / self.median


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean of values above zero: the middle of repeats' times."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def lag1_autocorrelation(values: FloatArray) -> float:
    """Returns the lag-1 autocorrelation of ranks, between -1 and 1; 0 where all values are equal.

    Ranks instead of values, so that one outlier neither makes nor hides a dependence. Equal values
    share their mean rank: a coarse clock makes many, and ranks by their order would be a trend.
    """
    if values.size < 3 or np.all(values == values[0]):
        return 0.0
    _, place, shared = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(shared) - (shared - 1) / 2)[place]
    centred = ranks - ranks.mean()
    return float(np.dot(centred[:-1], centred[1:]) / np.dot(centred, centred))


def effective_n(values: FloatArray) -> float:
    """Returns how many independent values carry the same information: n (1 - r) / (1 + r).

    Source: Bayley & Hammersley (1946), for a first-order process; negative r is not rewarded.
    """
    r = max(0.0, lag1_autocorrelation(values))
    return max(1.0, values.size * (1 - r) / (1 + r))


@lru_cache(maxsize=4096)
def _median_rank(n: int) -> int | None:
    """Returns the largest k with P(Binomial(n, 1/2) < k) <= 0.025, or None where none has it.

    The interval [x_(k), x_(n+1-k)] then covers the median with at least 95 % (David & Nagaraja,
    Order Statistics, 7.1).
    """
    if n < 6:
        return None
    log_half_n = -n * math.log(2)
    cumulative = 0.0
    for k in range(n):
        log_choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        cumulative += math.exp(log_choose + log_half_n)
        if cumulative > 0.025:
            return k or None
    return None


def median_interval(values: FloatArray) -> MedianInterval | None:
    """Returns the median with its 95 % interval, or None below ``SMALLEST_SAMPLE`` values.

    The order-statistics interval of the effective number of values, stretched over the sample:
    with m = effective n, the ends are the quantiles (k - 1) / (m - 1) and 1 - (k - 1) / (m - 1).
    """
    if values.size < SMALLEST_SAMPLE:
        return None
    effective = effective_n(values)
    m = math.floor(effective)
    k = _median_rank(m)
    low_p = (k - 1) / (m - 1) if k is not None else 0.0
    low, median, high = np.quantile(values, [low_p, 0.5, 1 - low_p])
    return MedianInterval(
        median=float(median), low=float(low), high=float(high), effective_n=effective
    )


def bimodality(values: FloatArray) -> float:
    """Returns Ashman's D of the best split of the sorted values in two; above 3 is two clear modes.

    D = sqrt(2) |m1 - m2| / sqrt(s1^2 + s2^2) (Ashman, Bird & Zepf 1994). Both sides must hold at
    least a tenth of the values; 0 below 20 values. The split is Otsu's: largest variance between.
    """
    n = values.size
    if n < 20:
        return 0.0
    ordered = np.sort(values)
    smallest_side = max(2, n // 10)
    cuts = np.arange(smallest_side, n - smallest_side + 1)
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    left_mean = sums[cuts - 1] / cuts
    right_mean = (sums[-1] - sums[cuts - 1]) / (n - cuts)
    between = cuts * (n - cuts) * (left_mean - right_mean) ** 2
    best = int(np.argmax(between))
    cut = int(cuts[best])
    left_var = squares[cut - 1] / cut - left_mean[best] ** 2
    right_var = (squares[-1] - squares[cut - 1]) / (n - cut) - right_mean[best] ** 2
    spread = math.sqrt(max(0.0, float(left_var)) + max(0.0, float(right_var)))
    distance = float(right_mean[best] - left_mean[best])
    if distance <= 0:
        return 0.0
    return math.inf if spread == 0 else math.sqrt(2) * distance / spread


def spread(values: FloatArray) -> float:
    """Returns (largest - smallest) / median of a few repeats; 0 for one value."""
    middle = float(np.median(values))
    return float(values.max() - values.min()) / middle if middle > 0 else 0.0
