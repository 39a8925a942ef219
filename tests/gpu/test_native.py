"""NCCL straight, without torch, on real GPUs: every collective, placement, mode, type; faults."""

import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES
from collbench.probe.nccl import identify_library, installed_library
from collbench.store import read_run

pytestmark = pytest.mark.skipif(find_spec("nccl") is None, reason="needs nccl4py")

MODES = ["eager", "graph", "eager_device"]


def sweep(tmp_path, *arguments):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "collbench", "sweep", "--via", "native"),
            *(*arguments, "--results", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    (folder,) = [path.parent for path in tmp_path.glob("*/*/run.json")]
    return done, read_run(folder)


def statuses(stored) -> Counter:
    return Counter(str(trial.status) for trial in stored.trials)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sizes", ["8", "6000", "1M"])
def test_every_collective_placement_and_mode_is_right_without_torch(tmp_path, sizes):
    done, stored = sweep(
        tmp_path,
        *("--collective", ",".join(COLLECTIVES), "--sizes", sizes, "-n", "10"),
        *("--in-place", "both", "--mode", ",".join(MODES)),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    in_place = sum(row.in_place_defined for row in COLLECTIVES.values())
    undefined = len(COLLECTIVES) - in_place
    right = (len(COLLECTIVES) + in_place) * len(MODES)
    found = statuses(stored)
    assert found["ok"] == right
    assert found["unsupported"] in (0, undefined * len(MODES))
    assert all(trial.check.wrong_elements == 0 for trial in stored.trials if trial.check)
    assert {trial.case.via for trial in stored.trials} == {"native"}
    assert stored.run.environment.torch is None
    assert stored.run.environment.nccl.path.count("libnccl") == 1


@pytest.mark.timeout(300)
def test_every_type_and_operator_is_right(tmp_path):
    done, stored = sweep(
        tmp_path,
        *("--collective", "all_reduce,reduce_scatter,all_gather", "--sizes", "6000"),
        *("-d", "all", "-o", "all", "--mode", "eager,graph", "-n", "10"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(stored) == {"ok": (2 * 5 + 1) * len(ITEM_BYTES) * 2}


@pytest.mark.parametrize("mode", MODES)
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


def test_a_new_communicator_reads_its_algorithm_anew(tmp_path):
    done, stored = sweep(
        tmp_path,
        *("--collective", "all_reduce", "--sizes", "64K", "--mode", "graph", "-n", "10"),
        *("--algo", "Ring", "--algo", "Tree"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(stored) == {"ok": 2}
    ran = {trial.case.setting["NCCL_ALGO"]: trial.proof.algorithm for trial in stored.trials}
    assert ran == {"Ring": "Ring", "Tree": "Tree"}
    run = stored.run
    assert (run.zygotes, run.workers, run.communicators) == (1, 2, 2)


def test_a_library_by_its_path_is_the_one_of_the_record(tmp_path):
    path = installed_library()
    assert path is not None
    done, stored = sweep(
        tmp_path,
        *("--collective", "all_reduce", "--sizes", "64K", "--mode", "graph", "-n", "10"),
        *("--nccl", str(path)),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(stored) == {"ok": 1}
    loaded, named = stored.run.environment.nccl, identify_library(path)
    assert loaded.version == named.version
    assert Path(loaded.path).resolve() == path.resolve()
    assert f"NCCL {named.version} loaded" in done.stdout.splitlines()[0]
