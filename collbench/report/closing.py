"""The last lines: the figures to remember, what stands out, where it is kept."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from collbench.analyze.curves import Curve, curves, name_among, question
from collbench.analyze.limit import LimitOf
from collbench.model import Finding, Run, Status, Trial
from collbench.report.table import WIDTH
from collbench.units import approximate_size, format_duration, format_size, format_time_us

_EVIDENCE_LINES = 6


def closing(
    figures: Sequence[str],
    findings: Sequence[Finding],
    folder: Path,
    name: str,
    *,
    took: str | None = None,
) -> str:
    """Returns the closing paragraph.

    Args:
        figures: the lines to remember (``figure_lines``).
        findings: what stands out.
        folder: where the run is kept.
        name: what to call it in the next commands: ``last``, or the folder.
        took: how long it took (``took_line``), where that is known.
    """
    lines = []
    for line in figures:
        lines += wrapped(line, "", "    ")
    if findings:
        lines += [*([""] if lines else []), "What stands out"]
        for finding in findings:
            lines += wrapped(finding_text(finding), "  * ", "    ")
            if finding.severity == "bad":
                for line in finding.evidence[-_EVIDENCE_LINES:]:
                    lines += wrapped(line, " " * 6, " " * 8)
    run = shlex.quote(name)
    lines += ["", *([] if took is None else [took])]
    lines += [f"Kept in {folder}", f"  collbench plot {run}", f"  collbench show {run}"]
    return "\n".join(lines)


def took_line(run: Run, trials: Sequence[Trial]) -> str | None:
    """Returns how long a run took, and what of it; None where the parts are not known.

    A trial's duration is from its first preparation to its last check; starting and connecting
    processes, and proving in processes of their own, are outside of it. Of a run that was resumed
    nobody knows when its earlier part ended; a model's durations are no wall time.

    Args:
        run: its header.
        trials: all of it.
    """
    if run.ended_at is None or run.resumed_at or run.simulated:
        return None
    span = datetime.fromisoformat(run.ended_at) - datetime.fromisoformat(run.started_at)
    took_s = span.total_seconds()
    cases_s = sum(trial.duration_s for trial in trials)
    if cases_s <= 0 or cases_s + run.proof_s > took_s:  # taken in, or a clock was set meanwhile
        return None
    proved = f"; {format_duration(run.proof_s)} proving what ran" if run.proof_s > 0 else ""
    return (
        f"Took {format_duration(took_s)}: {format_duration(cases_s)} in cases, warm-up and checks"
        f" included{proved}."
    )


def figure_lines(trials: Sequence[Trial], limit_of: LimitOf) -> list[str]:
    """Returns a line a curve: its quickest call and its peak; of what was asked for and ran."""
    found = curves(trials)
    ran = {question(trial.case) for trial in trials if trial.status is not Status.PATH_NOT_USED}
    return [
        f"{name_among(curve, found, always=('dtype', 'mode'))}: {_figures(curve, limit_of)}"
        for curve in _worth_a_line([curve for curve in found if question(curve.case) in ran])
    ]


def finding_text(finding: Finding) -> str:
    """Returns what was found, and what to do next."""
    if not finding.next_step:
        return finding.text
    return f"{finding.text} Next: {finding.next_step}{'' if finding.next_step[-1] == '?' else '.'}"


def _worth_a_line(found: Sequence[Curve]) -> list[Curve]:
    """Returns all curves, or of several settings what the tables' first columns show."""
    first: dict[tuple[object, ...], Curve] = {}
    for curve in found:
        first.setdefault(question(msgspec.structs.replace(curve.case, setting={})), curve)
    return list(first.values())


def wrapped(text: str, first: str, rest: str) -> list[str]:
    """Returns lines of at most ``WIDTH``; options and paths stay whole, to be copied."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _figures(curve: Curve, limit_of: LimitOf) -> str:
    quick, peak = curve.quickest, curve.peak
    least = f"{format_time_us(quick.time_us)} us at {format_size(quick.size_bytes)}."
    if peak is None or peak.busbw_gb_per_s is None:
        return least
    rate = f"{peak.busbw_gb_per_s:.4g} GB/s busbw at {format_size(peak.size_bytes)}"
    limit, half = limit_of(curve.case, peak.proof), curve.half_size_bytes()
    share = f" ({peak.busbw_gb_per_s / limit.busbw_gb_per_s:.0%} of the limit)" if limit else ""
    from_half = f", half of it from {approximate_size(half)}" if half else ""
    return f"{rate}{share}{from_half}; {least}"
