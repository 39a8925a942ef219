"""The tables of a ``scale`` run: pairs, and collectives by the order of their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from collbench.analyze.rate_unit import RateUnit
from collbench.analyze.scale_types import PAIRED, RINGS, NodeOrder, ScalePattern
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.report.scale_about import Curve
from collbench.report.sections import Section

ORDER_WORDS = {
    NodeOrder.CONTIGUOUS: "in leaf order",
    NodeOrder.ROUND_ROBIN: "interleaved",
    NodeOrder.RANDOM: "in random order",
}
PATTERN_WORDS = {ScalePattern.HALF: "half to the other half"}

_MOST_ROWS = 20
_NONE = "-"


def pair_sections(
    verdict: ScaleVerdict, curves: Sequence[Curve], unit: RateUnit
) -> Iterator[Section]:
    """Yields the table of pairs across leaves beside those inside; of these alone without."""
    by_pattern = {curve.pattern: curve for curve in curves if curve.pattern in PAIRED}
    across = by_pattern.get(ScalePattern.PAIRS)
    inside = by_pattern.get(ScalePattern.INSIDE)
    if across is None:
        if inside is not None:
            yield _inside_alone(inside, unit, _corrected(verdict))
        return
    control = {step.at: step for step in inside.steps} if inside else {}
    kept = _kept([step.flows for step in across.steps], verdict.fit.flows)
    rows = []
    for step in (across.steps[k] for k in kept):
        beside = control.get(step.at)
        rates = (step.rate, step.law, step.worst_pair, beside.rate if beside else None)
        cells = [_cell(rate, unit) for rate in (*rates, step.flows * step.rate)]
        rows.append([f"{step.flows:g}", str(step.groups), *cells])
    rail = " on a rail" if across.rails > 1 else ""
    yield Section(
        title=f"Pairs across leaves at once: {unit.name} of a pair one way{rail}"
        f"{_corrected(verdict)}; inside: as many pairs inside leaves",
        head=("flows an uplink", "pairs", "mean", "law", "worst", "inside", "uplink carries"),
        rows=rows,
        lines=_left_out(kept, len(across.steps)),
    )


def _inside_alone(inside: Curve, unit: RateUnit, corrected: str) -> Section:
    kept = _kept([float(step.at) for step in inside.steps], None)
    rail = " on a rail" if inside.rails > 1 else ""
    return Section(
        title=f"Pairs inside leaves at once: {unit.name} of a pair one way{rail}{corrected}",
        head=("pairs", "mean", "worst"),
        rows=[
            [str(step.groups), _cell(step.rate, unit), _cell(step.worst_pair, unit)]
            for step in (inside.steps[k] for k in kept)
        ],
        lines=_left_out(kept, len(inside.steps)),
    )


def collective_sections(
    verdict: ScaleVerdict, curves: Sequence[Curve], unit: RateUnit, *, leaves: bool
) -> Iterator[Section]:
    """Yields a table for each other pattern: a column for each order of its nodes."""
    for pattern in ScalePattern:
        mine = [curve for curve in curves if curve.pattern is pattern]
        if not mine or pattern in PAIRED:
            continue
        loads: dict[int, float] = {}
        for step in (step for curve in mine for step in curve.steps):
            loads[step.at] = max(loads.get(step.at, 0.0), step.flows)
        places = sorted(loads)
        kept = _kept([loads[at] for at in places], verdict.fit.flows)
        shown = [places[k] for k in kept]
        columns = [_columns(curve, shown, unit, leaves=leaves) for curve in mine]
        lines = [list(chain.from_iterable(cells)) for cells in zip(*columns, strict=True)]
        halves = pattern is ScalePattern.HALF
        what = "of a node one way" if halves else "busbw"
        what += " on a rail" if halves and mine[0].rails > 1 else ""
        yield Section(
            title=f"{PATTERN_WORDS.get(pattern, pattern)}: {unit.name} {what}{_corrected(verdict)}",
            head=["nodes", *lines[0]],
            rows=[[str(at), *cells] for at, cells in zip(shown, lines[1:], strict=True)],
            lines=_left_out(kept, len(places)),
        )


def _columns(
    curve: Curve, places: Sequence[int], unit: RateUnit, *, leaves: bool
) -> list[list[str]]:
    """Returns an order's columns, head first: rate, flows an uplink where leaves are known, law."""
    # Rings in leaf order are what the others are held against: their law says nothing.
    baseline = curve.pattern in RINGS and curve.order is NodeOrder.CONTIGUOUS
    head = [ORDER_WORDS[curve.order], *["flows"] * leaves, "law"][: 1 if baseline else None]
    steps = {step.at: step for step in curve.steps}
    found = [head]
    for step in map(steps.get, places):
        if step is None:
            found.append([_NONE] * len(head))
            continue
        flows = [f"{step.flows:.3g}"] * leaves
        found.append([_cell(step.rate, unit), *flows, _cell(step.law, unit)][: len(head)])
    return found


def _kept(loads: Sequence[float], knee: float | None) -> list[int]:
    """Returns which rows to show: all, or those nearest the knee and some over the whole range."""
    count = len(loads)
    if count <= _MOST_ROWS:
        return list(range(count))
    edge = next((k for k, load in enumerate(loads) if knee and load > knee), count - 1)
    nearest = sorted(range(count), key=lambda k: abs(k + 0.5 - edge))[: _MOST_ROWS // 2]
    spread = np.linspace(0, count - 1, _MOST_ROWS // 2).round().astype(int).tolist()
    return sorted({*nearest, *spread})


def _left_out(kept: Sequence[int], count: int) -> list[str]:
    words = f"{len(kept)} of {count} steps, with those nearest the knee; all of them: --json"
    return [words] * (len(kept) < count)


def _corrected(verdict: ScaleVerdict) -> str:
    return ", latency taken out" if verdict.latency.corrected else ""


def _cell(rate: float | None, unit: RateUnit) -> str:
    return _NONE if rate is None else unit.text(rate)
