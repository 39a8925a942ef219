"""A live line on stderr: what runs, how much is done, how long it takes. Silent in a pipe."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from collbench.model import Case, Trial
from collbench.units import format_size


class LiveProgress:
    """An observer of a session. Never writes to stdout."""

    def __init__(self, total: int) -> None:
        console = Console(file=sys.stderr)
        self._progress = Progress(
            TextColumn("{task.description:<44}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=total)

    def __enter__(self) -> Self:
        """Shows the line."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Takes the line away."""
        del kind, problem, trace
        self._progress.stop()

    def running(self, case: Case) -> None:
        """A case begins."""
        name = f"{case.collective} {case.dtype} {format_size(case.size_bytes)} {case.mode}"
        self._progress.update(self._task, description=name)

    def finished(self, trial: Trial) -> None:
        """A trial is stored."""
        del trial
        self._progress.advance(self._task)
