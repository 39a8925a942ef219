"""Two sides case by case: SAME, FASTER, SLOWER or UNCLEAR, with the reason.

Repeats are the unit: what differs between starts of one program is noise. The one comparison
behind every command that says "slower"; what it may claim was calibrated on whole tables
(docs/statistics.md): of tables in which nothing changed at most 1 % hold any claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from collbench.analyze.keys import CaseKey
from collbench.analyze.significance import Evidence, can_permute, evidence
from collbench.errors import UsageError
from collbench.stats import FloatArray

FEWEST_REPEATS = 3
"""Of each side, to compare at all."""

ENOUGH_REPEATS = 5
"""Of each side, for the permutation of whole repeats: what to measure when there are too few."""

JUMP_MARGIN = 1.25
"""How much larger than other cases' jumps a difference of few repeats has to be."""


class Verdict(StrEnum):
    """What is said of a case: the new side against the base."""

    SAME = "SAME"
    """The 95 % interval of the ratio lies within the threshold."""
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    UNCLEAR = "UNCLEAR"


class Doubt(StrEnum):
    """Why a case is UNCLEAR."""

    TOO_FEW = "too_few"
    """Fewer than three repeats of a side."""
    MISSING = "missing"
    """It has fewer repeats than other cases of its side."""
    JUMPS = "jumps"
    """Other cases jump as far between repeats of one side."""
    BIMODAL = "bimodal"
    """Its own repeats fall into two groups."""
    NOISY = "noisy"
    NOT_SURE = "not_sure"
    """It looks like a change, and is not sure over so many cases."""
    AT_THRESHOLD = "at_threshold"
    """A change that is sure, about as large as the threshold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseComparison:
    """One case of both sides; times are geometric means over the repeats' medians."""

    key: CaseKey
    verdict: Verdict
    base_us: float
    new_us: float
    ratio: float
    """new / base: above 1 is slower."""
    low: float | None = None
    high: float | None = None
    """The ratio's 95 % interval, of this case alone."""
    p: float | None = None
    """Against no change, corrected over all cases."""
    surely: float = 0.0
    """The slowdown or speed-up is more than this share, sure over all cases; 0.02 is 2 %."""
    doubt: Doubt | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All cases that both sides have, in the order of the base."""

    cases: tuple[CaseComparison, ...]
    base_repeats: int
    new_repeats: int
    needs_repeats: int
    """How many more each side that has too few needs at most; 0: enough to compare."""
    test: str
    """Which test was used, and why."""
    only_base: tuple[CaseKey, ...]
    only_new: tuple[CaseKey, ...]

    @property
    def needs(self) -> str | None:
        """``needs 4 more repeats``, where there are too few to compare."""
        if not self.needs_repeats:
            return None
        return f"needs {self.needs_repeats} more repeat{'s' * (self.needs_repeats > 1)}"

    @property
    def told(self) -> bool:
        """Whether anything can be said of any case."""
        return any(case.verdict is not Verdict.UNCLEAR for case in self.cases)

    def of(self, verdict: Verdict) -> tuple[CaseComparison, ...]:
        """Returns the cases of a verdict."""
        return tuple(case for case in self.cases if case.verdict is verdict)


def compare_cases(
    base: Mapping[CaseKey, Sequence[float]],
    new: Mapping[CaseKey, Sequence[float]],
    *,
    threshold: float = 0.03,
    alpha: float = 0.01,
) -> Comparison:
    """Returns what changed from base to new.

    SLOWER is: new is slower by more than ``threshold``, and no change at all would be that clear in
    any case of the table with a chance of less than ``alpha``. FASTER likewise, with 1 / ratio.

    Args:
        base: each case's times, one a repeat (the median of its samples), in microseconds. All
            cases list their repeats in one order, since a repeat can be slow as a whole.
        new: likewise; the sides need not have as many repeats.
        threshold: a smaller change is of no interest, as a share.
        alpha: the chance that any case of the table is called FASTER or SLOWER though none is.

    Raises:
        UsageError: no case in common, a time that is not above zero, a threshold or an alpha that
            makes no sense.
    """
    keys = [key for key in base if key in new]
    _check(base, new, keys, threshold, alpha)
    counts = max(len(base[key]) for key in keys), max(len(new[key]) for key in keys)
    if min(counts) < FEWEST_REPEATS:
        cases = {key: _untold(key, base, new, Doubt.TOO_FEW, counts) for key in keys}
        test = f"none: from {FEWEST_REPEATS} repeats of each side on"
    else:
        whole = [key for key in keys if (len(base[key]), len(new[key])) == counts]
        torn = [key for key in keys if (len(base[key]), len(new[key])) != counts]
        cases = {key: _untold(key, base, new, Doubt.MISSING, counts) for key in torn}
        if whole:
            logs = [np.log(np.array([side[key] for key in whole]).T) for side in (base, new)]
            cases |= _judged(whole, logs[0], logs[1], threshold, alpha)
        test = _test_words(counts, alpha)
    return Comparison(
        cases=tuple(cases[key] for key in keys),
        base_repeats=counts[0],
        new_repeats=counts[1],
        needs_repeats=ENOUGH_REPEATS - min(counts) if min(counts) < FEWEST_REPEATS else 0,
        test=test,
        only_base=tuple(key for key in base if key not in new),
        only_new=tuple(key for key in new if key not in base),
    )


def _check(
    base: Mapping[CaseKey, Sequence[float]],
    new: Mapping[CaseKey, Sequence[float]],
    keys: Sequence[CaseKey],
    threshold: float,
    alpha: float,
) -> None:
    if not 0 <= threshold < 10:
        raise UsageError(f"the threshold {threshold:g} is not a share; give 0.03 for 3 %")
    if not 0 < alpha < 0.5:
        raise UsageError(f"alpha {alpha:g} is not a chance between 0 and 0.5; give 0.01 for 1 %")
    if not keys:
        raise UsageError(
            f"the two sides have no case in common ({len(base)} and {len(new)} cases);"
            " collective, type, size, mode, placement and number of ranks must agree"
        )
    for key in keys:
        for times in (base[key], new[key]):
            if not times or not all(0 < time < math.inf for time in times):
                raise UsageError(
                    f"{key.question[0]} of {key.size_bytes} B has the times {list(times)};"
                    " a comparison needs times above zero; leave the case out"
                )


def _test_words(counts: tuple[int, int], alpha: float) -> str:
    repeats = f"{counts[0]} + {counts[1]} repeats"
    if can_permute(*counts, alpha):
        return f"permutation of whole repeats and moderated t with Holm's correction ({repeats})"
    return (
        f"moderated t with Holm's correction: {repeats} have too few permutations for p < {alpha:g}"
    )


def _untold(
    key: CaseKey,
    base: Mapping[CaseKey, Sequence[float]],
    new: Mapping[CaseKey, Sequence[float]],
    doubt: Doubt,
    counts: tuple[int, int],
) -> CaseComparison:
    logs = np.log(base[key]), np.log(new[key])
    have = f"{len(base[key])} + {len(new[key])} repeats"
    if doubt is Doubt.TOO_FEW:
        reason = f"too few repeats: {have}, needs {FEWEST_REPEATS} + {FEWEST_REPEATS}"
    else:
        reason = f"repeats are missing: {have} of {counts[0]} + {counts[1]}"
    return CaseComparison(
        key=key,
        verdict=Verdict.UNCLEAR,
        base_us=float(np.exp(logs[0].mean())),
        new_us=float(np.exp(logs[1].mean())),
        ratio=float(np.exp(logs[1].mean() - logs[0].mean())),
        doubt=doubt,
        reason=reason,
    )


def _judged(
    keys: Sequence[CaseKey], base: FloatArray, new: FloatArray, threshold: float, alpha: float
) -> dict[CaseKey, CaseComparison]:
    found = evidence(base, new, [str(key.mode) for key in keys], alpha)
    edge = math.log1p(threshold)
    reach = found.reach(0.05)
    low, high = found.log_ratio - reach, found.log_ratio + reach
    near = np.maximum(np.abs(found.log_ratio) - found.reach(found.critical_p), 0)
    base_us, new_us = np.exp(base.mean(axis=0)), np.exp(new.mean(axis=0))
    cases = {}
    for k, key in enumerate(keys):
        change = float(found.log_ratio[k])
        doubt = None
        if found.p[k] < alpha and abs(change) > edge:
            verdict = Verdict.SLOWER if change > 0 else Verdict.FASTER
            if abs(change) <= JUMP_MARGIN * found.largest_jump[k]:
                verdict, doubt = Verdict.UNCLEAR, Doubt.JUMPS
        elif -edge < low[k] and high[k] < edge:
            verdict = Verdict.SAME
        else:
            verdict = Verdict.UNCLEAR
            sure = bool(found.p[k] < alpha)
            clear = abs(change) > max(edge, float(reach[k]))
            doubt = _doubt((base[:, k], new[:, k]), edge, sure=sure, clear=clear)
        claimed = verdict in (Verdict.SLOWER, Verdict.FASTER)
        cases[key] = CaseComparison(
            key=key,
            verdict=verdict,
            base_us=float(base_us[k]),
            new_us=float(new_us[k]),
            ratio=math.exp(change),
            low=math.exp(low[k]),
            high=math.exp(high[k]),
            p=float(found.p[k]),
            surely=math.expm1(near[k]) if claimed else 0.0,
            doubt=doubt,
            reason=_words(doubt, found, k, (float(low[k]), float(high[k])), len(keys)),
        )
    return cases


def _doubt(sides: tuple[FloatArray, FloatArray], edge: float, *, sure: bool, clear: bool) -> Doubt:
    """Returns why; ``sure`` over all cases, ``clear`` in this case's own interval."""
    if sure:
        return Doubt.AT_THRESHOLD
    if any(_two_groups(side, edge) for side in sides):
        return Doubt.BIMODAL
    return Doubt.NOT_SURE if clear else Doubt.NOISY


def _two_groups(values: FloatArray, edge: float) -> bool:
    """Whether repeats of one side fall into two groups, each much closer than they are apart."""
    ordered = np.sort(values)
    steps = np.diff(ordered)
    cut = int(np.argmax(steps)) + 1
    widest = max(ordered[cut - 1] - ordered[0], ordered[-1] - ordered[cut])
    return bool(steps[cut - 1] > max(edge, 3 * float(widest)))


def _words(
    doubt: Doubt | None, found: Evidence, k: int, interval: tuple[float, float], cases: int
) -> str | None:
    span = f"{_percent(interval[0])} to {_percent(interval[1])}"
    match doubt:
        case Doubt.JUMPS:
            jump = math.expm1(float(found.largest_jump[k]))
            return f"repeats of one side jump by {jump:.1%} in other cases; needs more repeats"
        case Doubt.BIMODAL:
            return f"bimodal: repeats disagree; the interval spans {span}"
        case Doubt.NOT_SURE:
            return f"the interval spans {span}, not sure over {cases} cases (p = {found.p[k]:.2g})"
        case Doubt.AT_THRESHOLD:
            return f"a change about as large as the threshold: the interval spans {span}"
        case Doubt.NOISY:
            return f"noisy: the interval spans {span}"
    return None


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio):+.1%}"
