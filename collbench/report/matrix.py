"""The table of several settings: a row a size, a column a setting, a table a mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table

from collbench.collectives import COLLECTIVES
from collbench.model import Case, Mode, Status, Trial
from collbench.nccl.settings import setting_text
from collbench.report.proof import ran_text
from collbench.report.text_table import new_table, table_text
from collbench.units import format_rate, format_size, format_time_us, gb_per_s

COLUMNS = 8
"""Settings side by side; more come in further tables."""
_LOWER = 0.03
"""A setting is named as the lowest of a row where it is so far below the first column."""
_REPEATS_TO_SAY_BEST = 3

Rows = Mapping[int, Mapping[str, Sequence[Trial]]]
"""Size in bytes -> setting in words -> its trials, one a repeat."""


def matrix_lines(trials: Sequence[Trial], mode: Mode) -> list[str]:
    """Returns the tables of one mode.

    Args:
        trials: of one question but for its size, setting and mode; in reading order.
        mode: which of them.
    """
    mine = [trial for trial in trials if trial.case.mode is mode]
    settings = list(dict.fromkeys(setting_text(trial.case.setting) for trial in mine))
    rows: dict[int, dict[str, list[Trial]]] = {}
    for trial in mine:
        row = rows.setdefault(trial.case.size_bytes, {})
        row.setdefault(setting_text(trial.case.setting), []).append(trial)
    shown = [
        s for s in settings if any(_time_us(row.get(s, ())) is not None for row in rows.values())
    ]
    lines: list[str] = []
    for start in range(0, len(shown), COLUMNS):
        lines += table_text(_table(rows, shown, shown[start : start + COLUMNS], start)).splitlines()
    if any(trial.status is Status.PATH_NOT_USED for trial in mine):
        lines.append("  (in brackets: a time of something else than what was asked for)")
    return lines


def _table(rows: Rows, shown: Sequence[str], columns: Sequence[str], start: int) -> Table:
    table = new_table()
    table.add_column("\nsize", justify="right")
    for position, name in enumerate(columns):
        head, _, tail = name.partition("/")
        table.add_column(f"{head}/\n{tail}" if tail else f"\n{name}", justify="right")
        if start + position == 0 and name == "default":
            table.add_column("\nran", justify="left")
    last = start + len(columns) == len(shown)
    if last and len(shown) > 1:
        table.add_column("\nlowest", justify="left")
    for size in sorted(rows):
        row = rows[size]
        cells = [format_size(size)]
        for position, name in enumerate(columns):
            cells.append(_cell(row.get(name, ())))
            if start + position == 0 and name == "default":
                cells.append(_ran(row.get(name, ())))
        if last and len(shown) > 1:
            cells.append(_lowest(row, shown))
        table.add_row(*cells)
    table.add_row(*_peaks(rows, columns, first=start == 0))
    return table


def _time_us(trials: Sequence[Trial]) -> float | None:
    """Returns the median over repeats of the repeats' medians."""
    found = [trial.summary.median_us for trial in trials if _measured(trial) and trial.summary]
    return float(np.median(found)) if found else None


def _measured(trial: Trial) -> bool:
    return trial.summary is not None and trial.status in (Status.OK, Status.PATH_NOT_USED)


def _right(trials: Sequence[Trial]) -> bool:
    return bool(trials) and all(trial.status is Status.OK for trial in trials)


def _cell(trials: Sequence[Trial]) -> str:
    time_us = _time_us(trials)
    bad = next((trial.status for trial in trials if trial.status is not Status.OK), None)
    if time_us is None or bad not in (None, Status.PATH_NOT_USED):
        return "-" if bad in (None, Status.UNSUPPORTED) else str(bad)
    text = format_time_us(time_us)
    return text if bad is None else f"({text})"


def _ran(trials: Sequence[Trial]) -> str:
    texts = dict.fromkeys(ran_text(trial.proof) for trial in trials if trial.proof is not None)
    return ", ".join(text for text in texts if text) or "-"


def _lowest(row: Mapping[str, Sequence[Trial]], shown: Sequence[str]) -> str:
    """Names the setting with the lowest time, where it is clearly below the first one's."""
    times = {name: _time_us(row[name]) for name in shown if _right(row.get(name, ()))}
    known = {name: time_us for name, time_us in times.items() if time_us is not None}
    base = known.get(shown[0])
    if base is None or len(known) < 2:
        return "-"
    name = min(known, key=lambda key: known[key])
    gain = 1 - known[name] / base
    return f"{name} -{gain:.0%}" if gain > _LOWER else "-"


def _peaks(rows: Rows, columns: Sequence[str], *, first: bool) -> list[str]:
    """Returns the last line: the largest bus bandwidth of each column."""
    cells = ["peak GB/s"]
    for position, name in enumerate(columns):
        rates = [rate for row in rows.values() if (rate := _rate(row.get(name, ()))) is not None]
        cells.append(format_rate(max(rates)) if rates else "-")
        if first and position == 0 and name == "default":
            cells.append("")
    return cells


def _rate(trials: Sequence[Trial]) -> float | None:
    time_us = _time_us(trials) if _right(trials) else None
    if time_us is None:
        return None
    case: Case = trials[0].case
    rate = COLLECTIVES[case.collective].busbw(gb_per_s(case.size_bytes, time_us), case.world_size)
    return rate or None


def repeats_line(trials: Sequence[Trial]) -> list[str]:
    """Says what the column of the lowest is worth, where two settings ran that it chooses from."""
    ran = {setting_text(trial.case.setting) for trial in trials if trial.status is Status.OK}
    repeats = len({trial.repeat for trial in trials})
    if repeats >= _REPEATS_TO_SAY_BEST or len(ran) < 2:
        return []
    seen = "1 repeat" if repeats == 1 else f"{repeats} repeats"
    text = f"more than 3 % below the first column; seen in {seen}, no verdict (--repeats 5)"
    return [f"  lowest: {text}"]
