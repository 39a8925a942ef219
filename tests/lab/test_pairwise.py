"""``pairwise`` over real links, one fault planted each: exactly that one is named."""

from __future__ import annotations

import json
import random

import pytest
from lab.fabric import LOSS_PROGRAMS, Way
from lab.packages import require
from lab.sweeps import Sweeps

NODES = 8
MBIT_PER_S, UPLINK_MBIT_PER_S = 50, 200
"""So slow that a busy machine of two cores keeps up."""
THIRD = MBIT_PER_S / 3
DEADLINE_S = 240.0


@pytest.fixture
def pairs(lab, tmp_path):
    for node in range(NODES):
        lab.fabric.set_rate(node, MBIT_PER_S)
    for leaf in range(2):
        lab.fabric.set_uplink_rate(leaf, UPLINK_MBIT_PER_S)
    return Sweeps(lab, tmp_path / "pairs", "pairwise")


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "leaves"
    path.write_text("".join(f"node{node} leaf{node // 4}\n" for node in range(NODES)))
    return path


@pytest.fixture
def answer(pairs, topology):
    """Runs pairwise on all nodes; returns exit status, verdict and all that was printed."""

    def run(*arguments, nodes=NODES, seed=1, deadline_s=DEADLINE_S):
        pairs.start_plain(
            nodes, "--topology", str(topology), "--seed", str(seed), "--json", *arguments
        )
        done = pairs.finish(deadline_s)
        said = done[0].stdout + done[0].stderr
        assert done[0].stdout.startswith("{"), said
        return done[0].returncode, json.loads(done[0].stdout), said

    return run


def named(verdict):
    """Every node that does not pass: its verdict and code."""
    return {
        node["node"]: (node["verdict"], node["code"])
        for node in verdict["nodes"]
        if node["verdict"] != "pass"
    }


def faults(pairs):
    """Codes and texts of what the run's header keeps beside nodes that pass."""
    return [(finding.code, finding.text) for finding in pairs.stored().run.findings]


@pytest.mark.timeout(300)
def test_a_slow_node_is_named(answer, lab):
    lab.fabric.set_rate(5, THIRD)

    status, verdict, said = answer("--latency", "0", nodes=6)

    assert named(verdict) == {"node5": ("fail", "node_slow")}, said
    (node,) = [node for node in verdict["nodes"] if node["node"] == "node5"]
    assert node["confirmed"]
    assert -75 < node["effect_pct"] < -55
    assert status == 1


@pytest.mark.timeout(300)
def test_a_slow_uplink_is_the_fabric_s_and_no_node_s(answer, lab, pairs):
    lab.fabric.set_uplink_rate(1, THIRD)

    status, verdict, said = answer("--latency", "0")

    assert named(verdict) == {}, said
    assert [code for code, _ in faults(pairs)] == ["leaf_uplink_slow"], said
    assert status == 1


@pytest.mark.timeout(300)
def test_without_a_fault_nobody_is_accused(answer, pairs):
    status, verdict, said = answer(nodes=6)

    assert (status, named(verdict), faults(pairs)) == (0, {}, []), said


soak = pytest.mark.parametrize("seed", range(2, 4))
"""Of the soaks: of the run, and of where the fault is."""


def somewhere(seed, count=1):
    """Different nodes, drawn by a seed."""
    return random.Random(seed).sample(range(NODES), count)


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_a_slow_node_anywhere_is_named(answer, lab, seed):
    (bad,) = somewhere(seed)
    lab.fabric.set_rate(bad, THIRD)

    status, verdict, said = answer(seed=seed)

    assert named(verdict) == {f"node{bad}": ("fail", "node_slow")}, said
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
@pytest.mark.parametrize(
    ("way", "code"), [(Way.OUT, "slow_send"), (Way.IN, "slow_receive")], ids=["egress", "ingress"]
)
def test_a_slow_direction_is_told(answer, lab, way, code, seed):
    (bad,) = somewhere(seed)
    lab.fabric.set_rate(bad, THIRD, way)

    status, verdict, said = answer(seed=seed)

    assert named(verdict) == {f"node{bad}": ("fail", code)}, said
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_two_slow_nodes_are_both_named(answer, lab, seed):
    bad = somewhere(seed, 2)
    for node in bad:
        lab.fabric.set_rate(node, THIRD)

    status, verdict, said = answer(seed=seed)

    assert named(verdict) == {f"node{node}": ("fail", "node_slow") for node in sorted(bad)}, said
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_a_spine_that_is_short_accuses_nobody(answer, lab, seed):
    for leaf in range(2):
        lab.fabric.set_uplink_rate(leaf, MBIT_PER_S)

    status, verdict, said = answer(seed=seed)

    assert (status, named(verdict)) == (0, {}), said


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_either_leaf_s_slow_uplink_is_the_fabric_s(answer, lab, pairs, seed):
    lab.fabric.set_uplink_rate(seed % 2, THIRD)

    status, verdict, said = answer(seed=seed)

    assert named(verdict) == {}, said
    assert [code for code, _ in faults(pairs)] == ["leaf_uplink_slow"], said
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_one_slow_path_is_a_path_and_no_node(answer, lab, pairs, seed):
    first, second = sorted(somewhere(seed, 2))
    lab.fabric.set_path_rate(first, second, THIRD, MBIT_PER_S)

    status, verdict, said = answer(seed=seed)

    assert named(verdict) == {}, said
    ((code, text),) = faults(pairs)
    assert code == "slow_path", said
    assert text.startswith(f"slow_path node{first}-node{second}"), said
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(700)
@soak
def test_a_node_that_loses_packets_is_named(answer, lab, seed):
    require(LOSS_PROGRAMS)
    (bad,) = somewhere(seed)
    lab.fabric.set_loss(bad, 0.01)

    # Each lost packet costs a fifth of a second, in a thousand exchanges a pair.
    status, verdict, said = answer(seed=seed, deadline_s=600)

    assert list(named(verdict)) == [f"node{bad}"], said
    assert named(verdict)[f"node{bad}"][0] == "fail", said
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_a_stopped_worker_is_named(answer, seed):
    (bad,) = somewhere(seed)

    status, verdict, said = answer("--plant", f"stop:rank={bad},call=12", "-T", "4s", seed=seed)

    assert list(named(verdict)) == [f"node{bad}"], said
    assert named(verdict)[f"node{bad}"][0] == "fail", said
    assert status in (1, 4)


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_a_node_that_is_cut_off_is_left_out_and_the_others_are_judged(pairs, topology, lab, seed):
    # Node 0 holds the run together.
    bad = 1 + somewhere(seed)[0] % (NODES - 1)
    pairs.start_plain(NODES, "--topology", str(topology), "--seed", str(seed), "--json")
    pairs.wait_for_trials(12)
    lab.fabric.link_down(bad)

    done = pairs.finish(DEADLINE_S)

    verdict = json.loads(done[0].stdout)
    passed = {node["node"] for node in verdict["nodes"] if node["verdict"] == "pass"}
    assert passed == {f"node{node}" for node in range(NODES) if node != bad}, done[0].stdout
    assert done[0].returncode in (1, 4)


@pytest.mark.soak
@pytest.mark.timeout(400)
@soak
def test_without_a_fault_all_nodes_pass(answer, pairs, seed):
    status, verdict, said = answer(seed=seed)

    assert (status, named(verdict), faults(pairs)) == (0, {}, []), said
