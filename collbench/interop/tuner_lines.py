"""A run's choices as lines of a tuner's file, and a file held against them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from collbench.analyze.best_table import conclusion
from collbench.interop.tuner import (
    ANY,
    NO_LINE_CHANNELS,
    TOP_BYTES,
    OptimizerRow,
    TunerRow,
    choice,
)
from collbench.interop.tuner_choices import Choices, Chosen
from collbench.model import Mode, Run
from collbench.units import gb_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What a file makes the plug-in choose at one size, beside what was meant."""

    meant: Chosen
    larger: bool
    """This is about all sizes beyond the largest measured."""
    row: TunerRow | None

    @property
    def as_meant(self) -> bool:
        """Whether the line says the same; 0 channels are NCCL's own number, which was measured."""
        row = self.row
        if row is None:
            return False
        same = (row.algorithm, row.protocol) == (self.meant.algorithm, self.meant.protocol)
        return same and row.channels in (0, self.meant.channels)


def tuner_rows(choices: Choices) -> tuple[TunerRow, ...]:
    """Returns the lines that choose so at every size from 0 to the top.

    Between two measured sizes the line changes at their geometric mean. Where eager calls and
    captured ones are to run differently they get lines of their own.
    """
    rows: list[TunerRow] = []
    for modes in _by_collective(choices.chosen).values():
        ranges = [list(_ranges(chosen)) for chosen in modes.values()]
        if all(_same_lines(ranges[0], other) for other in ranges):
            rows += [_of_all(lines) for lines in zip(*ranges, strict=True)]
            continue
        for chosen, lines in zip(modes.values(), ranges, strict=True):
            rows += [replace(line, registered=chosen[0].registered) for line in lines]
    return tuple(rows)


def optimizer_rows(choices: Choices) -> tuple[OptimizerRow, ...]:
    """Returns one line for each collective, mode and size of the run, and one for the top.

    The helper makes its ranges of the sizes that any collective has, and ends with the largest:
    each collective gets a line at all of them, lest a range has none.
    """
    sizes = sorted({one.size_bytes for one in choices.chosen} | {TOP_BYTES})
    rows = []
    for modes in _by_collective(choices.chosen).values():
        for chosen in modes.values():
            lines = list(_ranges(chosen))
            for size in sizes:
                line = next(row for row in lines if row.min_bytes <= size <= row.max_bytes)
                nearest = min(chosen, key=lambda one: abs(math.log(one.size_bytes / size)))
                rows.append(
                    OptimizerRow(
                        collective=line.collective,
                        size_bytes=size,
                        algorithm=line.algorithm,
                        protocol=line.protocol,
                        channels=line.channels,
                        nodes=line.nodes,
                        ranks=line.ranks,
                        registered=nearest.registered if len(modes) > 1 else ANY,
                        algbw_gb_per_s=gb_per_s(nearest.size_bytes, nearest.time_us),
                        time_us=nearest.time_us,
                    )
                )
    return tuple(rows)


def check_rows(choices: Choices, rows: Sequence[TunerRow]) -> tuple[Checked, ...]:
    """Returns what a file makes the plug-in choose at each measured size, and beyond the largest.

    Args:
        choices: what is meant.
        rows: of the file.
    """
    found = []
    for modes in _by_collective(choices.chosen).values():
        for chosen in modes.values():
            asked = [(one, one.size_bytes) for one in chosen] + [(chosen[-1], TOP_BYTES)]
            for one, size in asked:
                row = choice(
                    rows, one.collective, size, one.nodes, one.ranks, registered=one.registered
                )
                found.append(Checked(meant=one, larger=size == TOP_BYTES, row=row))
    return tuple(found)


def about(run: Run, choices: Choices) -> list[str]:
    """Returns the paragraphs for the top of a file."""
    nccl = run.environment.nccl
    version = nccl.version if nccl else "(not known)"
    one = choices.chosen[0]
    nodes = f"{one.nodes} node{'s' * (one.nodes > 1)}"
    what = (
        f"collbench {run.environment.collbench}, run {run.run_id}, NCCL {version}: settings that"
        " are faster beyond noise, elsewhere what NCCL chose by itself; for NCCL's example tuner"
        " plug-in, of 2.30.3 or newer"
    )
    where = (
        f"only for communicators of {one.ranks} ranks on {nodes}: what matches no line runs on"
        f" {NO_LINE_CHANNELS} channel"
    )
    return [what, conclusion(choices.table), where, *choices.left_out]


def _by_collective(chosen: Sequence[Chosen]) -> dict[str, dict[Mode, list[Chosen]]]:
    found: dict[str, dict[Mode, list[Chosen]]] = {}
    for one in chosen:
        found.setdefault(one.collective, {}).setdefault(one.mode, []).append(one)
    return found


def _ranges(chosen: Sequence[Chosen]) -> Iterator[TunerRow]:
    """Yields lines from 0 to the top; sizes one behind the other that run alike share one."""
    begin = 0
    sizes = [one.size_bytes for one in chosen]
    last = 0
    for _, group in groupby(chosen, key=lambda one: one.ran):
        alike = list(group)
        last += len(alike)
        end = TOP_BYTES if last == len(sizes) else math.isqrt(sizes[last - 1] * sizes[last])
        one = alike[0]
        yield TunerRow(
            collective=one.collective,
            min_bytes=begin,
            max_bytes=end,
            algorithm=one.algorithm,
            protocol=one.protocol,
            channels=one.channels,
            nodes=one.nodes,
            ranks=one.ranks,
            notes=tuple(won.note for won in alike if won.note),
        )
        begin = end + 1


def _of_all(lines: Sequence[TunerRow]) -> TunerRow:
    """Returns the one line of several modes, with the notes of them all."""
    return replace(lines[0], notes=tuple(note for line in lines for note in line.notes))


def _same_lines(rows: Sequence[TunerRow], others: Sequence[TunerRow]) -> bool:
    return [replace(row, notes=()) for row in rows] == [replace(row, notes=()) for row in others]
