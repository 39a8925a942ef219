"""Times that are not of one kind: samples in two groups, times that drift.

Two kinds: Ashman's D above 3 and the deciles a fifth apart. Drift: a trend (``trend``) by more
than 3 %, p corrected over all that is looked at (Holm 1979) below 0.01.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.keys import CaseKey, case_key
from collbench.analyze.permutation import holm
from collbench.analyze.trend import Trend, independent_blocks, trend
from collbench.model import Finding, Mode, Status, Trial
from collbench.nccl.settings import setting_text
from collbench.stats import FloatArray, bimodality
from collbench.units import format_size, format_time_us

TimesOf = Callable[[Trial], NDArray[np.float32] | None]
"""Gives a trial's samples, float32[rank, sample] in us, or None."""

_Series = tuple[str, FloatArray]
"""What it is of, and the values in the order of time."""

DRIFT = 0.03
"""From the first to the last value, as a share of their median."""
FEWEST_SAMPLES = 100
"""Of a trial: fewer samples that depend on each other look like a trend too often."""
FEWEST_REPEATS = 7
"""The rarest order of fewer is not rare enough (docs/statistics.md)."""
_LEVEL = 0.01
_TWO_MODES_APART = 3.0
_MODES_DIFFER = 1.2
_SHOWN = 3


def describe(trial: Trial) -> str:
    """Returns a trial in words: ``all_gather 64 MiB graph``."""
    case = trial.case
    words = f"{case.collective} {format_size(case.size_bytes)} {case.mode}"
    return f"{words} ({setting_text(case.setting)})" if case.setting else words


def oddities(trials: Sequence[Trial], times: TimesOf) -> list[Finding]:
    """Returns what is odd about the times of a run.

    Args:
        trials: of the whole run.
        times: gives a trial's samples.
    """
    return [
        *two_kinds_of_samples(trials, times),
        *drifting_samples(trials, times),
        *drifting_repeats(trials),
    ]


def two_kinds_of_samples(trials: Sequence[Trial], times: TimesOf) -> Iterator[Finding]:
    """Trials whose samples are of two kinds, as one finding."""
    found = []
    for trial in trials:
        slowest = _slowest_rank(trial, times, 20)
        if slowest is None:
            continue
        low, high = np.quantile(slowest, [0.1, 0.9])
        if low > 0 and high / low > _MODES_DIFFER and bimodality(slowest) > _TWO_MODES_APART:
            found.append((high / low, describe(trial), low, high))
    if found:
        _, name, low, high = max(found)
        yield Finding(
            code="bimodal",
            severity="warning",
            text=f"{len(found)} of {len(trials)} trials"
            f" {'has' if len(found) == 1 else 'have'} two kinds of samples; plainest"
            f" in {name}: about {format_time_us(low)} or {format_time_us(high)} us.",
            next_step="the median may fall on either: look at the samples (load_run), at other"
            " load and at power saving",
        )


def _slowest_rank(trial: Trial, times: TimesOf, fewest: int) -> FloatArray | None:
    """Returns the time of each sample, or None where there are too few."""
    samples = times(trial) if trial.summary else None
    if samples is None or samples.shape[1] < fewest:
        return None
    slowest: FloatArray = samples.max(axis=0).astype(np.float64)
    return slowest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drift:
    """A series that changes with time, in words."""

    name: str
    trend: Trend
    middle_us: float

    @property
    def text(self) -> str:
        half_us = self.middle_us * self.trend.change / 2
        return (
            f"{self.name}: from about {format_time_us(self.middle_us - half_us)} to"
            f" {format_time_us(self.middle_us + half_us)} us ({self.trend.change:+.0%})"
        )


def drifting_samples(trials: Sequence[Trial], times: TimesOf) -> Iterator[Finding]:
    """Trials whose samples get slower or faster from the first to the last, as one finding."""
    series = []
    for trial in trials:
        slowest = _slowest_rank(trial, times, FEWEST_SAMPLES)
        if slowest is not None:
            blocks = independent_blocks(slowest)
            series.append((f"{describe(trial)}, repeat {trial.repeat}", blocks))
    found = _drifting(series)
    if found:
        yield Finding(
            code="samples_drift",
            severity="warning",
            text=f"Samples drift in {len(found)} of {len(series)} trials that have"
            f" {FEWEST_SAMPLES} or more; most in {found[0].text}.",
            evidence=[one.text for one in found[:_SHOWN]],
            next_step="look at clocks and temperatures (nvidia-smi -q -d PERFORMANCE); a longer"
            " warm-up tells a start from a drift (-w)",
        )


def drifting_repeats(trials: Sequence[Trial]) -> Iterator[Finding]:
    """What changes from repeat to repeat in the order of time: single cases, and whole modes."""
    rows = _rows(trials)
    cases = [(describe(own[0]), _medians(own)) for own in rows.values()]
    long = [(name, values) for name, values in cases if values.size >= FEWEST_REPEATS]
    found = _drifting(long)
    if found:
        yield Finding(
            code="repeats_drift",
            severity="warning",
            text=f"Repeats drift in {len(found)} of {len(long)} cases; most in {found[0].text}.",
            evidence=[one.text for one in found[:_SHOWN]],
            next_step="compare settings and runs only interleaved (collbench ab)",
        )
    for one in _drifting(_modes_means(rows)):
        which = "slower" if one.trend.change > 0 else "faster"
        yield Finding(
            code="run_drifts",
            severity="warning",
            text=f"All {one.name} cases together get {which}"
            f" by {abs(one.trend.change):.1%} from the first to the last repeat.",
            next_step="compare settings and runs only interleaved (collbench ab)",
        )


def _rows(trials: Sequence[Trial]) -> dict[CaseKey, list[Trial]]:
    """Returns the repeats of each case in the order of time."""
    rows: dict[CaseKey, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.started_at):
        if trial.status is Status.OK and trial.summary is not None:
            rows.setdefault(case_key(trial.case), []).append(trial)
    return rows


def _medians(repeats: Sequence[Trial]) -> FloatArray:
    return np.array([trial.summary.median_us for trial in repeats if trial.summary is not None])


def _modes_means(rows: dict[CaseKey, list[Trial]]) -> list[_Series]:
    """Returns by mode a value a repeat: the geometric mean of the cases, each against itself."""
    modes: dict[Mode, list[FloatArray]] = {}
    most = max((len(own) for own in rows.values()), default=0)
    for key, own in rows.items():
        if len(own) == most >= FEWEST_REPEATS:
            values = np.log(_medians(own))
            modes.setdefault(key.mode, []).append(values - values.mean())
    return [(str(mode), np.exp(np.mean(values, axis=0))) for mode, values in modes.items()]


def _drifting(series: Sequence[_Series]) -> list[_Drift]:
    """Returns the series that drift, the strongest first; p is corrected over all of them."""
    if not series:
        return []
    trends = [trend(values) for _, values in series]
    corrected = holm(np.array([one.p for one in trends]))
    found = [
        _Drift(name=name, trend=one, middle_us=float(np.median(values)))
        for (name, values), one, p in zip(series, trends, corrected, strict=True)
        if p < _LEVEL and abs(one.change) > DRIFT
    ]
    return sorted(found, key=lambda drift: -abs(drift.trend.change))
