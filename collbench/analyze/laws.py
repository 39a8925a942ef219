"""The laws of a run's curves: alpha and B by segment, and how close they come to the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analyze.alphabeta import FEWEST_POINTS, Fit, Segment, fit_segments
from collbench.analyze.curves import TIMED, Curve, Point, curves, question
from collbench.analyze.limit import Limit, LimitOf
from collbench.analyze.moderated import moderate, neighbourhood
from collbench.model import Trial
from collbench.stats import FloatArray

_LAW_ERROR = 0.02
"""No law holds better than to 2 %: a point that is known to 0.1 % must not decide alone."""

_HALF_WIDTH = 1.96
"""Of a 95 % interval, in standard errors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveLaw:
    """What can be said of one curve."""

    curve: Curve
    fit: Fit | None
    """None where the curve has too few sizes."""
    half_size_bytes: float | None
    """From where on half of the peak is reached, as measured."""
    largest: Point
    """The largest size."""
    limit: Limit | None
    """Of the wire, at the largest size."""

    @property
    def too_few(self) -> str | None:
        """Says what cannot be fitted, and why; None where it could."""
        if self.fit is not None:
            return None
        count = len(self.curve.points)
        return (
            f"{count} size{'s' * (count > 1)}: alpha and B cannot be told apart; a law needs"
            f" {FEWEST_POINTS} sizes, each further protocol {FEWEST_POINTS} more"
        )

    @property
    def share_of_limit(self) -> float | None:
        """Bus bandwidth of the largest size over the limit; None where either is not known."""
        if self.limit is None or self.largest.busbw_gb_per_s is None:
            return None
        return self.largest.busbw_gb_per_s / self.limit.busbw_gb_per_s

    def points_of(self, segment: Segment) -> tuple[Point, ...]:
        """Returns the points that a segment was fitted to."""
        return tuple(
            point
            for point in self.curve.points
            if segment.first_bytes <= point.size_bytes <= segment.last_bytes
        )


def laws_of(trials: Sequence[Trial], limit_of: LimitOf) -> list[CurveLaw]:
    """Returns the law of each curve, in reading order.

    Points weigh by the inverse variance of their time: by the scatter of the repeats, drawn
    together over a curve's sizes (``moderated``), or with one repeat by the interval of its median;
    both beside the 2 % to which a law holds at all. Where neither is known all weigh alike.

    Args:
        trials: of a run, in any order.
        limit_of: what the wire allows for a case, given what ran, or None.
    """
    medians: dict[tuple[object, ...], dict[int, list[float]]] = {}
    for trial in trials:
        if trial.summary is not None and trial.status in TIMED:
            sizes = medians.setdefault(question(trial.case), {})
            sizes.setdefault(trial.case.size_bytes, []).append(trial.summary.median_us)
    return [_law(curve, medians[question(curve.case)], limit_of) for curve in curves(trials)]


def _law(curve: Curve, medians: dict[int, list[float]], limit_of: LimitOf) -> CurveLaw:
    points, largest = curve.points, curve.points[-1]
    fit = None
    if len(points) >= FEWEST_POINTS:
        fit = fit_segments(
            [point.size_bytes for point in points],
            [point.time_us for point in points],
            1 / (_variances(points, medians) + _LAW_ERROR**2),
        )
    return CurveLaw(
        curve=curve,
        fit=fit,
        half_size_bytes=curve.half_size_bytes(),
        largest=largest,
        limit=limit_of(curve.case, largest.proof),
    )


def _variances(points: Sequence[Point], medians: dict[int, list[float]]) -> FloatArray:
    """Returns the variance of each point's log time; 0 for all where it is not known of one."""
    fewest = min(point.repeats for point in points)
    if fewest > 1:
        logs = [np.log(medians[point.size_bytes]) for point in points]
        own = np.array([values.var(ddof=1) for values in logs])
        means = np.array([values.mean() for values in logs])
        shared = moderate(own, fewest - 1, neighbourhood([0] * len(points), means)).variance
        return np.asarray(shared / np.array([point.repeats for point in points]))
    found = []
    for point in points:
        if point.repeats > 1 or point.low_us is None or point.high_us is None:
            return np.zeros(len(points))
        found.append((point.high_us - point.low_us) / point.time_us / 2 / _HALF_WIDTH)
    return np.array(found) ** 2
