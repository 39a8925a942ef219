"""Pictures of a history: a small panel of time over release for every case.

Each panel has its own scale, as times of a case over releases differ by percents and those of cases
by powers of ten: what the eye compares is the shape of each line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collbench.analyze.compare import Verdict
from collbench.analyze.history import WORDS, Series
from collbench.analyze.history_bisect import Change
from collbench.analyze.keys import CaseKey
from collbench.report.album import Album, Spot, Table
from collbench.report.history import series_names, series_words
from collbench.report.picture import SETTINGS, draw_words, wrapped_title
from collbench.stats import geometric_mean
from collbench.units import format_size, format_time_us

_COLUMNS = 7
"""Panels in a row; of more sizes some are left out, never one that changed."""
_ROWS = 6
"""Curves in a picture."""
_PANEL = (2.3, 1.7)
"""Inches."""
_LINE, _SLOWER, _FASTER = "#0072B2", "#D55E00", "#009E73"
_LEAST_SPAN = 0.06
"""Of a panel's scale: noise of half a percent must not fill it."""


def draw_history(series: Series, changes: Sequence[Change], album: Album, name: str) -> list[Path]:
    """Draws a history and returns the files written; several pictures where it has many curves.

    Args:
        series: the history.
        changes: from ``bisect_series``; marked where they are.
        album: takes the pictures.
        name: of the files, without an ending.
    """
    import matplotlib

    matplotlib.use("Agg")
    names = series_names(series)
    curves: dict[str, list[CaseKey]] = {}
    for key in series.cases:
        curves.setdefault(names[key], []).append(key)
    rows = [(words, sorted(keys, key=lambda key: key.size_bytes)) for words, keys in curves.items()]
    parts = [rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS)]
    paths: list[Path] = []
    for number, part in enumerate(parts, 1):
        end = "" if len(parts) == 1 else f"-part{number}"
        paths += _draw(series, changes, part, album, f"{name}{end}")
    return paths


def _draw(
    series: Series,
    changes: Sequence[Change],
    rows: Sequence[tuple[str, Sequence[CaseKey]]],
    album: Album,
    name: str,
) -> list[Path]:
    import matplotlib
    from matplotlib import pyplot

    changed = {one.case.key for one in changes}
    shown = [(words, _chosen(keys, changed)) for words, keys in rows]
    columns = max(len(keys) for _, keys in shown)
    spots: list[Spot] = []
    with matplotlib.rc_context(SETTINGS | {"font.size": 8}):
        figure, panels = pyplot.subplots(
            len(shown),
            columns,
            figsize=(max(9.0, _PANEL[0] * columns), 1.6 + _PANEL[1] * len(shown)),
            squeeze=False,
            layout="constrained",
        )
        for (words, keys), line in zip(shown, panels, strict=True):
            for place, axes in enumerate(line):
                if place >= len(keys):
                    axes.set_axis_off()
                    continue
                mine = [one for one in changes if one.case.key == keys[place]]
                spots += _panel(axes, series, keys[place], mine)
                axes.set_title(f"{words}\n{format_size(keys[place].size_bytes)}", fontsize=8)
        for line in panels:
            line[0].set_ylabel("time, us")
        left_out = sum(len(keys) for _, keys in rows) - sum(len(keys) for _, keys in shown)
        what = "a dot a repeat, the line their middle; each panel has its own scale"
        title = [f"{WORDS[series.axis]}, time over release: {what}", series_words(series)]
        if left_out:
            title.append(f"{left_out} more sizes stand in 'collbench history show'")
        figure.suptitle(wrapped_title(title), fontsize=9, ha="left", x=0.02)
        draw_words(figure, _mark(series))
        table = _table(series, rows)
        paths = album.add(figure, name, "Time over release", lambda: (spots, table))
        pyplot.close(figure)
    return paths


def _chosen(keys: Sequence[CaseKey], changed: set[CaseKey]) -> list[CaseKey]:
    """Returns as many cases as fit, evenly over the sizes; those that changed first."""
    if len(keys) <= _COLUMNS:
        return list(keys)
    kept = [key for key in keys if key in changed][:_COLUMNS]
    rest = [key for key in keys if key not in kept]
    room = _COLUMNS - len(kept)
    if room:
        step = (len(rest) - 1) / max(room - 1, 1)
        kept += [rest[round(step * place)] for place in range(room)]
    return sorted(dict.fromkeys(kept), key=lambda key: key.size_bytes)


def _panel(axes: Any, series: Series, key: CaseKey, changes: Sequence[Change]) -> list[Spot]:
    """Draws one case; returns the words of its points."""
    having = [(n, one.times[key]) for n, one in enumerate(series.releases) if key in one.times]
    middles = [geometric_mean(times) for _, times in having]
    numbers = [number for number, _ in having]
    for number, times in having:
        axes.plot([number] * len(times), times, ".", color=_LINE, alpha=0.35, markersize=4)
    axes.plot(numbers, middles, "-", color=_LINE, linewidth=1.5)
    for one in changes:
        slower = one.case.verdict is Verdict.SLOWER
        colour = _SLOWER if slower else _FASTER
        axes.axvspan(one.base + (0.5 if one.named else 0), one.new, color=colour, alpha=0.15)
        place = middles[numbers.index(one.new)]
        axes.plot([one.new], [place], "^" if slower else "v", color=colour, markersize=7)
        axes.annotate(
            f"{100 * (one.case.ratio - 1):+.0f} %",
            (one.new, place),
            xytext=(0, 7 if slower else -13),
            textcoords="offset points",
            ha="center",
            color=colour,
        )
    low, high = (end for end in (min(map(min, _values(having))), max(map(max, _values(having)))))
    span = max(high - low, _LEAST_SPAN * low)
    middle = (low + high) / 2
    axes.set_ylim(middle - 0.75 * span, middle + 0.75 * span)
    axes.set_xticks(range(len(series.versions)), series.versions, rotation=60, fontsize=6.5)
    axes.set_xlim(-0.5, len(series.versions) - 0.5)
    axes.grid(visible=True, color="#EEEEEE")
    axes.set_axisbelow(True)
    return [
        Spot(
            axes=axes,
            x=number,
            y=middle_us,
            text=f"{series.versions[number]}: {format_time_us(middle_us)} us ({len(times)} repeats,"
            f" {format_time_us(min(times))} to {format_time_us(max(times))})",
        )
        for (number, times), middle_us in zip(having, middles, strict=True)
    ]


def _values(having: Sequence[tuple[int, Sequence[float]]]) -> list[Sequence[float]]:
    return [times for _, times in having]


def _mark(series: Series) -> str:
    runs = [stored.run for release in series.releases for stored in release.side.runs]
    if any(run.simulated for run in runs):
        return "SIMULATED"
    return "EMULATED" if any(run.emulated for run in runs) else ""


def _table(series: Series, rows: Sequence[tuple[str, Sequence[CaseKey]]]) -> Table:
    found = [
        (
            words,
            format_size(key.size_bytes),
            *(
                format_time_us(geometric_mean(one.times[key])) if key in one.times else "-"
                for one in series.releases
            ),
        )
        for words, keys in rows
        for key in keys
    ]
    return Table(columns=("case", "size", *(f"{v}, us" for v in series.versions)), rows=found)
