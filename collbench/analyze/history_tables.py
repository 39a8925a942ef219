"""The times of releases, run by run, and which of them are held against each other.

Where runs hold all releases that are compared, measured in one go, these alone count, case by case,
if there are repeats enough: what was measured on other days differs by more than the release. Cases
that have other numbers of repeats than the rest make tables of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from collbench.analyze.compare import FEWEST_REPEATS, Comparison, compare_cases
from collbench.analyze.keys import CaseKey
from collbench.analyze.sides import Times, joined


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """Releases as one side and another one as the other, in tables of equal numbers of repeats."""

    tables: tuple[tuple[Times, Times], ...]
    runs: frozenset[str] | None
    """The runs that all cases stand on, where each of them holds both sides; else None."""
    only_base: tuple[CaseKey, ...]
    only_new: tuple[CaseKey, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseTimes:
    """What releases took; releases by their numbers, in order."""

    by_run: tuple[Mapping[str, Times], ...]
    """Of each release: by run, the times of its cases, one a repeat in us."""

    @cached_property
    def times(self) -> list[Times]:
        """Of each release: by case, one time a repeat, all runs together."""
        return [joined(runs.values()) for runs in self.by_run]

    def of_case(
        self, key: CaseKey, numbers: Sequence[int]
    ) -> tuple[list[tuple[float, ...]], frozenset[str] | None]:
        """Returns a case's times on releases that have it, and the runs if all are shared.

        Args:
            key: the case.
            numbers: of the releases.
        """
        having = [{run for run, times in self.by_run[n].items() if key in times} for n in numbers]
        shared = frozenset(set.intersection(*having))
        together = [self._joined(key, n, shared) for n in numbers]
        if shared and min(map(len, together)) >= FEWEST_REPEATS:
            return together, shared
        return [self.times[n][key] for n in numbers], None

    def _joined(self, key: CaseKey, number: int, runs: Collection[str]) -> tuple[float, ...]:
        parts = (times[key] for run, times in self.by_run[number].items() if run in runs)
        return tuple(time for part in parts for time in part)

    def tables(self, base: Sequence[int], new: int) -> Tables:
        """Returns releases to be held against another one.

        Args:
            base: the repeats of several count as one side's.
            new: the other one.
        """
        # A dictionary keeps the order, and is asked for every case of the other side.
        keys = dict.fromkeys(key for number in base for key in self.times[number])
        parted: dict[tuple[int, int], tuple[Times, Times]] = {}
        used: set[frozenset[str] | None] = set()
        for key in keys:
            if key not in self.times[new]:
                continue
            having = [number for number in base if key in self.times[number]]
            (*old, newest), runs = self.of_case(key, [*having, new])
            before = tuple(time for times in old for time in times)
            sides = parted.setdefault((len(before), len(newest)), ({}, {}))
            sides[0][key], sides[1][key] = before, newest
            used.add(runs)
        shared = None if None in used or not used else frozenset().union(*filter(None, used))
        return Tables(
            tables=tuple(parted.values()),
            runs=shared,
            only_base=tuple(key for key in keys if key not in self.times[new]),
            only_new=tuple(key for key in self.times[new] if key not in keys),
        )


def compare_tables(found: Tables, *, threshold: float, alpha: float) -> Comparison:
    """Returns one comparison of all tables; the chance of a false claim is shared out over them.

    Args:
        found: none of its cases stands in two tables.
        threshold: a smaller change is of no interest, as a share.
        alpha: the chance that any case is called FASTER or SLOWER though none is.
    """
    total = sum(len(base) for base, _ in found.tables)
    parts = [
        compare_cases(base, new, threshold=threshold, alpha=alpha * len(base) / total)
        for base, new in found.tables
    ]
    largest = max(parts, key=lambda part: len(part.cases), default=None)
    others = len(parts) - 1
    also = f"; {others} more table{'s' * (others > 1)} with other numbers of repeats" * (others > 0)
    needs = [part.needs_repeats for part in parts]
    return Comparison(
        cases=tuple(case for part in parts for case in part.cases),
        base_repeats=max((part.base_repeats for part in parts), default=0),
        new_repeats=max((part.new_repeats for part in parts), default=0),
        needs_repeats=max(needs) if needs and all(needs) else 0,
        test="none: no case in common" if largest is None else f"{largest.test}{also}",
        only_base=found.only_base,
        only_new=found.only_new,
    )
