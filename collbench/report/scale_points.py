"""The points of rates over flows and nodes: words for each, and the table behind the picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from collbench.analyze.rate_unit import RateUnit
from collbench.analyze.scale_types import PAIRED
from collbench.report.album import Spot, Table
from collbench.report.scale_about import Curve, CurveStep
from collbench.report.scale_tables import ORDER_WORDS, PATTERN_WORDS


def scale_spots(axes: Any, curves: Sequence[Curve], unit: RateUnit) -> Iterator[Spot]:
    """Yields the points of curves in the panel that they stand in; none without a panel."""
    if axes is None:
        return
    for curve in curves:
        factor = unit.factor * (1 if curve.pattern in PAIRED else curve.rails)
        for step in curve.steps:
            text = f"{_name(curve)}, {_at(curve, step)}: {_rates(curve, step, unit)}"
            if step.law is not None:
                text += f"; the knee lets expect {unit.text(step.law * _rails(curve))}"
            yield Spot(axes=axes, x=step.at, y=step.rate * factor, text=text)


def scale_table(curves: Sequence[Curve], unit: RateUnit) -> Table:
    """Returns a row a step of each curve."""
    rows = []
    for curve in curves:
        for step in curve.steps:
            rails = _rails(curve)
            cells = [_name(curve), _at(curve, step)]
            cells += [unit.text(rate * rails) for rate in (step.rate, step.low, step.high)]
            cells.append("" if step.law is None else unit.text(step.law * rails))
            rows.append([*cells, str(step.count)])
    name = unit.name
    columns = ("pattern", "at", f"median, {name}", "lowest", "highest", "knee expects", "values")
    return Table(columns=columns, rows=rows)


def _rails(curve: Curve) -> int:
    """Returns how many rails' rates stand together in a point."""
    return 1 if curve.pattern in PAIRED else curve.rails


def _rates(curve: Curve, step: CurveStep, unit: RateUnit) -> str:
    rate, low, high = (unit.text(one * _rails(curve)) for one in (step.rate, step.low, step.high))
    return f"{rate} {unit.name} ({low} to {high})"


def _name(curve: Curve) -> str:
    pattern = PATTERN_WORDS.get(curve.pattern, str(curve.pattern))
    return pattern if curve.pattern in PAIRED else f"{pattern} {ORDER_WORDS[curve.order]}"


def _at(curve: Curve, step: CurveStep) -> str:
    return f"{step.at} {'pairs' if curve.pattern in PAIRED else 'nodes'}"
