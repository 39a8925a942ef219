"""Reading a run, whole or torn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.errors import RecordError
from collbench.model import Record, Run, SampleRef, Topology, Trial
from collbench.store.migrations import migrate
from collbench.store.paths import RUN_FILE, SAMPLES_FILE, TOPOLOGY_FILE, TRIALS_FILE
from collbench.store.trial_lines import DAMAGED, trial_batches

R = TypeVar("R", bound=Record)
FloatArray = NDArray[np.float32]

_FLOAT_BYTES = 4
_NO_SAMPLES = -1
_BEYOND_ALL = 2**63 - 1
_QUANTILES = (0.05, 0.5, 0.95)


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
    scan = scan_run(folder)
    trials: dict[str, Trial] = {}
    for batch in scan.batches():
        for trial in batch:
            replace_trial(trials, trial)
    ends_bytes = [samples_end_bytes(trial.samples) for trial in trials.values()]
    return StoredRun(
        folder=folder,
        run=scan.run,
        topology=scan.topology,
        trials=tuple(trials.values()),
        problems=(*scan.problems, *missing_samples(folder, ends_bytes, tuple(trials))),
    )


@dataclass(frozen=True, kw_only=True)
class RunScan:
    """A run whose trials go by in batches: a million of them need not be held as records."""

    folder: Path
    run: Run
    topology: Topology
    problems: list[str] = field(default_factory=list)
    """What was found damaged and left out, a line each; it grows as the batches are read."""

    def batches(self) -> Iterator[list[Trial]]:
        """Yields the trials in the order of the file; of several of one id the last counts.

        Raises:
            RecordError: they cannot be read, or one is of a newer schema.
        """
        return trial_batches(self.folder / TRIALS_FILE, self.problems)


def scan_run(folder: Path) -> RunScan:
    """Returns a run whose trials are yet to be read.

    Raises:
        RecordError: as ``read_run``.
    """
    return RunScan(
        folder=folder,
        run=_read_record(folder / RUN_FILE, Run),
        topology=_read_record(folder / TOPOLOGY_FILE, Topology),
    )


def replace_trial(trials: dict[str, Trial], trial: Trial) -> None:
    """Puts a trial at the end of those by ``trial_id``, in the place of one that it is again."""
    trials.pop(trial.trial_id, None)
    trials[trial.trial_id] = trial


def _read_record(path: Path, kind: type[R]) -> R:
    try:
        raw = msgspec.json.decode(path.read_bytes())
        if not isinstance(raw, dict):
            raise RecordError(f"{path} is no record of collbench: not a JSON object")
        return msgspec.convert(migrate(raw, str(path)), kind)
    except OSError as problem:
        raise RecordError(f"{path} cannot be read: {problem.strerror}; not a run folder?") from None
    except DAMAGED as problem:
        raise RecordError(f"{path} is damaged: {problem}") from None


def trials_without_samples(stored: StoredRun) -> list[Trial]:
    """Returns the trials whose samples ``samples.bin`` does not hold."""
    size_bytes = _size_bytes(stored.folder / SAMPLES_FILE)
    return [one for one in stored.trials if samples_end_bytes(one.samples) > size_bytes]


def samples_end_bytes(reference: SampleRef | None) -> int:
    """Returns where a trial's samples end in ``samples.bin``.

    -1 for a trial without samples; for a place that cannot be, what no file reaches.
    """
    if reference is None:
        return _NO_SAMPLES
    count = stored_values(reference)
    if count is None:
        return _BEYOND_ALL
    return min(reference.offset_bytes + count * _FLOAT_BYTES, _BEYOND_ALL)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def missing_samples(
    folder: Path, ends_bytes: Sequence[int] | NDArray[np.int64], trial_ids: Sequence[str]
) -> list[str]:
    """Returns a line about the trials whose samples ``samples.bin`` does not hold, if any.

    Args:
        folder: the run's.
        ends_bytes: ``samples_end_bytes`` of each trial.
        trial_ids: their names.
    """
    ends = np.asarray(ends_bytes, dtype=np.int64)
    size_bytes = _size_bytes(folder / SAMPLES_FILE)
    missing = np.flatnonzero(ends > size_bytes)
    if not missing.size:
        return []
    sampled = np.count_nonzero(ends != _NO_SAMPLES)
    share = f"{missing.size} of {sampled} trials, first {trial_ids[missing[0]]}"
    return [f"{SAMPLES_FILE} ({size_bytes} bytes) lacks the samples of {share}"]
