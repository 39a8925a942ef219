"""Pictures of a sweep: bus bandwidth and time over message size, PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collbench.analyze.curves import Curve, curves
from collbench.model import Mode, Run, Topology, Trial
from collbench.report.heading import heading
from collbench.report.table import LimitOf
from collbench.units import format_size

FORMATS = ("png", "svg")
# Okabe & Ito (2008): told apart by the colour-blind; a collective keeps its colour in every plot.
_COLOURS = {
    "all_reduce": "#0072B2",
    "all_gather": "#D55E00",
    "reduce_scatter": "#009E73",
    "broadcast": "#CC79A7",
    "reduce": "#56B4E9",
    "all_to_all": "#E69F00",
    "gather": "#000000",
    "scatter": "#7F7F7F",
    "send_recv": "#8C564B",
}
_LINES = {Mode.EAGER: "-", Mode.GRAPH: "--", Mode.EAGER_DEVICE: ":"}
_MARKERS = {Mode.EAGER: "o", Mode.GRAPH: "s", Mode.EAGER_DEVICE: "^"}


def plot_run(
    run: Run, topology: Topology, trials: Sequence[Trial], limit_of: LimitOf, folder: Path
) -> list[Path]:
    """Draws a run and returns the files written.

    Args:
        run: header, for the title.
        topology: for the title.
        trials: of the run; those without a time or a rate leave a gap, never a zero.
        limit_of: what the wire allows for a case, or None.
        folder: where the files go.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = curves(trials)
    settings: Any = {"font.size": 11, "svg.fonttype": "none", "axes.spines.top": False}
    with matplotlib.rc_context(settings):
        figure, (above, below) = pyplot.subplots(
            2, 1, figsize=(9, 9.5), sharex=True, layout="constrained"
        )
        for curve in found:
            _draw(above, below, curve, found)
        _draw_limit(above, found, limit_of)
        _dress(figure, above, below, run, topology, found)
        paths = [folder / f"{run.run_id}.{suffix}" for suffix in FORMATS]
        for path in paths:
            figure.savefig(path, dpi=150)
        pyplot.close(figure)
    return paths


def _label(curve: Curve, found: Sequence[Curve]) -> str:
    """Returns the words that tell a curve from the others, and no more."""
    case = curve.case
    words = [case.collective]
    for name in ("dtype", "redop", "root", "mode"):
        values = {getattr(other.case, name) for other in found} - {None}
        if len(values) > 1 and getattr(case, name) is not None:
            words.append(f"root {case.root}" if name == "root" else str(getattr(case, name)))
    placed = {other.case.in_place for other in found if other.case.collective == case.collective}
    if len(placed) > 1:
        words.append("in place" if case.in_place else "out of place")
    return " ".join(words)


def _draw(above: Any, below: Any, curve: Curve, found: Sequence[Curve]) -> None:
    style = {
        "color": _COLOURS[curve.case.collective],
        "linestyle": _LINES[curve.case.mode],
        "marker": _MARKERS[curve.case.mode],
        "markersize": 4,
        "linewidth": 1.8,
        "label": _label(curve, found),
    }
    rated = [point for point in curve.points if point.busbw_gb_per_s]
    above.plot([p.size_bytes for p in rated], [p.busbw_gb_per_s for p in rated], **style)
    below.plot(
        [point.size_bytes for point in curve.points],
        [point.time_us for point in curve.points],
        **style,
    )
    banded = [point for point in curve.points if point.low_us and point.high_us]
    sizes = [point.size_bytes for point in banded]
    colour = style["color"]
    lows, highs = [p.low_us or 0 for p in banded], [p.high_us or 0 for p in banded]
    below.fill_between(sizes, lows, highs, color=colour, alpha=0.18, linewidth=0)
    rates = [(p.busbw_gb_per_s or 0) * p.time_us for p in banded]
    above.fill_between(
        sizes,
        [rate / high for rate, high in zip(rates, highs, strict=True)],
        [rate / low for rate, low in zip(rates, lows, strict=True)],
        color=colour,
        alpha=0.18,
        linewidth=0,
    )


def _draw_limit(above: Any, found: Sequence[Curve], limit_of: LimitOf) -> None:
    limit = next((limit_of(curve.case) for curve in found), None)
    if limit is not None:
        above.axhline(limit.busbw_gb_per_s, color="#555555", linewidth=1, linestyle=(0, (1, 2)))
        above.annotate(
            f"limit {limit.busbw_gb_per_s:.0f} GB/s: {limit.text}",
            (0.01, limit.busbw_gb_per_s),
            xycoords=("axes fraction", "data"),
            va="bottom",
            fontsize=9,
            color="#555555",
        )


def _dress(
    figure: Any, above: Any, below: Any, run: Run, topology: Topology, found: Sequence[Curve]
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    for axes, words in ((above, "bus bandwidth, GB/s"), (below, "time of a call, us")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylabel(words)
        axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
    sizes = sorted({point.size_bytes for curve in found for point in curve.points})
    if sizes:
        below.xaxis.set_major_locator(FixedLocator(_ticks(sizes)))
        below.xaxis.set_minor_locator(NullLocator())
        below.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(int(value))))
        below.tick_params(axis="x", labelrotation=45)
    band = "range of the repeats" if run.repeats > 1 else "95 % interval of the median"
    below.set_xlabel(f"message size (whole message, as nccl-tests counts it); band: {band}")
    if found:
        below.legend(frameon=False, fontsize=9, ncols=2 if len(found) > 4 else 1)
    title = heading(run, topology).replace(" | ", "\n", 1)
    figure.suptitle(title, fontsize=10, ha="left", x=0.02)
    mark = "SIMULATED" if run.simulated else "PLANTED FAULT" if run.planted else ""
    if mark:
        figure.text(
            0.5,
            0.5,
            mark,
            fontsize=54,
            color="#BBBBBB",
            alpha=0.4,
            ha="center",
            va="center",
            rotation=30,
        )


def _ticks(sizes: Sequence[int]) -> list[int]:
    """Returns powers of 16 bytes from the smallest to the largest size: 4 B, 64 B, 1 KiB, ..."""
    found, tick = [], 4
    while tick <= sizes[-1]:
        if tick >= sizes[0]:
            found.append(tick)
        tick *= 16
    return found or [sizes[0], sizes[-1]]
