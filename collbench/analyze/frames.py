"""A stored run as pandas frames: what notebooks start from."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collbench.analyze.frame_columns import TrialColumns
from collbench.errors import UsageError, nearest
from collbench.model import Run, Topology
from collbench.store import StoredRun, find_run, read_run, results_root, scan_run
from collbench.store.reader import missing_samples, samples_end_bytes


@dataclass(frozen=True, kw_only=True)
class RunFrames:
    """A run with its trials as a frame, one row a trial in the order they were measured.

    Columns of ``trials``; what a trial does not have is missing (NaN, NA or NaT):

    | column | what it is |
    |---|---|
    | trial_id, case_id, repeat | names; two trials with one case_id ask the same question |
    | collective, backend, dtype, redop, root, in_place, mode, pattern | what was called |
    | size_bytes, requested_bytes | the whole message moved, as nccl-tests counts it; asked for |
    | count | elements of one rank's share |
    | world_size, nodes | ranks and nodes that took part |
    | status, reason_code, reason_text | how it ended and why |
    | stop_reason | why sampling ended |
    | n_samples, ops_per_sample | samples kept; collective calls timed as one sample |
    | median_us | median over samples of the slowest rank's time, us |
    | ci95_low_us, ci95_high_us | nonparametric 95 % interval of that median, us |
    | min_us, p5_us, p95_us, p99_us | over samples of the slowest rank's time, us |
    | mean_over_ranks_us | mean over ranks and samples (nccl-tests' default), us |
    | algbw_gb_per_s, busbw_gb_per_s | from median_us, 1 GB/s = 1e9 B/s; missing where not shown |
    | skew | median over samples of (slowest - fastest rank) / slowest, 0 to 1 |
    | late_rank | the rank that enters late |
    | wrong_elements | elements that differ from the known answer; missing if unchecked |
    | started_at, duration_s | UTC; seconds with warm-up and check |
    | setting.NAME | one column for each swept variable |
    """

    run: Run
    topology: Topology
    trials: pd.DataFrame
    problems: tuple[str, ...]
    """What was found damaged in the folder and left out, a line each."""
    folder: Path
    """Where the run lies."""

    @cached_property
    def stored(self) -> StoredRun:
        """The records that the frames are made of, read when they are first asked for."""
        return read_run(self.folder)

    def samples(self, trial_id: str | None = None) -> pd.DataFrame:
        """Returns every rank's samples in long form: trial_id, rank, sample, time_us.

        Args:
            trial_id: one trial; all of the run without. Trials without samples, or kept reduced
                (``stored.over_ranks_us``), have no rows.

        Raises:
            UsageError: the run has no such trial.
        """
        trials = [one for one in self.stored.trials if trial_id in (None, one.trial_id)]
        if trial_id is not None and not trials:
            ids = [one.trial_id for one in self.stored.trials]
            raise UsageError(
                f"run {self.run.run_id} has no trial '{trial_id}'{nearest(trial_id, ids) or ';'}"
                " see the column trial_id of the trials"
            )
        found = [(one.trial_id, self.stored.times_us(one)) for one in trials]
        kept = [(name, times_us) for name, times_us in found if times_us is not None]
        places = [np.indices(times_us.shape).reshape(2, -1) for _, times_us in kept]
        # The empty arrays give a run without samples its columns and their types.
        place = np.concatenate([np.empty((2, 0), np.int64), *places], axis=1)
        time_us = [np.empty(0, np.float32)] + [times_us.ravel() for _, times_us in kept]
        names = np.repeat(
            np.array([name for name, _ in kept], dtype=object),
            [times_us.size for _, times_us in kept],
        )
        columns: dict[str, Any] = {
            "trial_id": pd.Series(names, dtype="string"),
            "rank": place[0],
            "sample": place[1],
            "time_us": np.concatenate(time_us),
        }
        return pd.DataFrame(columns)


def load_run(path: str | os.PathLike[str], *, results: str | None = None) -> RunFrames:
    """Returns a stored run as frames.

    Args:
        path: a run's folder, its id, a unique beginning of its id, or ``last``.
        results: the folder of all runs; COLLBENCH_RESULTS or ``results`` without.

    Raises:
        RunNotFound: no such run.
        RecordError: it cannot be read, or was written by a newer collbench.
    """
    scan = scan_run(find_run(os.fspath(path), results_root(results, os.environ)))
    columns = TrialColumns()
    ends_bytes = array("q")
    for batch in scan.batches():
        columns.add(batch)
        ends_bytes.extend([samples_end_bytes(trial.samples) for trial in batch])
    kept = columns.last_of_each()
    trials = columns.frame(kept)
    ends = np.array(ends_bytes, dtype=np.int64)[kept]
    return RunFrames(
        run=scan.run,
        topology=scan.topology,
        trials=trials,
        problems=(*scan.problems, *missing_samples(scan.folder, ends, trials["trial_id"].array)),
        folder=scan.folder,
    )
