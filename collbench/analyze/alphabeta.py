"""Curves as laws: time = alpha + S / B, one law a protocol (Hockney 1994).

busbw as nccl-tests counts it is a factor x S / time, so 1 / busbw against 1 / S is a line: it meets
the axis at 1 / B and half of B is reached at alpha x B bytes. NCCL changes its protocol with the
size, so a curve is up to three such lines. Residuals are relative: a microsecond of 10 and 100
microseconds of 1,000 weigh alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats

from collbench.errors import UsageError
from collbench.stats import FloatArray

MOST_SEGMENTS = 3
"""As many as NCCL has protocols: LL, LL128, Simple."""

FEWEST_POINTS = 3
"""Of a segment: two numbers are fitted."""

_PENALTY = 8.0
"""Times log n for each further segment: it has two numbers and a place, and the place is searched
for, which plain BIC (3) does not count. Calibrated: docs/statistics.md."""

_SMALLEST_ERROR = 1e-6
"""Relative; exact data would make the logarithm infinite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One law and the sizes it holds for; intervals are of 95 %."""

    first_bytes: int
    last_bytes: int
    points: int
    alpha_us: float
    alpha_low_us: float
    alpha_high_us: float
    bandwidth_gb_per_s: float
    """S over the time that grows with S, 1 GB/s = 1e9 B/s; infinite where the time does not grow.
    Times the bus factor it is the bus bandwidth of endless messages."""
    bandwidth_low_gb_per_s: float
    bandwidth_high_gb_per_s: float

    @property
    def half_size_bytes(self) -> float:
        """The size at which half of the bandwidth is reached: alpha x B."""
        return self.alpha_us * self.bandwidth_gb_per_s * 1e3

    def time_us(self, size_bytes: float) -> float:
        """Returns the time that the law gives a size."""
        return self.alpha_us + size_bytes / (self.bandwidth_gb_per_s * 1e3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """A curve as segments, by rising size."""

    segments: tuple[Segment, ...]
    relative_error: float
    """Standard deviation of time / law - 1."""

    @property
    def switches_bytes(self) -> tuple[int, ...]:
        """First size of each segment but the first."""
        return tuple(segment.first_bytes for segment in self.segments[1:])


@dataclass(frozen=True, slots=True)
class _Points:
    """Scaled so that the relative error of a law (a, b) is 1 - a x flat - b x rising."""

    flat: FloatArray
    rising: FloatArray
    weights: FloatArray

    def part(self, begin: int, end: int) -> _Points:
        return _Points(self.flat[begin:end], self.rising[begin:end], self.weights[begin:end])

    def law(self) -> tuple[float, float]:
        """Returns a and b of the least weighted squares, neither below zero."""
        w, u, v = self.weights, self.flat, self.rising
        uu, vv, uv = float(w @ (u * u)), float(w @ (v * v)), float(w @ (u * v))
        uy, vy = float(w @ u), float(w @ v)
        determinant = uu * vv - uv * uv
        if determinant > 1e-14 * uu * vv:
            a, b = (uy * vv - vy * uv) / determinant, (vy * uu - uy * uv) / determinant
            if a >= 0 and b >= 0:
                return a, b
        only_a, only_b = (uy / uu, 0.0), (0.0, vy / vv)
        return min(only_a, only_b, key=self.squares)

    def squares(self, law: tuple[float, float]) -> float:
        """Returns the weighted sum of squared relative errors."""
        error = 1 - law[0] * self.flat - law[1] * self.rising
        return float(self.weights @ error**2)


def fit_segments(
    sizes_bytes: Sequence[int] | FloatArray,
    times_us: Sequence[float] | FloatArray,
    weights: Sequence[float] | FloatArray | None = None,
) -> Fit:
    """Returns the laws of one curve; their number, up to three, by BIC with a stricter penalty.

    Args:
        sizes_bytes: one a point, rising.
        times_us: one a point.
        weights: one a point, by the inverse variance of its relative error; all alike without.

    Raises:
        UsageError: fewer than three points, sizes that do not rise, times that are not above zero.
    """
    sizes, times = np.asarray(sizes_bytes, np.float64), np.asarray(times_us, np.float64)
    w = np.ones(sizes.size) if weights is None else np.asarray(weights, np.float64)
    _check(sizes, times, w)
    # Both columns at most 1: sizes and times span eight orders of magnitude.
    scale_us, scale_bytes = float(times.min()), float((sizes / times).max())
    points = _Points(scale_us / times, sizes / times / scale_bytes, w / w.mean())
    bounds = _best_bounds(points)
    return _described(points, bounds, sizes, (scale_us, 1 / scale_bytes))


def _check(sizes: FloatArray, times: FloatArray, weights: FloatArray) -> None:
    if sizes.size < FEWEST_POINTS or not sizes.size == times.size == weights.size:
        raise UsageError(
            f"a fit has {sizes.size} sizes, {times.size} times and {weights.size} weights;"
            f" as many of each and at least {FEWEST_POINTS} are needed; measure more sizes"
        )
    if np.any(np.diff(sizes) <= 0) or sizes[0] <= 0 or np.any(times <= 0) or np.any(weights <= 0):
        raise UsageError(
            "a fit has a size, time or weight that is not above zero, or sizes that do not rise;"
            " give one point a size, in rising order"
        )


def _best_bounds(points: _Points) -> list[int]:
    """Returns where segments begin and end: [0, ..., n], by dynamic programming over the ends."""
    n = points.flat.size
    cost = np.full((n + 1, n + 1), np.inf)
    for begin in range(n):
        for end in range(begin + FEWEST_POINTS, n + 1):
            part = points.part(begin, end)
            cost[begin, end] = part.squares(part.law())
    least, came_from = [cost[0]], []
    for _ in range(1, min(MOST_SEGMENTS, n // FEWEST_POINTS)):
        through = least[-1][:, np.newaxis] + cost
        came_from.append(through.argmin(axis=0))
        least.append(through.min(axis=0))
    floor = _SMALLEST_ERROR**2
    scores = [
        n * math.log(max(float(ends[n]) / n, floor)) + _PENALTY * more * math.log(n)
        for more, ends in enumerate(least)
    ]
    bounds = [n]
    for step in reversed(came_from[: int(np.argmin(scores))]):
        bounds.insert(0, int(step[bounds[0]]))
    return [0, *bounds]


def _described(
    points: _Points, bounds: list[int], sizes: FloatArray, scales: tuple[float, float]
) -> Fit:
    """Returns the segments in units, with intervals from the error that all share."""
    spans = list(pairwise(bounds))
    parts = [points.part(begin, end) for begin, end in spans]
    laws = [part.law() for part in parts]
    squares = sum(part.squares(law) for part, law in zip(parts, laws, strict=True))
    freedom = max(1, sizes.size - 2 * len(parts))
    error = math.sqrt(squares / freedom)
    reach = float(stats.t.ppf(0.975, freedom)) * error
    segments = []
    for (begin, end), part, (a, b) in zip(spans, parts, laws, strict=True):
        a_reach, b_reach = (reach * one for one in _standard_errors(part))
        alpha = [one * scales[0] for one in (a, max(0.0, a - a_reach), a + a_reach)]
        slopes = [one * scales[1] for one in (b, b + b_reach, max(0.0, b - b_reach))]
        rates = [1e-3 / one if one > 0 else math.inf for one in slopes]
        segments.append(
            Segment(
                first_bytes=int(sizes[begin]),
                last_bytes=int(sizes[end - 1]),
                points=end - begin,
                alpha_us=alpha[0],
                alpha_low_us=alpha[1],
                alpha_high_us=alpha[2],
                bandwidth_gb_per_s=rates[0],
                bandwidth_low_gb_per_s=rates[1],
                bandwidth_high_gb_per_s=rates[2],
            )
        )
    return Fit(segments=tuple(segments), relative_error=error)


def _standard_errors(part: _Points) -> tuple[float, float]:
    """Returns those of a and b for a relative error of one."""
    w, u, v = part.weights, part.flat, part.rising
    uu, vv, uv = float(w @ (u * u)), float(w @ (v * v)), float(w @ (u * v))
    determinant = max(uu * vv - uv * uv, 1e-300)
    return math.sqrt(vv / determinant), math.sqrt(uu / determinant)
