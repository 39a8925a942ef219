"""``collbench export csv``, ``parquet`` and ``jsonl``: the frame of trials as files."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from click.testing import CliRunner
from pandas.testing import assert_frame_equal
from records import make_trial
from stored_runs import environment_of, put, stored_run, topology_of

from collbench.analyze.frames import load_run
from collbench.cli.main import cli
from collbench.interop.table_files import trial_table
from collbench.model import GroupPlace, LibraryVersion, Reason, ReasonCode, Status
from collbench.store import read_run

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0929-1943"
OF_THE_RUN = [
    "run_id",
    "command",
    "cluster",
    "simulated",
    "emulated",
    "planted",
    "nccl_version",
    "nodes_asked",
    "nodes_present",
    "group",
    "round",
]


def called(*arguments):
    return CliRunner().invoke(cli, ["export", *map(str, arguments)], standalone_mode=False)


def with_setting(trial, **setting):
    return msgspec.structs.replace(trial, case=msgspec.structs.replace(trial.case, setting=setting))


def hung_trial():
    trial = make_trial(64, 5.0, repeat=1)
    reason = Reason(code=ReasonCode.NO_PROGRESS, text='rank 1 stopped, "alone"')
    return msgspec.structs.replace(trial, summary=None, status=Status.HUNG, reason=reason)


@pytest.fixture
def made():
    """A run with a setting, a library of its own, a group and a trial that hung."""
    third = 1 / 3  # needs all its digits
    return stored_run(
        [
            make_trial(8, 10 + third),
            with_setting(make_trial(16, 11.0), NCCL_ALGO="Ring", nccl="old"),
            make_trial(32, 12.5, group=GroupPlace(name="a-b", round=3, ranks=[0, 1])),
            hung_trial(),
        ],
        topology=topology_of(nodes=2),
        environment=environment_of(libraries={"old": LibraryVersion(version="2.21.5")}),
    )


def read_csv(text):
    return pd.read_csv(io.StringIO(text))


def test_a_csv_read_back_equals_the_frame(tmp_path):
    result = called("csv", REFERENCE)

    assert result.return_value is None
    found = read_csv(result.stdout)
    frame = load_run(REFERENCE).trials
    assert list(found.columns) == [*OF_THE_RUN, *frame.columns]
    assert set(found["run_id"]) == {"20261130-0929-1943"}
    assert set(found["nccl_version"]) == {"2.28.9"}
    for name in frame.columns:
        if name == "started_at":
            moments = pd.to_datetime(found[name], format="ISO8601").astype(frame[name].dtype)
            assert moments.tolist() == frame[name].tolist()
        elif pd.api.types.is_numeric_dtype(frame[name]):
            expected = frame[name].astype("Float64").fillna(-1).tolist()
            assert found[name].astype("Float64").fillna(-1).tolist() == expected, name
        else:
            assert found[name].fillna("").tolist() == frame[name].fillna("").tolist(), name


def test_a_parquet_file_read_back_equals_the_frame_with_its_types(tmp_path):
    file = tmp_path / "trials.parquet"

    result = called("parquet", REFERENCE, "-o", file)

    assert result.return_value is None
    assert result.stderr == f"Kept in {file}\n"
    stored = read_run(REFERENCE)
    found = pd.read_parquet(file)
    frame = load_run(REFERENCE).trials
    assert_frame_equal(found, trial_table(stored), check_dtype=False)
    assert_frame_equal(found[list(frame.columns)], frame, check_dtype=False)
    numbers = frame.select_dtypes(["int64", "float64", "bool"]).columns
    assert found.dtypes[numbers].equals(frame.dtypes[numbers])


def test_each_row_says_what_it_is_of(made, tmp_path):
    lines = called("jsonl", put(made, tmp_path)).stdout.splitlines()

    rows = [json.loads(line) for line in lines]
    assert [row["nccl_version"] for row in rows] == ["2.30.7", "2.21.5", "2.30.7", "2.30.7"]
    assert [row["setting.NCCL_ALGO"] for row in rows] == [None, "Ring", None, None]
    assert [(row["group"], row["round"]) for row in rows] == [
        (None, None),
        (None, None),
        ("a-b", 3),
        (None, None),
    ]
    assert rows[0]["median_us"] == 10 + 1 / 3
    assert rows[0]["in_place"] is True
    assert rows[0]["started_at"] == "2026-11-30T00:00:00.000+00:00"
    assert (rows[0]["nodes_asked"], rows[0]["nodes_present"]) == (2, 2)
    failed = {name: rows[3][name] for name in ("status", "reason_code", "reason_text", "median_us")}
    assert failed == {
        "status": "hung",
        "reason_code": "no_progress",
        "reason_text": 'rank 1 stopped, "alone"',
        "median_us": None,
    }


def test_rows_come_as_measured_and_alike_each_time(made, tmp_path):
    folder = put(made, tmp_path)

    first, again = called("csv", folder).stdout, called("csv", folder).stdout

    assert first == again
    assert read_csv(first)["size_bytes"].tolist() == [8, 16, 32, 64]


def test_trials_that_came_after_the_run_was_read_are_left_for_the_next_time(made, tmp_path):
    folder = put(made, tmp_path)
    stored = read_run(folder)
    with (folder / "trials.jsonl").open("ab") as stream:
        stream.write(msgspec.json.encode(make_trial(128, 20.0)) + b"\n")

    assert trial_table(stored)["size_bytes"].tolist() == [8, 16, 32, 64]
    assert trial_table(read_run(folder))["size_bytes"].tolist() == [8, 16, 32, 64, 128]


def test_marks_of_runs_without_hardware_stand_in_every_row(made, tmp_path):
    run = msgspec.structs.replace(made.run, simulated=True, planted="wrong_element")
    folder = put(stored_run(made.trials, simulated=run.simulated, planted=run.planted), tmp_path)

    found = read_csv(called("csv", folder).stdout)

    assert found["simulated"].tolist() == [True] * 4
    assert set(found["planted"]) == {"wrong_element"}


def test_a_run_without_trials_is_a_line_of_names(tmp_path):
    folder = put(stored_run([]), tmp_path)

    text = called("csv", folder).stdout

    assert text.count("\n") == 1
    assert text.startswith("run_id,command,cluster,")
    assert called("jsonl", folder).stdout.strip() == ""


def test_a_run_that_goes_on_is_said_to_be_partial(made, tmp_path):
    folder = put(stored_run(made.trials, exit_code=None, planned_trials=9), tmp_path)

    result = called("jsonl", folder)

    assert len(result.stdout.splitlines()) == 4
    assert result.stderr == (
        "collbench: run 20261130-0412-aa11 is partial, 4 of 9 trials: it goes on, or ended"
        " without a chance to say so\n"
    )


def test_a_file_that_exists_is_kept_unless_forced(made, tmp_path):
    folder, file = put(made, tmp_path), tmp_path / "trials.csv"
    file.write_text("mine")

    result = called("csv", folder, "-o", file)

    assert str(result.exception) == f"'{file}' exists; give another name with -o, or --force"
    assert result.exception.exit_code == 2
    assert file.read_text() == "mine"
    assert called("csv", folder, "-o", file, "--force").return_value is None
    assert file.read_text() == called("csv", folder).stdout
    assert sorted(tmp_path.iterdir()) == [folder, file]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["csv", "-o", "/none/x"], "cannot write '/none/x': No such file or directory; give anoth"),
        (["parquet"], "Parquet is no text for stdout; give a file with -o"),
    ],
)
def test_bad_targets_are_usage_errors(arguments, words):
    result = called(arguments[0], REFERENCE, *arguments[1:])

    assert str(result.exception).startswith(words)
    assert result.exception.exit_code == 2


def test_what_is_no_plain_file_is_never_replaced(made, tmp_path):
    folder, pipe = put(made, tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)

    result = called("csv", folder, "-o", pipe, "--force")

    assert str(result.exception) == (
        f"'{pipe}' exists and is no plain file; give another name with -o"
    )
    assert pipe.is_fifo()


def test_without_pyarrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    result = called("parquet", REFERENCE, "-o", tmp_path / "x.parquet")

    assert str(result.exception) == (
        "Parquet needs pyarrow, which is not installed: pip install 'collbench[parquet]', in a"
        " clone pip install -c constraints.txt -e '.[parquet]'; or export csv or jsonl"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_gets_the_nearest():
    result = CliRunner().invoke(cli, ["export", "cvs", "last"])

    assert result.exit_code == 2
    assert "unknown format 'cvs'; did you mean 'csv'? allowed: tuner, csv, jsonl" in result.output
