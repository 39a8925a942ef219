"""The picture of a ``scale`` run: what pairs across leaves get, and what that means on n nodes.

Left the witness: the rate of pairs over the flows that share an uplink, with the law that was
fitted, and below it what each pattern alone says. Right bandwidth over nodes, for each pattern and
order, over the bands that the same knee lets expect.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collbench.analyze.knee import KneeAnswer, KneeFit
from collbench.analyze.rate_unit import RateUnit
from collbench.analyze.scale_types import PAIRED, RINGS, NodeOrder, Observation, ScalePattern
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.analyze.scale_words import conclusion
from collbench.report.album import Album, Spot, Table
from collbench.report.picture import SETTINGS, draw_mark, heading_text
from collbench.report.scale_about import (
    Curve,
    LeafOf,
    ScaleAbout,
    curves_of,
    pair_rates,
    unit_of,
)
from collbench.report.scale_points import scale_spots, scale_table
from collbench.report.scale_tables import ORDER_WORDS, PATTERN_WORDS

# Okabe & Ito (2008): told apart by the colour-blind; collectives as in the plots of sweeps.
_COLOURS = {
    ScalePattern.PAIRS: "#000000",
    ScalePattern.INSIDE: "#7F7F7F",
    ScalePattern.HALF: "#CC79A7",
    ScalePattern.ALL_REDUCE: "#0072B2",
    ScalePattern.ALL_GATHER: "#D55E00",
    ScalePattern.REDUCE_SCATTER: "#009E73",
    ScalePattern.ALL_TO_ALL: "#E69F00",
}
_MARKERS = {NodeOrder.CONTIGUOUS: "o", NodeOrder.ROUND_ROBIN: "s", NodeOrder.RANDOM: "^"}
_LINES = {NodeOrder.CONTIGUOUS: "-", NodeOrder.ROUND_ROBIN: "--", NodeOrder.RANDOM: ":"}
_PAIR_LABELS = {
    ScalePattern.PAIRS: "pairs across, mean of those that share an uplink",
    ScalePattern.INSIDE: "as many pairs inside leaves: the control",
}
_GREY, _DOTS, _LAW_COLOUR = "#555555", "#56B4E9", "#D55E00"
_LIMIT: Any = {"color": _GREY, "linewidth": 1.2, "linestyle": (0, (1, 2))}
_LINEAR_UP_TO = 32
_MOST_TICKS = 10
_TITLE_COLUMNS = 138
_LAW_SAMPLES = 200
_SHOWN_ABOVE_LIMIT = 1.5
"""What is higher, one node alone, would press all others to the ground."""


def draw_scale(
    verdict: ScaleVerdict, observations: Sequence[Observation], about: ScaleAbout, album: Album
) -> list[Path]:
    """Draws the run and returns the files written, ``RUN_ID-scale.png`` and ``.svg``.

    Args:
        verdict: on the observations.
        observations: all steps, whatever became of them.
        about: for footer and leaves.
        album: takes the picture.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = curves_of(verdict, observations, about.leaf_of)
    unit = unit_of(curves)
    paired = [curve for curve in curves if curve.pattern in PAIRED]
    others = [curve for curve in curves if curve.pattern not in PAIRED]
    pairs_axes = nodes_axes = None
    with matplotlib.rc_context(SETTINGS | {"figure.constrained_layout.w_pad": 0.12}):
        figure = pyplot.figure(figsize=(16.0, 9.0), layout="constrained")
        sides = figure.subfigures(1, 2 if paired and others else 1, squeeze=False)[0]
        if paired:
            pairs_axes = _draw_pairs_side(
                sides[0], verdict, observations, about.leaf_of, paired, unit
            )
        if others or not paired:
            nodes_axes = sides[-1].subplots()
            _draw_nodes(nodes_axes, verdict, others, unit, about)
        _say_what_it_is(figure, verdict, about)

        def details() -> tuple[list[Spot], Table]:
            of_pairs = scale_spots(pairs_axes, paired, unit)
            return [*of_pairs, *scale_spots(nodes_axes, others, unit)], scale_table(curves, unit)

        name, title = f"{about.run.run_id}-scale", "Rates of pairs, and bandwidth over nodes"
        paths = album.add(figure, name, title, details)
        pyplot.close(figure)
    return paths


def _draw_pairs_side(
    side: Any,
    verdict: ScaleVerdict,
    observations: Sequence[Observation],
    leaf_of: LeafOf | None,
    curves: Sequence[Curve],
    unit: RateUnit,
) -> Any:
    """Returns the axes of the rates."""
    says = list(_says(verdict))
    heights = (4.5, 0.55 + 0.3 * len(says))[: 2 if says else 1]
    panels = side.subplots(len(heights), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    above, below = panels[0], panels[-1]
    singles = list(pair_rates(observations, leaf_of)) if leaf_of is not None else []
    if singles:
        flows, rates = np.transpose(singles)
        dots: Any = {"color": _DOTS, "marker": ".", "linestyle": "none"}
        above.plot(flows, rates * unit.factor, markersize=4, alpha=0.25, rasterized=True, **dots)
        above.plot([], [], label="each pair", **dots)
    for curve in curves:
        _draw_curve(above, curve, unit, _PAIR_LABELS[curve.pattern])
    _draw_law_of_pairs(above, verdict, curves, unit)
    _draw_limit(above, verdict.full_gb_per_s, unit, "full rate of a pair")
    if says:
        _draw_says(below, says, verdict)
    _scale_counts(below, {step.at for curve in curves for step in curve.steps})
    _finish(above, f"{unit.name} of a pair, one way")
    above.set_title("Pairs across leaves at once", loc="left", fontsize=13, fontweight="bold")
    below.set_xlabel("flows that share an uplink, one way (inside leaves: as many pairs)")
    return above


def _draw_curve(axes: Any, curve: Curve, unit: RateUnit, label: str, factor: float = 1.0) -> None:
    """Draws medians, and bars from the lowest to the highest rate."""
    scale = unit.factor * factor
    rates = np.array([[step.rate, step.low, step.high] for step in curve.steps]) * scale
    middle, low, high = rates.T
    axes.errorbar(
        [step.at for step in curve.steps],
        middle,
        yerr=[middle - low, high - middle],
        color=_COLOURS[curve.pattern],
        marker="D" if curve.pattern is ScalePattern.INSIDE else _MARKERS[curve.order],
        # Halves and an interleaved ring load uplinks alike: one stands in the other.
        markersize=10 if curve.pattern is ScalePattern.HALF else 6,
        markerfacecolor="none" if curve.pattern is ScalePattern.HALF else None,
        linewidth=1.5,
        elinewidth=0.9,
        linestyle="none" if curve.pattern is ScalePattern.PAIRS else _LINES[curve.order],
        label=label,
        zorder=3,
    )


def _draw_law_of_pairs(
    axes: Any, verdict: ScaleVerdict, curves: Sequence[Curve], unit: RateUnit
) -> None:
    """Draws the law and the band of the knee's interval."""
    flows = [step.flows for curve in curves for step in curve.steps if step.law is not None]
    fit = verdict.fit
    if not flows or fit.flows is None or verdict.full_gb_per_s is None:
        return
    most = max(flows)
    places = np.geomspace(min(1.0, fit.flows), most, _LAW_SAMPLES)
    full = verdict.full_gb_per_s * unit.factor
    low, middle = fit.flows_low or fit.flows, fit.flows
    high = fit.flows_high or most
    ends = [full * np.minimum(1, knee / places) for knee in (low, middle, high)]
    band: Any = {"color": _LAW_COLOUR, "alpha": 0.25, "linewidth": 0}
    axes.fill_between(places, ends[0], ends[2], **band)
    axes.axvspan(low, high, **band)
    words = f"law: full rate up to {middle:.2f} [{low:.2f}, {high:.2f}] flows, then shared"
    axes.plot(places, ends[1], color=_LAW_COLOUR, linewidth=2, label=words)
    axes.axvline(middle, color=_LAW_COLOUR, linewidth=1)


def _draw_limit(axes: Any, rate: float | None, unit: RateUnit, words: str) -> None:
    if rate is None:
        return
    axes.axhline(rate * unit.factor, **_LIMIT)
    axes.annotate(
        f"{words}: {unit.text(rate)} {unit.name}",
        (0.01, rate * unit.factor),
        xycoords=("axes fraction", "data"),
        xytext=(0, 14),
        textcoords="offset points",
        va="bottom",
        fontsize=11,
        color=_GREY,
    )


def _says(verdict: ScaleVerdict) -> Iterator[tuple[ScalePattern, KneeFit]]:
    """Yields what pairs, and then each other pattern alone, say; nothing where flows collided."""
    if verdict.collisions is None or not verdict.collisions.there:
        yield ScalePattern.PAIRS, verdict.fit
        yield from ((one.pattern, one.fit) for one in verdict.witnesses)


def _draw_says(
    axes: Any, says: Sequence[tuple[ScalePattern, KneeFit]], verdict: ScaleVerdict
) -> None:
    """Draws a row a pattern: its knee with the interval, or from where on it could be."""
    for row, (pattern, fit) in enumerate(says):
        colour: Any = {"color": _COLOURS[pattern]}
        low = fit.flows_low
        if fit.answer is KneeAnswer.INCONCLUSIVE or low is None:
            axes.text(1, row, "cannot tell", va="center", fontsize=10, color=_GREY)
        elif fit.flows is None:
            axes.plot([low, fit.most_flows], [row, row], linewidth=1.5, **colour)
            axes.plot(low, row, marker=">", markersize=8, **colour)
            words = f"none seen; at least {low:.2f}"
            axes.text(1, row, words, va="center", fontsize=10, color=_GREY)
        else:
            high = fit.flows_high or fit.most_flows
            axes.plot([low, high], [row, row], linewidth=6, alpha=0.4, **colour)
            axes.plot(fit.flows, row, marker="o", markersize=7, **colour)
    axes.set_yticks(
        range(len(says)), [PATTERN_WORDS.get(name, str(name)) for name, _ in says], fontsize=10
    )
    axes.set_ylim(len(says) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_title("the knee by each pattern alone [95 %]", loc="left", fontsize=11)
    if verdict.leaf_size:
        axes.axvline(verdict.leaf_size, **_LIMIT)
        words = f"{verdict.leaf_size} nodes a leaf: 1:1 "
        axes.text(verdict.leaf_size, len(says) - 0.45, words, ha="right", va="bottom", fontsize=10)


def _draw_nodes(
    axes: Any, verdict: ScaleVerdict, curves: Sequence[Curve], unit: RateUnit, about: ScaleAbout
) -> None:
    limit = verdict.full_gb_per_s
    rails = max((curve.rails for curve in curves), default=1)
    top = math.inf if limit is None else _SHOWN_ABOVE_LIMIT * limit * rails
    places: set[int] = set()
    for curve in curves:
        shown = replace(curve, steps=tuple(s for s in curve.steps if s.rate * curve.rails <= top))
        if not shown.steps:
            continue
        places |= {step.at for step in shown.steps}
        _draw_band(axes, shown, unit)
        label = f"{PATTERN_WORDS.get(curve.pattern, curve.pattern)} {ORDER_WORDS[curve.order]}"
        label += f", {curve.rails} rails together" if curve.rails > 1 else ""
        _draw_curve(axes, shown, unit, label, curve.rails)
    if any(step.law is not None for curve in curves for step in curve.steps):
        axes.plot([], [], color=_GREY, linewidth=7, alpha=0.3, label="what the knee lets expect")
    words = f"full rate of {'a pair' if rails == 1 else f'{rails} rails'}"
    _draw_limit(axes, limit and limit * rails, unit, words)
    fit = verdict.fit
    if about.leaves is None and fit.flows is not None:
        axes.axvspan(fit.flows_low or 0, fit.flows_high or fit.most_flows, color=_GREY, alpha=0.2)
    if places:
        _scale_counts(axes, places)
    _finish(axes, f"{unit.name}: bus bandwidth, or a node's rate to the other half")
    axes.set_title("Bandwidth over nodes", loc="left", fontsize=13, fontweight="bold")
    axes.set_xlabel("nodes (bars: lowest to highest of draws and repeats)")


def _draw_band(axes: Any, curve: Curve, unit: RateUnit) -> None:
    """Draws what the knee lets expect: a line wide enough to be seen, and its interval."""
    known = [step for step in curve.steps if step.law is not None]
    # Rings in leaf order are what the others are held against.
    if not known or (curve.pattern in RINGS and curve.order is NodeOrder.CONTIGUOUS):
        return
    scale = unit.factor * curve.rails
    places = [step.at for step in known]
    laws = np.array([[s.law, s.law_low, s.law_high] for s in known], dtype=float) * scale
    colour: Any = {"color": _COLOURS[curve.pattern]}
    axes.plot(places, laws[:, 0], linewidth=7, alpha=0.25, solid_capstyle="round", **colour)
    axes.fill_between(places, laws[:, 1], laws[:, 2], alpha=0.25, linewidth=0, **colour)


def _scale_counts(axes: Any, places: Collection[int]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ticks, most = sorted(places), max(places)
    if most > _LINEAR_UP_TO:
        axes.set_xscale("log", base=2)
        powers = [1 << power for power in range(most.bit_length())]
        ticks = [one for one in powers if min(places) <= one < 0.8 * most] + [most]
    while len(ticks) > _MOST_TICKS:
        ticks = [*ticks[:-1][::2], ticks[-1]]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _finish(axes: Any, words: str) -> None:
    axes.set_ylim(bottom=0, top=1.14 * max(axes.get_ylim()[1], 1e-9))
    axes.set_ylabel(words)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", fontsize=10, framealpha=0.85, edgecolor="none")


def _say_what_it_is(figure: Any, verdict: ScaleVerdict, about: ScaleAbout) -> None:
    lines = [line for text in conclusion(verdict) for line in textwrap.wrap(text, _TITLE_COLUMNS)]
    figure.suptitle("\n".join(lines), fontsize=15, fontweight="bold", ha="left", x=0.02)
    words = f"{about.ran} | {heading_text(about.run, about.topology)}"
    figure.supxlabel(words, fontsize=9, ha="left", x=0.02, color=_GREY)
    draw_mark(figure, about.run)
