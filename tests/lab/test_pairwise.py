"""``pairwise`` over real links, one fault planted each: exactly that one is named."""

from __future__ import annotations

import json

import pytest
from lab.fabric import Way
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

    def run(*arguments, nodes=NODES, seed=1):
        pairs.start_plain(
            nodes, "--topology", str(topology), "--seed", str(seed), "--json", *arguments
        )
        done = pairs.finish(DEADLINE_S)
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("way", "code"),
    [(Way.BOTH, "node_slow"), (Way.OUT, "slow_send"), (Way.IN, "slow_receive")],
    ids=["both ways", "egress", "ingress"],
)
def test_a_slow_node_is_named_with_its_direction(answer, lab, way, code):
    lab.fabric.set_rate(5, THIRD, way)

    status, verdict, said = answer()

    assert named(verdict) == {"node5": ("fail", code)}, said
    (node,) = [node for node in verdict["nodes"] if node["node"] == "node5"]
    assert node["confirmed"]
    assert -75 < node["effect_pct"] < -55
    assert status == 1


@pytest.mark.timeout(300)
def test_without_a_fault_nobody_is_accused(answer):
    status, verdict, said = answer()

    assert (status, named(verdict)) == (0, {}), said
