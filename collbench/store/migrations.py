"""From older schema versions to the present one, a step a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collbench import model
from collbench.errors import RecordError

Step = Callable[[dict[str, Any]], dict[str, Any]]

MIGRATIONS: dict[int, Step] = {}
"""Version -> what makes a record of that version one of the next; version 1 is the first.

A step is given every stored record (run, topology, trial) and tells them by their keys.
"""


def newer_schema(where: str, version: int) -> RecordError:
    """Returns the error for a record that only a newer collbench can read."""
    return RecordError(
        f"{where} is of schema {version}; this collbench reads up to {model.SCHEMA_VERSION}:"
        " upgrade collbench"
    )


def migrate(record: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns a record in the present schema.

    Args:
        record: as it was stored.
        where: file and line, for the error.

    Raises:
        RecordError: it is newer than this collbench, or says no version.
    """
    version = record.get("schema")
    if not isinstance(version, int) or version < 1:
        raise RecordError(f"{where} says no schema version; it is no record of collbench")
    if version > model.SCHEMA_VERSION:
        raise newer_schema(where, version)
    while version < model.SCHEMA_VERSION:
        version += 1
        record = MIGRATIONS[version - 1](record) | {"schema": version}
    return record
