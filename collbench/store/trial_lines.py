"""The lines of ``trials.jsonl``, a batch at a time, so that a file may be longer than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from collbench import model
from collbench.errors import RecordError
from collbench.model import Trial
from collbench.store.migrations import migrate, newer_schema

_BUFFER_BYTES = 1 << 17
_BATCH = 64
"""So few that they stay in the processor's cache, and their memory is used again."""
_DECODER = msgspec.json.Decoder(Trial)

DAMAGED = (msgspec.MsgspecError, RecursionError)
"""What the decoder raises for text that is no JSON, or nested without end, or no such record."""


def trial_batches(path: Path, problems: list[str]) -> Iterator[list[Trial]]:
    """Yields the trials of a file in the order of its lines, some at a time.

    Args:
        path: a run's ``trials.jsonl``.
        problems: is given a line about each line that is no trial, and one where there is no file.

    Raises:
        RecordError: the file cannot be read, or holds a trial of a newer schema.
    """
    batch: list[Trial] = []
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as stream:
            for number, line in enumerate(stream, start=1):
                trial: Trial | None
                try:
                    trial = _DECODER.decode(line)
                except DAMAGED:
                    trial = None
                if trial is None or trial.schema != model.SCHEMA_VERSION:
                    trial = _read_odd(line, number, path, problems)
                if trial is None:
                    continue
                batch.append(trial)
                if len(batch) == _BATCH:
                    yield batch
                    batch = []
    except FileNotFoundError:
        problems.append(f"{path.name} is missing: no trials")
    except OSError as problem:
        raise RecordError(f"{path} cannot be read: {problem.strerror}") from None
    if batch:
        yield batch


def _read_odd(line: bytes, number: int, path: Path, problems: list[str]) -> Trial | None:
    """Returns what a line holds that is no trial of the present schema; None if it is no trial."""
    text = line.rstrip(b"\n")
    if not text:
        return None
    try:
        return _read_other(text, f"{path} line {number}")
    except DAMAGED as problem:
        # Every whole line ends in a line feed, so what follows the last one was cut off.
        what = f"not a trial ({problem})" if line.endswith(b"\n") else "cut off"
        problems.append(f"{path.name} line {number}: {what}; ignored")
        return None


def _read_other(line: bytes, where: str) -> Trial:
    """Decodes a trial of another schema, or raises what is wrong with the line."""
    raw = msgspec.json.decode(line)
    if not _of_other_schema(raw):
        trial = _DECODER.decode(line)
        raise msgspec.ValidationError(f"schema {trial.schema}")
    if raw["schema"] > model.SCHEMA_VERSION:
        raise newer_schema(where, raw["schema"])
    return msgspec.convert(migrate(raw, where), Trial)


def _of_other_schema(raw: object) -> bool:
    """Says whether a line is a trial of another version, and not something foreign."""
    if not isinstance(raw, dict) or "trial_id" not in raw:
        return False
    version: Any = raw.get("schema")
    return isinstance(version, int) and version >= 1 and version != model.SCHEMA_VERSION
