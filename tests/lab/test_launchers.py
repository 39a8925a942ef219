"""One sweep over eight nodes under each launcher: the same cases, at the rate of the links."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable

import pytest
from lab.sweeps import COMMAND, Sweeps, codes

from collbench.store import StoredRun

NODES = 8
ARGUMENTS = ("--collective", "all_reduce", "--sizes", "8,64K,1M", "-n", "20")
CASES = [
    "all_reduce/float32/sum/8B/eager#79ff8503",
    "all_reduce/float32/sum/64KiB/eager#244a0566",
    "all_reduce/float32/sum/1MiB/eager#e2cac6e3",
]
LINK_MBIT_PER_S = 200
SHARE = 0.94
"""Of a link's rate that TCP's payload gets."""



@pytest.fixture
def sweeps(lab, tmp_path):
    return Sweeps(lab, tmp_path / "sweeps")


Start = Callable[[Sweeps, pytest.FixtureRequest], list[subprocess.Popen[bytes]]]


def plain(sweeps: Sweeps, _request: pytest.FixtureRequest) -> list[subprocess.Popen[bytes]]:
    return sweeps.start_plain(NODES, *ARGUMENTS)


def srun(sweeps: Sweeps, request: pytest.FixtureRequest) -> list[subprocess.Popen[bytes]]:
    start = request.getfixturevalue("srun")
    return [start(sweeps.python(*COMMAND, *ARGUMENTS), nodes=NODES, env=sweeps.environ)]


def torchrun(sweeps: Sweeps, request: pytest.FixtureRequest) -> list[subprocess.Popen[bytes]]:
    start = request.getfixturevalue("torchrun")
    return start([*COMMAND, *ARGUMENTS], nodes=NODES, env=sweeps.environ)


def mpirun(sweeps: Sweeps, request: pytest.FixtureRequest) -> list[subprocess.Popen[bytes]]:
    start = request.getfixturevalue("mpirun")
    exported = [word for name in sweeps.environ for word in ("-x", name)]
    argv = sweeps.python(*COMMAND, *ARGUMENTS)
    return [start(argv, nodes=NODES, options=exported, env=sweeps.environ)]


@pytest.mark.parametrize("start", [plain, srun, torchrun, mpirun], ids=lambda one: one.__name__)
def test_a_sweep_over_eight_nodes(sweeps, lab, request, start):
    done = [lab.finish(one, 120) for one in start(sweeps, request)]

    assert codes(done) == [0] * len(done), [one.stdout + one.stderr for one in done]
    stored = sweeps.stored()
    assert [(str(t.status), t.case_id) for t in stored.trials] == [("ok", case) for case in CASES]
    assert stored.run.exit_code == 0
    assert [node.name for node in stored.topology.nodes] == [f"node{i}" for i in range(NODES)]
    assert [(place.rank, place.node) for place in stored.topology.ranks] == [
        (rank, f"node{rank}") for rank in range(NODES)
    ]
    assert best_mbit_per_s(stored) == pytest.approx(SHARE * LINK_MBIT_PER_S, rel=0.1)
    assert sweeps.foreign_files() == []


def best_mbit_per_s(stored: StoredRun) -> float:
    """The bus bandwidth of the quickest sample of 1 MiB: other load on the machine slows most."""
    trial = stored.trials[-1]
    time_us = stored.times_us(trial).max(axis=0).min()
    return float(2 * (NODES - 1) / NODES * trial.case.requested_bytes * 8 / time_us)
