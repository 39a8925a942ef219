"""A stored run as pandas frames: what notebooks start from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from collbench.errors import UsageError, nearest
from collbench.model import Run, Summary, Topology, Trial
from collbench.store import StoredRun, find_run, read_run, results_root

_FROM_CASE = (
    "collective",
    "backend",
    "dtype",
    "redop",
    "root",
    "size_bytes",
    "requested_bytes",
    "count",
    "world_size",
    "nodes",
    "in_place",
    "mode",
    "pattern",
)
_FROM_SUMMARY: dict[str, Callable[[Summary], float | None]] = {
    "median_us": lambda summary: summary.median_us,
    "ci95_low_us": lambda summary: summary.ci95_us[0] if summary.ci95_us else None,
    "ci95_high_us": lambda summary: summary.ci95_us[1] if summary.ci95_us else None,
    "min_us": lambda summary: summary.min_us,
    "p5_us": lambda summary: summary.p5_us,
    "p95_us": lambda summary: summary.p95_us,
    "p99_us": lambda summary: summary.p99_us,
    "mean_over_ranks_us": lambda summary: summary.mean_over_ranks_us,
    "algbw_gb_per_s": lambda summary: summary.algbw_gb_per_s,
    "busbw_gb_per_s": lambda summary: summary.busbw_gb_per_s,
    "skew": lambda summary: summary.skew,
}


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
    stored: StoredRun
    """The records that the frames are made of."""

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
    folder = find_run(os.fspath(path), results_root(results, os.environ))
    return frames_of(read_run(folder))


def frames_of(stored: StoredRun) -> RunFrames:
    """Returns the frames of a run that has been read."""
    return RunFrames(
        run=stored.run,
        topology=stored.topology,
        trials=_trials_frame(stored.trials),
        problems=stored.problems,
        stored=stored,
    )


def _trials_frame(trials: Sequence[Trial]) -> pd.DataFrame:
    """Builds the frame column by column: 100,000 trials in about a second."""
    summaries = [trial.summary for trial in trials]
    reasons = [trial.reason for trial in trials]
    columns: dict[str, Any] = {
        "trial_id": _text([trial.trial_id for trial in trials]),
        "case_id": _text([trial.case_id for trial in trials]),
        "repeat": _whole([trial.repeat for trial in trials]),
    }
    for name in _FROM_CASE:
        columns[name] = _column([getattr(trial.case, name) for trial in trials], name)
    columns |= {
        "status": _text([trial.status for trial in trials]),
        "reason_code": _text([reason.code if reason else None for reason in reasons]),
        "reason_text": _text([reason.text if reason else None for reason in reasons]),
        "stop_reason": _text([trial.stop_reason for trial in trials]),
        "n_samples": _whole([one.samples if one else None for one in summaries]),
        "ops_per_sample": _whole([one.ops_per_sample if one else None for one in summaries]),
    }
    for name, read in _FROM_SUMMARY.items():
        values = [read(one) if one is not None else None for one in summaries]
        columns[name] = np.array(values, dtype=np.float64)
    columns |= {
        "late_rank": _whole([one.late_rank if one else None for one in summaries]),
        "wrong_elements": _whole([_wrong_elements(trial) for trial in trials]),
        "started_at": _moments([trial.started_at for trial in trials]),
        "duration_s": np.array([trial.duration_s for trial in trials], dtype=np.float64),
    }
    for variable in sorted({name for trial in trials for name in trial.case.setting}):
        columns[f"setting.{variable}"] = _text(
            [trial.case.setting.get(variable) for trial in trials]
        )
    return pd.DataFrame(columns)


def _column(values: list[Any], name: str) -> pd.Series[Any]:
    if name == "in_place":
        return pd.Series(values, dtype="bool")
    if name in ("root", "size_bytes", "requested_bytes", "count", "world_size", "nodes"):
        return _whole(values)
    return _text(values)


def _text(values: Sequence[str | None]) -> pd.Series[Any]:
    """Returns strings; members of an enumeration become their plain words."""
    return pd.Series([None if one is None else str(one) for one in values], dtype="string")


def _whole(values: Sequence[int | None]) -> pd.Series[Any]:
    """Returns integers that stay integers where some are missing."""
    return pd.Series(values, dtype="Int64" if None in values else "int64")


def _moments(values: Sequence[str]) -> pd.Series[Any]:
    return pd.Series(pd.to_datetime(list(values), utc=True, format="ISO8601", errors="coerce"))


def _wrong_elements(trial: Trial) -> int | None:
    return trial.check.wrong_elements if trial.check and trial.check.checked else None
