"""Faults, planted and real: each becomes a record, the sweep goes on, nothing is left running."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest

from collbench.store import read_run

THREE_CASES = ("--collective", "all_reduce,all_gather,reduce_scatter", "--sizes", "64K")
QUICK = ("--max-time", "30ms", "-T", "20s")
SECOND_IS_LONG = (
    *THREE_CASES,
    "-n",
    "20",
    "-w",
    "2",
    "--plant",
    "late:rank=1,ms=200,collective=all_gather",
)
"""The second case takes 4 s, so that it can be met while it runs; the others are short."""

FIFTY_SIZES = ",".join(str(8 * count) for count in range(1, 51))


def statuses(collbench):
    return [str(trial.status) for trial in collbench.stored().trials]


def lower_quartiles_us(stored):
    """The slowest rank's time, per case: what a sample takes that nothing else disturbs.

    On a busy machine Gloo's slow mode (4 ms more) can take the upper half of the samples, and a
    rank that is itself taken off its core can shorten one or two.
    """
    return {
        trial.case_id: np.quantile(stored.times_us(trial).max(axis=0), 0.25)
        for trial in stored.trials
    }


def test_a_late_rank_lengthens_the_slowest_rank_s_time_by_its_lateness(collbench):
    clean = collbench.run("sweep", *THREE_CASES, "-n", "30")
    base = lower_quartiles_us(collbench.stored())
    late = collbench.run("sweep", *THREE_CASES, "-n", "30", "--plant", "late:rank=1,ms=20")

    assert (clean.returncode, late.returncode) == (0, 0)
    assert late.stdout.startswith("PLANTED FAULT (late:rank=1,ms=20) | NO GPU")
    second = max(collbench.folders(), key=lambda folder: (folder / "run.json").stat().st_mtime_ns)
    found = lower_quartiles_us(read_run(second))
    assert found.keys() == base.keys()
    longer_us = {case_id: time_us - base[case_id] for case_id, time_us in found.items()}
    assert min(longer_us.values()) == pytest.approx(20_000, abs=3_000), longer_us
    # A busy machine takes a process off its core for longer, in one case or another.
    assert max(longer_us.values()) < 60_000, longer_us


def test_a_late_rank_shows_in_the_skew_and_is_named(collbench):
    # Late by far more than a busy machine takes a process off its core.
    done = collbench.run(
        "sweep", *THREE_CASES, "-n", "10", "--plant", "late:rank=1,ms=150", "-w", "1"
    )

    assert done.returncode == 0
    assert "Rank 1 enters late in 3 of 3 trials" in done.stdout
    for trial in collbench.stored().trials:
        assert trial.summary.late_rank == 1
        assert trial.summary.skew > 0.5


@pytest.mark.parametrize(("call", "collective"), [("first", "all_reduce"), ("last", "all_gather")])
def test_a_wrong_element_is_caught_and_named(collbench, call, collective):
    done = collbench.run(
        "sweep",
        *THREE_CASES,
        *QUICK,
        "--plant",
        f"wrong:rank=1,call={call},index=5,collective={collective}",
    )

    assert done.returncode == 1
    trials = {trial.case.collective: trial for trial in collbench.stored().trials}
    bad = trials.pop(collective)
    assert bad.status == "data_wrong"
    wrong = bad.check.first_wrong
    assert (wrong.rank, wrong.index, wrong.when) == (1, 5, call)
    assert wrong.expected != wrong.got
    assert f"rank 1, element 5, {call} call: expected {wrong.expected}, got" in done.stdout
    assert bad.summary is None or bad.summary.busbw_gb_per_s is None
    assert [trial.status for trial in trials.values()] == ["ok", "ok"]


def test_a_rank_that_raises_costs_one_case(collbench):
    done = collbench.run(
        "sweep", *THREE_CASES, "-n", "30", "--plant", "raise:rank=1,call=20,collective=all_gather"
    )

    assert done.returncode == 4
    assert statuses(collbench) == ["ok", "failed", "ok"]
    failed = collbench.stored().trials[1]
    assert failed.reason.text == "rank 1 raised PlantedError: planted at call 20"
    assert [culprit.rank for culprit in failed.culprits] == [1]
    assert "PlantedError: planted at call 20" in failed.culprits[0].log_tail[-1]


def test_a_rank_killed_from_outside_costs_one_case(collbench, wait):
    collbench.start("sweep", *SECOND_IS_LONG, "-T", "20s")
    wait(lambda: collbench.trials_kept() == 1, "the first trial kept")
    collbench.workers()[1].kill()
    done = collbench.finish()

    assert done.returncode == 4, done.stdout
    assert statuses(collbench) == ["ok", "crashed", "ok"]
    (culprit,) = collbench.stored().trials[1].culprits
    assert (culprit.rank, culprit.what) == (1, "dead: SIGKILL")
    assert "all_gather 64 KiB eager, repeat 0: crashed. rank 1" in done.stdout


def test_a_zygote_killed_from_outside_costs_one_case(collbench, wait):
    process = collbench.start("sweep", *SECOND_IS_LONG)
    wait(lambda: collbench.trials_kept() == 1, "the first trial kept")
    (zygote,) = psutil.Process(process.pid).children()
    zygote.kill()
    done = collbench.finish()

    assert done.returncode == 4, done.stdout + done.stderr
    assert statuses(collbench) == ["ok", "crashed", "ok"]


def test_a_rank_stopped_from_outside_is_hung_and_named(collbench, wait):
    collbench.start("sweep", *SECOND_IS_LONG, "-T", "4s")
    wait(lambda: collbench.trials_kept() == 1, "the first trial kept")
    collbench.workers()[0].suspend()
    done = collbench.finish()

    assert done.returncode == 4, done.stdout
    assert statuses(collbench) == ["ok", "hung", "ok"]
    (culprit,) = collbench.stored().trials[1].culprits
    assert culprit.rank == 0
    assert culprit.what.startswith("stopped")
    assert culprit.evidence[0] == "process state T"
    assert collbench.leftovers() == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_an_interrupted_sweep_keeps_what_was_measured(collbench, wait, number, code):
    process = collbench.start("sweep", *SECOND_IS_LONG)
    wait(lambda: collbench.trials_kept() == 1, "the first trial kept")
    process.send_signal(number)
    done = collbench.finish()

    assert done.returncode == code
    assert "collbench: interrupted; kept 1 of 3 trials" in done.stderr
    assert "all_reduce  float32" in done.stdout
    stored = collbench.stored()
    assert stored.run.exit_code == code
    assert [str(trial.status) for trial in stored.trials] == ["ok", "skipped", "skipped"]
    assert {str(t.reason.code) for t in stored.trials[1:]} == {"interrupted"}
    assert collbench.leftovers() == []


def test_an_interruption_while_starting_leaves_no_run(collbench, wait):
    process = collbench.start("sweep")
    wait(lambda: bool(list(collbench.results.glob("*/*/logs"))), "the run folder made")
    process.send_signal(signal.SIGINT)
    done = collbench.finish()

    assert done.returncode == 130
    assert collbench.leftovers() == []


def test_workers_die_with_a_supervisor_that_is_killed(collbench, wait):
    process = collbench.start("sweep", *THREE_CASES, "-n", "100000")
    wait(lambda: len(collbench.workers()) == 2, "two workers")
    process.kill()
    process.communicate()

    wait(lambda: collbench.leftovers() == [], "all processes ended")
    assert collbench.stored().run.exit_code is None


def test_a_full_disk_stops_the_run_and_keeps_it_readable(collbench, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    collbench.results = tmp_path / "small"
    collbench.results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(collbench.results)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        done = collbench.run("sweep", "--sizes", FIFTY_SIZES, "-n", "20", "-w", "2")
        stored = collbench.stored()
    finally:
        subprocess.run(["umount", "-l", str(collbench.results)], check=True)

    assert done.returncode == 3
    assert "collbench: results can no longer be written" in done.stderr
    assert "No space left on device" in done.stderr
    assert 0 < len(stored.trials) < 150
    assert all(trial.status == "ok" for trial in stored.trials)


def test_a_full_disk_behind_stdout_is_said_in_a_line(collbench):
    with Path("/dev/full").open("w") as full:
        process = collbench.start("sweep", *THREE_CASES, stdout=full)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 3
    assert err == (
        "collbench: cannot write to standard output: No space left on device;"
        " what was measured is kept\n"
    )
    assert collbench.folders() == []
