"""A comparison in words: the counts, what is slower and faster and where it sits, what differs.

The content is made once, as sections of lines and tables; text and Markdown are two ways to write
it down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from collbench.analyze.compare import FEWEST_REPEATS, CaseComparison, Doubt, Verdict
from collbench.analyze.compared import Compared
from collbench.analyze.curves import Curve, name_among
from collbench.analyze.keys import CaseKey
from collbench.analyze.located import Kind
from collbench.model import Case
from collbench.report.comparison_curves import curves_section
from collbench.report.proof import ran_text
from collbench.report.repeats_command import repeats_command
from collbench.report.sections import Section, sections_markdown, sections_text
from collbench.units import format_size, format_time_us

_ROWS = 20
"""Of UNCLEAR cases for one reason."""
_NAMED = 3
_COUNTED = (Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.UNCLEAR)
_HEAD = ("<case", "size", "base -> new us", "change", "<95 % interval")

_DOUBTS = {
    Doubt.BIMODAL: "repeats disagree: bimodal",
    Doubt.JUMPS: "repeats of other cases jump as far",
    Doubt.MISSING: "repeats are missing",
    Doubt.NOISY: "noisy",
    Doubt.NOT_SURE: "not sure over so many cases",
    Doubt.AT_THRESHOLD: "about as large as the threshold",
    Doubt.TOO_FEW: "too few repeats",
}
_CHOICE = "compare what ran (collbench show); force the choice of before with sweep --algo, --proto"
_NEXT = {
    Kind.ALPHA: _CHOICE,
    Kind.BANDWIDTH: "compare the paths, devices and channels that ran (collbench show of both)",
    Kind.BOTH: _CHOICE,
    Kind.SWITCH: _CHOICE,
    Kind.NOT_LOCATED: "measure more sizes round the slower ones (sweep -b, -e, -f 2)",
}


def comparison_text(found: Compared) -> str:
    """Returns a comparison as text, or the one line of what it needs."""
    if found.comparison.needs is not None:
        return needs_line(found)
    return sections_text(list(_opening(found)), list(_sections(found)))


def comparison_markdown(found: Compared) -> str:
    """Returns the same as Markdown."""
    if found.comparison.needs is not None:
        return needs_line(found)
    return sections_markdown(list(_opening(found)), list(_sections(found)))


def comparison_conclusion(found: Compared) -> list[str]:
    """Returns what a comparison comes to, a sentence a line, the first with what was compared."""
    if found.comparison.needs is not None:
        return [f"{_title(found)}: {needs_line(found)}"]
    first, *rest = _conclusion(found, case_names(found))
    return [f"{_title(found)}: {first}", *rest]


def needs_line(found: Compared) -> str:
    """Returns the one line of a comparison with too few repeats; with the command to run."""
    counts = (found.comparison.base_repeats, found.comparison.new_repeats)
    commands: dict[str, list[str]] = {}
    for word, side, count in zip(("base", "new"), (found.base, found.new), counts, strict=True):
        if count < FEWEST_REPEATS:
            commands.setdefault(repeats_command(side.runs[0].run.argv), []).append(word)
    texts = [f"{command} ({' and '.join(words)})" for command, words in commands.items()]
    return f"{found.comparison.needs}: {'; '.join(texts)}"


def case_names(found: Compared) -> dict[CaseKey, str]:
    """Returns the words that tell each case's curve from the others: ``all_reduce graph``."""
    common = {case.key: found.cases[case.key] for case in found.comparison.cases}
    return _names(found.cases) | _names(common)


def _names(cases: Mapping[CaseKey, Case]) -> dict[CaseKey, str]:
    curves = {(*key.question, key.mode): Curve(case=case, points=()) for key, case in cases.items()}
    names = {
        asked: name_among(curve, list(curves.values()), always=("mode",))
        for asked, curve in curves.items()
    }
    return {key: names[*key.question, key.mode] for key in cases}


def _opening(found: Compared) -> Iterator[str]:
    comparison, unclear = found.comparison, found.comparison.of(Verdict.UNCLEAR)
    old, new = comparison.base_repeats, comparison.new_repeats
    repeats = f"{old} repeats each" if old == new else f"{old} and {new} repeats"
    counts = ", ".join(f"{len(comparison.of(verdict))} {verdict}" for verdict in _COUNTED)
    doubts = Counter(case.doubt for case in unclear if case.doubt)
    if len(doubts) == 1:
        counts += f" ({_DOUBTS[next(iter(doubts))]})"
    elif doubts:
        parts = (f"{count} {doubt.replace('_', ' ')}" for doubt, count in doubts.most_common())
        counts += f" ({', '.join(parts)})"
    cases = f"{len(comparison.cases)} case{'s' * (len(comparison.cases) != 1)}"
    simulated = "SIMULATED: " * found.simulated
    yield f"{simulated}{_title(found)}: {cases}, {repeats}: {counts}"
    yield from (f"PLANTED: {line}" for line in found.differences.planted)
    if found.forced:
        yield (
            "FORCED: the sides have different shapes, so this says nothing of software alone:"
            f" {'; '.join(difference.text for difference in found.forced)}"
        )


def _title(found: Compared) -> str:
    """Returns what is compared: the one thing that differs, or else the sides' names."""
    differences = [*found.differences.software, *found.differences.measuring]
    if len(differences) != 1 or found.forced:
        return f"{found.new.name} against {found.base.name}"
    (only,) = differences
    name = "" if only.name == "setting" else f"{only.name} "
    return f"{name}{only.new} against {only.base}"


def _sections(found: Compared) -> Iterator[Section]:
    names = case_names(found)
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        cases = found.comparison.of(verdict)
        if cases:
            yield claimed_section(found, names, cases, f"{verdict} ({len(cases)})")
    yield from _unclear(found, names)
    if found.location.curves:
        yield curves_section(found, names)
    yield _differing(found)
    yield from _one_sided(found, names)
    bar = _share(found.threshold)
    yield Section(
        title="How it was decided",
        lines=[
            found.comparison.test,
            f"SLOWER and FASTER: p < {found.alpha:g} over all cases of the table, and beyond {bar}",
            f"SAME: the case's own 95 % interval lies within {bar}",
        ],
    )
    yield Section(title="Conclusion", lines=tuple(_conclusion(found, names)))


def claimed_section(
    found: Compared, names: Mapping[CaseKey, str], cases: Sequence[CaseComparison], title: str
) -> Section:
    """Returns cases that are slower or faster, with where each change sits.

    Args:
        found: the comparison that they are of.
        names: from ``case_names``.
        cases: some of its cases.
        title: of the section.
    """
    places: dict[tuple[str, str], list[CaseComparison]] = {}
    rows = []
    for case in cases:
        rows.append((*_row(names, case), f"{_change(_sure_ratio(case))} %"))
        phrase = found.location.places[case.key].text
        if ran := _ran(found, case.key):
            phrase = f"{phrase}; {ran}"
        places.setdefault((names[case.key], phrase), []).append(case)
    lines = [f"{name} {_sizes(some)}: {phrase}" for (name, phrase), some in places.items()]
    return Section(
        title=title,
        head=(*_HEAD, "surely beyond"),
        rows=rows,
        lines=lines,
    )


def _row(names: Mapping[CaseKey, str], case: CaseComparison) -> tuple[str, ...]:
    return (
        names[case.key],
        format_size(case.key.size_bytes),
        f"{format_time_us(case.base_us)} -> {format_time_us(case.new_us)}",
        *change_cells(case),
    )


def change_cells(case: CaseComparison) -> tuple[str, str]:
    """Returns a change and its 95 % interval: ``+9.6 %``, ``[+7.5, +11.8]``."""
    interval = "-"
    if case.low is not None and case.high is not None:
        interval = f"[{_change(case.low)}, {_change(case.high)}]"
    return f"{_change(case.ratio)} %", interval


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"


def _sure_ratio(case: CaseComparison) -> float:
    """Returns the ratio that the true one is surely beyond, on the same side of 1."""
    return 1 + case.surely if case.verdict is Verdict.SLOWER else 1 / (1 + case.surely)


def _share(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _sizes(cases: Sequence[CaseComparison]) -> str:
    """Returns the sizes of rising cases of one curve; of many the ends and their number."""
    texts = [format_size(case.key.size_bytes) for case in cases]
    if len(texts) <= _NAMED:
        return ", ".join(texts)
    return f"{texts[0]} to {texts[-1]} ({len(texts)} sizes)"


def _ran(found: Compared, key: CaseKey) -> str:
    """Returns what ran on both sides, where it is known and not the same."""
    base, new = (ran_text(proof) for proof in found.ran[key])
    return f"ran {base}, now {new}" if base and new and base != new else ""


def _unclear(found: Compared, names: dict[CaseKey, str]) -> Iterator[Section]:
    groups: dict[Doubt, list[CaseComparison]] = {}
    for case in found.comparison.of(Verdict.UNCLEAR):
        groups.setdefault(case.doubt or Doubt.NOISY, []).append(case)
    for doubt, cases in sorted(groups.items(), key=lambda group: -len(group[1])):
        shown = cases[:_ROWS]
        more = [f"and {len(cases) - _ROWS} more"] if len(cases) > _ROWS else []
        # Of a group of one reason the interval stands in the row; else the reason says more.
        reasons = {case.reason for case in cases if case.low is None or doubt is Doubt.JUMPS}
        yield Section(
            title=f"UNCLEAR ({len(cases)}): {_DOUBTS[doubt]}",
            head=_HEAD,
            rows=[_row(names, case) for case in shown],
            lines=[*more, *sorted(reason for reason in reasons if reason)],
        )


def _differing(found: Compared) -> Section:
    differences = found.differences
    parts = (
        ("shape", differences.shape),
        ("software", differences.software),
        ("measuring", differences.measuring),
    )
    lines = [f"{name}: {one.name} {one.base} -> {one.new}" for name, ones in parts for one in ones]
    return Section(
        title="What differs, base -> new",
        lines=lines or ["nothing that was recorded: shape, software and measuring are the same"],
    )


def _one_sided(found: Compared, names: dict[CaseKey, str]) -> Iterator[Section]:
    sides = (("base", found.comparison.only_base), ("new", found.comparison.only_new))
    lines = []
    for word, keys in sides:
        if keys:
            first = [f"{names[key]} {format_size(key.size_bytes)}" for key in keys[:_NAMED]]
            more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
            lines.append(f"{len(keys)} only in {word}: {', '.join(first)}{more}")
    if lines:
        yield Section(title="Cases of one side, not compared", lines=lines)


def _conclusion(found: Compared, names: dict[CaseKey, str]) -> Iterator[str]:
    comparison = found.comparison
    slower, faster = comparison.of(Verdict.SLOWER), comparison.of(Verdict.FASTER)
    for word, cases in (("slower", slower), ("faster", faster)):
        if cases:
            most = max(cases, key=lambda case: case.surely)
            where = f"{names[most.key]} {format_size(most.key.size_bytes)}"
            verb = "is" if len(cases) == 1 else "are"
            yield (
                f"{len(cases)} of {len(comparison.cases)} cases {verb} {word}; most of all {where}:"
                f" {_change(most.ratio)} %, surely beyond {_change(_sure_ratio(most))} %"
            )
    unclear = comparison.of(Verdict.UNCLEAR)
    if not slower and not faster:
        rest = f" {len(unclear)} cannot be told." if unclear else ""
        same = len(comparison.of(Verdict.SAME))
        yield f"nothing is slower or faster: {same} of {len(comparison.cases)} are the same.{rest}"
    if unclear:
        fewer = comparison.base_repeats < comparison.new_repeats
        count = min(comparison.base_repeats, comparison.new_repeats)
        side = found.base if fewer else found.new
        command = repeats_command(side.runs[0].run.argv, 2 * count)
        yield f"for the UNCLEAR more repeats: {command}"
    if slower and not found.interleaved:
        kinds = Counter(found.location.places[case.key].kind for case in slower)
        (kind, _), *_ = kinds.most_common(1)
        yield f"next: {_NEXT[kind]}"
    if (slower or faster) and not found.interleaved and not found.simulated:
        yield "two runs after each other may differ by drift: collbench ab measures interleaved"
