"""Frames of runs that are read in batches: what spans them, what ran again, what is damaged."""

from __future__ import annotations

import msgspec
import pandas as pd
import pytest
from records import make_trial
from stored_runs import put, stored_run

from collbench.analyze.frames import load_run
from collbench.model import SampleRef
from collbench.store import read_run, scan_run

MANY = 200
"""More trials than go by at once."""


def trials(count: int = MANY):
    return [make_trial(8 << (n % 4), 10.0 + n, repeat=n) for n in range(count)]


def append(folder, *made) -> None:
    with (folder / "trials.jsonl").open("ab") as stream:
        stream.writelines(msgspec.json.encode(trial) + b"\n" for trial in made)


def test_trials_of_many_batches_stand_in_the_order_of_the_file(tmp_path):
    frames = load_run(put(stored_run(trials()), tmp_path))

    assert frames.trials["median_us"].tolist() == [10.0 + n for n in range(MANY)]
    assert frames.trials["size_bytes"].tolist() == [8 << (n % 4) for n in range(MANY)]
    assert len(list(scan_run(frames.folder).batches())) > 1


def test_a_trial_that_ran_again_counts_once_and_stands_where_it_ran_last(tmp_path):
    folder = put(stored_run(trials()), tmp_path)
    append(folder, make_trial(8, 99.0, repeat=0))

    frames = load_run(folder)

    assert len(frames.trials) == MANY
    assert frames.trials["median_us"].tolist() == [*(10.0 + n for n in range(1, MANY)), 99.0]
    assert list(frames.trials["trial_id"]) == [one.trial_id for one in read_run(folder).trials]


def test_what_only_a_replaced_trial_had_leaves_no_trace(tmp_path):
    first = msgspec.structs.replace(make_trial(8, 10.0), summary=None)
    folder = put(stored_run([first]), tmp_path)
    append(folder, make_trial(8, 11.0))

    column = load_run(folder).trials["n_samples"]

    assert (str(column.dtype), column.tolist()) == ("int64", [40])


def test_a_batch_of_all_damaged_lines_is_named_line_by_line(tmp_path):
    folder = put(stored_run(trials(2)), tmp_path)
    with (folder / "trials.jsonl").open("ab") as stream:
        stream.write(b"{}\n" * 100 + b'{"schema":1')

    problems = load_run(folder).problems

    assert len(problems) == 101
    assert problems[0].startswith("trials.jsonl line 3: not a trial (Object missing")
    assert problems[-1] == "trials.jsonl line 103: cut off; ignored"


def test_samples_that_are_missing_are_named_as_the_records_name_them(tmp_path):
    made = [
        msgspec.structs.replace(
            one,
            samples=SampleRef(
                offset_bytes=24 * n, layout="rank_sample", ranks=2, samples=3, clock="fake"
            ),
        )
        for n, one in enumerate(trials(3))
    ]
    folder = put(stored_run(made), tmp_path)
    (folder / "samples.bin").write_bytes(bytes(30))

    problems = load_run(folder).problems

    assert problems == read_run(folder).problems
    assert problems == (
        f"samples.bin (30 bytes) lacks the samples of 2 of 3 trials, first {made[1].trial_id}",
    )


@pytest.mark.parametrize("order", [("NCCL_ALGO", "NCCL_PROTO"), ("NCCL_PROTO", "NCCL_ALGO")])
def test_settings_are_columns_in_whatever_order_a_trial_names_them(tmp_path, order):
    values = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    plain = make_trial(8, 10.0)
    case = msgspec.structs.replace(plain.case, setting={name: values[name] for name in order})
    other = msgspec.structs.replace(plain, case=case, trial_id="other.0")

    frame = load_run(put(stored_run([plain, other]), tmp_path)).trials

    assert list(frame.columns[-2:]) == ["setting.NCCL_ALGO", "setting.NCCL_PROTO"]
    assert pd.isna(frame.iloc[0, -2:]).tolist() == [True, True]
    assert frame.iloc[1, -2:].tolist() == ["Ring", "LL"]
