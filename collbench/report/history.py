"""A history in words: what the newest release changed, where cases changed, time over release.

As ``report.comparison`` its content is made once, as sections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from collbench.analyze.compare import CaseComparison, Verdict
from collbench.analyze.curves import Curve, name_among
from collbench.analyze.history import WORDS, Histories, Series
from collbench.analyze.history_bisect import Bisected, Change
from collbench.analyze.history_check import Window
from collbench.analyze.history_verdict import SeriesCheck
from collbench.analyze.keys import CaseKey
from collbench.report.comparison import case_names, change_cells, claimed_section, needs_line
from collbench.report.sections import Section, sections_text
from collbench.stats import geometric_mean
from collbench.units import format_size, format_time_us

_NOTHING = ("none", "no")
_MARKS = {Verdict.SLOWER: "+", Verdict.FASTER: "-"}


def series_words(series: Series) -> str:
    """Returns what a history stands on, in a line."""
    facts = {name: value for name, value in series.facts.items() if value not in _NOTHING}
    hardware = [facts.pop(name, "") for name in ("hardware", "placement")]
    rest = [f"{name} {value}" for name, value in facts.items()]
    return ", ".join(word for word in (*hardware, *rest) if word)


def histories_lines(histories: Histories, shown: Sequence[Series]) -> list[str]:
    """Returns what a reader must know of the runs that the answer does not stand on.

    Args:
        histories: all of them.
        shown: those that have an answer of their own.
    """
    lines = [f"left out: {text}" for text in histories.left_out]
    others = [one for one in histories.series if one not in shown]
    lines += [
        f"apart, too few releases ({', '.join(one.versions)}): {series_words(one)}"
        for one in others
    ]
    if len(histories.series) > 1 and histories.differing:
        names = ", ".join(histories.differing)
        lines.append(f"{len(histories.series)} histories: they differ in {names}")
    return lines


def check_text(found: SeriesCheck) -> str:
    """Returns what the newest release changed, or the one line of what that needs."""
    if _needs(found):
        return f"{_title(found)}: {needs_line(found.before)}"
    return sections_text(list(_opening(found)), list(_check_sections(found)))


def check_conclusion(found: SeriesCheck) -> list[str]:
    """Returns what a check comes to, a sentence a line, the first with what was checked."""
    if _needs(found):
        return [check_text(found)]
    first, *rest = _conclusion(found)
    return [f"{_title(found)}: {first}", *rest]


def _needs(found: SeriesCheck) -> bool:
    return found.before.comparison.needs is not None and not found.regressed


def _title(found: SeriesCheck) -> str:
    axis, versions = WORDS[found.series.axis], found.series.versions
    newest = "the newest " * (found.checked.new == len(versions) - 1)
    return f"{axis} {found.new.version}, {newest}of {len(versions)} releases"


def _opening(found: SeriesCheck) -> Iterator[str]:
    comparison, before = found.before.comparison, found.series.releases[found.checked.before]
    counts = ", ".join(f"{len(comparison.of(verdict))} {verdict}" for verdict in Verdict)
    simulated = "SIMULATED: " * found.before.simulated
    cases = f"{len(comparison.cases)} case{'s' * (len(comparison.cases) != 1)}"
    yield f"{simulated}{_title(found)}: {cases} against {before.version}: {counts}"
    yield series_words(found.series)
    yield from (f"PLANTED: {line}" for line in found.before.differences.planted)
    for version in found.passed_over:
        yield f"{version} is newer and shares no case with earlier releases: nothing is said of it"
    for one in found.before.differences.shape:
        yield f"DIFFERS beside the release: {one.text}"


def _check_sections(found: SeriesCheck) -> Iterator[Section]:
    names, before = case_names(found.before), found.series.releases[found.checked.before].version
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        cases = found.before.comparison.of(verdict)
        if cases:
            yield claimed_section(
                found.before, names, cases, f"{verdict} than {before} ({len(cases)})"
            )
    for window, compared in found.best.items():
        below = found.below(window)
        title = f"SLOWER than {_window_words(found.series, window)} ({len(below)})"
        yield claimed_section(compared, case_names(compared), below, title)
    yield from _gone(found, before)
    yield Section(title="How it was decided", lines=list(_how(found)))
    yield Section(title="Conclusion", lines=list(_conclusion(found)))


def _gone(found: SeriesCheck, before: str) -> Iterator[Section]:
    """Yields the cases of the release before that have no time on the newest."""
    names = series_names(found.series)
    if found.lost:
        ends: dict[tuple[str, str], list[CaseKey]] = {}
        for key, status in found.lost.items():
            ends.setdefault((names[key], str(status)), []).append(key)
        lines = [f"{name} {_sizes(keys)}: {status}" for (name, status), keys in ends.items()]
        yield Section(title=f"NO LONGER OK, ok on {before} ({len(found.lost)})", lines=lines)
    if found.untried:
        curves: dict[str, list[CaseKey]] = {}
        for key in found.untried:
            curves.setdefault(names[key], []).append(key)
        lines = [f"{name} {_sizes(keys)}" for name, keys in curves.items()]
        yield Section(
            title=f"Not measured on {found.new.version} ({len(found.untried)})", lines=lines
        )


def _sizes(keys: Sequence[CaseKey]) -> str:
    ordered = sorted(keys, key=lambda key: key.size_bytes)
    first, last = (format_size(key.size_bytes) for key in (ordered[0], ordered[-1]))
    return first if len(ordered) == 1 else f"{first} to {last} ({len(ordered)} sizes)"


def _window_words(series: Series, window: Window) -> str:
    return f"the best earlier ({', '.join(series.versions[number] for number in window)})"


def _how(found: SeriesCheck) -> Iterator[str]:
    yield found.before.comparison.test
    windows = {one.window for one in found.checked.best.values()}
    if windows:
        yield (
            "the best earlier releases of a case are the 3 in a row with the lowest median:"
            f" {len(windows)} such; the chance of a false alarm (1 % in all) is shared out"
        )
    else:
        yield "no best earlier releases: that takes 3 before it"
    if found.before.interleaved:
        yield "both were measured in one go, interleaved"
    else:
        yield (
            "not measured in one go: what drifts between runs looks like a release; 'collbench"
            " history run' measures interleaved"
        )


def _conclusion(found: SeriesCheck) -> Iterator[str]:
    comparison, checked = found.before.comparison, found.checked
    before = found.series.releases[checked.before].version
    if not checked.regressed:
        same, unclear = comparison.of(Verdict.SAME), comparison.of(Verdict.UNCLEAR)
        rest = f"; {len(unclear)} cannot be told" if unclear else ""
        if found.untried:
            rest += f"; {len(found.untried)} were not measured on {found.new.version}"
        yield f"nothing is slower: {len(same)} of {len(comparison.cases)} cases are the same{rest}"
    if found.lost:
        kinds = ", ".join(sorted({str(status) for status in found.lost.values()}))
        count = f"{len(found.lost)} case{'s' * (len(found.lost) != 1)}"
        yield f"{count} that were ok on {before} are so no more ({kinds}): collbench show says why"
    if checked.slower:
        yield _most(found, checked.slower, "slower", f"than {before}", case_names(found.before))
    for window, compared in found.best.items():
        than = f"than {_window_words(found.series, window)}"
        yield _most(found, found.below(window), "slower", than, case_names(compared))
    if checked.faster:
        yield _most(found, checked.faster, "faster", f"than {before}", case_names(found.before))
    if checked.regressed:  # what no longer works has no time to bisect
        yield "next: collbench history bisect names the release of each change"


def _most(
    found: SeriesCheck,
    cases: Sequence[CaseComparison],
    word: str,
    than: str,
    names: Mapping[CaseKey, str],
) -> str:
    most = max(cases, key=lambda case: case.surely)
    total = len(found.before.comparison.cases)
    return (
        f"{len(cases)} of {total} cases {'is' if len(cases) == 1 else 'are'} {word} {than}; most of"
        f" all {names[most.key]} {format_size(most.key.size_bytes)}: {change_cells(most)[0]}"
    )


def bisect_text(series: Series, found: Bisected) -> str:
    """Returns the changes of a history, case by case."""
    versions = series.versions
    if found.needs_repeats and not found.changes:
        count = found.needs_repeats
        return (
            f"{_releases_words(series)}: cannot tell, too few repeats: needs {count} more of each"
            f" release: collbench history run --nccl {','.join(versions)}"
        )
    names = series_names(series)
    slower = [one for one in found.changes if one.case.verdict is Verdict.SLOWER]
    faster = [one for one in found.changes if one.case.verdict is Verdict.FASTER]
    counts = f"{len(slower)} slower, {len(faster)} faster in {len(series.cases)} cases"
    opening = [f"{_releases_words(series)}: {counts}", series_words(series)]
    sections = []
    for word, changes in (("SLOWER", slower), ("FASTER", faster)):
        if changes:
            rows = [_change_row(series, names, one) for one in changes]
            sections.append(
                Section(
                    title=f"{word} ({len(changes)})",
                    head=("<case", "size", "<changed with", "<from", "change", "<95 % interval"),
                    rows=rows,
                )
            )
    count = len({one.case.key for one in found.changes})
    rest = len(series.cases) - count
    lines = [f"{rest} of {len(series.cases)} cases show no change that is sure"]
    if found.needs_repeats:
        lines.append(f"some releases have too few repeats: {found.needs_repeats} more are needed")
    lines.append(
        f"every two of {len(versions)} releases were compared ({found.pairs} pairs), and 1 % is"
        " the chance that any change is named though there is none"
    )
    sections.append(Section(title="The rest", lines=lines))
    return sections_text(opening, sections)


def _releases_words(series: Series) -> str:
    versions = series.versions
    return f"{WORDS[series.axis]} {versions[0]} to {versions[-1]} ({len(versions)} releases)"


def _change_row(series: Series, names: Mapping[CaseKey, str], one: Change) -> tuple[str, ...]:
    case, versions = one.case, series.versions
    between = [
        versions[number]
        for number in range(one.base + 1, one.new + 1)
        if case.key in series.releases[number].times
    ]
    return (
        names[case.key],
        format_size(case.key.size_bytes),
        between[0] if one.named else f"one of {', '.join(between)}",
        versions[one.base],
        *change_cells(case),
    )


def series_names(series: Series) -> dict[CaseKey, str]:
    """Returns the words that tell each case's curve from the others: ``all_reduce graph``."""
    curves = {
        (*key.question, key.mode): Curve(case=case, points=()) for key, case in series.cases.items()
    }
    names = {
        asked: name_among(curve, list(curves.values()), always=("mode",))
        for asked, curve in curves.items()
    }
    return {key: names[*key.question, key.mode] for key in series.cases}


def show_text(series: Series, changes: Sequence[Change]) -> str:
    """Returns a table of time over release: a row a case, a column a release.

    Args:
        series: the history.
        changes: from ``bisect_series``; they are marked.
    """
    names = series_names(series)
    marks = {(one.case.key, one.new): _MARKS[one.case.verdict] for one in changes}
    rows: dict[str, list[tuple[str, ...]]] = {}
    for key in sorted(series.cases, key=lambda key: key.size_bytes):
        cells = [
            f"{format_time_us(geometric_mean(release.times[key]))}{marks.get((key, number), ' ')}"
            if key in release.times
            else "-"
            for number, release in enumerate(series.releases)
        ]
        rows.setdefault(names[key], []).append((format_size(key.size_bytes), *cells))
    counts = [str(release.repeats) for release in series.releases]
    sections = [
        Section(title=f"{name}, us", head=("size", *series.versions), rows=cases)
        for name, cases in rows.items()
    ]
    legend = [
        f"repeats: {', '.join(f'{v} {c}' for v, c in zip(series.versions, counts, strict=True))}",
        "+ slower and - faster, surely, than before; 'collbench history bisect' says by how much",
    ]
    sections.append(Section(title="How to read it", lines=legend))
    return sections_text([_releases_words(series), series_words(series)], sections)
