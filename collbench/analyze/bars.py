"""A run held against the bars that a site sets: a baseline, a rate, a share of the wire's limit.

Wherever both sides have repeats enough the comparison of ``analyze.compare`` decides. What each
verdict claims is written in docs/baseline.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
import numpy as np
from scipy import special

from collbench.analyze.baseline import Baseline, Software, software_of
from collbench.analyze.compare import FEWEST_REPEATS, CaseComparison, Doubt, Verdict, compare_cases
from collbench.analyze.curves import Point, curves, in_reading_order, question
from collbench.analyze.keys import CaseKey, case_key
from collbench.analyze.limit import LimitOf
from collbench.analyze.moderated import moderate, neighbourhood
from collbench.analyze.sides import Times, times_of
from collbench.model import Case, Run, Trial

TOLERANCE = 0.05

_ALPHA = 0.01
"""The chance that any case of a table is ``below`` though nothing changed, as in a comparison."""
_CLEAR_SCATTERS = 3.0
"""So many scatters of the baseline's repeats a case of few repeats is slower, at the least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """What a site asks of a run."""

    baseline: Baseline | None = None
    source: str = ""
    """The baseline as the user calls it."""
    tolerance: float = TOLERANCE
    min_busbw_gb_per_s: float | None = None
    """Of each collective's peak, where it has no bar of its own."""
    min_busbw_of: Mapping[str, float] = field(default_factory=dict)
    """By collective, GB/s."""
    min_of_limit: float | None = None
    """Share of the wire's limit that each collective's peak has to reach."""


class BarVerdict(StrEnum):
    """How a case or a peak stands to its bar."""

    MET = "pass"
    BELOW = "below"
    UNCLEAR = "unclear"
    NO_BAR = "no bar"
    """The baseline does not have the case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseBar:
    """One case against the baseline; times are geometric means over the repeats' medians."""

    case: Case
    verdict: BarVerdict
    reference_us: float | None = None
    time_us: float | None = None
    ratio: float | None = None
    """time / reference: above 1 is slower."""
    low: float | None = None
    high: float | None = None
    """The ratio's 95 % interval, with three repeats of each side and more."""
    reason: str | None = None
    """Why it is unclear."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakBar:
    """The largest bus bandwidth of one question against a bar."""

    option: str
    """``--min-busbw`` or ``--min-of-limit``."""
    case: Case
    """The case of the peak."""
    verdict: BarVerdict
    busbw_gb_per_s: float | None = None
    bar_gb_per_s: float | None = None
    text: str
    """What the bar is made of."""
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BarReport:
    """All verdicts of a run."""

    cases: tuple[CaseBar, ...] = ()
    peaks: tuple[PeakBar, ...] = ()
    not_measured: int = 0
    """Cases of the baseline that the run did not ask for."""
    software: Software | None = None
    """Of the run; absent where it is held against no baseline."""

    @property
    def judged(self) -> tuple[CaseBar | PeakBar, ...]:
        """All of them."""
        return (*self.cases, *self.peaks)

    @property
    def verdict(self) -> BarVerdict:
        """The gravest of all; NO_BAR where nothing could be held against anything."""
        found = {item.verdict for item in self.judged}
        order = (BarVerdict.BELOW, BarVerdict.UNCLEAR, BarVerdict.MET)
        return next((verdict for verdict in order if verdict in found), BarVerdict.NO_BAR)


def check_against(trials: Sequence[Trial], run: Run, bars: Bars, limit_of: LimitOf) -> BarReport:
    """Returns how a run stands to the bars that are set.

    Args:
        trials: of the whole run.
        run: its header.
        bars: that ``check_bars`` has passed.
        limit_of: what the wire allows for a case, or None.
    """
    peaks = tuple(_peak_bars(trials, bars, limit_of))
    if bars.baseline is None:
        return BarReport(peaks=peaks)
    asked = {case_key(trial.case) for trial in trials}
    return BarReport(
        cases=tuple(_case_bars(trials, bars.baseline, bars.tolerance)),
        peaks=peaks,
        not_measured=sum(case_key(item.case) not in asked for item in bars.baseline.cases),
        software=software_of(run),
    )


def _case_bars(trials: Sequence[Trial], baseline: Baseline, tolerance: float) -> Iterator[CaseBar]:
    known = {case_key(item.case): item for item in baseline.cases}
    base: Times = {key: tuple(item.times_us) for key, item in known.items()}
    new = times_of(trials)
    both = {key: base[key] for key in new if key in base}
    judged: dict[CaseKey, CaseComparison] = {}
    if both:
        found = compare_cases(both, new, threshold=tolerance, alpha=_ALPHA)
        judged = {case.key: case for case in found.cases}
    clear = _clear_ratios(both, new)
    asked = {case_key(trial.case): trial for trial in in_reading_order(trials)}
    for key, trial in asked.items():
        if key not in known:
            yield CaseBar(case=trial.case, verdict=BarVerdict.NO_BAR)
        elif key not in judged:
            yield CaseBar(
                case=trial.case,
                verdict=BarVerdict.UNCLEAR,
                reference_us=known[key].time_us,
                reason=f"not measured: {trial.status}",
            )
        else:
            yield _case_bar(trial.case, judged[key], clear.get(key), tolerance)


def _case_bar(case: Case, found: CaseComparison, clear: float | None, tolerance: float) -> CaseBar:
    few = found.doubt in (Doubt.TOO_FEW, Doubt.MISSING)
    verdict, reason = BarVerdict.MET, None
    if found.verdict is Verdict.SLOWER:
        verdict = BarVerdict.BELOW
    elif found.ratio > 1 + tolerance:
        verdict, reason = BarVerdict.UNCLEAR, found.reason
        if few and clear is not None:
            reason = f"few repeats: sure only above {clear - 1:+.1%}"
            if found.ratio > max(1 + tolerance, clear):
                verdict, reason = BarVerdict.BELOW, None
    return CaseBar(
        case=case,
        verdict=verdict,
        reference_us=found.base_us,
        time_us=found.new_us,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        reason=reason,
    )


def _clear_ratios(base: Times, new: Times) -> dict[CaseKey, float]:
    """Returns the ratio above which a case of few repeats is clearly slower.

    Three scatters of the baseline's own repeats, and not less than what one more draw of that
    noise, shared with its neighbours', passes by chance in any case with a chance of 1 %. Only for
    cases of which the baseline has all repeats and at least three: fewer tell no scatter.
    """
    most = max((len(times) for times in base.values()), default=0)
    keys = [key for key, times in base.items() if len(times) == most]
    if most < FEWEST_REPEATS:
        return {}
    logs = np.log(np.array([base[key] for key in keys]).T)
    near = neighbourhood([str(key.mode) for key in keys], logs.mean(axis=0))
    noise = moderate(logs.var(axis=0, ddof=1), most - 1, near)
    draws = np.array([len(new[key]) for key in keys])
    quantile = -special.stdtrit(noise.freedom, _ALPHA / len(keys))
    by_chance = quantile * np.sqrt(noise.variance * (1 / most + 1 / draws))
    reach = np.maximum(_CLEAR_SCATTERS * logs.std(axis=0, ddof=1), by_chance)
    return dict(zip(keys, np.exp(reach).tolist(), strict=True))


def _peak_bars(trials: Sequence[Trial], bars: Bars, limit_of: LimitOf) -> Iterator[PeakBar]:
    """Yields the bars of each question's peak: the best of its sizes and settings."""
    groups: dict[tuple[object, ...], list[Trial]] = {}
    for trial in in_reading_order(trials):
        asked = msgspec.structs.replace(trial.case, setting={})
        groups.setdefault(question(asked), []).append(trial)
    for group in groups.values():
        trial, point = _peak(group)
        bar = bars.min_busbw_of.get(trial.case.collective, bars.min_busbw_gb_per_s)
        if bar is not None:
            yield _peak_bar("--min-busbw", trial.case, point, bar, f"{bar:g} GB/s")
        if bars.min_of_limit is not None:
            limit = limit_of(trial.case, trial.proof)
            least = None if limit is None else bars.min_of_limit * limit.busbw_gb_per_s
            text = f"{100 * bars.min_of_limit:g} %" + (f" of {limit.text}" if limit else "")
            yield _peak_bar("--min-of-limit", trial.case, point, least, text)


def _peak(trials: Sequence[Trial]) -> tuple[Trial, Point | None]:
    """Returns a trial of the largest rate and its point; of the largest size where none has one."""
    rated = [(curve.peak, curve.case) for curve in curves(trials) if curve.peak is not None]
    if not rated:
        return max(trials, key=lambda trial: trial.case.size_bytes), None
    point, case = max(rated, key=lambda pair: (pair[0] and pair[0].busbw_gb_per_s) or 0.0)
    assert point is not None
    its = (trial for trial in trials if trial.case.size_bytes == point.size_bytes)
    return next(trial for trial in its if trial.case.setting == case.setting), point


def _peak_bar(
    option: str, case: Case, point: Point | None, bar: float | None, text: str
) -> PeakBar:
    """Judges a peak: below is what no repeat, or its one repeat's interval, reaches."""
    rate = None if point is None else point.busbw_gb_per_s
    verdict, reason = BarVerdict.UNCLEAR, None
    if point is None or rate is None:
        reason = "no bus bandwidth was measured"
    elif bar is None:
        reason = "the limit of this wire is not known"
    elif rate >= bar:
        verdict = BarVerdict.MET
    else:
        best = rate * point.time_us / (point.low_us or point.time_us)
        verdict = BarVerdict.BELOW if best < bar else BarVerdict.UNCLEAR
        reason = None if best < bar else f"up to {best:.4g} GB/s in its repeats or samples"

    return PeakBar(
        option=option,
        case=case,
        verdict=verdict,
        busbw_gb_per_s=rate,
        bar_gb_per_s=bar,
        text=text,
        reason=reason,
    )
