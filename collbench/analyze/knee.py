"""The knee: how many flows an uplink carries at full rate, and what that says of the fabric.

The model and its statistics are `knee_profile`'s; here one measurement gets its answer, of which
"no knee up to n" and "inconclusive" are two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from collbench.analyze.knee_profile import Design, Profile, has_knee, interval, profile
from collbench.errors import UsageError
from collbench.stats import FloatArray

FEWEST_STEPS = 3
"""Different numbers of flows, the control's zero among them: with two any rates lie on a knee."""

_SEEN_UP_TO = 0.5
"""Without a knee, one below this share of the largest step has to be ruled out."""
_MISFIT_CHANCE = 0.001


class KneeAnswer(StrEnum):
    """What a fit says."""

    KNEE = "knee"
    NO_KNEE = "no_knee"
    """None up to the largest step, with a lower bound."""
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One rate at one number of flows."""

    flows: float
    """Per uplink, one way; 0: crosses none."""
    rate_gb_per_s: float
    plateau: Hashable = ()
    """Points that are equal in this have the same rate where no uplink limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KneeFit:
    """The answer; intervals are of 95 %."""

    answer: KneeAnswer
    flows: float | None = None
    """How many flows an uplink carries at full rate: m*; None unless there is a knee."""
    flows_low: float | None = None
    flows_high: float | None = None
    """None: no upper end."""
    most_flows: float = 0.0
    """The largest step."""
    relative_error: float | None = None
    """Standard deviation of rate / law - 1."""
    points: int = 0
    misfit: bool = False
    """Repeats agree better with each other than with the law: the steps' own means were fitted,
    so that the interval counts that too."""
    reason: str | None = None
    """Why it is inconclusive."""

    def expected_share(self, flows: float) -> float:
        """Returns the rate as a share of the full one at so many flows per uplink."""
        if self.flows is None or flows <= self.flows:
            return 1.0
        return self.flows / flows


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """An oversubscription: what a leaf's nodes can send over what its uplinks carry."""

    value: float | None
    """None where only an upper bound is known."""
    low: float | None
    high: float | None

    @property
    def text(self) -> str:
        """``2.00:1 [1.90, 2.10]``, ``at most 1.10:1``, ``at least 4.00:1``, ``unknown``."""
        if self.value is not None:
            high = "more" if self.high is None else f"{self.high:.2f}"
            low = "less" if self.low is None else f"{self.low:.2f}"
            return f"{self.value:.2f}:1 [{low}, {high}]"
        if self.high is not None:
            return f"at most {self.high:.2f}:1"
        return "unknown" if self.low is None else f"at least {self.low:.2f}:1"


def fit_knee(points: Sequence[Point]) -> KneeFit:
    """Returns the knee of rates over flows per uplink.

    Several plateaus share one knee: the joint estimate over patterns.

    Raises:
        UsageError: a rate or a number of flows that cannot be.
    """
    for point in points:
        if not (0 < point.rate_gb_per_s < math.inf and 0 <= point.flows < math.inf):
            raise UsageError(
                f"a step of {point.flows:g} flows has the rate {point.rate_gb_per_s:g} GB/s; rates"
                " above zero and flows of zero or more are needed; leave the step out"
            )
    most = max((point.flows for point in points), default=0.0)
    steps = {point.flows for point in points}
    design, logs = _as_design(points)
    if len(steps) < FEWEST_STEPS or most <= 0 or design.freedom < 1:
        return KneeFit(
            answer=KneeAnswer.INCONCLUSIVE,
            most_flows=most,
            points=len(points),
            reason=f"{len(steps)} different numbers of flows were measured ({len(points)}"
            f" rates); {FEWEST_STEPS} and more rates than unknowns are needed",
        )
    found = profile(design, logs[np.newaxis])
    misfit = _misfits(design, logs, found)
    if misfit:
        design, logs = _means(design, logs)
        found = profile(design, logs[np.newaxis])
    return _answer(design, found, most, len(points), misfit=misfit)


def oversubscription(fit: KneeFit, leaf_size: int) -> Ratio:
    """Returns r = k / m* of a leaf with k nodes, with its interval."""
    high = None if not fit.flows_low else leaf_size / fit.flows_low
    low = None if fit.flows_high is None else leaf_size / fit.flows_high
    value = leaf_size / fit.flows if fit.flows else None
    return Ratio(value=value, low=low, high=high)


def _as_design(points: Sequence[Point]) -> tuple[Design, FloatArray]:
    """Returns design and log rates, sorted, so that equal designs share their thresholds."""
    numbers = {plateau: k for k, plateau in enumerate(dict.fromkeys(p.plateau for p in points))}
    ordered = sorted(points, key=lambda p: (numbers[p.plateau], p.flows))
    design = Design(
        tuple(point.flows for point in ordered),
        tuple(numbers[point.plateau] for point in ordered) or (0,),
    )
    return design, np.log([point.rate_gb_per_s for point in ordered])


def _cells(design: Design) -> dict[tuple[float, int], list[int]]:
    cells: dict[tuple[float, int], list[int]] = {}
    for k, cell in enumerate(zip(design.flows, design.plateaus, strict=True)):
        cells.setdefault(cell, []).append(k)
    return cells


def _misfits(design: Design, logs: FloatArray, found: Profile) -> bool:
    """Whether the steps' means scatter about the law more than their repeats explain (F test)."""
    cells = _cells(design)
    means = _means_of(cells)
    pure_freedom = len(logs) - len(cells)
    misfit_freedom = found.freedom - pure_freedom
    if pure_freedom < 1 or misfit_freedom < 1 or means is None:
        return False
    pure = sum(float(np.sum((logs[rows] - logs[rows].mean()) ** 2)) for rows in cells.values())
    _, least = found.at_best()
    if pure <= 0:
        return bool(least[0] > 0)
    f = (float(least[0]) - pure) / misfit_freedom / (pure / pure_freedom)
    return bool(stats.f.sf(f, misfit_freedom, pure_freedom) < _MISFIT_CHANCE)


def _means_of(cells: dict[tuple[float, int], list[int]]) -> Design | None:
    """Returns the design of one point a step, None where that is too little for a fit."""
    design = Design(tuple(x for x, _ in cells), tuple(plateau for _, plateau in cells))
    return design if design.freedom >= 1 else None


def _means(design: Design, logs: FloatArray) -> tuple[Design, FloatArray]:
    cells = _cells(design)
    reduced = _means_of(cells)
    if reduced is None:
        return design, logs
    return reduced, np.array([logs[rows].mean() for rows in cells.values()])


def _answer(design: Design, found: Profile, most: float, points: int, *, misfit: bool) -> KneeFit:
    place, least = (float(one[0]) for one in found.at_best())
    low, high = (float(one[0]) for one in interval(found))
    flows_low = math.exp(low) if math.isfinite(low) else None
    error = math.sqrt(least / found.freedom)
    knee = bool(has_knee(design, found)[0])
    answer, reason = (KneeAnswer.KNEE if knee else KneeAnswer.NO_KNEE), None
    if knee and flows_low is None:
        first = min(x for x in design.flows if x > 0)
        reason = (
            f"at most {min(math.exp(high), most):.2f} flows have full rate, and how many fewer is"
            f" not known: nothing without a limit was measured (first step: {first:g} flows)"
        )
    elif not knee and (flows_low is None or flows_low < _SEEN_UP_TO * most):
        bound = 0.0 if flows_low is None else flows_low
        reason = f"rates scatter by {error:.1%}: a knee from {bound:.1f} flows on would not be seen"
    return KneeFit(
        answer=answer if reason is None else KneeAnswer.INCONCLUSIVE,
        flows=math.exp(place) if knee and reason is None else None,
        flows_low=flows_low,
        flows_high=math.exp(high) if knee and math.isfinite(high) else None,
        most_flows=most,
        relative_error=error,
        points=points,
        misfit=misfit,
        reason=reason,
    )
