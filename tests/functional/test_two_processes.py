"""Two processes of one node, as a launcher with one task a GPU starts them; one of them ends."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from collbench.model import NodeState

COLLECTIVES = "all_reduce,all_gather,reduce_scatter"
SECOND_IS_LONG = "late:rank=1,ms=200,collective=all_gather"
WAIT_S = 200


@pytest.fixture
def two(collbench, wait):
    """Node 0's process and another one of the same node, in the middle of their second case."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "collbench", "sweep", "--results", str(collbench.results)]
    argv += ["--collective", COLLECTIVES, "--sizes", "1K", "-n", "20", "-w", "2"]
    argv += ["--plant", SECOND_IS_LONG]
    common = {
        "COLLBENCH_TEST_MARK": collbench.mark,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "COLLBENCH_SECRET": "0123456789abcdef0123456789abcdef",
    }
    started = [
        subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        wait(lambda: collbench.trials_kept() == 1, "the first case is stored")
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_the_second_process_killed_is_named_and_costs_the_rest(two, collbench, wait):
    other = psutil.Process(two[1].pid)
    (worker,) = [w for zygote in other.children() for w in zygote.children()]
    two[1].send_signal(signal.SIGKILL)

    out, _ = two[0].communicate(timeout=WAIT_S)

    assert two[0].returncode == 4
    assert "| NO GPU: CPU loopback over Gloo, 2 ranks; says nothing about a cluster |" in out
    stored = collbench.stored()
    assert [str(trial.status) for trial in stored.trials] == ["ok", "node_lost", "skipped"]
    (node,) = stored.topology.nodes
    lost, rest = stored.trials[1:]
    assert [(culprit.rank, culprit.node) for culprit in lost.culprits] == [(1, node.name)]
    assert lost.reason.text.startswith(f"process 1 on {node.name} is lost: its connection ended")
    assert (rest.reason.code, rest.reason.text) == ("node_lost", lost.reason.text)
    assert (node.state, stored.run.exit_code) == (NodeState.LOST, 4)
    wait(lambda: not worker.is_running(), "the worker of the killed process is gone")
