"""The command line on real GPUs: every mode, collective and type; faults become records."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES
from collbench.store import read_run

MODES = "eager,graph,eager_device"


def sweep(tmp_path, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "collbench", "sweep", *arguments, "--results", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    (folder,) = [path.parent for path in tmp_path.glob("*/*/run.json")]
    return done, read_run(folder)


@pytest.mark.timeout(300)
def test_all_modes_collectives_types_and_operators_are_right(tmp_path):
    done, stored = sweep(
        tmp_path,
        *("--collective", ",".join(COLLECTIVES), "--sizes", "6000", "--max-time", "20ms"),
        *("-d", "all", "-o", "all", "--mode", MODES),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "GPU" not in done.stdout.splitlines()[0][:8]
    reducing = sum(row.has_redop for row in COLLECTIVES.values())
    cases = (reducing * 5 + len(COLLECTIVES) - reducing) * len(ITEM_BYTES) * 3
    assert Counter(str(trial.status) for trial in stored.trials) == {"ok": cases}
    assert all(trial.check.wrong_elements == 0 for trial in stored.trials)
    assert stored.run.environment.nccl.path.count("libnccl") == 1


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather"])
def test_a_wrong_element_is_caught_in_each_mode(tmp_path, mode, collective):
    done, stored = sweep(
        tmp_path,
        *("--collective", collective, "--sizes", "64K", "--mode", mode, "-n", "20"),
        *("--plant", "wrong:rank=1,call=last,index=7"),
    )

    assert done.returncode == 1
    (trial,) = stored.trials
    wrong = trial.check.first_wrong
    assert (str(trial.status), wrong.rank, wrong.index) == ("data_wrong", 1, 7)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(("kind", "status"), [("stop", "hung"), ("kill", "crashed")])
def test_a_rank_that_goes_costs_one_case(tmp_path, mode, kind, status):
    done, stored = sweep(
        tmp_path,
        *("--collective", "all_reduce,all_gather", "--sizes", "64K", "--mode", mode),
        *("-n", "20", "-T", "3s", "--plant", f"{kind}:rank=1,call=30,collective=all_reduce"),
    )

    assert done.returncode == 4
    assert [str(trial.status) for trial in stored.trials] == [status, "ok"]
    assert stored.trials[0].culprits[0].rank == 1


def test_a_late_rank_is_named(tmp_path):
    done, stored = sweep(
        tmp_path,
        *("--collective", "all_reduce", "--sizes", "64K", "--mode", "eager", "-n", "20"),
        *("--pattern", "isolated", "--plant", "late:rank=1,ms=20", "--json"),
    )

    assert json.loads(done.stdout)["exit_code"] == 0
    (trial,) = stored.trials
    assert trial.summary.median_us == pytest.approx(20_000, abs=3_000)
    assert trial.summary.late_rank == 1
