"""The last lines: the figures to remember, what stands out, where it is kept."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from collbench.analyze.curves import Curve, curves
from collbench.model import Finding, Trial
from collbench.report.table import WIDTH, LimitOf
from collbench.units import approximate_size, format_size, format_time_us


def closing(
    trials: Sequence[Trial],
    findings: Sequence[Finding],
    limit_of: LimitOf,
    folder: Path,
    name: str,
) -> str:
    """Returns the closing paragraph.

    Args:
        trials: of the run.
        findings: what stands out.
        limit_of: what the wire allows for a case, or None.
        folder: where the run is kept.
        name: what to call it in the next commands: ``last``, or the folder.
    """
    lines = [_figures(curve, limit_of) for curve in curves(trials)]
    if findings:
        lines += ["", "What stands out"]
        for finding in findings:
            text = finding.text + (f" Next: {finding.next_step}." if finding.next_step else "")
            lines += textwrap.wrap(text, WIDTH, initial_indent="  * ", subsequent_indent="    ")
            if finding.severity == "bad":
                lines += [f"      {line}"[:WIDTH] for line in finding.evidence[-6:]]
    lines += ["", f"Kept in {folder}", f"  collbench plot {name}", f"  collbench show {name}"]
    return "\n".join(lines)


def _figures(curve: Curve, limit_of: LimitOf) -> str:
    case, quick, peak = curve.case, curve.quickest, curve.peak
    words = [f"{case.collective} {case.dtype} {case.mode}:"]
    if peak is not None and peak.busbw_gb_per_s is not None:
        limit = limit_of(case)
        share = ""
        if limit is not None:
            share = f" ({peak.busbw_gb_per_s / limit.busbw_gb_per_s:.0%} of {limit.text})"
        rate = f"{peak.busbw_gb_per_s:.4g}"
        words.append(f"{rate} GB/s busbw at {format_size(peak.size_bytes)}{share}")
        half = curve.half_size_bytes()
        words.append(f", half of it from {approximate_size(half)};" if half else ";")
    words.append(f"{format_time_us(quick.time_us)} us at {format_size(quick.size_bytes)}.")
    return " ".join(words).replace(" ,", ",").replace(" ;", ";")
