"""The lab itself: what the other tests here take for granted of nodes, links and launchers."""

import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from lab import fabric as fabric_module
from lab.fabric import Fabric, Way
from lab.packages import require
from lab.processes import assert_nothing_left, wait_until
from lab.traffic import flow, rates_mbit_per_s, run_for

SHARE = 0.94
"""Of a link's rate that TCP's payload gets."""
NAMES = [f"node{i}" for i in range(8)]


def about(mbit_per_s):
    return pytest.approx(SHARE * mbit_per_s, rel=0.05)


def namespaces():
    return {path.name for path in Path("/run/netns").iterdir()}


def assert_carry(flows, mbit_per_s):
    """A busy machine can make flows slower, never faster: they have some tries to be at a rate."""
    got = []
    while len(got) < 5 and (not got or got[-1] != about(mbit_per_s)):
        got.append(sum(rates_mbit_per_s(flows)))
    assert got[-1] == about(mbit_per_s), got


def assert_carries(fabric, sender, receiver, mbit_per_s):
    with flow(fabric, fabric.node(sender), fabric.node(receiver)) as one:
        assert_carry([one], mbit_per_s)


def asked(lab, process):
    done = lab.finish(process)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("sender", "receiver"), [(0, 3), (1, 4)], ids=["one leaf", "two leaves"])
def test_tcp_fills_a_nodes_link(lab, sender, receiver):
    assert_carries(lab.fabric, sender, receiver, 200)


def test_an_uplink_is_shared_by_what_crosses_it(lab):
    lab.fabric.set_uplink_rate(0, 100)
    nodes = lab.fabric.nodes

    with flow(lab.fabric, nodes[0], nodes[4]) as one, flow(lab.fabric, nodes[1], nodes[5]) as two:
        assert_carry([one, two], 100)


def test_a_link_can_be_slow_one_way_and_heals(lab):
    lab.fabric.set_rate(2, 50, Way.OUT)
    assert_carries(lab.fabric, 2, 3, 50)
    assert_carries(lab.fabric, 3, 2, 200)

    lab.fabric.set_rate(2, 50, Way.IN)
    assert_carries(lab.fabric, 3, 2, 50)

    lab.fabric.heal()
    assert_carries(lab.fabric, 2, 3, 200)


def test_a_pulled_cable_stops_a_flow_until_it_is_put_back(lab):
    with flow(lab.fabric, lab.fabric.node(0), lab.fabric.node(5)) as one:
        assert run_for([one], 0.2)[0] > 0
        lab.fabric.link_down(5)
        # What the receiver's own buffer holds is still read.
        run_for([one], 0.1)
        assert run_for([one], 0.5) == [0]

        lab.fabric.link_up(5)
        wait_until(lambda: run_for([one], 0.05)[0] > 0, "the flow goes on", 30)


def test_every_node_has_its_own_name_and_knows_the_others(lab):
    command = ["sh", "-c", 'hostname; getent hosts node5 controller; echo "$GIVEN" "${HOME:-none}"']

    process = lab.run_in(lab.fabric.node(2), command, env={"GIVEN": "a b", "HOME": None})

    lines = [line.split() for line in asked(lab, process).splitlines()]
    assert lines == [
        ["node2"],
        [lab.fabric.node(5).address, "node5"],
        [lab.fabric.controller.address, "controller"],
        ["a", "b", "none"],
    ]
    assert socket.gethostname() not in NAMES


def test_a_late_process_is_killed_and_told(lab):
    command = [sys.executable, "-c", "print('started', flush=True); import time; time.sleep(600)"]
    process = lab.run_in(lab.fabric.node(0), command)
    wait_until(lambda: lab.output(process) == "started\n", "the process speaks", 30)

    with pytest.raises(AssertionError, match=r"(?s)not ended in 0\.1 s.*started"):
        lab.finish(process, 0.1)

    assert process.returncode == -signal.SIGKILL


def test_what_is_left_on_a_node_fails_the_test_and_is_killed(lab):
    namespaces, known = lab.fabric.namespaces, set(lab.fabric.processes())
    assert_nothing_left(namespaces, known, 0.1)
    asked(lab, lab.run_in(lab.fabric.node(6), ["sh", "-c", "setsid sleep 604 &"]))
    wait_until(lambda: "sleep 604" in lab.fabric.processes().values(), "it runs", 30)

    with pytest.raises(AssertionError, match=r"left running on the nodes: \['sleep 604'\]"):
        assert_nothing_left(namespaces, known, 0.1)

    assert_nothing_left(namespaces, known, 10)


def test_two_fabrics_at_once_do_not_meet(lab, tmp_path):
    interfaces = socket.if_nameindex()
    with Fabric(tmp_path, leaves=1, nodes_a_leaf=2, node_mbit_per_s=100) as other:
        assert other.node(0).address == lab.fabric.node(0).address
        assert set(other.namespaces).isdisjoint(lab.fabric.namespaces)
        assert_carries(other, 0, 1, 100)
        assert_carries(lab.fabric, 0, 1, 200)
        assert socket.if_nameindex() == interfaces


def test_a_closed_fabric_leaves_no_namespace_and_no_process(lab, tmp_path):
    with Fabric(tmp_path, leaves=1, nodes_a_leaf=2) as other:
        names = set(other.namespaces)
        assert names <= namespaces()
        process = lab.run_in(other.node(1), ["sh", "-c", "setsid sleep 601 & sleep 602"])
        ours = {"sleep 601", "sleep 602"}
        wait_until(lambda: ours <= set(other.processes().values()), "the processes run", 30)
        pids = list(other.processes())

    assert names.isdisjoint(namespaces())
    assert lab.finish(process).returncode == -signal.SIGKILL
    wait_until(lambda: not any(map(runs, pids)), "the processes are gone", 30)


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_fabric_that_cannot_be_built_leaves_nothing(monkeypatch, tmp_path):
    built = []

    def refuse(_switch, node, _bridge, _rate):
        built.append(node.namespace)
        raise OSError("no more")

    monkeypatch.setattr(fabric_module, "_add_node", refuse)

    with pytest.raises(OSError, match="no more"):
        Fabric(tmp_path)

    assert built
    prefix = built[0].removesuffix("node0")
    assert not [name for name in namespaces() if name.startswith(prefix)]


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_a_missing_package_is_named_and_in_ci_a_failure(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    require({"sh": "dash"})

    with pytest.raises(outcome, match="needs the Debian packages launchers more-launchers"):
        require({"no-such": "launchers", "sh": "dash", "nor-such": "more-launchers"})


def test_srun_starts_a_task_on_every_node(lab, srun):
    said = asked(lab, srun(["hostname"], nodes=8))
    assert sorted(said.split()) == NAMES


def test_slurm_names_the_nodes_and_knows_their_leaves(lab, srun):
    command = ["sh", "-c", "echo $(hostname) $SLURMD_NODENAME $SLURM_TOPOLOGY_ADDR $GIVEN"]
    said = asked(lab, srun(command, nodes=8, env={"GIVEN": "on"}))

    expected = [f"node{i} node{i} spine.leaf{i // 4}.node{i} on" for i in range(8)]
    assert sorted(said.splitlines()) == expected


def test_a_step_that_lost_its_srun_is_cleared_away(lab, slurm, srun):
    def tasks():
        return [line for line in lab.fabric.processes().values() if line == f"{sleep} 603"]

    sleep = shutil.which("sleep")
    process = srun([sleep, "603"], nodes=2, options=["--nodelist=node1,node6"])
    wait_until(lambda: len(tasks()) == 2, "2 tasks", 30)
    process.kill()
    process.wait()

    slurm.settle()

    assert tasks() == []


def test_mpirun_starts_ranks_on_every_node(lab, mpirun):
    assert sorted(asked(lab, mpirun(["hostname"], nodes=8)).split()) == NAMES


def test_mpirun_hands_on_only_the_variables_that_it_is_told_to(lab, mpirun):
    command = ["sh", "-c", "echo $(hostname) $OMPI_COMM_WORLD_LOCAL_RANK ${GIVEN:-none}"]
    given = {"GIVEN": "on"}

    plain = asked(lab, mpirun(command, nodes=2, slots=2, env=given))
    told = asked(lab, mpirun(command, nodes=2, slots=2, env=given, options=["-x", "GIVEN"]))

    assert sorted(plain.splitlines()) == [
        "node0 0 on",
        "node0 1 on",
        "node1 0 none",
        "node1 1 none",
    ]
    assert sorted(told.splitlines()) == ["node0 0 on", "node0 1 on", "node1 0 on", "node1 1 on"]


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_torchrun_starts_ranks_on_every_node(lab, torchrun, tmp_path, rendezvous):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, socket\n"
        "print(os.environ['RANK'], os.environ['WORLD_SIZE'], socket.gethostname())\n"
    )

    said = [asked(lab, agent) for agent in torchrun([str(script)], nodes=2, rendezvous=rendezvous)]

    words = [text.split() for text in said]
    assert [word[2] for word in words] == ["node0", "node1"]
    assert sorted(word[:2] for word in words) == [["0", "2"], ["1", "2"]]
