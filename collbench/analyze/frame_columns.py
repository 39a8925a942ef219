"""The columns of the frame of trials, filled a batch at a time.

A million trials as records take more memory than their frame: what a batch says goes into columns,
and the batch is let go. What comes again (a case, an ending) is kept once and stands as a number.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collbench.model import Case, Summary, Trial

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
_WHOLE = ("root", "size_bytes", "requested_bytes", "count", "world_size", "nodes")
_MEASURED = (
    "median_us",
    "ci95_low_us",
    "ci95_high_us",
    "min_us",
    "p5_us",
    "p95_us",
    "p99_us",
    "mean_over_ranks_us",
    "algbw_gb_per_s",
    "busbw_gb_per_s",
    "skew",
)
_NOT_MEASURED = (None,) * len(_MEASURED)
_NO_INTERVAL = (None, None)

_asked: Callable[[Case], tuple[Any, ...]] = attrgetter(*_FROM_CASE)
_rest_measured: Callable[[Summary], tuple[float | None, ...]] = attrgetter(*_MEASURED[3:])


class _Repeated:
    """Values of which many are alike: each once, and for every row its number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._rows = array("q")

    def add(self, values: Sequence[Hashable]) -> None:
        """Appends a value for each row."""
        numbers = self._numbers
        self._rows.extend([numbers.setdefault(value, len(numbers)) for value in values])

    def take(self, kept: NDArray[np.bool_]) -> tuple[list[Any], NDArray[np.intp]]:
        """Returns the values that stand in the rows to keep, and the place of each row's."""
        rows = np.array(self._rows, dtype=np.intp)[kept]
        used, places = np.unique(rows, return_inverse=True)
        values = list(self._numbers)
        return [values[number] for number in used], places


class TrialColumns:
    """The columns of trials that go by in batches; of trials of one id the last one counts."""

    def __init__(self) -> None:
        self._trial_ids: list[str] = []
        self._case_ids = _Repeated()
        self._repeats = array("q")
        self._cases = _Repeated()
        self._endings = _Repeated()
        self._measured: list[NDArray[np.float64]] = []
        self._started_at: list[str] = []
        self._durations_s = array("d")

    def add(self, trials: Sequence[Trial]) -> None:
        """Appends a row for each trial."""
        self._trial_ids.extend([trial.trial_id for trial in trials])
        self._case_ids.add([trial.case_id for trial in trials])
        self._repeats.extend([trial.repeat for trial in trials])
        self._cases.add([(_asked(one.case), *one.case.setting.items()) for one in trials])
        self._endings.add([_ending(trial) for trial in trials])
        rows = [_measured(trial.summary) for trial in trials]
        self._measured.append(np.array(rows, dtype=np.float64).reshape(-1, len(_MEASURED)))
        self._started_at.extend([trial.started_at for trial in trials])
        self._durations_s.extend([trial.duration_s for trial in trials])

    def last_of_each(self) -> NDArray[np.bool_]:
        """Says for each row whether it is the last one of its trial: one that ran again counts."""
        return np.asarray(~pd.Series(self._trial_ids, dtype=object).duplicated(keep="last"))

    def frame(self, kept: NDArray[np.bool_]) -> pd.DataFrame:
        """Returns the rows to keep as the frame that ``RunFrames`` describes."""
        columns: dict[str, Any] = {
            "trial_id": _text(_kept(self._trial_ids, kept)),
            "case_id": _spread(_text, *self._case_ids.take(kept)),
            "repeat": np.array(self._repeats, dtype=np.int64)[kept],
        }
        cases, places = self._cases.take(kept)
        for index, name in enumerate(_FROM_CASE):
            columns[name] = _spread(_kind_of(name), [asked[index] for asked, *_ in cases], places)
        endings, ended = self._endings.take(kept)
        for index, (name, kind) in enumerate(_ENDING.items()):
            columns[name] = _spread(kind, [ending[index] for ending in endings], ended)
        measured = np.concatenate([np.empty((0, len(_MEASURED))), *self._measured])[kept]
        columns |= {name: measured[:, index] for index, name in enumerate(_MEASURED)}
        # In the order of the columns these two stand behind what was measured.
        for name in ("late_rank", "wrong_elements"):
            columns[name] = columns.pop(name)
        started_at = _kept(self._started_at, kept).tolist()
        columns |= {
            "started_at": pd.to_datetime(started_at, utc=True, format="ISO8601", errors="coerce"),
            "duration_s": np.array(self._durations_s, dtype=np.float64)[kept],
        }
        settings = [dict(setting) for _, *setting in cases]
        for variable in sorted({name for setting in settings for name in setting}):
            values = [setting.get(variable) for setting in settings]
            columns[f"setting.{variable}"] = _spread(_text, values, places)
        return pd.DataFrame(columns)


def _ending(trial: Trial) -> tuple[Hashable, ...]:
    """Returns the values of the columns of ``_ENDING``."""
    reason, summary, check = trial.reason, trial.summary, trial.check
    return (
        trial.status,
        reason.code if reason else None,
        reason.text if reason else None,
        trial.stop_reason,
        summary.samples if summary else None,
        summary.ops_per_sample if summary else None,
        summary.late_rank if summary else None,
        check.wrong_elements if check and check.checked else None,
    )


def _measured(summary: Summary | None) -> tuple[float | None, ...]:
    """Returns the values of the columns of ``_MEASURED``."""
    if summary is None:
        return _NOT_MEASURED
    interval = summary.ci95_us or _NO_INTERVAL
    return (summary.median_us, *interval, *_rest_measured(summary))


def _kept(values: Sequence[str], kept: NDArray[np.bool_]) -> NDArray[np.object_]:
    return np.array(values, dtype=object)[kept]


def _spread(
    kind: Callable[[Sequence[Any]], pd.Series[Any]],
    values: Sequence[Any],
    places: NDArray[np.intp],
) -> Any:
    """Returns the column that has in each row the value at the row's place."""
    return kind(values).array.take(places)


def _kind_of(name: str) -> Callable[[Sequence[Any]], pd.Series[Any]]:
    if name == "in_place":
        return _flags
    return _whole if name in _WHOLE else _text


def _flags(values: Sequence[bool]) -> pd.Series[Any]:
    return pd.Series(values, dtype="bool")


def _text(values: Sequence[str | None] | NDArray[np.object_]) -> pd.Series[Any]:
    """Returns strings; members of an enumeration become their plain words."""
    if not isinstance(values, np.ndarray):
        values = np.array([None if one is None else str(one) for one in values], dtype=object)
    return pd.Series(values, dtype="string")


def _whole(values: Sequence[int | None]) -> pd.Series[Any]:
    """Returns integers that stay integers where some are missing."""
    return pd.Series(values, dtype="Int64" if None in values else "int64")


_ENDING: dict[str, Callable[[Sequence[Any]], pd.Series[Any]]] = {
    "status": _text,
    "reason_code": _text,
    "reason_text": _text,
    "stop_reason": _text,
    "n_samples": _whole,
    "ops_per_sample": _whole,
    "late_rank": _whole,
    "wrong_elements": _whole,
}
