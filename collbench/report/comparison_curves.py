"""Both sides of curves as laws: alpha, B and the half-bandwidth size, base -> new."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from collbench.analyze.alphabeta import Segment
from collbench.analyze.compared import Compared
from collbench.analyze.keys import CaseKey
from collbench.analyze.located import CurveLaws
from collbench.collectives import COLLECTIVES
from collbench.report.sections import Section
from collbench.units import approximate_size, format_rate, format_size, format_time_us

_ROWS = 20


def curves_section(found: Compared, names: Mapping[CaseKey, str]) -> Section:
    """Returns the table of alpha, B and half size; curves in which something changed first."""
    claimed = {(*key.question, key.mode) for key in found.location.places}
    curves = sorted(
        found.location.curves, key=lambda law: (*law.key.question, law.key.mode) not in claimed
    )
    rows = [row for law in curves for row in _law_rows(found, names[law.key], law)]
    notes = ["time = alpha + S / B; B as busbw of endless messages, half: the size that reaches it"]
    if len(rows) > _ROWS:
        notes.append(f"and {len(rows) - _ROWS} more (--json has all)")
    return Section(
        title="Curves, base -> new",
        head=("<curve", "<sizes", "alpha us", "B GB/s", "half of B at"),
        rows=rows[:_ROWS],
        lines=notes,
    )


def _law_rows(found: Compared, name: str, law: CurveLaws) -> Iterator[tuple[str, ...]]:
    case = found.cases[law.key]
    factor = COLLECTIVES[case.collective].busbw_factor(case.world_size) or 1.0
    base, new = law.base.segments, law.new.segments
    if len(base) == len(new):
        for old, one in zip(base, new, strict=True):
            cells = zip(_law_cells(old, factor), _law_cells(one, factor), strict=True)
            spans = dict.fromkeys((_span(old), _span(one)))
            yield (name, " -> ".join(spans), *(f"{was} -> {is_now}" for was, is_now in cells))
        return
    for word, fit in (("base", law.base), ("new", law.new)):
        for segment in fit.segments:
            yield (name, f"{_span(segment)} ({word})", *_law_cells(segment, factor))


def _span(segment: Segment) -> str:
    return f"{format_size(segment.first_bytes)} to {format_size(segment.last_bytes)}"


def _law_cells(segment: Segment, factor: float) -> tuple[str, str, str]:
    rate, half = segment.bandwidth_gb_per_s * factor, segment.half_size_bytes
    return (
        format_time_us(segment.alpha_us),
        format_rate(rate) if math.isfinite(rate) else "flat",
        approximate_size(half) if math.isfinite(half) and half >= 1 else "-",
    )
