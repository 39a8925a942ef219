"""Nodes that are reached and cannot take part: no import of torch, a GPU that is promised and does
not open. They cost themselves, and say why."""

from __future__ import annotations

import pytest
from lab.sweeps import Sweeps

from collbench.model import NodeState

NODES = 3
CASES = ("--collective", "all_reduce", "--sizes", "1K", "-n", "20", "-w", "2")
PAIRS = ("--size", "64K", "--latency", "0")
NO_TORCH = "ImportError: libcudart.so.13: cannot open shared object file"


@pytest.fixture
def no_torch(tmp_path):
    """The environment of a node on which torch is installed, as its files say, and not imported."""
    package = tmp_path / "broken" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"raise ImportError({NO_TORCH.partition(': ')[2]!r})\n")
    return {"PYTHONPATH": str(package.parent)}


def codes(done):
    return [one.returncode for one in done]


def states(stored):
    return {node.name: node.state for node in stored.topology.nodes}


def test_a_sweep_of_all_nodes_names_the_one_that_cannot_import_torch(lab, tmp_path, no_torch):
    sweeps = Sweeps(lab, tmp_path / "sweeps")
    sweeps.start_plain(NODES, *CASES, env={1: no_torch})

    done = sweeps.finish()

    assert codes(done) == [3, 0, 0]
    assert f"node1 is lost: the zygote process has ended: {NO_TORCH}; " in done[0].stderr
    assert "--exclude node1 begins without it" in done[0].stderr
    said = f"collbench: node1: the zygote process has ended: {NO_TORCH}"
    assert done[1].stderr.splitlines() == [said]
    assert sweeps.folders() == []


def test_pairs_of_the_other_nodes_run_without_it(lab, tmp_path, no_torch):
    sweeps = Sweeps(lab, tmp_path / "pairs", "pairwise")
    sweeps.start_plain(NODES + 1, *PAIRS, env={1: no_torch})

    done = sweeps.finish()

    assert codes(done) == [1, 0, 0, 0]
    said = " ".join(done[0].stdout.split())
    assert f"LOST 1 node1 the zygote process has ended: {NO_TORCH}; --exclude node1" in said
    stored = sweeps.stored()
    assert states(stored) == {
        "node0": NodeState.PRESENT,
        "node1": NodeState.LOST,
        "node2": NodeState.PRESENT,
        "node3": NodeState.PRESENT,
    }
    with_it = {str(trial.status) for trial in stored.trials if 1 in trial.group.ranks}
    assert with_it == {"node_lost", "skipped"}
    others = [trial for trial in stored.trials if 1 not in trial.group.ranks]
    assert {str(trial.status) for trial in others} == {"ok"}
    assert {frozenset(trial.group.ranks) for trial in others} == {
        frozenset(pair) for pair in ((0, 2), (0, 3), (2, 3))
    }


def test_a_node_whose_promised_gpu_does_not_open_is_left_out(lab, tmp_path):
    sweeps = Sweeps(lab, tmp_path / "sweeps")
    sweeps.start_plain(NODES, *CASES, env={1: {"SLURM_GPUS_ON_NODE": "8"}})

    done = sweeps.finish()

    assert codes(done) == [0, 0, 0]
    why = "a GPU is promised but none can be used: "
    assert f"node1 is left out: {why}" in done[0].stdout
    assert f"node1: this node takes no part: {why}" in done[1].stderr
    stored = sweeps.stored()
    assert states(stored)["node1"] is NodeState.GPU_MISSING
    assert [place.node for place in stored.topology.ranks] == ["node0", "node2"]
    assert [str(trial.status) for trial in stored.trials] == ["ok"]
