"""At which release a case changed, from stored runs.

Every two releases are held against each other. Where two differ surely, some release after the
first of them, up to the second, made the change; the closest such pairs are kept. Which release
between them it was, is where one step fits the times best, by least squares of the logs over all
releases up to the next change; steps that fit hardly worse stay possible. If several are left, the
span is all that the repeats can tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from collbench.analyze.compare import CaseComparison, Verdict
from collbench.analyze.history_tables import ReleaseTimes, compare_tables
from collbench.analyze.keys import CaseKey
from collbench.stats import FloatArray

_CHANGED = (Verdict.SLOWER, Verdict.FASTER)
_SURE_STEP = 0.999
"""Of the F quantile: a step that fits worse by more is not it."""
_SMALLEST_SQUARES = 1e-9
"""Exact times would leave nothing to measure a misfit by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A case that changed after one release, up to another; releases by their numbers."""

    base: int
    new: int
    case: CaseComparison
    """With the ratio of what lies after the change, up to the next one, to what lies before it."""
    named: bool
    """Whether ``new`` made the change; else it is one of the releases after ``base``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bisected:
    """All changes, in the order of the cases, then of the releases."""

    changes: tuple[Change, ...]
    pairs: int
    """Of releases that were compared."""
    needs_repeats: int
    """How many more a release needs at most, where there are too few to compare."""


def bisect_changes(
    source: ReleaseTimes, *, threshold: float = 0.03, alpha: float = 0.01
) -> Bisected:
    """Returns where cases changed.

    Args:
        source: the times of each release in order.
        threshold: a smaller change is of no interest, as a share.
        alpha: the chance that any change is named though there is none.
    """
    times = source.times
    pairs = [
        pair
        for pair in combinations(range(len(times)), 2)
        if times[pair[0]].keys() & times[pair[1]].keys()
    ]
    surely: dict[CaseKey, dict[tuple[int, int], CaseComparison]] = {}
    needs = 0
    for base, new in pairs:
        tables = source.tables([base], new)
        compared = compare_tables(tables, threshold=threshold, alpha=alpha / len(pairs))
        needs = max(needs, compared.needs_repeats)
        for case in compared.cases:
            if case.verdict in _CHANGED:
                surely.setdefault(case.key, {})[base, new] = case
    found: list[Change] = []
    for key in dict.fromkeys(key for one in times for key in one):
        found += _changes(key, source, surely.get(key, {}))
    return Bisected(changes=tuple(found), pairs=len(pairs), needs_repeats=needs)


def _changes(
    key: CaseKey, source: ReleaseTimes, surely: Mapping[tuple[int, int], CaseComparison]
) -> Iterator[Change]:
    """Yields the changes of a case, in the order of the releases."""
    spans = _joined(sorted(_closest(list(surely))), surely)
    having = [number for number, one in enumerate(source.times) if key in one]
    for place, (base, new) in enumerate(spans):
        first = spans[place - 1][1] if place else having[0]
        last = spans[place + 1][0] if place + 1 < len(spans) else having[-1]
        numbers = [n for n in having if min(first, base) <= n <= max(last, new)]
        steps = [n for n in numbers if base < n <= new]
        logs = [np.log(times) for times in source.of_case(key, numbers)[0]]
        possible = _possible_steps(logs, numbers, steps)
        before = having[having.index(possible[0]) - 1]
        sure = max(
            (case for one, case in surely.items() if base <= one[0] and one[1] <= new),
            key=lambda case: case.surely,
        )
        sides = (
            np.concatenate(logs[: numbers.index(before) + 1]),
            np.concatenate(logs[numbers.index(possible[-1]) :]),
        )
        yield Change(
            base=before, new=possible[-1], case=_sized(sure, *sides), named=len(possible) == 1
        )


def _sized(sure: CaseComparison, before: FloatArray, after: FloatArray) -> CaseComparison:
    """Returns a sure change with what it comes to: all releases before it against all after it.

    Args:
        sure: two releases that surely differ.
        before: log times, from the change before it on.
        after: up to the next one.
    """
    change = float(after.mean() - before.mean())
    if (change > 0) is not (sure.verdict is Verdict.SLOWER):
        # Other days, on which all was slower: what the two releases themselves showed stands.
        return sure
    freedom = before.size + after.size - 2
    squares = sum(float(np.sum((side - side.mean()) ** 2)) for side in (before, after))
    error = math.sqrt(squares / freedom * (1 / before.size + 1 / after.size))
    reach = float(stats.t.ppf(0.975, freedom)) * error
    return replace(
        sure,
        base_us=math.exp(before.mean()),
        new_us=math.exp(after.mean()),
        ratio=math.exp(change),
        low=math.exp(change - reach),
        high=math.exp(change + reach),
    )


def _joined(
    spans: Sequence[tuple[int, int]], surely: Mapping[tuple[int, int], CaseComparison]
) -> list[tuple[int, int]]:
    """Returns the spans with those joined that overlap and change the same way: one change."""
    found: list[tuple[int, int]] = []
    ways: list[Verdict] = []
    for span in spans:
        way = surely[span].verdict
        if found and span[0] < found[-1][1] and way is ways[-1]:
            found[-1] = (found[-1][0], span[1])
        else:
            found.append(span)
            ways.append(way)
    return found


def _possible_steps(
    logs: Sequence[FloatArray], numbers: Sequence[int], steps: Sequence[int]
) -> list[int]:
    """Returns the releases with which a single step may begin.

    Args:
        logs: log times of each release.
        numbers: of the releases.
        steps: those that may be it.
    """
    if len(steps) == 1:
        return list(steps)
    squares = []
    for step in steps:
        place = numbers.index(step)
        parts = np.concatenate(logs[:place]), np.concatenate(logs[place:])
        squares.append(sum(float(np.sum((part - part.mean()) ** 2)) for part in parts))
    freedom = sum(len(one) for one in logs) - 2
    least = max(min(squares), _SMALLEST_SQUARES)
    bar = least * (1 + float(stats.f.ppf(_SURE_STEP, 1, freedom)) / freedom)
    return [step for step, one in zip(steps, squares, strict=True) if one <= bar]


def _closest(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the pairs that hold no other pair."""
    return [
        (base, new)
        for base, new in pairs
        if not any(
            base <= one and other <= new and (one, other) != (base, new) for one, other in pairs
        )
    ]
