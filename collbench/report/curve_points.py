"""The points of curves over message size: words for each, and the table behind the picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from collbench.analyze.curves import Curve, Point, name_among
from collbench.analyze.rate_unit import rate_unit
from collbench.report.album import Spot, Table
from collbench.units import format_rate, format_size, format_time_us

MOST_ROWS = 20_000


def curve_spots(found: Sequence[Curve], above: Any, below: Any) -> Iterator[Spot]:
    """Yields the points of some curves in the panel of rates and in that of times."""
    for curve in found:
        name = name_among(curve, found)
        for point in curve.points:
            text = _words(name, point)
            if point.busbw_gb_per_s:
                yield Spot(axes=above, x=point.size_bytes, y=point.busbw_gb_per_s, text=text)
            yield Spot(axes=below, x=point.size_bytes, y=point.time_us, text=text)


def curves_table(found: Sequence[Curve]) -> Table:
    """Returns a row a point."""
    rows = [
        (
            name_among(curve, found),
            format_size(point.size_bytes),
            format_time_us(point.time_us),
            _range(point),
            "" if point.busbw_gb_per_s is None else format_rate(point.busbw_gb_per_s),
        )
        for curve in found
        for point in curve.points
    ]
    return Table(
        columns=("curve", "size", "time, us", "low to high, us", "bus bandwidth, GB/s"),
        rows=rows[:MOST_ROWS],
        left_out=max(0, len(rows) - MOST_ROWS),
    )


def _words(name: str, point: Point) -> str:
    words = f"{name}, {format_size(point.size_bytes)}: {format_time_us(point.time_us)} us"
    if point.low_us and point.high_us:
        words += f" ({_range(point)})"
    if point.busbw_gb_per_s:
        unit = rate_unit(np.array([point.busbw_gb_per_s]))
        words += f", {unit.text(point.busbw_gb_per_s)} {unit.name}"
    return words


def _range(point: Point) -> str:
    if not point.low_us or not point.high_us:
        return ""
    return f"{format_time_us(point.low_us)} to {format_time_us(point.high_us)}"
