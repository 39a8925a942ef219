"""What a case's repeats come to in asv's terms: a value with its interval, in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from collbench.collectives import COLLECTIVES
from collbench.model import Case
from collbench.units import gb_per_s

FEWEST_FOR_INTERVAL = 2
"""Repeats from which on there is an interval."""
FEWEST_FOR_SAMPLES = 7
"""Repeats from which on asv's own test can say that two releases differ: with fewer its smallest
chance is above the 0.002 that it asks for, and it would never say so whatever the times are."""

_US_PER_S = 1e6
_COVERED = 0.99
"""asv calls the columns ``stats_ci_99``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseValue:
    """One case on one release; times in seconds."""

    median_s: float
    """Over the repeats."""
    low_s: float | None
    high_s: float | None
    """The 99 % interval; absent with one repeat."""
    quartile_low_s: float
    quartile_high_s: float
    repeats: int
    samples_s: tuple[float, ...] | None
    """Each repeat's median; absent below ``FEWEST_FOR_SAMPLES``."""
    busbw_gb_per_s: float | None
    """Of the median; absent where no factor is defined."""


def case_value(case: Case, repeats_us: Sequence[float]) -> CaseValue:
    """Returns what a case's repeats come to.

    The interval is Student's, of the mean of the logarithms: repeats are few, and their times have
    a tail on one side.

    Args:
        case: what was measured.
        repeats_us: one time a repeat in us, at least one.
    """
    times_s = np.array(repeats_us) / _US_PER_S
    quartile_low, median, quartile_high = np.quantile(times_s, [0.25, 0.5, 0.75])
    low, high = _interval_s(np.log(times_s))
    enough = times_s.size >= FEWEST_FOR_SAMPLES
    return CaseValue(
        median_s=_rounded(median),
        low_s=low,
        high_s=high,
        quartile_low_s=_rounded(quartile_low),
        quartile_high_s=_rounded(quartile_high),
        repeats=int(times_s.size),
        samples_s=tuple(map(_rounded, times_s)) if enough else None,
        busbw_gb_per_s=_busbw(case, float(median) * _US_PER_S),
    )


def _interval_s(
    logs: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> tuple[float | None, float | None]:
    if logs.size < FEWEST_FOR_INTERVAL:
        return None, None
    reach = stats.t.ppf((1 + _COVERED) / 2, logs.size - 1) * logs.std(ddof=1) / math.sqrt(logs.size)
    middle = logs.mean()
    return _rounded(math.exp(middle - reach)), _rounded(math.exp(middle + reach))


def _busbw(case: Case, time_us: float) -> float | None:
    collective = COLLECTIVES.get(case.collective)
    if collective is None or collective.busbw_factor(case.world_size) <= 0:
        return None
    return _rounded(collective.busbw(gb_per_s(case.size_bytes, time_us), case.world_size))


def _rounded(value: float) -> float:
    """Returns seven digits of a value: below any noise, and files stay small."""
    return float(f"{value:.7g}")
