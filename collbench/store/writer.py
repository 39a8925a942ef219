"""Writing a run: every trial is in its file before the next begins.

Only node 0's process writes, and one writer a folder: a folder is made anew for each run, and a run
that is continued is locked (``collbench.store.reopen``).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.errors import StoreError
from collbench.model import Record, Run, SampleRef, Topology, Trial
from collbench.store.lock import hold_for_writing
from collbench.store.paths import (
    LOGS_FOLDER,
    RUN_FILE,
    SAMPLES_FILE,
    TOPOLOGY_FILE,
    TRIALS_FILE,
    new_run_id,
)
from collbench.store.reader import over_ranks, rank_quantiles

MOST_VALUES = 20_000
"""A trial with more samples (ranks x samples) is kept reduced."""

_SYNC_EVERY_S = 1.0
_MOST_IDS_TRIED = 100


class RunWriter:
    """An open run folder.

    A write that fails ends the writing: nothing is appended after a torn line. A write that a
    signal breaks off is undone before the next.
    """

    def __init__(
        self, folder: Path, run: Run, *, trials: BinaryIO, samples: BinaryIO, kept: int = 0
    ) -> None:
        """Takes two files at their ends, open for appending without a buffer.

        A buffer would hold the rest of a torn line and write it when it is closed. ``kept`` trials
        are there already.
        """
        self.folder = folder
        self.run = run
        self._trials = trials
        self._samples = samples
        self._trials_bytes = trials.tell()
        self._samples_bytes = samples.tell()
        self._kept = kept
        self._broken_off = False
        self._failed: str | None = None
        self._synced_s = time.monotonic()

    @classmethod
    def create(cls, root: Path, run: Run, topology: Topology) -> RunWriter:
        """Makes the folder of a new run under ``root``; ``run`` gets another id if its is taken.

        Raises:
            StoreError: it cannot be written; nothing is left behind then.
        """
        cluster = root / run.cluster
        try:
            cluster.mkdir(parents=True, exist_ok=True)
            run = _make_folder(cluster, run)
        except OSError as problem:
            raise StoreError(f"cannot keep results in {cluster}: {problem.strerror}") from None
        folder = cluster / run.run_id
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                (folder / LOGS_FOLDER).mkdir()
                trials = undo.enter_context((folder / TRIALS_FILE).open("ab", buffering=0))
                samples = undo.enter_context((folder / SAMPLES_FILE).open("ab", buffering=0))
                hold_for_writing(trials, folder)
                _replace(folder / TOPOLOGY_FILE, topology)
                # The last one: where run.json stands the folder is a run.
                _replace(folder / RUN_FILE, run)
            except OSError as problem:
                raise StoreError(f"cannot keep results in {folder}: {problem.strerror}") from None
            undo.pop_all()
        return cls(folder, run, trials=trials, samples=samples)

    @property
    def logs(self) -> Path:
        """The folder of the processes' output."""
        return self.folder / LOGS_FOLDER

    def new_part(self, topology: Topology) -> Path:
        """Makes ready for a part that continues the run; returns the folder of its output.

        Nothing of the parts before is written over: ``logs-2`` stands beside ``logs``, and
        ``topology-1.json`` keeps where the first part ran.

        Args:
            topology: as it is stored, of the part before.

        Raises:
            StoreError: they cannot be written.
        """
        try:
            for number in itertools.count(2):
                logs = self.folder / f"{LOGS_FOLDER}-{number}"
                with contextlib.suppress(FileExistsError):
                    logs.mkdir()
                    _replace(self.folder / f"topology-{number - 1}.json", topology)
                    return logs
        except OSError as problem:
            raise StoreError(self._sentence(problem)) from None
        raise AssertionError("numbers do not end")

    def append(self, trial: Trial, times_us: NDArray[np.float32] | None, clock: str) -> Trial:
        """Stores a trial; returns it with the place of its samples.

        Args:
            trial: what happened.
            times_us: float32[rank, sample] in us, or None.
            clock: what timed them.

        Raises:
            StoreError: it could not be written, or an earlier write failed.
        """
        with self._writing():
            data = b""
            if times_us is not None and times_us.size > 0:
                layout, data = pack_samples(times_us)
                reference = SampleRef(
                    offset_bytes=self._samples_bytes,
                    layout=layout,
                    ranks=times_us.shape[0],
                    samples=times_us.shape[1],
                    clock=clock,
                )
                trial = msgspec.structs.replace(trial, samples=reference)
            line = msgspec.json.encode(trial) + b"\n"
            # Samples first: a line never points at what is not there.
            _write_all(self._samples, data)
            _write_all(self._trials, line)
            self._samples_bytes += len(data)
            self._trials_bytes += len(line)
            self._kept += 1
        if time.monotonic() - self._synced_s > _SYNC_EVERY_S:
            self.sync()
        return trial

    def sync(self) -> None:
        """Makes sure that what was appended survives a power cut.

        Raises:
            StoreError: the disk says no, or an earlier write failed.
        """
        with self._writing():
            os.fsync(self._samples.fileno())
            os.fsync(self._trials.fileno())
            self._synced_s = time.monotonic()

    def update(self, run: Run, topology: Topology | None = None) -> None:
        """Rewrites run.json and topology.json; each is either the old or the new one, whole.

        It is tried even where trials can no longer be appended.

        Raises:
            StoreError: they could not be written; the text is that of the first failure.
        """
        self.run = run
        try:
            if topology is not None:
                _replace(self.folder / TOPOLOGY_FILE, topology)
            _replace(self.folder / RUN_FILE, run)
        except OSError as problem:
            self._failed = self._failed or self._sentence(problem)
            raise StoreError(self._failed) from None

    def discard(self) -> None:
        """Takes away a run of which nothing was measured, but keeps what the workers said."""
        self.close()
        # run.json first: without it the folder is no run.
        for name in (RUN_FILE, TOPOLOGY_FILE, TRIALS_FILE, SAMPLES_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the files; may be called twice."""
        for stream in (self._samples, self._trials):
            # An error of close is an error of an earlier write (NFS), which fsync has reported.
            with contextlib.suppress(OSError):
                stream.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Holds one write: first undoes one that was broken off, and remembers a failure."""
        if self._failed is not None:
            raise StoreError(self._failed)
        try:
            if self._broken_off:
                os.ftruncate(self._samples.fileno(), self._samples_bytes)
                os.ftruncate(self._trials.fileno(), self._trials_bytes)
            self._broken_off = True
            yield
            self._broken_off = False
        except OSError as problem:
            self._failed = self._sentence(problem)
            raise StoreError(self._failed) from None

    def _sentence(self, problem: OSError) -> str:
        return (
            f"results can no longer be written: {self.folder}: {problem.strerror};"
            f" {self._kept} of {self.run.planned_trials} trials are kept and readable"
        )


def pack_samples(times_us: NDArray[np.float32]) -> tuple[str, bytes]:
    """Returns layout and bytes of float32[rank, sample], reduced above ``MOST_VALUES`` values."""
    if times_us.size <= MOST_VALUES:
        return "rank_sample", times_us.astype("<f4").tobytes()
    parts = (over_ranks(times_us), rank_quantiles(times_us))
    return "reduced", b"".join(part.astype("<f4").tobytes() for part in parts)


def _make_folder(cluster: Path, run: Run) -> Run:
    """Makes a folder that was not there; returns the run with the id that it got."""
    for _ in range(_MOST_IDS_TRIED):
        try:
            (cluster / run.run_id).mkdir()
        except FileExistsError:
            run = msgspec.structs.replace(run, run_id=new_run_id())
        else:
            return run
    raise FileExistsError(None, f"{_MOST_IDS_TRIED} run ids are taken")


def _write_all(stream: BinaryIO, data: bytes) -> None:
    """Writes all bytes to an unbuffered file, which may take them in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def _replace(path: Path, record: Record) -> None:
    """Writes a record as indented JSON by a temporary file and a rename, both on disk."""
    temporary = path.with_suffix(".tmp")
    data = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
