"""A stored run as pandas frames."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import collbench
from collbench.analyze.frames import RunFrames, load_run
from collbench.errors import RunNotFound, UsageError
from collbench.model import Status
from collbench.store import read_run

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "v1"
OK, REDUCED, WRONG, _, NOT_USED = range(5)


@pytest.fixture(scope="module")
def frames() -> RunFrames:
    return load_run(GOLDEN)


def test_there_is_a_row_for_each_trial_in_the_order_they_were_measured(frames):
    stored = read_run(GOLDEN)
    assert list(frames.trials["trial_id"]) == [trial.trial_id for trial in stored.trials]
    assert set(frames.trials["status"]) == {str(status) for status in Status}
    assert (frames.run, frames.topology, frames.problems) == (stored.run, stored.topology, ())


def test_the_row_of_a_measured_trial_holds_exactly_this(frames):
    row = frames.trials.iloc[OK]
    present = {name: row[name] for name in frames.trials.columns if pd.notna(row[name])}
    assert present == {
        "trial_id": "all_reduce/float32/sum/1KiB/eager#fd998561.0",
        "case_id": "all_reduce/float32/sum/1KiB/eager#fd998561",
        "repeat": 0,
        "collective": "all_reduce",
        "backend": "gloo",
        "dtype": "float32",
        "redop": "sum",
        "size_bytes": 1024,
        "requested_bytes": 1024,
        "count": 256,
        "world_size": 2,
        "nodes": 1,
        "in_place": True,
        "mode": "eager",
        "pattern": "back_to_back",
        "status": "ok",
        "stop_reason": "precise",
        "n_samples": 3,
        "ops_per_sample": 1,
        "median_us": 20.0,
        "min_us": 10.0,
        "p5_us": 11.0,
        "mean_over_ranks_us": 18.5,
        "algbw_gb_per_s": 0.0512,
        "busbw_gb_per_s": 0.0512,
        "skew": 0.1,
        "wrong_elements": 0,
        "started_at": pd.Timestamp("2026-11-30T04:12:01.5Z"),
        "duration_s": 0.5,
    }


def test_intervals_quantiles_and_the_late_rank_have_their_columns(frames):
    names = ["ci95_low_us", "ci95_high_us", "p95_us", "p99_us", "late_rank"]
    assert frames.trials.loc[REDUCED, names].tolist() == [3.0, 4.0, 4.75, 5.0, 1]


def test_a_reason_has_a_code_and_a_text(frames):
    names = ["reason_code", "reason_text", "wrong_elements"]
    assert frames.trials.loc[WRONG, names].tolist() == [
        "wrong_element",
        "rank 1: element 7 is 3, expected 2",
        1,
    ]


def test_an_unchecked_trial_has_no_count_of_wrong_elements(frames):
    assert pd.isna(frames.trials.loc[REDUCED, "wrong_elements"])


def test_a_path_not_used_keeps_its_time_but_has_no_rate(frames):
    row = frames.trials.loc[NOT_USED]
    assert row["median_us"] == 20.0
    assert pd.isna(row["busbw_gb_per_s"])


def test_each_swept_variable_has_a_column(frames):
    settings = [name for name in frames.trials.columns if name.startswith("setting.")]
    assert settings == ["setting.NCCL_ALGO", "setting.NCCL_NET"]
    assert frames.trials["setting.NCCL_ALGO"].dropna().to_dict() == {REDUCED: "Ring"}
    assert frames.trials["setting.NCCL_NET"].dropna().to_dict() == {NOT_USED: "IB"}


def test_integers_stay_integers_and_moments_are_utc(frames):
    kinds = {name: str(dtype) for name, dtype in frames.trials.dtypes.items()}
    assert {kinds[name] for name in ("size_bytes", "count", "repeat")} == {"int64"}
    assert {kinds[name] for name in ("root", "late_rank", "wrong_elements")} == {"Int64"}
    assert kinds["in_place"] == "bool"
    assert kinds["started_at"].endswith(", UTC]")


def test_the_columns_are_those_that_the_docstring_explains(frames):
    cells = re.findall(r"^ *\| ([a-z0-9_, ]+) \|", RunFrames.__doc__ or "", re.MULTILINE)
    explained = {name.strip() for cell in cells for name in cell.split(",")} - {"column"}
    columns = {name for name in frames.trials.columns if not name.startswith("setting.")}
    assert explained == columns


def test_samples_are_one_row_a_rank_and_sample(frames):
    samples = frames.samples(frames.trials.loc[OK, "trial_id"])
    assert samples.to_dict("list") == {
        "trial_id": ["all_reduce/float32/sum/1KiB/eager#fd998561.0"] * 6,
        "rank": [0, 0, 0, 1, 1, 1],
        "sample": [0, 1, 2, 0, 1, 2],
        "time_us": [10.0, 20.0, 30.0, 9.0, 18.0, 24.0],
    }


def test_the_samples_of_all_trials_leave_out_those_that_have_none(frames):
    assert frames.samples().equals(frames.samples(frames.trials.loc[OK, "trial_id"]))


def test_a_trial_without_samples_gives_an_empty_frame_of_the_same_columns(frames):
    empty = frames.samples(frames.trials.loc[REDUCED, "trial_id"])
    assert len(empty) == 0
    assert empty.dtypes.to_dict() == frames.samples().dtypes.to_dict()


def test_an_unknown_trial_is_refused_with_the_nearest(frames):
    with pytest.raises(UsageError) as caught:
        frames.samples("all_reduce/float32/avg/1KiB/eager#09b1fdfd.1")
    assert str(caught.value) == (
        "run 20261130-0412-7f3a has no trial 'all_reduce/float32/avg/1KiB/eager#09b1fdfd.1';"
        " did you mean 'all_reduce/float32/avg/1KiB/eager#09b1fdfd.0'?"
        " see the column trial_id of the trials"
    )


def test_a_run_is_loaded_by_name_from_the_results_folder(tmp_path, monkeypatch):
    folder = tmp_path / "lab" / "20261130-0412-7f3a"
    folder.parent.mkdir()
    folder.symlink_to(GOLDEN)
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))
    assert len(load_run("20261130").trials) == 10
    assert len(load_run("last", results=str(tmp_path)).trials) == 10
    with pytest.raises(RunNotFound):
        load_run("2025")


def test_a_run_without_trials_has_all_columns_and_no_row(tmp_path):
    for name in ("run.json", "topology.json"):
        (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    (tmp_path / "trials.jsonl").write_bytes(b"")
    frames = load_run(tmp_path)
    assert len(frames.trials) == 0
    assert "busbw_gb_per_s" in frames.trials.columns
    assert len(frames.samples()) == 0


def test_the_package_offers_load_run_and_imports_pandas_only_then():
    assert collbench.load_run is load_run
    code = "import collbench, sys; assert 'pandas' not in sys.modules; collbench.load_run;"
    code += "assert 'pandas' in sys.modules; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
