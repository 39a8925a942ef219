"""A stored run's trials as one table for other programs: CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import msgspec
import pandas as pd

from collbench.analyze.frames import load_run
from collbench.errors import UsageError, install_words
from collbench.model import Case, NodeState, Run
from collbench.nccl.settings import LIBRARY
from collbench.store import StoredRun


def trial_table(stored: StoredRun) -> pd.DataFrame:
    """Returns one row a trial, in the order in which they stand in the run's folder.

    Before the columns of ``collbench.analyze.frames.RunFrames.trials``, ``setting.NAME`` among
    them, stand those that tell rows of different runs apart:

    | column | what it is |
    |---|---|
    | run_id, command, cluster | of the run |
    | simulated, emulated, planted | what shows no hardware; planted is the fault, or missing |
    | nccl_version | of the library that ran the trial; missing where none is known |
    | nodes_asked, nodes_present | nodes of the run; ``nodes`` are those of the case |
    | group, round | which ranks ran it together; missing where all ranks of the run did |
    """
    run, nodes = stored.run, stored.topology.nodes
    by_id = {trial.trial_id: trial for trial in stored.trials}
    frame = load_run(stored.folder).trials
    # A run that goes on may have got more trials since it was read.
    frame = frame[frame["trial_id"].isin(list(by_id))].reset_index(drop=True)
    trials = [by_id[name] for name in frame["trial_id"]]
    count = len(trials)
    groups = [trial.group for trial in trials]
    rounds = [None if group is None else group.round for group in groups]
    columns: dict[str, Any] = {
        "run_id": _text([run.run_id] * count),
        "command": _text([run.command] * count),
        "cluster": _text([run.cluster] * count),
        "simulated": pd.Series([run.simulated] * count, dtype="bool"),
        "emulated": pd.Series([run.emulated] * count, dtype="bool"),
        "planted": _text([run.planted] * count),
        "nccl_version": _text([nccl_version(run, trial.case) for trial in trials]),
        "nodes_asked": pd.Series([len(nodes)] * count, dtype="int64"),
        "nodes_present": pd.Series(
            [sum(node.state is NodeState.PRESENT for node in nodes)] * count, dtype="int64"
        ),
        "group": _text([None if group is None else group.name for group in groups]),
        "round": pd.Series(rounds, dtype="Int64"),
    }
    return pd.concat([pd.DataFrame(columns), frame], axis="columns")


def csv_text(table: pd.DataFrame) -> str:
    """Returns the table as CSV with a line of names; what is missing is an empty field.

    Numbers have all their digits, moments are UTC in ISO 8601, yes and no are ``true``, ``false``.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    for row in _rows(table):
        writer.writerow([_csv_field(value) for value in row.values()])
    return stream.getvalue()


def jsonl_text(table: pd.DataFrame) -> str:
    """Returns one JSON object a row; what is missing is null."""
    lines = [msgspec.json.encode(row).decode() for row in _rows(table)]
    return "".join(f"{line}\n" for line in lines)


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """Returns the table as a Parquet file's content.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        content: bytes = table.to_parquet(None, engine="pyarrow", index=False)
    except ImportError:
        raise UsageError(
            f"Parquet needs pyarrow, which is not installed: {install_words('parquet')}; or export"
            " csv or jsonl"
        ) from None
    return content


def nccl_version(run: Run, case: Case) -> str | None:
    """Returns the version of the library that a case's setting names, else the run's."""
    library = run.environment.libraries.get(case.setting.get(LIBRARY, "")) or run.environment.nccl
    return None if library is None else library.version


def _text(values: list[str | None] | list[str]) -> pd.Series[Any]:
    return pd.Series(values, dtype="string")


def _rows(table: pd.DataFrame) -> list[Mapping[str, Any]]:
    """Returns plain values by name of column: text, numbers, yes or no, None."""
    plain = {
        str(name): [_plain(value) for value in column.tolist()] for name, column in table.items()
    }
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def _plain(value: Any) -> Any:
    if pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat(timespec="milliseconds")
    return value


def _csv_field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value
