"""NCCL over the network on 8 nodes: network namespaces that share two GPUs, behind shaped links."""

import pytest
from lab.fabric import Fabric, why_impossible
from lab.processes import Processes, assert_nothing_left
from lab.sweeps import Sweeps

NODES = 8
NODE_MBIT_PER_S = 1000
LEAVE_S = 10.0
SHARED = {rank: {"CUDA_VISIBLE_DEVICES": str(rank % 2)} for rank in range(NODES)}
PLACE = ("--fake-hosts", "1", "--collective", "all_reduce,all_gather,reduce_scatter")


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    if reason := why_impossible():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("fabric")
    with Fabric(folder, node_mbit_per_s=NODE_MBIT_PER_S, uplink_mbit_per_s=4000) as fabric:
        yield fabric


@pytest.fixture
def sweeps(fabric, tmp_path):
    processes = Processes(fabric, tmp_path)
    yield Sweeps(processes, tmp_path / "sweeps")
    processes.end()
    assert_nothing_left(fabric.namespaces, (), LEAVE_S)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("via", ["torch", "native"])
def test_nccl_runs_over_the_shaped_links_and_the_proof_says_so(sweeps, via):
    arguments = (*PLACE, "--sizes", "8M", "--mode", "eager", "-n", "10", "-w", "2", "--via", via)
    sweeps.start_plain(NODES, *arguments, env=SHARED)

    done = sweeps.finish(240)

    assert [one.returncode for one in done] == [0] * NODES, done[0].stdout + done[0].stderr
    stored = sweeps.stored()
    assert [str(trial.status) for trial in stored.trials] == ["ok"] * 3
    assert stored.run.emulated
    for trial in stored.trials:
        assert trial.proof.transports == ["NET/Socket"]
        assert trial.check.wrong_elements == 0
        # 0.125 GB/s is the wire; a ring over 8 nodes that share two GPUs keeps it less than full.
        assert 0.5 * 0.125 < trial.summary.busbw_gb_per_s < 0.125


@pytest.mark.timeout(300)
@pytest.mark.parametrize("via", ["torch", "native"])
def test_a_stopped_rank_of_another_node_is_named_and_nccl_bears_witness(sweeps, via):
    plant = "stop:rank=5,call=12,collective=all_gather"
    arguments = (*PLACE, "--sizes", "1M", "--mode", "eager", "-n", "20", "-w", "2", "--via", via)
    sweeps.start_plain(NODES, *arguments, "-T", "20s", "--plant", plant, env=SHARED)

    done = sweeps.finish(280)

    assert [one.returncode for one in done] == [4, *[0] * (NODES - 1)], done[0].stderr
    stored = sweeps.stored()
    assert [str(trial.status) for trial in stored.trials] == ["ok", "hung", "ok"]
    (culprit,) = stored.trials[1].culprits
    assert (culprit.rank, culprit.node) == (5, "node5")
    assert any(line.startswith("NCCL RAS: Rank 5 -- ") for line in culprit.evidence), culprit
    assert "NCCL RAS: Rank 5 -- " in done[0].stdout
    assert sweeps.foreign_files() == []
