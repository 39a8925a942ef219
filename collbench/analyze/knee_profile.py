"""The knee's profile likelihood, exact: log y = log B + min(0, log m* - log x).

x is the number of flows that share an uplink one way, y the rate of one of them, m* the number
that the uplink carries at full rate. Between two neighbouring x the same points lie beyond the
knee, so the sum of squares is a parabola in log m*: the whole profile is one parabola a segment,
and optimum, interval and the test against "no knee" need no grid. All of it works on many data
sets of one design at once, since thresholds are simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from collbench.stats import FloatArray

SCALE_FLOOR = 0.01
"""Of the noise of a rate: overheads that no model holds reach about 1 %, however well repeats
agree."""

FALSE_KNEE_CHANCE = 0.01
"""Of finding a knee where there is none."""

CONFIDENCE = 0.95
_FLOOR_CONFIDENCE = 0.90

_DRAWS = 4000
_FLAT = 1e-12


@dataclass(frozen=True, slots=True)
class Design:
    """Where points were measured; two measurements of one design share their thresholds."""

    flows: tuple[float, ...]
    """x of each point; 0: it crosses no uplink (the control)."""
    plateaus: tuple[int, ...]
    """Points of one number share B; numbers are 0, 1, ..."""

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the noise."""
        return len(self.flows) - (max(self.plateaus) + 1) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Segments:
    """By segment: who lies beyond the knee, with each plateau's mean taken out."""

    low: FloatArray
    """log m* from ..."""
    high: FloatArray
    """... to."""
    beyond: FloatArray
    """[segment, point]."""
    slope: FloatArray
    """log x of those beyond, likewise."""
    centring: FloatArray
    """[point, point]: takes the means out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Sums of squares over log m*, one row a data set; the last segment is "no knee"."""

    low: FloatArray
    high: FloatArray
    curvature: FloatArray
    """[segment]."""
    centre: FloatArray
    """[row, segment]: where the parabola has its least ..."""
    least: FloatArray
    """... and what it is there, whether or not that lies in the segment."""
    freedom: int

    def at_best(self) -> tuple[FloatArray, FloatArray]:
        """Returns log m* of the least squares, and those, [row] each; infinite m*: no knee."""
        inside = np.clip(self.centre, self.low, self.high)
        # An infinite place times a curvature of zero is no number; there the parabola is flat.
        away = np.where(self.curvature > _FLAT, inside - self.centre, 0.0)
        squares = self.least + self.curvature * away**2
        best = squares.argmin(axis=1)
        rows = np.arange(len(best))
        # Of a flat stretch at the low end its upper end: the mildest knee that explains all.
        flat = self.curvature[best] <= _FLAT
        place = np.where(flat, self.high[best], inside[rows, best])
        return place, squares[rows, best]

    def without_knee(self) -> FloatArray:
        """Returns the sums of squares without a knee, [row]."""
        return self.least[:, -1]

    def within(self, limit: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the least and the largest log m* whose sum of squares is at most ``limit``."""
        room = limit[:, np.newaxis] - self.least
        curved = np.maximum(self.curvature, _FLAT)
        reach = np.where(self.curvature > _FLAT, np.sqrt(np.maximum(room, 0) / curved), np.inf)
        from_ = np.maximum(self.low, self.centre - reach)
        to = np.minimum(self.high, self.centre + reach)
        there = (room >= 0) & (from_ <= to)
        lowest = np.where(there, from_, np.inf).min(axis=1)
        highest = np.where(there, to, -np.inf).max(axis=1)
        return lowest, highest


@lru_cache(maxsize=64)
def _segments(design: Design) -> _Segments:
    x = np.array(design.flows)
    kinks = np.unique(x[x > 0])
    edges = np.concatenate([[0.0], kinks])
    beyond = (x > edges[:, np.newaxis]).astype(np.float64)
    log_x = np.log(np.where(x > 0, x, 1.0))
    group = np.array(design.plateaus)
    member = (group == np.arange(group.max() + 1)[:, np.newaxis]).astype(np.float64)
    centring = np.eye(len(x)) - member.T @ (member / member.sum(axis=1, keepdims=True))
    log_edges = np.concatenate([[-np.inf], np.log(kinks), [np.inf]])
    return _Segments(
        low=log_edges[:-1],
        high=log_edges[1:],
        beyond=beyond @ centring,
        slope=(beyond * log_x) @ centring,
        centring=centring,
    )


def profile(design: Design, log_rates: FloatArray) -> Profile:
    """Returns the profile of each data set.

    Args:
        design: of all of them.
        log_rates: [data set, point], of rates in any one unit.
    """
    segments = _segments(design)
    curvature = np.sum(segments.beyond**2, axis=1)
    scale = np.maximum(curvature, _FLAT)
    tilt = log_rates @ segments.beyond.T + np.sum(segments.slope * segments.beyond, axis=1)
    centre = np.where(curvature > _FLAT, tilt / scale, 0.0)
    squares = np.sum((log_rates @ segments.centring) ** 2, axis=1, keepdims=True)
    squares = squares + 2 * log_rates @ segments.slope.T + np.sum(segments.slope**2, axis=1)
    least = squares - np.where(curvature > _FLAT, tilt**2 / scale, 0.0)
    return Profile(
        low=segments.low,
        high=segments.high,
        curvature=curvature,
        centre=centre,
        least=np.maximum(least, 0.0),
        freedom=design.freedom,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """Of the gain that a knee brings in squares, in units of the noise's variance."""

    estimated: float
    """Where that is estimated from the same points ..."""
    known: float
    """... and where it is known."""


@lru_cache(maxsize=256)
def knee_thresholds(design: Design) -> Thresholds:
    """Returns what chance alone exceeds in one of ``1 / FALSE_KNEE_CHANCE`` cases without a knee.

    Simulated, with a fixed seed: m* does not exist without a knee, so no table of F holds
    (Davies 1987).
    """
    random = np.random.default_rng(20)
    noise = random.standard_normal((_DRAWS, len(design.flows)))
    found = profile(design, noise)
    _, least = found.at_best()
    gain = found.without_knee() - least
    level = 1 - FALSE_KNEE_CHANCE
    return Thresholds(
        estimated=float(np.quantile(gain / least * design.freedom, level)),
        known=float(np.quantile(gain, level)),
    )


def has_knee(design: Design, found: Profile) -> NDArray[np.bool_]:
    """Returns whether there is a knee at all, [data set]."""
    _, least = found.at_best()
    threshold = knee_thresholds(design)
    variance = least / design.freedom
    needed = np.maximum(threshold.estimated * variance, threshold.known * SCALE_FLOOR**2)
    return np.asarray(found.without_knee() - least > needed)


def interval(found: Profile) -> tuple[FloatArray, FloatArray]:
    """Returns the ends of the 95 % interval of log m*, [data set] each, by F's quantile.

    The floor under the scale reaches 1.64 standard errors: with 1.96 quiet measurements, whose
    estimate is below the floor by chance, would be held too often (0.977 of 0.95 at 4 pairs).
    """
    _, least = found.at_best()
    f = float(stats.f.ppf(CONFIDENCE, 1, found.freedom))
    known = float(stats.chi2.ppf(_FLOOR_CONFIDENCE, 1))
    room = np.maximum(f * least / found.freedom, known * SCALE_FLOOR**2)
    return found.within(least + room)
