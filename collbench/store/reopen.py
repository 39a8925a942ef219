"""Opening a run again, to add what is missing: after a kill, a full disk or an interruption."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from collbench.errors import StoreError
from collbench.model import Reason, ReasonCode, Status, Trial
from collbench.store.lock import hold_for_writing
from collbench.store.paths import SAMPLES_FILE, TRIALS_FILE
from collbench.store.reader import StoredRun, read_run, trials_without_samples
from collbench.store.writer import RunWriter

_CHUNK_BYTES = 65536


def reopen_run(folder: Path) -> tuple[RunWriter, StoredRun]:
    """Returns a writer that appends to a run, and what the run holds.

    What follows the last whole line of ``trials.jsonl`` is cut off. Samples are appended after the
    end of ``samples.bin``; a trial whose samples did not reach it is marked as not run, since the
    next samples will stand in their place. ``run.json`` stays as it is.

    Raises:
        UsageError: another process writes the run.
        RecordError: it cannot be read.
        StoreError: it cannot be written.
    """
    with contextlib.ExitStack() as undo:
        try:
            trials = undo.enter_context((folder / TRIALS_FILE).open("ab", buffering=0))
            hold_for_writing(trials, folder)
            _cut_torn_line(folder / TRIALS_FILE, trials)
            samples = undo.enter_context((folder / SAMPLES_FILE).open("ab", buffering=0))
        except OSError as problem:
            raise StoreError(f"cannot keep results in {folder}: {problem.strerror}") from None
        stored = read_run(folder)
        writer = RunWriter(
            folder, stored.run, trials=trials, samples=samples, kept=len(stored.trials)
        )
        lost = trials_without_samples(stored)
        for trial in lost:
            writer.append(_not_run(trial), None, "")
        undo.pop_all()
    return writer, read_run(folder) if lost else stored


def _cut_torn_line(path: Path, trials: BinaryIO) -> None:
    """Every whole line ends in a line feed, so what follows the last one was cut off."""
    end = trials.tell()
    with path.open("rb") as stream:
        while end > 0:
            start = max(0, end - _CHUNK_BYTES)
            stream.seek(start)
            found = stream.read(end - start).rfind(b"\n")
            end = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
    os.ftruncate(trials.fileno(), end)
    trials.seek(end)


def _not_run(trial: Trial) -> Trial:
    text = f"{SAMPLES_FILE} was cut off before its samples"
    return msgspec.structs.replace(
        trial,
        status=Status.SKIPPED,
        reason=Reason(code=ReasonCode.INTERRUPTED, text=text),
        stop_reason=None,
        check=None,
        proof=None,
        summary=None,
        samples=None,
    )
