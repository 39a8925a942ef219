"""Order statistics by group, on arrays; the robust cut below which a score stands out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.stats import FloatArray

IntArray = NDArray[np.intp]

CUT_SCALES = 3.5
"""Robust z beyond which a value stands out (Iglewicz & Hoaglin 1993)."""

SMALLEST_EFFECT = 0.04
"""A smaller slowdown is never named, as a share."""

SMALLEST_SCALE = 0.005
"""Of logs: values that are rounded or repeat must not make the scale 0."""

FEW = 4
"""Below so many values the best one stands for a node, from here on the upper quartile."""


def group_medians(values: FloatArray, groups: IntArray, size: int) -> FloatArray:
    """Returns each group's median, NaN where a group is empty; groups are 0 to size - 1."""
    return _at(values, groups, size, lambda counts: 0.5 * (counts - 1))


def group_scores(values: FloatArray, groups: IntArray, size: int) -> FloatArray:
    """Returns each group's best value below ``FEW`` values, else its upper quartile; NaN: empty.

    A pair shows the slower of its two ends. A node's better pairs therefore show the node, the
    others their partners or paths.
    """
    return _at(values, groups, size, lambda n: np.where(n < FEW, n - 1, 0.75 * (n - 1)))


def _at(
    values: FloatArray, groups: IntArray, size: int, position: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    counts = np.bincount(groups, minlength=size)
    found = np.full(size, np.nan)
    if values.size:
        ordered = values[_by_group(values, groups, size)]
        first = np.cumsum(counts) - counts
        place = np.maximum(position(counts.astype(np.float64)), 0.0)
        low = np.floor(place).astype(np.intp)
        high = np.ceil(place).astype(np.intp)
        filled = counts > 0
        start = first[filled]
        left, right = ordered[start + low[filled]], ordered[start + high[filled]]
        found[filled] = left + (place - low)[filled] * (right - left)
    return found


def _by_group(values: FloatArray, groups: IntArray, size: int) -> IntArray:
    """Returns the order by group, then by value; small group numbers sort by counting."""
    order = np.argsort(values)
    keys = groups[order].astype(np.uint16 if size <= 1 << 16 else np.int64)
    return np.asarray(order[np.argsort(keys, kind="stable")])


def distinct(numbers: NDArray[np.integer]) -> IntArray:
    """Returns the different numbers, sorted; sorting beats numpy's hashing for many of them."""
    ordered = np.sort(numbers)
    return np.asarray(ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0], np.intp)


def partner_counts(a: IntArray, b: IntArray, size: int) -> IntArray:
    """Returns with how many different nodes each node has a pair."""
    pairs = distinct(np.minimum(a, b) * size + np.maximum(a, b))
    return np.bincount(np.concatenate([pairs // size, pairs % size]), minlength=size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """Where scores (logs) stand out on the low side."""

    center: float
    scale: float

    @property
    def depth(self) -> float:
        """How far below the center the cut lies, in logs, above 0."""
        return max(CUT_SCALES * self.scale, -math.log1p(-SMALLEST_EFFECT))

    @property
    def low(self) -> float:
        """The cut itself."""
        return self.center - self.depth


def robust_cut(scores: FloatArray) -> Cut:
    """Returns the cut of scores: 3.5 robust scales, at least 4 %, below their upper median.

    The scale is that of the upper half alone, since faults lie in the lower one.
    """
    known = np.sort(scores[~np.isnan(scores)])
    if not known.size:
        return Cut(center=0.0, scale=SMALLEST_SCALE)
    # The upper of two middle values: half of all may be bad.
    center = float(known[known.size // 2])
    above = known[known.size // 2 :] - center
    return Cut(center=center, scale=max(1.4826 * float(np.median(above)), SMALLEST_SCALE))


def clipped_spread(values: FloatArray) -> float:
    """Returns the standard deviation of the values within 3.5 robust ones; at least 0.1 %."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    robust = max((high - low) / 1.349, 1e-3)
    near = values[np.abs(values - middle) <= CUT_SCALES * robust]
    return max(float(near.std(ddof=1)) if near.size > 1 else 0.0, 1e-3)


def tail(tries: int, chance: float, hits: int) -> float:
    """Returns the chance of at least so many hits in independent tries."""
    return sum(
        math.comb(tries, k) * chance**k * (1 - chance) ** (tries - k)
        for k in range(hits, tries + 1)
    )
