"""What a command makes of the trials that it measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collbench.errors import ExitCode
from collbench.model import Finding
from collbench.store import StoredRun


class Conclusion:
    """That of a sweep: tables and findings say it all. Other commands add to it."""

    command = "sweep"
    """The name that the run is kept under."""

    def check(self, settings: Sequence[Mapping[str, str]]) -> None:
        """Refuses settings that the command can conclude nothing from, before anything starts.

        Raises:
            UsageError: these are such.
        """

    def findings(self, stored: StoredRun) -> list[Finding]:
        """Returns what stands out beside a sweep's findings."""
        del stored
        return []

    def settled(self, status: ExitCode) -> ExitCode:
        """Returns how the command ends whose trials end so; called after ``findings``."""
        return status

    def lines(self, stored: StoredRun) -> list[str]:
        """Returns what is printed between the tables and what stands out."""
        del stored
        return []


class Comparing(Conclusion):
    """That of a command which holds sides against each other: its findings set what is told."""

    def __init__(self) -> None:
        self._slower, self._told = False, False

    def settled(self, status: ExitCode) -> ExitCode:
        """Returns 1 where something is slower that must not be, 4 where nothing can be told."""
        if self._slower and status in (ExitCode.FINE, ExitCode.INCOMPLETE):
            return ExitCode.CONFIRMED_BAD
        return ExitCode.INCOMPLETE if status is ExitCode.FINE and not self._told else status
