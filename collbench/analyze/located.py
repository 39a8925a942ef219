"""Where a change sits: in alpha (launch, protocol), in B (wire, channels), or in neither alone.

Both sides' curves are laws, time = alpha + S / B, one a protocol. Within a law's sizes the change
is a law as well, new - base = (change of alpha) + S x (change of 1 / B), and what a curve bends
away from its law by cancels in it. So the change is fitted itself, and what it says of a case is
weighed at that case's size: alpha's share there, and B's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from collbench.analyze.alphabeta import FEWEST_POINTS, Fit, Segment, fit_segments
from collbench.analyze.compare import CaseComparison, Comparison, Verdict
from collbench.analyze.keys import CaseKey
from collbench.model import Mode
from collbench.units import format_size

_SMALLEST_PART = 0.01
"""Of the time: less is no part of a change."""
_NOT_A_PART = 0.25
"""Of a case's change: less is not what the change is made of."""
_NO_MORE_THAN = 0.5
"""Of a case's change: a part whose interval ends below is not what the change is made of."""
_SAME = 0.02
"""Of alpha or B: closer is the same."""
_SAME_TIME = 0.05
"""Of a time: closer is what a law gives."""
_FEWEST_SHARED = 4
"""Sizes of one law on both sides: one is left out, to see whether the others foretell it. Where one
size alone is slow the fit may join it to its neighbours as a law of its own."""
_SMALLEST_ERROR = 1e-6
"""Relative; exact data would have intervals of rounding errors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveLaws:
    """Both sides of one curve as laws, over the sizes that both have."""

    key: CaseKey
    """Of its smallest size."""
    base: Fit
    new: Fit


class Kind(StrEnum):
    """What a change is made of."""

    ALPHA = "alpha"
    BANDWIDTH = "bandwidth"
    BOTH = "both"
    SWITCH = "switch"
    """The size from which on another law holds."""
    NOT_LOCATED = "not_located"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a change sits, and in words."""

    kind: Kind
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """What the curves say of a comparison."""

    places: Mapping[CaseKey, Place]
    """Of each case that is slower or faster."""
    curves: tuple[CurveLaws, ...]
    """Those with sizes enough for a fit, in the order of the cases."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What alpha or B has to do with a case's change, as shares of the time; of 95 %."""

    share: float
    reach: float
    total: float

    @property
    def changed(self) -> bool:
        least = max(_SMALLEST_PART, _NOT_A_PART * abs(self.total))
        return abs(self.share) > max(self.reach, least)

    @property
    def excluded(self) -> bool:
        return abs(self.share) + self.reach < _NO_MORE_THAN * abs(self.total)


@dataclass(frozen=True, slots=True)
class _Change:
    """new - base over the sizes of one law: alpha in us, slope (1 / B) in us a byte."""

    alpha_us: float
    alpha_reach_us: float
    slope: float
    slope_reach: float


def locate(comparison: Comparison) -> Location:
    """Returns both sides' laws, and for each case that is slower or faster where it sits.

    Args:
        comparison: its cases' times are the geometric means over repeats.
    """
    curves: dict[tuple[object, ...], list[CaseComparison]] = {}
    for case in comparison.cases:
        curves.setdefault((*case.key.question, case.key.mode), []).append(case)
    places: dict[CaseKey, Place] = {}
    laws = []
    for cases in curves.values():
        points = sorted(cases, key=lambda case: case.key.size_bytes)
        changed = [c for c in points if c.verdict in (Verdict.SLOWER, Verdict.FASTER)]
        if len(points) < FEWEST_POINTS:
            places |= {case.key: _too_few(len(points)) for case in changed}
            continue
        sizes = [case.key.size_bytes for case in points]
        law = CurveLaws(
            key=points[0].key,
            base=fit_segments(sizes, [case.base_us for case in points]),
            new=fit_segments(sizes, [case.new_us for case in points]),
        )
        laws.append(law)
        places |= {case.key: _place(case, points, law) for case in changed}
    return Location(places=places, curves=tuple(laws))


def _too_few(sizes: int) -> Place:
    return Place(Kind.NOT_LOCATED, f"not located ({sizes} size{'s' * (sizes != 1)})")


def _place(case: CaseComparison, points: Sequence[CaseComparison], law: CurveLaws) -> Place:
    size = case.key.size_bytes
    base, new = _index(law.base, size), _index(law.new, size)
    if _moved(law, base, new, case):
        later = max(base, new)
        was, is_now = (fit.segments[later].first_bytes for fit in (law.base, law.new))
        return Place(
            Kind.SWITCH,
            f"the switch between two laws moved from {format_size(was)} to"
            f" {format_size(is_now)}: a protocol or algorithm choice, not the wire",
        )
    spans = law.base.segments[base], law.new.segments[new]
    shared = [p for p in points if all(_holds(span, p.key.size_bytes) for span in spans)]
    if len(shared) < _FEWEST_SHARED:
        return _too_few(len(shared))
    others = [point for point in shared if point is not case]
    total = (case.new_us - case.base_us) / _time_us(case)
    if abs(_share(_change(others), case) - total) > _NO_MORE_THAN * abs(total):
        return Place(
            Kind.NOT_LOCATED, "not located (the other sizes of its law do not change likewise)"
        )
    return _located(case, spans[0], _change(shared))


def _moved(law: CurveLaws, base: int, new: int, case: CaseComparison) -> bool:
    """Whether a case's new time is what the base's neighbouring law gives: it begins elsewhere."""
    if len(law.base.segments) != len(law.new.segments) or base == new:
        return False
    other_us = law.base.segments[new].time_us(case.key.size_bytes)
    return abs(case.new_us / other_us - 1) < _SAME_TIME


def _index(fit: Fit, size_bytes: int) -> int:
    return next(k for k, segment in enumerate(fit.segments) if _holds(segment, size_bytes))


def _holds(segment: Segment, size_bytes: int) -> bool:
    return segment.first_bytes <= size_bytes <= segment.last_bytes


def _change(points: Sequence[CaseComparison]) -> _Change:
    """Returns the law of new - base by least squares of errors relative to the times."""
    sizes = np.array([point.key.size_bytes for point in points], np.float64)
    base_us = np.array([point.base_us for point in points])
    new_us = np.array([point.new_us for point in points])
    times = np.sqrt(base_us * new_us)
    columns = np.stack([1 / times, sizes / times], axis=1)
    scales = columns.max(axis=0)
    scaled, wanted = columns / scales, (new_us - base_us) / times
    solution = np.linalg.lstsq(scaled, wanted, rcond=None)[0]
    freedom = sizes.size - 2
    squares = float(np.sum((wanted - scaled @ solution) ** 2))
    error = max(math.sqrt(squares / freedom), _SMALLEST_ERROR)
    spread = np.sqrt(np.diag(np.linalg.pinv(scaled.T @ scaled)))
    reach = float(stats.t.ppf(0.975, freedom)) * error * spread / scales
    alpha_us, slope = solution / scales
    return _Change(float(alpha_us), float(reach[0]), float(slope), float(reach[1]))


def _time_us(case: CaseComparison) -> float:
    """Returns the time between base and new that changes are shares of."""
    return math.sqrt(case.base_us * case.new_us)


def _share(change: _Change, case: CaseComparison) -> float:
    """Returns what a law of change gives for a case, as a share of its time."""
    return (change.alpha_us + change.slope * case.key.size_bytes) / _time_us(case)


def _located(case: CaseComparison, base: Segment, change: _Change) -> Place:
    time_us, size = _time_us(case), case.key.size_bytes
    total = (case.new_us - case.base_us) / time_us
    alpha = _Part(change.alpha_us / time_us, change.alpha_reach_us / time_us, total)
    wire = _Part(change.slope * size / time_us, change.slope_reach * size / time_us, total)
    if alpha.changed and wire.changed:
        both = f"{_alpha_words(change)} and {_bandwidth_words(base, change)}"
        if alpha.share * wire.share < 0:
            traded = "latency traded for bandwidth, as another protocol or algorithm does"
            return Place(Kind.BOTH, f"{both}: {traded}")
        return Place(Kind.BOTH, f"{both}: another protocol or algorithm, or fewer channels")
    if alpha.changed and wire.excluded:
        eager = case.key.mode is Mode.EAGER
        cause = "the host's launch or a protocol" if eager else "a protocol or launch choice"
        words = f"{_alpha_words(change)}, {_bandwidth_rest(base, change)}"
        return Place(Kind.ALPHA, f"{words}: {cause}, not the wire")
    if wire.changed and alpha.excluded:
        words, rest = _bandwidth_words(base, change), _alpha_rest(base, change)
        return Place(Kind.BANDWIDTH, f"{words}, {rest}: the wire, or the channels used")
    return Place(Kind.NOT_LOCATED, "not located (alpha and B cannot be told apart)")


def _alpha_words(change: _Change) -> str:
    digits = 1 if abs(change.alpha_us) >= 1 else 2
    return f"alpha {change.alpha_us:+.{digits}f} us"


def _bandwidth_words(base: Segment, change: _Change) -> str:
    slope = _slope(base)
    if slope <= 0 or slope + change.slope <= 0:
        return "the part of the time that grows with size changed"
    return f"B {100 * (slope / (slope + change.slope) - 1):+.0f} %"


def _alpha_rest(base: Segment, change: _Change) -> str:
    """Returns what is said of an alpha that the change is not made of."""
    near = abs(change.alpha_us) <= max(change.alpha_reach_us, _SAME * base.alpha_us)
    return "alpha the same" if near else f"{_alpha_words(change)} (little at such sizes)"


def _bandwidth_rest(base: Segment, change: _Change) -> str:
    """Returns the same of a B; what it is where it hardly counts is not well known."""
    near = abs(change.slope) <= max(change.slope_reach, _SAME * _slope(base))
    return "B the same" if near else "B of no weight at such sizes"


def _slope(segment: Segment) -> float:
    """Returns 1 / B in us a byte."""
    return 1e-3 / segment.bandwidth_gb_per_s
