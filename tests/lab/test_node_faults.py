"""Faults of nodes, links and processes while a sweep runs over three nodes: each is named, costs no
more than it has to, and leaves nothing running."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from lab.processes import wait_until
from lab.sweeps import SWEEP, Sweeps
from pyroute2 import netns

from collbench.model import NodeState

NODES = 3
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter"]
CASES = ("--collective", ",".join(COLLECTIVES), "--sizes", "1K", "-n", "20", "-w", "2")
HUNG_AFTER = ("-T", "4s")
SECOND_IS_LONG = (*CASES, "--plant", "late:rank=1,ms=200,collective=all_gather")
"""The second case takes 4 s, so that it can be met while it runs; the others are short."""
FIFTY_SIZES = ",".join(str(8 * count) for count in range(1, 51))
NODE_0_GONE_S = 30
CUT_S = 4.5
"""Longer than the case without it, and far below the time after which a node is lost."""


@pytest.fixture
def sweeps(lab, tmp_path):
    return Sweeps(lab, tmp_path / "sweeps")


@pytest.fixture
def in_second_case(sweeps):
    """A sweep over three nodes in the middle of its second case."""
    start_second_case(sweeps)
    return sweeps


def start_second_case(sweeps, *arguments):
    sweeps.start_plain(NODES, *SECOND_IS_LONG, *arguments)
    sweeps.wait_for_trials(1)


def codes(done):
    return [one.returncode for one in done]


def statuses(stored):
    return [str(trial.status) for trial in stored.trials]


def culprits(trial):
    return [(culprit.rank, culprit.node) for culprit in trial.culprits]


def states(stored):
    return {node.name: node.state for node in stored.topology.nodes}


# Workers: they cost one case.


@pytest.mark.parametrize(
    ("plant", "status", "what"),
    [
        ("stop:rank=1,call=12", "hung", "stopped (process state T: SIGSTOP or a debugger)"),
        ("kill:rank=1,call=12", "crashed", "dead: SIGKILL"),
        ("raise:rank=1,call=12", "failed", "raised PlantedError: planted at call 12"),
    ],
    ids=["stopped", "killed", "raises"],
)
def test_a_worker_of_another_node_costs_one_case(sweeps, plant, status, what):
    sweeps.start_plain(NODES, *CASES, *HUNG_AFTER, "--plant", f"{plant},collective=all_gather")

    assert codes(sweeps.finish()) == [4, 0, 0]
    stored = sweeps.stored()
    assert statuses(stored) == ["ok", status, "ok"]
    assert culprits(stored.trials[1]) == [(1, "node1")]
    assert stored.trials[1].culprits[0].what == what
    assert stored.run.exit_code == 4
    assert sweeps.foreign_files() == []


def test_wrong_data_of_another_node_is_named(sweeps):
    plant = "wrong:rank=2,call=last,index=5,collective=all_gather"
    sweeps.start_plain(NODES, *CASES, "--plant", plant)

    done = sweeps.finish()

    assert codes(done) == [1, 0, 0]
    stored = sweeps.stored()
    assert statuses(stored) == ["ok", "data_wrong", "ok"]
    wrong = stored.trials[1].check.first_wrong
    assert (wrong.rank, wrong.index, wrong.when) == (2, 5, "last")
    assert "rank 2, element 5, last call: expected" in done[0].stdout


def test_two_workers_at_once_cost_one_case(in_second_case):
    sweeps = in_second_case
    sweeps.workers(2)[0].suspend()
    sweeps.workers(1)[0].kill()

    assert codes(sweeps.finish()) == [4, 0, 0]
    stored = sweeps.stored()
    assert statuses(stored) == ["ok", "crashed", "ok"]
    assert culprits(stored.trials[1]) == [(1, "node1")]


# Links.


def test_a_link_that_comes_back_costs_nothing(in_second_case, lab):
    sweeps = in_second_case
    lab.fabric.link_down(2)
    time.sleep(CUT_S)
    assert sweeps.trials_kept() == 1
    lab.fabric.link_up(2)

    assert codes(sweeps.finish()) == [0, 0, 0]
    assert statuses(sweeps.stored()) == ["ok", "ok", "ok"]
    assert set(states(sweeps.stored()).values()) == {NodeState.PRESENT}


def test_a_link_that_stays_down_loses_its_node_and_the_rest(in_second_case, lab):
    sweeps = in_second_case
    lab.fabric.link_down(2)

    done = sweeps.finish()

    assert codes(done) == [4, 0, 3]
    assert_node_2_lost(sweeps.stored(), "no word from it for 10 s")
    assert "node2: node 0 is lost: " in done[2].stderr


def assert_node_2_lost(stored, why):
    assert statuses(stored) == ["ok", "node_lost", "skipped"]
    lost, rest = stored.trials[1:]
    assert culprits(lost) == [(2, "node2")]
    assert lost.reason.text.startswith(f"node2 is lost: {why}")
    assert rest.reason.code == "node_lost"
    assert rest.reason.text == lost.reason.text
    assert states(stored) == {
        "node0": NodeState.PRESENT,
        "node1": NodeState.PRESENT,
        "node2": NodeState.LOST,
    }
    assert stored.run.exit_code == 4


def test_a_node_that_is_not_reached_is_named(sweeps, lab):
    lab.fabric.link_down(2)
    sweeps.start_plain(NODES, *CASES, "--wait", "4s")

    done = sweeps.finish()

    assert codes(done) == [3, 3, 3]
    assert "1 of 3 did not come within 4 s: process 2;" in done[0].stderr
    assert "node2: node 0 does not answer within 4 s" in done[2].stderr
    assert sweeps.folders() == []


def test_with_fewest_nodes_a_sweep_begins_without_the_absent(sweeps, lab):
    sweeps.start_plain(4, *SECOND_IS_LONG, "--wait", "4s", "--min-nodes", "3", only=range(3))
    sweeps.wait_for_trials(1)
    sweeps.agents.append(sweeps.start(3, [*sweeps.place(3, 4), *CASES]))

    done = sweeps.finish()

    assert codes(done) == [0, 0, 0, 3]
    assert "absent: process 3" in done[0].stdout
    assert "node3: the run has begun without this node" in done[3].stderr
    stored = sweeps.stored()
    assert statuses(stored) == ["ok", "ok", "ok"]
    assert stored.run.world_size == 3
    assert states(stored) == {
        "node0": NodeState.PRESENT,
        "node1": NodeState.PRESENT,
        "node2": NodeState.PRESENT,
        "process 3": NodeState.ABSENT,
    }


# The processes of the nodes.


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)], ids=["SIGKILL", "SIGTERM"]
)
def test_an_agent_that_ends_loses_its_node_and_the_rest(in_second_case, number, code):
    sweeps = in_second_case
    (worker,) = sweeps.workers(2)
    sweeps.agents[2].send_signal(number)

    assert codes(sweeps.finish()) == [4, 0, code]
    assert_node_2_lost(sweeps.stored(), "its connection ended")
    wait_until(lambda: not worker.is_running(), "the agent's worker is gone", 10)


def test_node_0_killed_stops_the_others_and_resume_goes_on(in_second_case, lab):
    sweeps = in_second_case
    sweeps.agents[0].kill()

    done = sweeps.finish(NODE_0_GONE_S)

    assert codes(done) == [-9, 3, 3]
    for rank in (1, 2):
        assert f"node{rank}: node 0 is lost: " in done[rank].stderr
    stored = sweeps.stored()
    assert statuses(stored) == ["ok"]
    assert stored.run.exit_code is None

    # The same command with --resume goes on in the same folder, with what is left.
    sweeps.start_plain(NODES, *SECOND_IS_LONG, "--resume", stored.run.run_id)
    assert codes(sweeps.finish()) == [0, 0, 0]
    resumed = sweeps.stored()
    assert statuses(resumed) == ["ok", "ok", "ok"]
    assert resumed.trials[0] == stored.trials[0]
    assert (resumed.run.run_id, resumed.run.exit_code) == (stored.run.run_id, 0)


@pytest.mark.parametrize(
    ("number", "code"),
    # Both signals have one handler, and tests/functional/test_faults.py sends both to one node.
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak), (signal.SIGTERM, 143)],
    ids=["SIGINT", "SIGTERM"],
)
def test_an_interrupted_node_0_lets_the_others_go(in_second_case, number, code):
    sweeps = in_second_case
    sweeps.agents[0].send_signal(number)

    done = sweeps.finish(NODE_0_GONE_S)

    assert codes(done) == [code, 0, 0]
    assert "collbench: interrupted; kept 1 of 3 trials" in done[0].stderr
    assert_interrupted(sweeps.stored(), code)


def assert_interrupted(stored, code):
    assert stored.run.exit_code == code
    assert statuses(stored) == ["ok", "skipped", "skipped"]
    assert {str(trial.reason.code) for trial in stored.trials[1:]} == {"interrupted"}


def test_a_cancelled_step_of_slurm_ends_as_interrupted(slurm, srun, sweeps, lab):
    argv = [*SWEEP, *SECOND_IS_LONG]
    process = srun(argv, nodes=NODES, env=sweeps.environ)
    sweeps.wait_for_trials(1)
    slurm.control("scancel", "--partition=main")

    lab.finish(process, NODE_0_GONE_S)

    wait_until(lambda: sweeps.stored().run.exit_code is not None, "node 0 has closed its run", 10)
    stored = sweeps.stored()
    # Also where node 0 hears of the others' end before it is told of its own.
    assert_interrupted(stored, 143)
    assert sweeps.foreign_files() == []


# What does not belong together.


def test_a_node_with_another_version_of_torch_is_left_out(sweeps, tmp_path):
    other = tmp_path / "other" / "torch-1.2.3.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.2.3\n")
    sweeps.start_plain(NODES, *CASES, env={2: {"PYTHONPATH": str(other.parent)}})

    done = sweeps.finish()

    assert codes(done) == [0, 0, 0]
    installed = sweeps.stored().run.environment.torch
    assert f"excluded: node2 (torch 1.2.3 against {installed})" in done[0].stdout
    assert f"node2: this node takes no part: torch 1.2.3 against {installed}" in done[2].stderr
    stored = sweeps.stored()
    assert statuses(stored) == ["ok", "ok", "ok"]
    assert states(stored)["node2"] == NodeState.EXCLUDED
    assert [place.node for place in stored.topology.ranks] == ["node0", "node1"]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--node-rank=1", "--node-name=other"], "process 1 on other (pid"),
        (["--node-rank=2", "--node-name=node1"], "process 2 on node1 (pid"),
    ],
    ids=["rank", "name"],
)
def test_two_of_the_same_identity_are_both_named(sweeps, lab, options, shown):
    sweeps.start_plain(NODES, *CASES, only=[0, 1])
    place = [word for word in sweeps.place(2, NODES) if not word.startswith("--node-rank")]
    sweeps.agents.append(sweeps.start(2, [*place, *options, *CASES]))

    done = sweeps.finish()

    assert codes(done) == [2, 3, 3]
    for part in (shown, "process 1 on node1 (pid", "--node-name, --node-rank"):
        assert part in done[0].stderr
    assert sweeps.folders() == []


# Where to meet.


def test_a_port_that_is_taken_is_named(sweeps, lab):
    port = lab.fabric.fresh_port()
    node = lab.fabric.node(0)
    with netns.create_socket(node.namespace) as taken:
        taken.bind((node.address, port))
        taken.listen()
        process = sweeps.start(0, [*sweeps.place(0, NODES, port=port), *CASES])
        done = lab.finish(process)

    assert done.returncode == 2
    assert f"node 0 cannot listen at {node.address}, port {port}:" in done.stderr
    assert "give --rendezvous HOST:PORT" in done.stderr


def test_a_step_of_slurm_meets_at_the_next_port(srun, sweeps, lab, tmp_path):
    script = tmp_path / "first_port_taken.py"
    script.write_text(
        textwrap.dedent("""\
        import os, socket, sys
        from collbench.launch.detect import detect
        from collbench.launch.meeting import ports_of
        from collbench.launch.options import LaunchOptions

        if os.environ["SLURM_PROCID"] == "0":
            job = detect(os.environ, LaunchOptions(), socket.gethostname()).job
            taken = socket.create_server(("", ports_of(job)[0]))
            taken.set_inheritable(True)
        os.execv(sys.argv[1], sys.argv[1:])
        """)
    )
    command = [sys.executable, str(script), *SWEEP, *CASES]

    done = lab.finish(srun(command, nodes=NODES, env=sweeps.environ))

    assert done.returncode == 0, done.stderr
    assert statuses(sweeps.stored()) == ["ok", "ok", "ok"]


def test_a_node_alone_says_where_it_looked(sweeps, lab):
    (process,) = sweeps.start_plain(NODES, *CASES, "--wait", "2s", only=[1])

    done = lab.finish(process)

    assert done.returncode == 3
    where = f"{lab.fabric.node(0).address}:{sweeps.port}"
    assert f"node1: node 0 does not answer within 2 s ({where}: " in done.stderr


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rendezvous=nowhere.invalid:5000"], "'nowhere.invalid' to meet at does not resolve"),
        (["--interface=eth7"], "--interface 'eth7' does not exist here; did you mean 'eth0'"),
        (["--rendezvous=localhost:5000"], "localhost is each node's own loopback address"),
    ],
    ids=["no such host", "no such interface", "loopback"],
)
def test_a_place_that_cannot_be_is_refused(sweeps, lab, rank, options, said):
    port = lab.fabric.fresh_port()
    process = sweeps.start(rank, [*sweeps.place(rank, NODES, port=port), *options, *CASES])

    done = lab.finish(process)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


# Others on the same network.


def test_strangers_are_turned_away_and_do_no_harm(in_second_case, lab):
    sweeps = in_second_case
    node = lab.fabric.node(2)
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02{}", os.urandom(4096), b""):
        assert answer_to(lab, sweeps, words) == b""
    forged = sweeps.start(
        2, [*sweeps.place(2, NODES), *CASES, "--wait", "2s"], {"COLLBENCH_SECRET": "x" * 32}
    )

    refused = lab.finish(forged)

    assert refused.returncode == 3
    assert f"{node.name}: node 0 does not answer within 2 s" in refused.stderr
    assert codes(sweeps.finish()) == [0, 0, 0]
    assert statuses(sweeps.stored()) == ["ok", "ok", "ok"]


def answer_to(lab, sweeps, words):
    """What node 0 says to bytes that are no greeting, after its own: until it hangs up."""
    with netns.create_socket(lab.fabric.node(2).namespace) as stranger:
        stranger.settimeout(15)
        stranger.connect((lab.fabric.node(0).address, sweeps.port))
        length = int.from_bytes(stranger.recv(4, socket.MSG_WAITALL), "big")
        stranger.recv(length, socket.MSG_WAITALL)
        stranger.sendall(words)
        if not words:
            stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            return stranger.recv(1)
        return b""


def test_two_sweeps_on_the_same_nodes_do_not_meet(sweeps, lab):
    first = sweeps.start_plain(2, *CASES)
    second = sweeps.start_plain(2, *CASES)

    done = [lab.finish(process) for process in (*first, *second)]

    assert codes(done) == [0, 0, 0, 0]
    assert len(sweeps.folders()) == 2
    for stored in sweeps.all_stored():
        assert statuses(stored) == ["ok", "ok", "ok"]


# The disk of node 0.


def test_a_full_disk_on_node_0_ends_the_run_and_keeps_it_readable(sweeps):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(sweeps.results)]
    subprocess.run(mount, check=True)
    try:
        sweeps.start_plain(NODES, *CASES, "--sizes", FIFTY_SIZES)
        done = sweeps.finish()
        stored = sweeps.stored()
    finally:
        subprocess.run(["umount", "-l", str(sweeps.results)], check=True)

    assert codes(done) == [3, 0, 0]
    assert "collbench: results can no longer be written" in done[0].stderr
    assert "No space left on device" in done[0].stderr
    assert set(statuses(stored)) == {"ok"}
