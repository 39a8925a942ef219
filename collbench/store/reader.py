"""Reading a run, whole or torn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench import model
from collbench.errors import RecordError
from collbench.model import Record, Run, SampleRef, Topology, Trial
from collbench.store.migrations import migrate, newer_schema
from collbench.store.paths import RUN_FILE, SAMPLES_FILE, TOPOLOGY_FILE, TRIALS_FILE

R = TypeVar("R", bound=Record)
FloatArray = NDArray[np.float32]

_FLOAT_BYTES = 4
_QUANTILES = (0.05, 0.5, 0.95)
_TRIAL_DECODER = msgspec.json.Decoder(Trial)
_DAMAGED = (msgspec.MsgspecError, RecursionError)
"""What the decoder raises for text that is no JSON, or nested without end, or no such record."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as it lies in its folder."""

    folder: Path
    run: Run
    topology: Topology
    trials: tuple[Trial, ...]
    problems: tuple[str, ...] = ()
    """What was found damaged and left out, a line each."""

    def times_us(self, trial: Trial) -> FloatArray | None:
        """Returns a trial's samples in us: float32[rank, sample].

        None where there are none, where only their summary over ranks was kept (layout
        ``reduced``), or where ``samples.bin`` ends before them.
        """
        reference = trial.samples
        if reference is None or reference.layout != "rank_sample":
            return None
        values = self._values(reference)
        return None if values is None else values.reshape(reference.ranks, reference.samples)

    def over_ranks_us(self, trial: Trial) -> FloatArray | None:
        """Returns min, mean and max over ranks of each sample in us: float32[3, sample].

        For both layouts; the last row is the slowest rank's time, the time of the collective.
        None where there are no samples or ``samples.bin`` ends before them.
        """
        times_us = self.times_us(trial)
        if times_us is not None:
            return over_ranks(times_us)
        reference = trial.samples
        values = None if reference is None else self._values(reference)
        if reference is None or values is None:
            return None
        return values[: 3 * reference.samples].reshape(3, reference.samples)

    def rank_quantiles_us(self, trial: Trial) -> FloatArray | None:
        """Returns p5, p50 and p95 over samples of each rank in us: float32[rank, 3].

        For both layouts. None where there are no samples or ``samples.bin`` ends before them.
        """
        times_us = self.times_us(trial)
        if times_us is not None:
            return rank_quantiles(times_us)
        reference = trial.samples
        values = None if reference is None else self._values(reference)
        if reference is None or values is None:
            return None
        return values[3 * reference.samples :].reshape(reference.ranks, 3)

    def _values(self, reference: SampleRef) -> FloatArray | None:
        count = stored_values(reference)
        if count is None:
            return None
        path = self.folder / SAMPLES_FILE
        try:
            values = np.fromfile(path, "<f4", count, offset=reference.offset_bytes)
        except OSError:
            return None
        return values.astype(np.float32, copy=False) if values.size == count else None


def over_ranks(times_us: FloatArray) -> FloatArray:
    """Returns min, mean and max over ranks of float32[rank, sample]: float32[3, sample]."""
    rows = [times_us.min(axis=0), times_us.mean(axis=0, dtype=np.float64), times_us.max(axis=0)]
    return np.stack(rows).astype(np.float32)


def rank_quantiles(times_us: FloatArray) -> FloatArray:
    """Returns p5, p50, p95 over samples of float32[rank, sample]: float32[rank, 3]."""
    return np.quantile(times_us, _QUANTILES, axis=1).T.astype(np.float32)


def stored_values(reference: SampleRef) -> int | None:
    """Returns how many float32 a trial has in ``samples.bin``; None for what cannot be."""
    if min(reference.ranks, reference.samples) < 1 or reference.offset_bytes < 0:
        return None
    if reference.layout == "rank_sample":
        return reference.ranks * reference.samples
    if reference.layout == "reduced":
        return 3 * reference.samples + 3 * reference.ranks
    return None


def read_run(folder: Path) -> StoredRun:
    """Returns the run in a folder; damaged lines are reported in ``problems`` and left out.

    Of several lines of one trial the last counts: it was run again.

    Raises:
        RecordError: no run there, one of a newer schema, or one whose run.json or topology.json
            is damaged.
    """
    run = _read_record(folder / RUN_FILE, Run)
    topology = _read_record(folder / TOPOLOGY_FILE, Topology)
    trials, problems = _read_trials(folder / TRIALS_FILE)
    stored = StoredRun(
        folder=folder,
        run=run,
        topology=topology,
        trials=tuple(trials),
        problems=tuple(problems),
    )
    return replace(stored, problems=(*problems, *_missing_samples(stored)))


def _read_trials(path: Path) -> tuple[list[Trial], list[str]]:
    """Returns the trials of a file, and what its other lines are."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], [f"{path.name} is missing: no trials"]
    except OSError as problem:
        raise RecordError(f"{path} cannot be read: {problem.strerror}") from None
    trials: dict[str, Trial] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            trial = _read_trial(line, f"{path} line {number}")
        except _DAMAGED as problem:
            # Every whole line ends in a line feed, so what follows the last one was cut off.
            what = "cut off" if number == len(lines) else f"not a trial ({problem})"
            problems.append(f"{path.name} line {number}: {what}; ignored")
        else:
            replace_trial(trials, trial)
    return list(trials.values()), problems


def replace_trial(trials: dict[str, Trial], trial: Trial) -> None:
    """Puts a trial at the end of those by ``trial_id``, in the place of one that it is again."""
    trials.pop(trial.trial_id, None)
    trials[trial.trial_id] = trial


def _read_trial(line: bytes, where: str) -> Trial:
    """Decodes a line at once, and takes the slow way only where it is of another schema."""
    try:
        trial = _TRIAL_DECODER.decode(line)
    except msgspec.ValidationError:
        raw = msgspec.json.decode(line)
        if not _of_other_schema(raw):
            raise
    else:
        if trial.schema == model.SCHEMA_VERSION:
            return trial
        raw = msgspec.json.decode(line)
        if not _of_other_schema(raw):
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


def _read_record(path: Path, kind: type[R]) -> R:
    try:
        raw = msgspec.json.decode(path.read_bytes())
        if not isinstance(raw, dict):
            raise RecordError(f"{path} is no record of collbench: not a JSON object")
        return msgspec.convert(migrate(raw, str(path)), kind)
    except OSError as problem:
        raise RecordError(f"{path} cannot be read: {problem.strerror}; not a run folder?") from None
    except _DAMAGED as problem:
        raise RecordError(f"{path} is damaged: {problem}") from None


def trials_without_samples(stored: StoredRun) -> list[Trial]:
    """Returns the trials whose samples ``samples.bin`` does not hold."""
    size_bytes = _size_bytes(stored.folder / SAMPLES_FILE)
    return [
        trial
        for trial in stored.trials
        if trial.samples is not None and not _holds(size_bytes, trial.samples)
    ]


def _holds(size_bytes: int, reference: SampleRef) -> bool:
    count = stored_values(reference)
    return count is not None and reference.offset_bytes + count * _FLOAT_BYTES <= size_bytes


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _missing_samples(stored: StoredRun) -> list[str]:
    """Returns a line about the trials whose samples ``samples.bin`` does not hold."""
    missing = trials_without_samples(stored)
    if not missing:
        return []
    sampled = sum(trial.samples is not None for trial in stored.trials)
    size_bytes = _size_bytes(stored.folder / SAMPLES_FILE)
    share = f"{len(missing)} of {sampled} trials, first {missing[0].trial_id}"
    return [f"{SAMPLES_FILE} ({size_bytes} bytes) lacks the samples of {share}"]
