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
