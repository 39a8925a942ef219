"""Tables of trials: one a collective, modes side by side, constant columns in the heading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from collbench.analyze.curves import in_reading_order, question
from collbench.analyze.limit import Limit, LimitOf
from collbench.collectives import COLLECTIVES
from collbench.model import Mode, Pattern, Status, Summary, Trial
from collbench.nccl.legality import PLACE_WORDS
from collbench.nccl.settings import setting_text, settings_text
from collbench.notes import IMPORTED
from collbench.report.limits import Limits, limit_lines, limits_by_size
from collbench.report.matrix import matrix_lines, repeats_line
from collbench.report.proof import proof_lines, ran_text
from collbench.report.text_table import new_table, table_text
from collbench.stats import spread
from collbench.units import format_rate, format_size, format_time_us

WIDTH = 120
_MODE_MEANINGS = {
    (Mode.EAGER, Pattern.BACK_TO_BACK): "what a program feels, host launch included",
    (Mode.EAGER, Pattern.ISOLATED): "what a program feels, host launch included",
    (Mode.GRAPH, Pattern.BACK_TO_BACK): "device time, captured in a CUDA graph",
    (Mode.GRAPH, Pattern.ISOLATED): "one call in a CUDA graph, the graph's launch included",
    (Mode.EAGER_DEVICE, Pattern.BACK_TO_BACK): "device time, queued behind a spin kernel",
    (Mode.EAGER_DEVICE, Pattern.ISOLATED): "device time, queued behind a spin kernel",
}


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """The trials of one size in one mode: one, or one a repeat."""

    trials: tuple[Trial, ...]

    @property
    def summaries(self) -> list[Summary]:
        return [
            trial.summary
            for trial in self.trials
            if trial.summary is not None and trial.status in (Status.OK, Status.PATH_NOT_USED)
        ]

    @property
    def bad(self) -> Trial | None:
        """The first trial that is not ok."""
        return next((trial for trial in self.trials if trial.status is not Status.OK), None)


def render_tables(trials: Sequence[Trial], limit_of: LimitOf, width: int = WIDTH) -> str:
    """Returns all tables as text.

    Args:
        trials: in any order.
        limit_of: what the wire allows for a case, given what ran, or None.
        width: columns at most; modes that do not fit side by side come one below the other.
    """
    blocks: dict[tuple[object, ...], list[Trial]] = {}
    for trial in in_reading_order(trials):
        asked = msgspec.structs.replace(trial.case, setting={}, mode=Mode.EAGER)
        blocks.setdefault(question(asked), []).append(trial)
    return "\n".join(
        _matrix(block) if len(_measured_settings(block)) > 1 else _block(block, limit_of, width)
        for block in blocks.values()
    )


def _measured_settings(trials: Sequence[Trial]) -> set[str]:
    return {setting_text(trial.case.setting) for trial in trials if trial.summary}


def _matrix(trials: Sequence[Trial]) -> str:
    """Returns the block of one question under several settings."""
    modes = list(dict.fromkeys(trial.case.mode for trial in trials))
    lines = [_title(trials, with_setting=False)]
    if any(trial.summary for trial in trials):
        for mode in modes:
            lines += [*_mode_lines(trials, [mode], {}), *matrix_lines(trials, mode)]
        lines += [*repeats_line(trials), *proof_lines(trials)]
    return "\n".join([*lines, *_reasons(trials, named=True), *_size_notes(trials), ""])


def _block(trials: Sequence[Trial], limit_of: LimitOf, width: int) -> str:
    """Returns the block of one question of which at most one setting was measured."""
    named = len({setting_text(trial.case.setting) for trial in trials}) > 1
    reasons = _reasons(trials, named=named)
    if all(trial.summary is None for trial in trials):
        return "\n".join([_title(trials, with_setting=not named), *reasons, ""])
    measured = _measured_settings(trials)
    trials = [trial for trial in trials if setting_text(trial.case.setting) in measured]
    modes = list(dict.fromkeys(trial.case.mode for trial in trials))
    limits = {
        mode: limits_by_size([t for t in trials if t.case.mode is mode], limit_of) for mode in modes
    }
    table = _table(trials, modes, limits)
    if len(modes) > 1 and max(len(line) for line in table.splitlines()) > width:
        parts = ([t for t in trials if t.case.mode is mode] for mode in modes)
        blocks = [_block(part, limit_of, width) for part in parts]
        return "\n".join([*blocks, *(reasons if named else [])])
    lines = [_title(trials), *_mode_lines(trials, modes, limits), table]
    lines += proof_lines(trials)
    return "\n".join([*lines, *reasons, *_size_notes(trials), ""])


def _table(trials: Sequence[Trial], modes: Sequence[Mode], limits: Mapping[Mode, Limits]) -> str:
    case = trials[0].case
    repeated = len({trial.repeat for trial in trials}) > 1
    table = new_table()
    table.add_column("\nsize", justify="right")
    table.add_column("\ncount", justify="right")
    for mode in modes:
        head = f"| {mode}" if len(modes) > 1 else ""
        table.add_column(f"{head}\ntime us", justify="right")
        table.add_column("\np95", justify="right")
        if len(modes) == 1:
            table.add_column("algbw\nGB/s", justify="right")
        table.add_column("busbw\nGB/s", justify="right")
        if limits[mode]:
            table.add_column("\nlimit", justify="right")
        if repeated:
            table.add_column("\nspread", justify="right")
        table.add_column("\nn", justify="right")
        table.add_column("\nstop", justify="left")
    if case.world_size > 1:
        table.add_column("\nskew", justify="right")
    table.add_column("\nwrong", justify="right")
    proved = any(ran_text(trial.proof) for trial in trials)
    if proved:
        table.add_column("\nran", justify="left")
    rows: dict[int, dict[Mode, list[Trial]]] = {}
    for trial in trials:
        rows.setdefault(trial.case.size_bytes, {}).setdefault(trial.case.mode, []).append(trial)
    for size in sorted(rows):
        cells = {mode: _Cell(trials=tuple(found)) for mode, found in rows[size].items()}
        row = _row(cells, modes, limits, repeated=repeated, alone=len(modes) == 1)
        table.add_row(*row, *([_ran(cells)] if proved else []))
    return table_text(table)


def _title(trials: Sequence[Trial], *, with_setting: bool = True) -> str:
    case = trials[0].case
    words = [case.collective, case.dtype]
    words += [case.redop] if case.redop else []
    words += [f"root {case.root}"] if case.root is not None else []
    words.append("in place" if case.in_place else "out of place")
    words.append("back to back" if case.pattern is Pattern.BACK_TO_BACK else "isolated")
    words += ["native"] if case.via == "native" else []
    if with_setting and case.setting:
        words.append(setting_text(case.setting))
    words += ["EMULATED"] if case.emulated else []
    factor = COLLECTIVES[case.collective].busbw_factor(case.world_size)
    head = "  ".join(words)
    imported = any(note.startswith(IMPORTED) for note in trials[0].notes)
    what = "time as nccl-tests gives it" if imported else "slowest rank, median"
    if case.world_size == 1:
        what = what.removeprefix("slowest rank, ")
        return f"{head}  1 rank, {what}; it communicates with nobody: no busbw"
    return f"{head}  {case.world_size} ranks, {what}; busbw = {factor:.3g} x algbw"


def _mode_lines(
    trials: Sequence[Trial], modes: Sequence[Mode], limits: Mapping[Mode, Limits]
) -> list[str]:
    lines = []
    for mode in modes:
        ops = {
            trial.summary.ops_per_sample
            for trial in trials
            if trial.summary and trial.case.mode is mode
        }
        words = [f"{mode}: {_MODE_MEANINGS[mode, trials[0].case.pattern]}"]
        costs = [
            trial.summary.host_us_per_call
            for trial in trials
            if trial.case.mode is mode and trial.summary and trial.summary.host_us_per_call
        ]
        if costs:
            words.append(f"issuing a call costs the host {format_time_us(min(costs))} us")
        if ops and max(ops) > 1:
            words.append(f"p95 of batches of up to {max(ops)} calls")
        lines.append("  " + "; ".join(words))
    return lines + limit_lines(limits.values())


def _row(
    cells: dict[Mode, _Cell],
    modes: Sequence[Mode],
    limits: Mapping[Mode, Limits],
    *,
    repeated: bool,
    alone: bool,
) -> list[str]:
    case = next(iter(cells.values())).trials[0].case
    row = [format_size(case.size_bytes), str(case.count)]
    for mode in modes:
        limited, limit = bool(limits[mode]), limits[mode].get(case.size_bytes)
        row += _mode_cells(cells.get(mode), limit, limited=limited, repeated=repeated, alone=alone)
    summaries = [summary for cell in cells.values() for summary in cell.summaries]
    if case.world_size > 1:
        row.append(f"{max(s.skew for s in summaries):.0%}" if summaries else "-")
    row.append(_wrong([trial for cell in cells.values() for trial in cell.trials]))
    return row


def _mode_cells(
    cell: _Cell | None, limit: Limit | None, *, limited: bool, repeated: bool, alone: bool
) -> list[str]:
    blanks = 4 + alone + limited + repeated
    if cell is None:
        return ["", *[""] * blanks]
    summaries, bad = cell.summaries, cell.bad
    if not summaries:
        return [str(bad.status) if bad else "-", *["-"] * (blanks - 1), ""]
    time_us = float(np.median([summary.median_us for summary in summaries]))
    first = summaries[0]
    scale = first.median_us / time_us
    p95s = [summary.p95_us for summary in summaries if summary.p95_us is not None]
    found = [
        format_time_us(time_us),
        format_time_us(float(np.median(p95s))) if p95s else "-",
    ]
    if alone:
        found.append(_rate(first.algbw_gb_per_s, scale))
    found.append(_rate(first.busbw_gb_per_s, scale))
    if limited:
        found.append(_share(first.busbw_gb_per_s, scale, limit))
    if repeated:
        medians = np.array([summary.median_us for summary in summaries])
        found.append(f"{spread(medians):.0%}" if len(summaries) > 1 else "-")
    stops = Counter(str(t.stop_reason) for t in cell.trials if t.stop_reason)
    stop = str(bad.status) if bad else stops.most_common(1)[0][0]
    return [*found, str(sum(summary.samples for summary in summaries)), stop]


def _ran(cells: dict[Mode, _Cell]) -> str:
    """Returns what ran, once where it is the same in all modes and repeats."""
    found = [trial for cell in cells.values() for trial in cell.trials]
    texts = dict.fromkeys(ran_text(t.proof) for t in found if t.proof is not None)
    return " | ".join(text for text in texts if text) or "-"


def _rate(value: float | None, scale: float) -> str:
    return "-" if value is None else format_rate(value * scale)


def _share(busbw: float | None, scale: float, limit: Limit | None) -> str:
    if not busbw or limit is None:
        return "-"
    return f"{busbw * scale / limit.busbw_gb_per_s:.0%}"


def _wrong(trials: Sequence[Trial]) -> str:
    checks = [trial.check for trial in trials if trial.check is not None]
    if not any(check.checked for check in checks):
        return "-"
    return str(sum(check.wrong_elements for check in checks))


def _reasons(trials: Sequence[Trial], *, named: bool = False) -> list[str]:
    """Returns each reason once, with how many cases it holds for, and under which settings."""
    found: dict[tuple[Status, str], list[Trial]] = {}
    for trial in trials:
        if trial.reason is not None and trial.status is not Status.OK:
            found.setdefault((trial.status, trial.reason.text), []).append(trial)
    lines = []
    for (status, text), those in found.items():
        whose = f" {settings_text(t.case.setting for t in those)}:" if named else ""
        count = f" ({len(those)} cases)" if len(those) > 1 else ""
        lines.append(f"  {status}:{whose} {text.partition(PLACE_WORDS)[0]}{count}")
    return lines


def _size_notes(trials: Sequence[Trial]) -> list[str]:
    """Says where the bytes moved are not those asked for."""
    odd = {
        (trial.case.requested_bytes, trial.case.size_bytes)
        for trial in trials
        if trial.case.requested_bytes != trial.case.size_bytes
    }
    return [
        f"  {format_size(asked)} asked for: {format_size(moved)} is what"
        f" {trials[0].case.world_size} ranks move in whole elements"
        for asked, moved in sorted(odd)
    ]
