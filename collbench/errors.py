"""The exceptions a user can meet; each carries the exit status it ends the command with.

    CollbenchError
    ├── UsageError        2   an option, a value or a name that cannot be
    │   └── SuiteError    2   the same, in a suite file: names the file and the key
    ├── RunNotFound       2   no run of that name
    ├── RecordError       2   a run folder that cannot be read (newer schema, no run.json)
    ├── NothingMeasured   3   the hardware or the system does not let us measure
    ├── StoreError        3   results cannot be written any more (disk full)
    └── EngineError      70   an error of collbench itself

The text of each is one line: what, the value, what is allowed, what to do.
Anything that is not a CollbenchError is an error of collbench itself (70).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """How a command ends (docs/architecture.md, "Exit status")."""

    FINE = 0
    CONFIRMED_BAD = 1
    USAGE = 2
    NOTHING_MEASURED = 3
    INCOMPLETE = 4
    INTERNAL = 70
    INTERRUPTED = 130
    TERMINATED = 143


class CollbenchError(Exception):
    """Root of every error that collbench raises on purpose."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL


class UsageError(CollbenchError):
    """An option or argument that cannot be."""

    exit_code = ExitCode.USAGE


class SuiteError(UsageError):
    """A suite file that cannot be; the text starts with the file and the key's path."""


class RunNotFound(CollbenchError):
    """No stored run answers to the name given."""

    exit_code = ExitCode.USAGE


class RecordError(CollbenchError):
    """A stored run that cannot be read as a whole."""

    exit_code = ExitCode.USAGE


class NothingMeasured(CollbenchError):
    """Measuring is impossible here: hardware absent, not openable, or not what was promised."""

    exit_code = ExitCode.NOTHING_MEASURED


class StoreError(CollbenchError):
    """Results can no longer be written; what was written before stays readable."""

    exit_code = ExitCode.NOTHING_MEASURED


class EngineError(CollbenchError):
    """The engine broke one of its own rules."""


def install_words(extra: str) -> str:
    """Returns how an extra is installed, from an index and from a clone.

    Args:
        extra: its name in pyproject.toml: ``native``, ``parquet``, ``history``.
    """
    clone = f"pip install -c constraints.txt -e '.[{extra}]'"
    return f"pip install 'collbench[{extra}]', in a clone {clone}"


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Returns ``"; did you mean 'x'?"`` for the closest allowed word, or an empty string."""
    by_lower = {name.lower(): name for name in allowed}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"; did you mean '{by_lower[found[0]]}'?" if found else ""
