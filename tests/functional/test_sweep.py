"""`collbench sweep` over real Gloo processes, as a user runs it."""

import json

import numpy as np
import pytest

from collbench import load_run
from collbench.collectives import COLLECTIVES

QUICK = ("--max-time", "30ms", "--seed", "7")


@pytest.fixture(scope="module")
def shared(sandboxes):
    """Where the run lies that several tests look at."""
    return sandboxes()


@pytest.fixture(scope="module")
def swept(shared):
    """What that run, of several collectives and sizes, said."""
    return shared.run("sweep", *QUICK, "-e", "64K")


def test_a_sweep_prints_tables_and_keeps_a_run(swept, shared):
    done = swept

    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith(
        "NO GPU: CPU loopback over Gloo, 2 ranks; says nothing about a cluster | torch "
    )
    assert "plan: 3 collectives x 8 sizes: 24 cases, 1 repeat" in done.stdout
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        assert f"\n{name}  float32" in done.stdout
    assert "Gloo's reduce_scatter sends the bytes of an all_reduce" in done.stdout
    assert "Kept in" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()[1:-1]) <= 120
    stored = shared.stored()
    assert stored.problems == ()
    assert stored.run.exit_code == 0
    assert [trial.status for trial in stored.trials] == ["ok"] * 24
    assert all(trial.check and trial.check.wrong_elements == 0 for trial in stored.trials)
    assert stored.run.environment.torch


def test_json_and_the_samples_of_every_rank_give_the_same_summary(collbench):
    done = collbench.run(
        "sweep", *QUICK, "--sizes", "4K", "--collective", "all_reduce", "-n", "25", "--json"
    )

    assert done.returncode == 0
    # JSON is all that is on stdout.
    document = json.loads(done.stdout)
    assert sorted(document) == ["exit_code", "run_id", "schema", "trials", "verdicts"]
    assert document["exit_code"] == 0
    assert document["run_id"] == collbench.stored().run.run_id
    assert len(document["trials"]) == 1
    assert "plan:" in done.stderr

    frames = load_run(collbench.folders()[0])
    row = frames.trials.iloc[0]
    samples = frames.samples()
    assert sorted(set(samples["rank"])) == [0, 1]
    assert len(samples) == 2 * 25
    slowest = samples.groupby("sample")["time_us"].max()
    assert row["median_us"] == pytest.approx(np.median(slowest), rel=1e-6)
    assert row["median_us"] == document["trials"][0]["summary"]["median_us"]
    assert row["algbw_gb_per_s"] == pytest.approx(4096 / row["median_us"] / 1e3, rel=1e-9)
    assert row["stop_reason"] == "fixed"


def test_every_collective_type_and_operator_is_right_or_says_why_not(collbench):
    done = collbench.run(
        "sweep",
        "--collective",
        ",".join(COLLECTIVES),
        "--sizes",
        "6000",
        "-d",
        "all",
        "-o",
        "all",
        "--max-time",
        "2ms",
        "--in-place",
        "both",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    trials = collbench.stored().trials
    # 9 collectives x 10 types x 2 placements; the 3 that reduce x 5 operators.
    assert len(trials) == (3 * 5 + 6) * 10 * 2
    assert {trial.status for trial in trials} == {"ok", "unsupported"}
    unsupported = {t.reason.code for t in trials if t.status == "unsupported"}
    assert unsupported == {"no_such_dtype", "no_such_redop", "no_in_place", "no_out_of_place"}
    ok = {(t.case.collective, t.case.dtype) for t in trials if t.status == "ok"}
    types = {"float64", "float32", "float16", "bfloat16", "int8", "int32", "int64", "uint8"}
    assert ok == {(name, dtype) for name in COLLECTIVES for dtype in types}
    assert all(t.check.wrong_elements == 0 for t in trials if t.status == "ok")


@pytest.mark.parametrize("ranks", [3, 4])
def test_data_are_right_on_more_ranks_than_contribute_to_an_element(collbench, ranks):
    done = collbench.run(
        "sweep",
        "--collective",
        ",".join(COLLECTIVES),
        "--sizes",
        "6000",
        "-d",
        "float32,uint8",
        "--ranks",
        str(ranks),
        "--max-time",
        "2ms",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    trials = collbench.stored().trials
    assert [str(trial.status) for trial in trials] == ["ok"] * 18
    assert all(trial.check.wrong_elements == 0 for trial in trials)


def test_roots_take_turns_and_isolated_calls_are_timed_one_by_one(collbench):
    done = collbench.run(
        *("sweep", *QUICK, "--sizes", "1K", "-r", "-1", "--pattern", "isolated"),
        *("--collective", "all_reduce,broadcast,gather"),
    )

    assert done.returncode == 0, done.stdout
    trials = collbench.stored().trials
    roots = [(trial.case.collective, trial.case.root) for trial in trials]
    assert roots == [
        ("all_reduce", None),
        *[("broadcast", 0), ("broadcast", 1)],
        *[("gather", 0), ("gather", 1)],
    ]
    assert "isolated" in done.stdout
    assert [trial.summary.ops_per_sample for trial in trials] == [1] * 5


def test_gpu_modes_are_unsupported_records_on_a_cpu(collbench):
    done = collbench.run("sweep", *QUICK, "--mode", "graph", "--sizes", "1K")

    assert done.returncode == 3
    trials = collbench.stored().trials
    assert [trial.status for trial in trials] == ["unsupported"] * 3
    assert {trial.reason.text for trial in trials} == {"mode graph needs a GPU"}


def test_repeats_start_fresh_processes_in_a_shuffled_order(collbench):
    done = collbench.run(
        "sweep", *QUICK, "-e", "1K", "--repeats", "2", "--collective", "all_reduce"
    )

    assert done.returncode == 0, done.stderr
    assert "spread" in done.stdout
    stored = collbench.stored()
    orders = [[t.case.size_bytes for t in stored.trials if t.repeat == r] for r in range(2)]
    assert [sorted(order) for order in orders] == [[4, 16, 64, 256, 1024]] * 2
    assert orders[0] != orders[1]
    assert stored.run.seed == 7


def test_a_dry_run_starts_nothing_and_leaves_nothing(here, collbench):
    done = here("sweep", "--dry-run", "-e", "1K")

    assert done.returncode == 0
    assert "not started (--dry-run)" in done.stdout
    assert done.stdout.count("all_reduce/float32/sum/") == 5
    assert not collbench.results.exists()


def test_show_plot_and_runs_read_what_sweep_kept(swept, shared, collbench, here, tmp_path):
    collbench.results = shared.results
    shown = here("show", "last")
    drawn = here("plot", "last", "-o", str(tmp_path / "pictures"))
    listed = here("runs")

    tables = swept.stdout[swept.stdout.index("\nall_reduce") : swept.stdout.index("\nKept in")]
    assert tables in shown.stdout
    run_id = shared.stored().run.run_id
    assert drawn.stdout.split() == [
        str(tmp_path / "pictures" / f"{run_id}.{suffix}") for suffix in ("png", "svg")
    ]
    assert (tmp_path / "pictures" / f"{run_id}.png").read_bytes().startswith(b"\x89PNG")
    assert run_id in listed.stdout
