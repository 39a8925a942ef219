"""What a run's curves say: alpha and B by segment, the limit, best settings, what is odd."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from collbench.analyze.alphabeta import Fit, Segment
from collbench.analyze.best_table import BestTable
from collbench.analyze.curves import Curve, name_among
from collbench.analyze.laws import CurveLaw
from collbench.collectives import COLLECTIVES
from collbench.model import Finding, Run, Topology
from collbench.nccl.settings import setting_text
from collbench.report.best import best_json, best_lines
from collbench.report.closing import wrapped
from collbench.report.heading import heading
from collbench.report.repeats_command import repeats_command
from collbench.report.sections import Section, sections_text
from collbench.units import approximate_size, format_rate, format_size, format_time_us

SCHEMA = "collbench.analysis/1"
_MOST_NAMED = 6
_WHAT_IT_IS = (
    "time = alpha + S / B, a law for each span of sizes; B as bus bandwidth, GB/s; [intervals of"
    " 95 %]"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """Everything that is said of a run."""

    run: Run
    topology: Topology
    laws: Sequence[CurveLaw]
    best: BestTable | None
    flags: Sequence[Finding]
    name: str
    """What the next commands call the run."""

    def title(self, law: CurveLaw, always: Collection[str] = ("mode",)) -> str:
        """Returns the words that tell a curve from the others; ``always`` as of ``name_among``."""
        return name_among(law.curve, [other.curve for other in self.laws], always)


def analysis_text(found: Analysis) -> str:
    """Returns an analysis as text: curves, best settings, flags, conclusion."""
    run = found.run
    opening = [
        heading(run, found.topology),
        f"run {run.run_id}, {run.started_at[:16].replace('T', ' ')} UTC",
    ]
    curves = [Section(title=_WHAT_IT_IS), *(_curve(found, law) for law in found.laws)]
    blocks = [sections_text(opening, curves)]
    if found.best is not None:
        blocks.append("\n".join(best_lines(found.best, run.argv)))
    blocks.append(_block("What is odd", _flag_lines(found.flags)))
    blocks.append(_block("Conclusion", _conclusion(found)))
    return "\n\n".join(blocks)


def _block(title: str, texts: Sequence[str]) -> str:
    return "\n".join([title, *(line for text in texts for line in wrapped(text, "  ", "    "))])


def _curve(found: Analysis, law: CurveLaw) -> Section:
    """Returns a curve's laws, a row a segment."""
    title = found.title(law, ("dtype", "redop", "mode"))
    if law.fit is None:
        return Section(title=title, lines=[f"{law.too_few}.", _reached(law)])
    ran = [_ran(law, segment) for segment in law.fit.segments]
    head = ["<sizes", "points", "alpha us", "B GB/s", "half of B from"]
    rows = [_row(law, segment) for segment in law.fit.segments]
    if any(ran):
        head.append("<ran")
        rows = [[*row, words or "-"] for row, words in zip(rows, ran, strict=True)]
    return Section(title=title, head=head, rows=rows, lines=[_fitted(law.fit), _reached(law)])


def _row(law: CurveLaw, segment: Segment) -> list[str]:
    alpha = (segment.alpha_us, segment.alpha_low_us, segment.alpha_high_us)
    time, low, high = (format_time_us(value) for value in alpha)
    half = segment.half_size_bytes
    inside = segment.first_bytes <= half <= segment.last_bytes
    return [
        _span(segment),
        str(segment.points),
        f"{time} [{low}, {high}]",
        _bandwidth(law, segment),
        approximate_size(half) if inside and _rated(law) else "-",
    ]


def _rated(law: CurveLaw) -> bool:
    """Whether rates may be shown: not of a path that was asked for and not used."""
    return law.largest.busbw_gb_per_s is not None or law.curve.case.world_size == 1


def _span(segment: Segment) -> str:
    return f"{format_size(segment.first_bytes)} to {format_size(segment.last_bytes)}"


def _bandwidth(law: CurveLaw, segment: Segment) -> str:
    """Returns B with its interval; what has no end is said in words."""
    if not _rated(law):
        return "-"
    factor = _factor(law.curve)
    rate, low, high = (
        value * factor
        for value in (
            segment.bandwidth_gb_per_s,
            segment.bandwidth_low_gb_per_s,
            segment.bandwidth_high_gb_per_s,
        )
    )
    if not math.isfinite(low):
        return "the time does not grow"
    if not math.isfinite(rate):
        return f"the time does not grow [{format_rate(low)} or more]"
    end = format_rate(high) if math.isfinite(high) else "no end"
    return f"{format_rate(rate)} [{format_rate(low)}, {end}]"


def _factor(curve: Curve) -> float:
    """Returns busbw / algbw; one rank has no bus, and shows bytes over time."""
    return COLLECTIVES[curve.case.collective].busbw_factor(curve.case.world_size) or 1.0


def _ran(law: CurveLaw, segment: Segment) -> str:
    """Returns the algorithms and protocols of a segment, the smallest sizes' first."""
    proofs = [point.proof for point in law.points_of(segment)]
    names = dict.fromkeys(
        "/".join(word for word in (proof.algorithm, proof.protocol) if word)
        for proof in proofs
        if proof is not None and proof.algorithm
    )
    return ", ".join(names)


def _fitted(fit: Fit) -> str:
    scatter = f"times scatter by {fit.relative_error:.1%} about the law."
    if not fit.switches_bytes:
        return scatter[:1].upper() + scatter[1:]
    return f"Switches at {' and '.join(map(format_size, fit.switches_bytes))}; {scatter}"


def _reached(law: CurveLaw) -> str:
    """Returns what the largest size reaches, and of what."""
    largest, half = law.largest, law.half_size_bytes
    size, rate = format_size(largest.size_bytes), largest.busbw_gb_per_s
    if not rate:
        return f"{format_time_us(largest.time_us)} us at {size}."
    from_half = f"; half of the peak from {approximate_size(half)}" if half else ""
    return f"{format_rate(rate)} GB/s at {size}, {_of_limit(law)}{from_half}."


def _of_limit(law: CurveLaw) -> str:
    if law.limit is None or law.share_of_limit is None:
        return "the wire's limit is not known"
    rate = format_rate(law.limit.busbw_gb_per_s)
    return f"{law.share_of_limit:.0%} of {rate} GB/s ({law.limit.text})"


def _flag_lines(flags: Sequence[Finding]) -> list[str]:
    lines = [flag.text + (f" Next: {flag.next_step}." if flag.next_step else "") for flag in flags]
    return lines or ["Nothing: no samples of two kinds, no drift that can be told from noise."]


def _conclusion(found: Analysis) -> list[str]:
    """Returns what to remember, and the next commands."""
    plain = [law for law in found.laws if not law.curve.case.setting] or found.laws
    shares = {found.title(law): law.share_of_limit for law in plain if law.share_of_limit}
    starts = {
        found.title(law): law.fit.segments[0].alpha_us
        for law in plain
        if law.fit and _starts_small(law.fit.segments[0])
    }
    lines = ["How close to the wire this is cannot be said: its limit is not known."]
    if shares:
        told = _told(shares, lambda share: f"{share:.0%}")
        lines = [f"Of the wire's limit the largest size reaches: {told}."]
    if starts:
        told = _told(starts, lambda time_us: f"{format_time_us(time_us)} us")
        lines.append(f"The smallest messages cost: {told}.")
    return [*lines, *(f"Next: {command}" for command in _next_commands(found))]


def _starts_small(segment: Segment) -> bool:
    """Whether the smallest message is more cost than wire; else alpha says nothing of it."""
    return segment.first_bytes <= segment.half_size_bytes


def _told(values: Mapping[str, float], words: Callable[[float], str]) -> str:
    """Returns each name with its value; of many the two ends."""
    if len(values) <= _MOST_NAMED:
        return ", ".join(f"{name} {words(value)}" for name, value in values.items())
    low, high = (pick(values, key=lambda name: values[name]) for pick in (min, max))
    ends = f"{words(values[low])} ({low}) to {words(values[high])} ({high})"
    return f"{ends}, {len(values)} curves"


def _next_commands(found: Analysis) -> list[str]:
    commands = []
    run, name = found.run, shlex.quote(found.name)
    if any(law.fit is None for law in found.laws):
        commands.append("collbench sweep -b 8 -e 1G -f 4    (sizes enough for a law)")
    if run.repeats == 1 and not run.simulated:
        commands.append(f"{repeats_command(run.argv)}    (to compare, or to choose a setting)")
    swept = any(law.curve.case.setting for law in found.laws)
    if run.backend == "nccl" and not swept:
        commands.append("collbench sweep nccl_matrix --repeats 5    (what else NCCL can choose)")
    if _may_tune(found):
        commands.append(f"collbench export tuner {name}    (NCCL chooses the best by itself)")
    return [*commands, f"collbench plot {name}"]


def _may_tune(found: Analysis) -> bool:
    """Whether a setting is claimed as faster, of a run that a tuner's file can be made of."""
    run = found.run
    if found.best is None or run.backend != "nccl" or run.planted or run.simulated or run.emulated:
        return False
    return any(row.best.claimed for row in found.best.rows)


def analysis_json(found: Analysis, exit_code: int) -> bytes:
    """Returns an analysis as one JSON object; what is not known or has no end is null."""
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "run_id": found.run.run_id,
            "exit_code": exit_code,
            "curves": [_law_json(found, law) for law in found.laws],
            "best_settings": None if found.best is None else best_json(found.best),
            "flags": list(found.flags),
            "conclusion": _conclusion(found),
        }
    )


def _law_json(found: Analysis, law: CurveLaw) -> dict[str, Any]:
    case, limit = law.curve.case, law.limit
    return {
        "name": found.title(law),
        "collective": case.collective,
        "dtype": case.dtype,
        "redop": case.redop,
        "root": case.root,
        "in_place": case.in_place,
        "mode": case.mode,
        "pattern": case.pattern,
        "setting": setting_text(case.setting),
        "world_size": case.world_size,
        "sizes": len(law.curve.points),
        "too_few": law.too_few,
        "relative_error": None if law.fit is None else law.fit.relative_error,
        "segments": [_segment_json(law, segment) for segment in law.fit.segments]
        if law.fit is not None
        else [],
        "half_of_peak_bytes": law.half_size_bytes,
        "largest_bytes": law.largest.size_bytes,
        "largest_busbw_gb_per_s": law.largest.busbw_gb_per_s,
        "limit_gb_per_s": None if limit is None else limit.busbw_gb_per_s,
        "limit_text": None if limit is None else limit.text,
        "share_of_limit": law.share_of_limit,
    }


def _segment_json(law: CurveLaw, segment: Segment) -> dict[str, Any]:
    factor = _factor(law.curve)
    rates = {
        "busbw_gb_per_s": segment.bandwidth_gb_per_s * factor,
        "busbw_low_gb_per_s": segment.bandwidth_low_gb_per_s * factor,
        "busbw_high_gb_per_s": segment.bandwidth_high_gb_per_s * factor,
        "half_size_bytes": segment.half_size_bytes,
    }
    return {
        "first_bytes": segment.first_bytes,
        "last_bytes": segment.last_bytes,
        "points": segment.points,
        "alpha_us": segment.alpha_us,
        "alpha_low_us": segment.alpha_low_us,
        "alpha_high_us": segment.alpha_high_us,
        **{name: value if math.isfinite(value) else None for name, value in rates.items()},
        "ran": _ran(law, segment) or None,
    }
