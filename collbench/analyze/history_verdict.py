"""One history judged: its newest release, and its changes, with where each of them sits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from collbench.analyze.comparable import Differences, differences
from collbench.analyze.compare import CaseComparison, Comparison
from collbench.analyze.compared import Compared, compared_by
from collbench.analyze.history import MeasuredRelease, Series
from collbench.analyze.history_bisect import Bisected, bisect_changes
from collbench.analyze.history_check import Checked, Window, check_newest
from collbench.analyze.history_tables import compare_tables
from collbench.analyze.keys import CaseKey, case_key
from collbench.errors import UsageError
from collbench.model import Status
from collbench.store import StoredRun

_THRESHOLD = 0.03
_SAYS_NOTHING = (Status.SKIPPED, Status.NODE_LOST)
"""Of the release: these cases were not tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesCheck:
    """What the newest release of a history changed."""

    series: Series
    checked: Checked
    before: Compared
    """With the release before; cases of it are ``checked.comparison``'s."""
    best: Mapping[Window, Compared]
    """With each best earlier releases that a case is slower than."""
    lost: Mapping[CaseKey, Status]
    """Cases that were ok on the release before and are not any more, by how they end now."""
    untried: tuple[CaseKey, ...]
    """Cases of the release before that were not measured on the newest, or not to the end."""
    passed_over: tuple[str, ...] = ()
    """Newer releases, of which no earlier one shares a case."""

    @property
    def new(self) -> MeasuredRelease:
        """The newest."""
        return self.series.releases[self.checked.new]

    @property
    def regressed(self) -> bool:
        """Whether anything got slower, or does not work any more."""
        return self.checked.regressed or bool(self.lost)

    @property
    def told(self) -> bool:
        """Whether anything can be said of any case."""
        return self.checked.comparison.told or self.regressed

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
        UsageError: no release before it was measured on anything that it was.
    """
    if new is not None:
        return _check(series, series.versions.index(new), threshold)
    newest = len(series.releases) - 1
    try:
        return _check(series, newest, threshold)
    except UsageError:
        for number in reversed(range(1, newest)):
            with suppress(UsageError):
                found = _check(series, number, threshold)
                return replace(found, passed_over=tuple(series.versions[number + 1 :]))
        raise


def _check(series: Series, number: int, threshold: float) -> SeriesCheck:
    checked = check_newest(series.source, new=number, threshold=threshold)
    lost: dict[CaseKey, Status] = {}
    if checked is not None:
        tried = {case_key(t.case): t.status for t in series.releases[number].side.trials}
        gone = checked.comparison.only_base
        lost = {k: tried[k] for k in gone if k in tried and tried[k] not in _SAYS_NOTHING}
    if checked is None or not (checked.comparison.cases or lost):
        raise UsageError(
            f"{series.releases[number].side.name} has no release before it with a case in common;"
            f" releases there are: {', '.join(series.versions)}; measure it beside an earlier one:"
            " collbench history run"
        )
    return SeriesCheck(
        series=series,
        checked=checked,
        before=_compared(
            series, [checked.before], number, checked.comparison, threshold, checked.alpha
        ),
        best={
            window: _against(series, window, number, threshold, alpha)
            for window, alpha in sorted({o.window: o.alpha for o in checked.below_best}.items())
        },
        lost=lost,
        untried=tuple(key for key in checked.comparison.only_base if key not in lost),
    )


def bisect_series(series: Series, *, threshold: float = _THRESHOLD) -> Bisected:
    """Returns where cases of a history changed.

    Args:
        series: two releases or more.
        threshold: a smaller change is of no interest, as a share.
    """
    return bisect_changes(series.source, threshold=threshold)


def _against(series: Series, window: Window, new: int, threshold: float, alpha: float) -> Compared:
    tables = series.source.tables(window, new)
    comparison = compare_tables(tables, threshold=threshold, alpha=alpha)
    return _compared(series, window, new, comparison, threshold, alpha)


def _compared(
    series: Series,
    base: Sequence[int],
    new: int,
    comparison: Comparison,
    threshold: float,
    alpha: float,
) -> Compared:
    sides = series.sides(base, new)
    return compared_by(
        comparison,
        sides,
        (sides[0].trials, sides[1].trials),
        _differing(sides[0].runs, sides[1].runs),
        threshold=threshold,
        alpha=alpha,
    )


def _differing(base: Sequence[StoredRun], new: Sequence[StoredRun]) -> Differences:
    """Returns what differs beside the release; runs of a series are of one shape as wholes."""
    try:
        return differences(base, new)
    except UsageError:
        return Differences(shape=(), software=(), measuring=(), planted=())
