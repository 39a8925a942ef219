"""Which commands read a stored run, by the command that made it; and what each kind shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec

from collbench.cli.output import limits_of, run_text
from collbench.errors import ExitCode, UsageError
from collbench.model import Run
from collbench.report.album import Album
from collbench.store import StoredRun

_OF_CASES = ("show", "plot", "report", "compare", "analyze", "baseline", "export")
_READERS: dict[str, tuple[str, ...]] = {
    "sweep": _OF_CASES,
    "ab": _OF_CASES,
    "history run": _OF_CASES,
    "pairwise": (
        "show",
        "plot",
        "report",
        "drain",
        "baseline",
        "pairwise --baseline",
        "scale --from-pairwise",
    ),
    "scale": ("show", "plot", "report"),
    "nccl-tests": _OF_CASES,
}


def refuse_unreadable(run: Run, reader: str) -> None:
    """Refuses a run of which a command can make nothing.

    Args:
        run: its header.
        reader: the command's name.

    Raises:
        UsageError: names the commands that read it.
    """
    readers = _READERS.get(run.command)
    if readers is None:
        raise UsageError(
            f"run '{run.run_id}' is of '{run.command}', which this collbench does not know; it"
            f" reads runs of {', '.join(_READERS)}"
        )
    if reader not in readers:
        raise UsageError(
            f"run '{run.run_id}' is of '{run.command}', which '{reader}' does not read; these do:"
            f" {', '.join(readers)}"
        )


class Shown(Protocol):
    """A stored run as ``show`` and ``plot`` present it; it may go on, or have been killed."""

    def text(self) -> str:
        """Returns what its command printed at the end."""

    def conclusion(self) -> list[str]:
        """Returns what to remember of it, a sentence a line."""

    def document(self) -> str:
        """Returns the JSON of its command."""

    def draw(self, album: Album) -> list[Path]:
        """Draws it and returns the files, where the album writes any.

        Raises:
            UsageError: nothing was measured.
        """


def shown(stored: StoredRun) -> Shown:
    """Returns what presents a run; its command has to be known (``refuse_unreadable``)."""
    return _KINDS[stored.run.command](stored)


def _exit_code(run: Run) -> int:
    """Returns how a run ended; one that goes on or was killed is incomplete."""
    return ExitCode.INCOMPLETE if run.exit_code is None else run.exit_code


def _nothing_to_draw(run: Run) -> UsageError:
    return UsageError(f"run '{run.run_id}' has no times to draw; 'collbench show' says why")


class _Sweep:
    """Tables of cases, and curves over size."""

    def __init__(self, stored: StoredRun) -> None:
        from collbench.analyze.findings import sweep_findings

        self.stored, header = stored, stored.run
        self._findings = header.findings
        if header.exit_code is None:
            # Findings are made when a run ends; what this one kept can be judged all the same.
            self._findings = sweep_findings(header, stored.trials, stored.over_ranks_us)

    def text(self) -> str:
        """Returns heading, tables and closing."""
        one = self.stored
        return run_text(
            one.run,
            one.topology,
            one.trials,
            self._findings,
            one.folder,
            figures=self._figures,
            between=self._between(),
        )

    def conclusion(self) -> list[str]:
        """Returns the figures to remember and what stands out."""
        from collbench.report.closing import finding_text

        found = [finding_text(finding) for finding in self._findings]
        return [*self._concluded(), *found, *self._figures]

    @cached_property
    def _figures(self) -> list[str]:
        from collbench.report.closing import figure_lines

        limit_of = limits_of(self.stored.run, self.stored.topology)
        return figure_lines(self.stored.trials, limit_of)

    def document(self) -> str:
        """Returns the JSON of ``sweep --json``."""
        from collbench.report.json_output import json_document

        run = self.stored.run
        found = json_document(run.run_id, _exit_code(run), self.stored.trials, self._findings)
        return found.decode()

    def draw(self, album: Album) -> list[Path]:
        """Draws bandwidth and time over size."""
        from collbench.analyze.curves import has_times
        from collbench.report.plot import plot_run

        run, topology, trials = self.stored.run, self.stored.topology, self.stored.trials
        if not any(map(has_times, trials)):
            raise _nothing_to_draw(run)
        return plot_run(run, topology, trials, limits_of(run, topology), album)

    def _between(self) -> Sequence[str]:
        """Returns the lines between tables and closing."""
        return ()

    def _concluded(self) -> Sequence[str]:
        """Returns what those come to."""
        return ()


class _Ab(_Sweep):
    """The same with the sides against the first."""

    def _between(self) -> Sequence[str]:
        from collbench.cli.ab_sides import sides_lines, threshold_of

        return sides_lines(self.stored, threshold_of(self.stored))

    def _concluded(self) -> Sequence[str]:
        from collbench.cli.ab_sides import pairs_of, threshold_of
        from collbench.report.comparison import comparison_conclusion

        pairs = pairs_of(self.stored, threshold_of(self.stored))
        return [line for pair in pairs for line in comparison_conclusion(pair)]


class _History(_Sweep):
    """The same with what the newest release changed, and pictures of time over release."""

    def _between(self) -> Sequence[str]:
        from collbench.cli.history_run_plan import check_lines

        return check_lines(self.stored)

    def _concluded(self) -> Sequence[str]:
        from collbench.cli.history_run_plan import checks_of
        from collbench.report.history import check_conclusion

        return [line for one in checks_of(self.stored) for line in check_conclusion(one)]

    def draw(self, album: Album) -> list[Path]:
        """Draws time over release, then bandwidth and time over size."""
        from collbench.analyze.history_verdict import bisect_series
        from collbench.cli.history_run_plan import histories_in
        from collbench.report.history_picture import draw_history

        paths: list[Path] = []
        for number, one in enumerate(histories_in(self.stored).series, 1):
            name = f"{self.stored.run.run_id}-history{'' if number == 1 else f'-{number}'}"
            paths += draw_history(one, bisect_series(one).changes, album, name)
        return paths + super().draw(album)


class _Pairwise:
    """The verdict on nodes, and the matrix of pairs."""

    def __init__(self, stored: StoredRun) -> None:
        from collbench.cli.pairwise_output import judged

        self._stored = stored
        self._state, self._result, self._about = judged(stored)

    def text(self) -> str:
        """Returns the verdict."""
        from collbench.report.pairwise import pairwise_text

        text = pairwise_text(self._state, self._result, self._about)
        return "\n\n".join([text, *self._qualified()])

    def conclusion(self) -> list[str]:
        """Returns who fails, and what is wrong between nodes."""
        from collbench.report.pair_component import Hardware
        from collbench.report.pair_picture_words import conclusion
        from collbench.report.pairwise_fabric import fabric_lines
        from collbench.report.pairwise_words import Words

        found = conclusion(self._state, self._result)
        words = Words(self._state, Hardware(self._about.topology))
        fabric = fabric_lines(self._state, self._result, self._about, words)
        return [f"{found[:1].upper()}{found[1:]}.", *self._qualified(), *fabric]

    def _qualified(self) -> list[str]:
        """Returns the answer of ``--qualify``, if that was asked."""
        from collbench.cli.pairwise_output import qualify_line

        line = qualify_line(self._stored.run, self._state, self._result)
        return [] if line is None else [line]

    def document(self) -> str:
        """Returns ``collbench.verdict/1``."""
        from collbench.report.verdict_json import verdict_document

        run = self._stored.run
        run = msgspec.structs.replace(run, exit_code=_exit_code(run))
        about = dataclasses.replace(self._about, run=run)
        return verdict_document(self._state, self._result, about).decode()

    def draw(self, album: Album) -> list[Path]:
        """Draws the matrix."""
        from collbench.report.pair_picture import draw_pair_matrix

        if not self._state.values.size:
            raise _nothing_to_draw(self._stored.run)
        return draw_pair_matrix(self._state, self._result, self._about, album)


class _Scale:
    """The knee, and bandwidth over nodes."""

    def __init__(self, stored: StoredRun) -> None:
        from collbench.cli.scale_output import judged

        self._run = stored.run
        self._verdict, self._observations, self._about = judged(stored)

    def text(self) -> str:
        """Returns the answer."""
        from collbench.report.scale import scale_text

        return scale_text(self._verdict, self._observations, self._about)

    def conclusion(self) -> list[str]:
        """Returns the answer, and what else lowers rates."""
        from collbench.analyze.scale_words import conclusion

        return conclusion(self._verdict)

    def document(self) -> str:
        """Returns ``collbench.scale/1``."""
        from collbench.report.scale_json import scale_document

        code = _exit_code(self._run)
        return scale_document(self._verdict, self._observations, self._about, code).decode()

    def draw(self, album: Album) -> list[Path]:
        """Draws rates over flows and over nodes."""
        from collbench.report.scale_plot import draw_scale

        if not any(one.usable for one in self._observations):
            raise _nothing_to_draw(self._run)
        return draw_scale(self._verdict, self._observations, self._about, album)


_KINDS: dict[str, Callable[[StoredRun], Shown]] = {
    "sweep": _Sweep,
    "ab": _Ab,
    "history run": _History,
    "pairwise": _Pairwise,
    "scale": _Scale,
    "nccl-tests": _Sweep,
}
