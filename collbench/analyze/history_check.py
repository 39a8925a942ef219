"""Did the newest release make anything slower? Against the one before, and the best before it.

The best earlier releases of a case are the three in a row whose median is lowest: a release that
was lucky once does not raise the bar. What is best is chosen among many, so that the chance of a
false claim is shared out over all of them (docs/history.md has the calibration).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.analyze.compare import CaseComparison, Comparison, Verdict
from collbench.analyze.history_tables import ReleaseTimes, compare_tables
from collbench.analyze.keys import CaseKey
from collbench.analyze.sides import Times
from collbench.stats import geometric_mean

_WINDOW = 3
"""Releases of a running median."""
_OF_BEFORE = 0.8
"""The part of alpha that goes to the comparison with the one before: most changes are found there,
and it is one table where the others are several."""

Window = tuple[int, ...]
"""Releases in a row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgainstBest:
    """One case of the newest release against its best earlier ones."""

    window: Window
    """Which releases those are."""
    case: CaseComparison
    alpha: float
    """What one comparison may err by, so that all together keep to theirs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The newest release held against earlier ones; releases by their numbers."""

    new: int
    before: int
    """The newest earlier release that shares a case with it."""
    comparison: Comparison
    """With the one before."""
    best: Mapping[CaseKey, AgainstBest]
    """The cases that have best earlier releases."""
    alpha: float
    """Of the comparison with the one before."""

    @property
    def slower(self) -> tuple[CaseComparison, ...]:
        """Cases that are slower than one release before."""
        return self.comparison.of(Verdict.SLOWER)

    @property
    def faster(self) -> tuple[CaseComparison, ...]:
        """Cases that are faster than one release before."""
        return self.comparison.of(Verdict.FASTER)

    @property
    def below_best(self) -> tuple[AgainstBest, ...]:
        """Cases that are slower than their best earlier releases and not than the one before."""
        known = {case.key for case in self.slower}
        return tuple(
            one
            for key, one in self.best.items()
            if one.case.verdict is Verdict.SLOWER and key not in known
        )

    @property
    def regressed(self) -> bool:
        """Whether anything got slower."""
        return bool(self.slower or self.below_best)


def check_newest(
    source: ReleaseTimes,
    *,
    new: int | None = None,
    threshold: float = 0.03,
    alpha: float = 0.01,
) -> Checked | None:
    """Returns what the newest release changed; None where no earlier one has a time.

    Args:
        source: the times of each release in order.
        new: which release is the newest that counts; the last if None.
        threshold: a smaller change is of no interest, as a share.
        alpha: the chance that anything is called slower though nothing is.
    """
    times = source.times
    new = len(times) - 1 if new is None else new
    earlier = [number for number in range(new) if times[number]]
    if not earlier:
        return None
    sharing = [number for number in earlier if times[number].keys() & times[new].keys()]
    before = (sharing or earlier)[-1]
    part = _OF_BEFORE * alpha
    tables = source.tables([before], new)
    best = best_releases(times, earlier)
    windows = sorted({window for key, window in best.items() if key in times[new]})
    share = (alpha - part) / max(len(windows), 1)
    found: dict[CaseKey, AgainstBest] = {}
    for window in windows:
        compared = compare_tables(source.tables(window, new), threshold=threshold, alpha=share)
        for case in compared.cases:
            if best.get(case.key) == window:
                found[case.key] = AgainstBest(window=window, case=case, alpha=share)
    return Checked(
        new=new,
        before=before,
        comparison=compare_tables(tables, threshold=threshold, alpha=part),
        best=found,
        alpha=part,
    )


def best_releases(times: Sequence[Times], earlier: Sequence[int]) -> dict[CaseKey, Window]:
    """Returns by case the three releases in a row whose median is lowest.

    Args:
        times: of each release in order.
        earlier: which of them count. A case that fewer than three of them have is left out: there
            the one before is all that can be said.
    """
    found = {}
    for key in dict.fromkeys(key for number in earlier for key in times[number]):
        having = [number for number in earlier if key in times[number]]
        windows = [
            tuple(having[first : first + _WINDOW]) for first in range(len(having) - _WINDOW + 1)
        ]
        if windows:
            middles = {number: geometric_mean(times[number][key]) for number in having}
            found[key] = min(
                windows, key=lambda window: sorted(middles[n] for n in window)[_WINDOW // 2]
            )
    return found
