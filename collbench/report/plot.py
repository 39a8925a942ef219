"""Pictures of a sweep: bus bandwidth and time over message size, PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.analyze.curves import Curve, curves, name_among
from collbench.analyze.limit import LimitOf
from collbench.model import Case, Mode, Run, Topology, Trial
from collbench.report.album import Album, Spot, Table
from collbench.report.curve_points import curve_spots, curves_table
from collbench.report.heat_map import draw_heat_maps
from collbench.report.picture import SETTINGS, draw_mark, heading_text
from collbench.units import format_rate, format_size

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
_MARKERS = "os^DvXP*<>"
_GREY = "#555555"
_MOST_TICKS = 9
_MOST_INSIDE = 8
"""Curves whose legend still fits into the empty corner of a panel."""
_COLUMN_WIDTH = 7.0
_RANGE_SHOWN = 1e5
"""How far below the peak rates are drawn; further down they only repeat the lower panel."""


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What tells a curve from the others, to the eye and in words."""

    label: str
    colour: str
    line: str
    marker: str


def plot_run(
    run: Run, topology: Topology, trials: Sequence[Trial], limit_of: LimitOf, album: Album
) -> list[Path]:
    """Draws a run and returns the files written.

    Rates below a hundred thousandth of the peak are cut off: the lower panel shows those sizes.
    Where several settings were swept, each collective and mode has a heat map as well.

    Args:
        run: header, for the title.
        topology: for the title.
        trials: of the run; those without a time or a rate leave a gap, never a zero.
        limit_of: what the wire allows for a case, given what ran, or None.
        album: takes the pictures.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found_curves = curves(trials)
    columns = _columns(found_curves)
    inside = len(columns) > 1 or len(columns[0]) <= _MOST_INSIDE
    width = 9 if inside else 12
    with matplotlib.rc_context(SETTINGS):
        figure, panels = pyplot.subplots(
            2,
            len(columns),
            figsize=(max(width, _COLUMN_WIDTH * len(columns)), 9.5),
            sharex="col",
            sharey="row",
            squeeze=False,
            layout="constrained",
        )
        for found, above, below in zip(columns, *panels, strict=True):
            for curve, look in zip(found, _looks(found), strict=True):
                _draw(above, below, curve, look)
            _scale(above, below, found)
            if _rates(found):
                _draw_limit(above, found, limit_of)
            _label_rates_and_times(above, below)
            _label_sizes(below, found)
            if found:
                _draw_legend(figure, above, inside=inside)
        _say_what_it_is(figure, panels[1][0], run, topology)

        def details() -> tuple[list[Spot], Table]:
            spots = [
                spot
                for found, above, below in zip(columns, *panels, strict=True)
                for spot in curve_spots(found, above, below)
            ]
            return spots, curves_table(found_curves)

        title = "Bus bandwidth and time over message size"
        paths = album.add(figure, run.run_id, title, details)
        pyplot.close(figure)
    return paths + draw_heat_maps(run, topology, trials, album)


def _columns(found: Sequence[Curve]) -> list[Sequence[Curve]]:
    """Returns the curves of each column: one for all, or one a collective under several settings.

    Under several settings the eye compares settings, and each gets a colour of its own.
    """
    if len({tuple(curve.case.setting.items()) for curve in found}) < 2:
        return [found]
    names = dict.fromkeys(curve.case.collective for curve in found)
    return [[curve for curve in found if curve.case.collective == name] for name in names]


def _looks(found: Sequence[Curve]) -> list[_Look]:
    """Returns each curve's look: no two are drawn alike.

    The collective gives the colour and the mode the line; types, operators, roots, placements
    and settings of one collective differ by marker, and by colour too where it is the only one.
    """
    variants: dict[str, list[tuple[object, ...]]] = {}
    for curve in found:
        known = variants.setdefault(curve.case.collective, [])
        if _variant(curve.case) not in known:
            known.append(_variant(curve.case))
    palette = list(_COLOURS.values())
    marks_variants = any(len(known) > 1 for known in variants.values())
    looks = []
    for curve in found:
        case = curve.case
        place = variants[case.collective].index(_variant(case))
        mark = place if marks_variants else list(Mode).index(case.mode)
        looks.append(
            _Look(
                label=_label(curve, found),
                colour=(
                    palette[place % len(palette)]
                    if len(variants) == 1 and marks_variants
                    else _COLOURS[case.collective]
                ),
                line=_LINES[case.mode],
                marker=_MARKERS[mark % len(_MARKERS)],
            )
        )
    return looks


def _variant(case: Case) -> tuple[object, ...]:
    return (case.dtype, case.redop, case.root, case.in_place, *sorted(case.setting.items()))


def _label(curve: Curve, found: Sequence[Curve]) -> str:
    peak = curve.peak
    words = name_among(curve, found)
    if peak is not None and peak.busbw_gb_per_s:
        words += f", peak {format_rate(peak.busbw_gb_per_s)} GB/s"
    return words


def _draw(above: Any, below: Any, curve: Curve, look: _Look) -> None:
    style = {
        "color": look.colour,
        "linestyle": look.line,
        "marker": look.marker,
        "markersize": 5,
        "linewidth": 2,
        "label": look.label,
    }
    rated = [point for point in curve.points if point.busbw_gb_per_s]
    above.plot([p.size_bytes for p in rated], [p.busbw_gb_per_s for p in rated], **style)
    below.plot(
        [point.size_bytes for point in curve.points],
        [point.time_us for point in curve.points],
        **style,
    )
    band = {"color": look.colour, "alpha": 0.15, "linewidth": 0}
    for axes, points in ((below, curve.points), (above, rated)):
        ends = [(p, p.low_us, p.high_us) for p in points if p.low_us and p.high_us]
        sizes = [point.size_bytes for point, _, _ in ends]
        if axes is below:
            low, high = [low for _, low, _ in ends], [high for _, _, high in ends]
        else:
            # The rate of a time t is busbw x median / t: the longest time is the lowest rate.
            moved = [(p.busbw_gb_per_s or 0.0) * p.time_us for p, _, _ in ends]
            low = [work / high for work, (_, _, high) in zip(moved, ends, strict=True)]
            high = [work / low for work, (_, low, _) in zip(moved, ends, strict=True)]
        axes.fill_between(sizes, low, high, **band)


def _scale(above: Any, below: Any, found: Sequence[Curve]) -> None:
    for axes, words in ((above, "bus bandwidth, GB/s"), (below, "time of a call, us")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylabel(words)
        axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
    above.figure.align_ylabels([above, below])
    rates = _rates(found)
    if rates and min(rates) < max(rates) / _RANGE_SHOWN:
        above.set_ylim(bottom=max(rates) / _RANGE_SHOWN)
    if not rates:
        # A logarithmic axis has to begin somewhere; and a reader wonders why there is nothing.
        above.set_ylim(0.1, 1000.0)
        place = {"transform": above.transAxes, "ha": "center", "va": "center"}
        above.text(0.5, 0.5, "no case has a rate", color=_GREY, **place)


def _rates(found: Sequence[Curve]) -> list[float]:
    return [p.busbw_gb_per_s for curve in found for p in curve.points if p.busbw_gb_per_s]


def _draw_limit(above: Any, found: Sequence[Curve], limit_of: LimitOf) -> None:
    """Draws the limits of the curves' peaks: one line, or one for each algorithm that differs."""
    texts: dict[float, list[str]] = {}
    for curve in found:
        limit = limit_of(curve.case, curve.peak.proof) if curve.peak else None
        if limit is not None:
            texts.setdefault(limit.busbw_gb_per_s, []).append(limit.text)
    for rate, told in texts.items():
        # What all of them say: without the algorithm where several have one limit.
        words = ", ".join(word for word in told[0].split(", ") if all(word in t for t in told))
        above.axhline(rate, color=_GREY, linewidth=1.2, linestyle=(0, (1, 2)))
        above.set_ylim(top=max(above.get_ylim()[1], 3 * rate))
        above.annotate(
            f"limit {rate:.0f} GB/s: {words}",
            (0.01, rate),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            va="bottom",
            fontsize=11,
            color=_GREY,
        )


def _label_rates_and_times(*panels: Any) -> None:
    """Labels powers of ten without exponents, and what lies between only where it must."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axes in panels:
        bottom, top = axes.get_ylim()
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter(plain if top < 10 * bottom else NullFormatter())


def _label_sizes(below: Any, found: Sequence[Curve]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    sizes = sorted({point.size_bytes for curve in found for point in curve.points})
    if sizes:
        below.xaxis.set_major_locator(FixedLocator(_ticks(sizes)))
    below.xaxis.set_minor_locator(NullLocator())
    below.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(round(value))))


def _draw_legend(figure: Any, above: Any, *, inside: bool) -> None:
    """Puts the legend into the corner under the curves, or beside the panels if it is long."""
    where = "lower right" if inside else "outside right upper"
    handles, labels = above.get_legend_handles_labels()
    (above if inside else figure).legend(
        handles,
        labels,
        loc=where,
        fontsize=11,
        framealpha=0.85,
        edgecolor="none",
    )


def _say_what_it_is(figure: Any, below: Any, run: Run, topology: Topology) -> None:
    band = "range of the repeats" if run.repeats > 1 else "95 % interval of the median"
    below.set_xlabel(f"size of the whole message, as nccl-tests counts it (band: {band})")
    figure.suptitle(heading_text(run, topology), fontsize=11, ha="left", x=0.02)
    draw_mark(figure, run)


def _ticks(sizes: Sequence[int]) -> list[int]:
    """Returns the sizes to label: powers of 2, 4 or 16 (16 B, 256 B, ..., 1 MiB), or both ends."""
    for apart in (1, 2, 4):
        powers = [1 << power for power in range(0, 63, apart)]
        found = [power for power in powers if sizes[0] <= power <= sizes[-1]]
        if 2 <= len(found) <= _MOST_TICKS:
            return found
    return [sizes[0], sizes[-1]]
