"""Bars in words: what was held against what, who is below, what could not be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from collbench.analyze.bars import BarReport, Bars, BarVerdict, CaseBar, PeakBar
from collbench.analyze.baseline import Baseline, HardwareClass, Software
from collbench.model import Case, Finding
from collbench.nccl.settings import setting_text
from collbench.units import format_size, format_time_us

MOST_ROWS = 20
"""Cases of one verdict that are shown."""

_BELOW_CODES = {
    "--min-busbw": "below_min_busbw",
    "--min-of-limit": "below_min_of_limit",
}
BAR_CODES = frozenset({"below_baseline", "bar_unclear", "bars_met", *_BELOW_CODES.values()})
"""Codes of findings that the section says in full."""

_MET = "Every bar is met."
_NOTHING_HELD = "Cannot tell: no case was held against a bar."
_SOFTWARE = {"NCCL": "nccl", "torch": "torch", "driver": "driver", "collbench": "collbench"}
_SHOWN = {BarVerdict.BELOW: "BELOW", BarVerdict.UNCLEAR: "unclear", BarVerdict.MET: "pass"}


def hardware_words(hardware: HardwareClass) -> str:
    """Returns a class of hardware: ``2 x NVIDIA H200 a node, 1 node, 2 ranks nccl``."""
    gpus = " or ".join(str(count) for count in hardware.gpus_per_node if count)
    models = " or ".join(hardware.models)
    place = f"{gpus} x {models} a node" if gpus else f"CPUs ({models})"
    words = [place, _counted(hardware.nodes, "node")]
    words += [f"{hardware.ranks} ranks {hardware.backend}", *hardware.nics]
    return ", ".join(words + ["EMULATED"] * hardware.emulated)


def software_words(baseline: Baseline) -> str:
    """Returns what a baseline came from: ``NCCL 2.28.9, torch 2.11.0, collbench 0.1.0``."""
    versions = {word: _versions(baseline, name) for word, name in _SOFTWARE.items()}
    return ", ".join(f"{word} {text}" for word, text in versions.items() if text != "none")


def _versions(baseline: Baseline, name: str) -> str:
    return " and ".join(dict.fromkeys(str(getattr(it, name) or "none") for it in baseline.software))


def _other_software(baseline: Baseline, here: Software | None) -> list[str]:
    lines = []
    for word, name in _SOFTWARE.items():
        was, is_now = _versions(baseline, name), str(getattr(here, name) or "none")
        if was != is_now:
            lines.append(f"    other software: {word} {was} there, {is_now} here")
    return lines


def repeats_words(baseline: Baseline) -> str:
    """Returns how many repeats its cases have: ``5 repeats``, ``3 to 5 repeats``."""
    counts = sorted({case.repeats for case in baseline.cases})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} repeats"
    return _counted(counts[0], "repeat")


def case_words(case: Case, *, size: bool = True) -> str:
    """Returns a case in words: ``all_gather float32 64 MiB graph (Ring/LL)``."""
    words = [case.collective, case.dtype]
    words += [case.redop] if case.redop not in (None, "sum") else []
    words += [f"root {case.root}"] if case.root else []
    words += [format_size(case.size_bytes)] if size else []
    words.append(str(case.mode))
    words += [f"({setting_text(case.setting)})"] if case.setting else []
    return " ".join(words)


def bar_lines(report: BarReport, bars: Bars) -> list[str]:
    """Returns the section of a report about its bars, the conclusion last."""
    lines = ["Bars"]
    if bars.baseline is not None:
        lines += _baseline_lines(report, bars, bars.baseline)
    lines += [_peak_line(peak) for peak in report.peaks]
    return [*lines, f"  {_conclusion(report, bars)}"]


def _baseline_lines(report: BarReport, bars: Bars, baseline: Baseline) -> list[str]:
    counts = Counter(case.verdict for case in report.cases)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in BarVerdict if counts[verdict])
    lines = [
        f"  baseline {bars.source} ({repeats_words(baseline)}; {software_words(baseline)})",
        f"    {told}; tolerance {100 * bars.tolerance:g} %",
    ]
    for verdict in (BarVerdict.BELOW, BarVerdict.UNCLEAR):
        lines += _rows([case for case in report.cases if case.verdict is verdict])
    if report.not_measured:
        lines.append(f"    {_counted(report.not_measured, 'case')} of the baseline not in this run")
    return [*lines, *_other_software(baseline, report.software)]


def _rows(cases: Sequence[CaseBar]) -> list[str]:
    """Returns rows of one verdict, the slowest first."""
    ordered = sorted(cases, key=lambda case: -(case.ratio or 0.0))
    shown = ordered[:MOST_ROWS]
    width = max((len(case_words(case.case)) for case in shown), default=0)
    lines = [f"    {_SHOWN[case.verdict]:<8}{_case_text(case, width)}" for case in shown]
    more = len(ordered) - len(shown)
    return lines + ([f"            and {more} more"] if more else [])


def _case_text(case: CaseBar, width: int = 0) -> str:
    words = f"{case_words(case.case):<{width}}"
    reason = f"  {case.reason}" if case.reason else ""
    if case.ratio is None or case.reference_us is None or case.time_us is None:
        return words + reason
    times = f"{format_time_us(case.reference_us)} -> {format_time_us(case.time_us)} us"
    interval = ""
    if case.low is not None and case.high is not None:
        interval = f" [{case.low - 1:+.1%}, {case.high - 1:+.1%}]"
    return f"{words}  {times}  {case.ratio - 1:+.1%}{interval}{reason}"


def _peak_line(peak: PeakBar) -> str:
    return f"  {_SHOWN[peak.verdict]:<8}{_peak_text(peak)}"


def _peak_text(peak: PeakBar) -> str:
    if peak.busbw_gb_per_s is None:
        return f"{case_words(peak.case, size=False)}  {peak.option} {peak.text}: {peak.reason}"
    bar = peak.text
    if peak.bar_gb_per_s is not None and peak.option == "--min-of-limit":
        bar = f"{peak.bar_gb_per_s:.4g} GB/s ({peak.text})"
    reason = f": {peak.reason}" if peak.reason else ""
    return f"{case_words(peak.case)}  {peak.busbw_gb_per_s:.4g} GB/s, {peak.option} {bar}{reason}"


def _conclusion(report: BarReport, bars: Bars) -> str:
    counts = Counter(item.verdict for item in report.judged)
    below, unclear = counts[BarVerdict.BELOW], counts[BarVerdict.UNCLEAR]
    if below:
        beside = f", {unclear} unclear" if unclear else ""
        return f"Bars missed: {below} below{beside}. Next: {_next_step(report, bars)}."
    if unclear:
        return f"Cannot tell: {unclear} unclear. Next: {_next_step(report, bars)}."
    return _MET if report.verdict is BarVerdict.MET else _NOTHING_HELD


def _next_step(report: BarReport, bars: Bars) -> str:
    """Returns what to do about the gravest verdict."""
    cases = [case for case in report.cases if case.verdict is report.verdict]
    if report.verdict is BarVerdict.BELOW:
        if cases and bars.baseline is not None:
            base = " ".join(bars.baseline.run_ids)
            return f"measure again; what stays, compare with {base} (collbench compare)"
        return "look at links and their rates: nvidia-smi nvlink -s, ibstat"
    if any(case.time_us is None for case in cases):
        return "see in the tables why cases were not measured"
    if any(case.low is None for case in cases):
        return "measure with --repeats 5; a baseline needs 3 repeats or more as well"
    if cases:
        return "measure with more --repeats, on nodes without other load"
    if any(peak.bar_gb_per_s is None for peak in report.peaks):
        return "give --min-busbw where no limit is known"
    return "measure with --repeats 5"


def bar_findings(report: BarReport, bars: Bars) -> list[Finding]:
    """Returns the verdicts as findings, the gravest first: ``bad`` is below."""
    found = []
    below = [case for case in report.cases if case.verdict is BarVerdict.BELOW]
    if below:
        text = f"Slower than the baseline {bars.source} by more than {100 * bars.tolerance:g} %:"
        text += f" {len(below)} of {_counted(len(report.cases), 'case')}"
        found.append(_finding("below_baseline", "bad", text, _by_slowdown(below)))
    for option, code in _BELOW_CODES.items():
        missed = [
            peak
            for peak in report.peaks
            if peak.option == option and peak.verdict is BarVerdict.BELOW
        ]
        if missed:
            text = f"Below {option}: {_counted(len(missed), 'peak')}"
            found.append(_finding(code, "bad", text, [_peak_text(peak) for peak in missed]))
    unclear = _by_slowdown([c for c in report.cases if c.verdict is BarVerdict.UNCLEAR])
    unclear += [_peak_text(peak) for peak in report.peaks if peak.verdict is BarVerdict.UNCLEAR]
    if unclear:
        text = f"Cannot tell whether {_counted(len(unclear), 'bar')} {_be(unclear)} met"
        found.append(_finding("bar_unclear", "warning", text, unclear))
    if found:
        first = msgspec.structs.replace(found[0], next_step=_next_step(report, bars))
        return [first, *found[1:]]
    if report.verdict is BarVerdict.NO_BAR:
        return [Finding(code="bar_unclear", severity="warning", text=_NOTHING_HELD)]
    return [Finding(code="bars_met", severity="info", text=_MET)]


def _by_slowdown(cases: Sequence[CaseBar]) -> list[str]:
    """Returns lines, the slowest last: where evidence is cut its end is shown."""
    return [_case_text(case) for case in sorted(cases, key=lambda case: case.ratio or 0.0)]


def _be(items: Sequence[object]) -> str:
    return "is" if len(items) == 1 else "are"


def _finding(code: str, severity: str, text: str, evidence: list[str]) -> Finding:
    return Finding(code=code, severity=severity, text=f"{text}.", evidence=evidence)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
