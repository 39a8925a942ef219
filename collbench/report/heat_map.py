"""Heat maps of a sweep over settings: size x setting, coloured by the time against the default."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from collbench.analyze.best_table import DEFAULT, BestRow, BestTable, best_of_run, conclusion
from collbench.analyze.curves import in_reading_order, question
from collbench.model import Run, Status, Topology, Trial
from collbench.nccl.settings import setting_text, settings_text
from collbench.report.album import Album, Spot, Table
from collbench.report.picture import SETTINGS, TITLE_COLUMNS, draw_mark, heading_text
from collbench.stats import FloatArray
from collbench.units import format_size, format_time_us

_SCALE = math.log(1.25)
"""Log ratio at which the colours end: what is of interest is near the default."""
_COLOURS = "RdBu_r"
"""Blue is faster, red is slower: told apart by the colour-blind (ColorBrewer)."""
_GREY = "#555555"
_MOST_VALUES = 320
"""Cells that still have room for their figure."""
_TICKS = (0.8, 0.9, 1.0, 1.1, 1.25)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """One question in one mode."""

    name: str
    sizes: tuple[int, ...]
    settings: tuple[str, ...]
    """The default first; those without any time are left out."""
    times_us: FloatArray
    """[setting, size]: geometric mean over the repeats' medians; NaN where there is none."""
    missing: dict[tuple[int, int], str]
    """Why a cell has no time, by its place: the status in words."""
    claimed: tuple[tuple[int, int], ...]
    """Cells that are faster than the default beyond noise."""
    ran: tuple[str, ...]
    """What the default ran as at each size; empty where it is not proved."""
    left_out: str
    """Settings without any time, in words."""
    text: str
    """What follows, in one sentence."""

    @property
    def log_ratios(self) -> FloatArray:
        """Log of the time over the default's, [setting, size]."""
        return np.asarray(np.log(self.times_us / self.times_us[0]))


def heat_maps(trials: Sequence[Trial]) -> list[HeatMap]:
    """Returns a run's heat maps; none where no other setting was measured beside the default."""
    table = best_of_run(trials)
    if table is None:
        return []
    asked: dict[tuple[object, ...], list[Trial]] = {}
    for trial in in_reading_order(trials):
        case = msgspec.structs.replace(trial.case, setting={})
        asked.setdefault(question(case), []).append(trial)
    found = [_heat_map(table, rows, asked[question(rows[0].case)]) for rows in table.groups()]
    return [one for one in found if len(one.settings) > 1]


def draw_heat_maps(
    run: Run, topology: Topology, trials: Sequence[Trial], album: Album
) -> list[Path]:
    """Draws a picture for each collective and mode and returns the files written.

    Args:
        run: header, for what the pictures stand on.
        topology: likewise.
        trials: of the run.
        album: takes the pictures.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = []
    with matplotlib.rc_context(SETTINGS):
        for one in heat_maps(trials):
            columns, rows = len(one.sizes), len(one.settings)
            size = (max(9.0, 3.2 + 0.7 * columns), 3.6 + 0.45 * rows)
            figure, axes = pyplot.subplots(figsize=size, layout="constrained")
            _draw(figure, axes, one)
            _say_what_it_is(figure, axes, one, run, topology)
            words = re.sub(r"[^A-Za-z0-9_]+", "-", one.name)
            name, title = (
                f"{run.run_id}-{words}-settings",
                f"Settings against the default: {one.name}",
            )
            paths += album.add(figure, name, title, partial(_figures, axes, one))
            pyplot.close(figure)
    return paths


def _heat_map(table: BestTable, rows: Sequence[BestRow], trials: Sequence[Trial]) -> HeatMap:
    sizes = tuple(row.key.size_bytes for row in rows)
    cells: dict[tuple[str, int], list[Trial]] = {}
    settings = {setting_text(trial.case.setting): trial.case.setting for trial in trials}
    for trial in trials:
        place = setting_text(trial.case.setting), trial.case.size_bytes
        cells.setdefault(place, []).append(trial)
    times = {name: [_time_us(cells.get((name, size), ())) for size in sizes] for name in settings}
    shown = [DEFAULT, *(s for s in settings if s != DEFAULT and not np.isnan(times[s]).all())]
    return HeatMap(
        name=table.name(rows[0]),
        sizes=sizes,
        settings=tuple(shown),
        times_us=np.array([times[name] for name in shown]),
        missing={
            (i, j): _status_words(cells.get((name, size), ()))
            for i, name in enumerate(shown)
            for j, size in enumerate(sizes)
            if math.isnan(times[name][j])
        },
        claimed=tuple(
            (shown.index(row.best.winner), j) for j, row in enumerate(rows) if row.best.claimed
        ),
        ran=tuple(_ran(row) for row in rows),
        left_out=settings_text(settings[name] for name in settings if name not in shown),
        text=conclusion(replace(table, rows=tuple(rows)), named=False),
    )


def _time_us(trials: Sequence[Trial]) -> float:
    times = [t.summary.median_us for t in trials if t.status is Status.OK and t.summary]
    return float(np.exp(np.log(times).mean())) if times else math.nan


def _status_words(trials: Sequence[Trial]) -> str:
    return str(trials[0].status).replace("_", " ") if trials else "not measured"


def _ran(row: BestRow) -> str:
    names = dict.fromkeys(f"{proof.algorithm}/{proof.protocol}" for proof in row.default_ran)
    return " or ".join(names)


def _draw(figure: Any, axes: Any, one: HeatMap) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, Normalize

    ratios = one.log_ratios
    shown = np.ma.masked_invalid(ratios)
    shown[0] = np.ma.masked
    # Without the darkest ends: what is near the default is to catch the eye.
    tones = colormaps[_COLOURS](np.linspace(0.12, 0.88, 256))
    colours = ListedColormap(tones).with_extremes(bad="#F4F4F4")
    image = axes.imshow(shown, cmap=colours, norm=Normalize(-_SCALE, _SCALE), aspect="auto")
    columns, rows = len(one.sizes), len(one.settings)
    axes.set_xticks(range(columns), [format_size(size).replace(" ", "\n") for size in one.sizes])
    axes.set_yticks(range(rows), ["default, us", *one.settings[1:]])
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="minor", length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    _draw_cells(axes, one, ratios)
    _draw_ran(axes, one.ran)
    bar = figure.colorbar(image, ax=axes, extend="both", pad=0.01, fraction=0.04)
    bar.set_ticks([math.log(tick) for tick in _TICKS], labels=[_percent(tick) for tick in _TICKS])
    bar.set_label("time against the default", fontsize=11)
    bar.outline.set_visible(False)


def _figures(axes: Any, one: HeatMap) -> tuple[list[Spot], Table]:
    """Returns the words of each cell, and the table of all."""
    spots, rows = [], []
    for (i, j), time_us in np.ndenumerate(one.times_us):
        size = format_size(one.sizes[j])
        if (i, j) in one.missing:
            time, ratio = one.missing[i, j], ""
        elif math.isfinite(time_us):
            time = f"{format_time_us(float(time_us))} us"
            ratio = "" if i == 0 else _percent(math.exp(float(one.log_ratios[i, j])))
        else:
            continue
        claimed = "beyond noise" if (i, j) in one.claimed else ""
        rows.append((one.settings[i], size, time, ratio, claimed))
        words = ", ".join(word for word in (time, ratio, claimed) if word)
        text = f"{one.settings[i]}, {size}: {words}"
        spots.append(Spot(axes=axes, x=j, y=i, width=1.0, height=1.0, text=text))
    columns = ("setting", "size", "time", "against the default", "faster")
    return spots, Table(columns=columns, rows=rows)


def _draw_cells(axes: Any, one: HeatMap, ratios: FloatArray) -> None:
    from matplotlib.patches import Rectangle

    few = ratios.size <= _MOST_VALUES
    for (i, j), ratio in np.ndenumerate(ratios):
        if (i, j) in one.missing:
            words = one.missing[i, j]
            look: Any = {"facecolor": "#E4E4E4", "edgecolor": "#A8A8A8", "linewidth": 0}
            axes.add_patch(Rectangle((j - 0.48, i - 0.46), 0.96, 0.92, hatch="////", **look))
            if words != "unsupported":
                lines = words.replace(" ", "\n")
                axes.text(j, i, lines, ha="center", va="center", fontsize=8)
        elif few and i == 0:
            time = format_time_us(float(one.times_us[0, j]))
            axes.text(j, i, time, ha="center", va="center", fontsize=10)
        elif few and math.isfinite(ratio):
            won = (i, j) in one.claimed
            axes.text(
                j,
                i,
                _percent(math.exp(ratio)),
                ha="center",
                va="center",
                fontsize=10,
                fontweight="bold" if won else "normal",
                color="white" if abs(ratio) > 0.85 * _SCALE else "black",
            )
    for i, j in one.claimed:
        edge: Any = {"fill": False, "edgecolor": "black", "linewidth": 2.5}
        axes.add_patch(Rectangle((j - 0.47, i - 0.45), 0.94, 0.9, **edge))


def _percent(ratio: float) -> str:
    """Returns ``-7 %``, ``0 %``, ``+12 %``; from twice the default's time on ``2.6x``."""
    if ratio >= 2:
        return f"{ratio:.1f}x" if ratio < 9.95 else f"{ratio:.0f}x"
    change = round(100 * (ratio - 1))
    return f"{change:+d} %" if change else "0 %"


def _draw_ran(axes: Any, ran: Sequence[str]) -> None:
    """Brackets over the sizes at which the default ran alike."""
    begin = 0
    for name, sizes in groupby(ran):
        end = begin + len(list(sizes)) - 1
        if name:
            place = [begin - 0.42, end + 0.42]
            axes.plot(place, [-0.66, -0.66], color=_GREY, linewidth=2, clip_on=False)
            words = name.replace("/", "/\n") if begin == end else name
            middle = (begin + end) / 2
            axes.annotate(
                words,
                (middle, -0.66),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=10,
                color=_GREY,
                annotation_clip=False,
            )
        begin = end + 1
    if any(ran):
        axes.annotate(
            "ran",
            (-0.5, -0.66),
            xytext=(-6, 4),
            textcoords="offset points",
            ha="right",
            fontsize=10,
            color=_GREY,
            annotation_clip=False,
        )


def _say_what_it_is(figure: Any, axes: Any, one: HeatMap, run: Run, topology: Topology) -> None:
    title = figure.suptitle(
        f"{one.name}: settings against the default", fontsize=15, fontweight="bold", ha="left"
    )
    text = "\n".join(textwrap.wrap(f"{one.text[:1].upper()}{one.text[1:]}.", TITLE_COLUMNS))
    axes.set_title(text, loc="left", fontsize=12, pad=_room_above(one.ran))
    marks = ["outlined: faster beyond noise"] * bool(one.claimed)
    marks += ["hatched: unsupported, or as it says"] * bool(one.missing)
    words = f" ({'; '.join(marks)})" if marks else ""
    axes.set_xlabel(f"size of the whole message, as nccl-tests counts it{words}", fontsize=11)
    left_out = textwrap.wrap(f"without any time: {one.left_out}", TITLE_COLUMNS)
    lines = "\n".join([*(left_out if one.left_out else []), heading_text(run, topology)])
    footer = figure.supxlabel(lines, fontsize=9, ha="left", color=_GREY)
    draw_mark(figure, run)
    figure.draw_without_rendering()
    for words_of_figure in (title, footer):
        words_of_figure.set_x(axes.get_position().x0)


def _room_above(ran: Sequence[str]) -> int:
    """Returns the points that the brackets over the cells need."""
    lone = any(name and len(list(sizes)) == 1 for name, sizes in groupby(ran))
    return 44 if lone else 30 if any(ran) else 8
