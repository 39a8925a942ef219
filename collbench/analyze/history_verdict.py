"""One history judged: its newest release, and its changes, with where each of them sits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.analyze.compare import CaseComparison
from collbench.analyze.compared import Compared, compare_sides
from collbench.analyze.history import MeasuredRelease, Series
from collbench.analyze.history_bisect import Bisected, bisect_changes
from collbench.analyze.history_check import Between, Checked, Window, check_newest
from collbench.analyze.sides import Times
from collbench.errors import UsageError

_THRESHOLD = 0.03


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesCheck:
    """What the newest release of a history changed."""

    series: Series
    checked: Checked
    before: Compared
    """With the release before; cases of it are ``checked.comparison``'s."""
    best: Mapping[Window, Compared]
    """With each best earlier releases that a case is slower than."""

    @property
    def new(self) -> MeasuredRelease:
        """The newest."""
        return self.series.releases[self.checked.new]

    @property
    def told(self) -> bool:
        """Whether anything can be said of any case."""
        return self.checked.comparison.told or self.checked.regressed

    def below(self, window: Window) -> list[CaseComparison]:
        """Returns the cases that are slower than these, and not than the release before."""
        return [one.case for one in self.checked.below_best if one.window == window]


def check_series(
    series: Series, *, new: str | None = None, threshold: float = _THRESHOLD
) -> SeriesCheck:
    """Returns what the newest release of a history changed.

    Args:
        series: two releases or more.
        new: the release that is judged, by what came before it; the newest if None.
        threshold: a smaller change is of no interest, as a share.

    Raises:
        UsageError: no release before it shares a case with it.
    """
    number = len(series.releases) - 1 if new is None else series.versions.index(new)
    times = [release.times for release in series.releases]
    checked = check_newest(times, _between(series), new=number, threshold=threshold)
    if checked is None:
        raise UsageError(
            f"{series.releases[number].side.name} has no release before it with a case in common;"
            f" releases there are: {', '.join(series.versions)}; measure it beside an earlier one:"
            " collbench history run"
        )
    alphas = {one.window: one.alpha for one in checked.below_best}
    return SeriesCheck(
        series=series,
        checked=checked,
        before=_compared(series, [checked.before], number, threshold, checked.alpha),
        best={
            window: _compared(series, window, number, threshold, alpha)
            for window, alpha in sorted(alphas.items())
        },
    )


def bisect_series(series: Series, *, threshold: float = _THRESHOLD) -> Bisected:
    """Returns where cases of a history changed.

    Args:
        series: two releases or more.
        threshold: a smaller change is of no interest, as a share.
    """
    times = [release.times for release in series.releases]
    return bisect_changes(times, _between(series), threshold=threshold)


def _between(series: Series) -> Between:
    def times(base: Sequence[int], new: int) -> tuple[Times, Times]:
        first, second = series.between(base, new)
        return first.times, second.times

    return times


def _compared(
    series: Series, base: Sequence[int], new: int, threshold: float, alpha: float
) -> Compared:
    return compare_sides(*series.between(base, new), threshold=threshold, alpha=alpha)
