"""``scale`` over real links behind shaped uplinks: the knee stands where the uplinks end."""

from __future__ import annotations

import json

import pytest
from lab.sweeps import Sweeps

NODES = 8
MBIT_PER_S = 50
DEADLINE_S = 240.0
PAIRS = ("--patterns", "pairs,inside", "--redraws", "3", "--repeats", "1")


@pytest.fixture
def steps(lab, tmp_path):
    for node in range(NODES):
        lab.fabric.set_rate(node, MBIT_PER_S)
    return Sweeps(lab, tmp_path / "steps", "scale")


@pytest.fixture
def answer(steps, lab, tmp_path):
    """Runs scale over 2 leaves of 4 whose uplinks carry so many node links; returns the answer."""
    topology = tmp_path / "leaves"
    topology.write_text("".join(f"node{node} leaf{node // 4}\n" for node in range(NODES)))

    def run(links, *arguments):
        for leaf in range(2):
            lab.fabric.set_uplink_rate(leaf, links * MBIT_PER_S)
        steps.start_plain(NODES, "--topology", str(topology), "--seed", "3", "--json", *arguments)
        done = steps.finish(DEADLINE_S)
        said = done[0].stdout + done[0].stderr
        assert done[0].stdout.startswith("{"), said
        return done[0].returncode, json.loads(done[0].stdout), said

    return run


@pytest.mark.timeout(300)
def test_two_to_one_has_its_knee_at_two_node_links(answer):
    status, document, said = answer(2, *PAIRS, "--max-oversubscription", "1.5")

    knee = document["knee"]
    assert document["answer"] == "knee", said
    assert knee["flows_low"] - 0.1 <= 2 <= knee["flows_high"] + 0.1, said
    assert knee["flows_high"] - knee["flows_low"] <= 1, said
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_four_to_one_has_its_knee_at_one_node_link(answer):
    status, document, said = answer(1, *PAIRS)

    assert document["answer"] == "knee", said
    assert document["ratio"]["low"] <= 4.2 <= document["ratio"]["high"] + 0.4, said
    assert status == 0


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_one_to_one_has_no_knee(answer):
    status, document, said = answer(4.4, *PAIRS)

    assert document["answer"] == "no_knee", said
    assert status == 0


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_one_slow_node_is_a_node_and_no_knee(answer, lab):
    lab.fabric.set_rate(5, MBIT_PER_S / 3)

    _, document, said = answer(4.4, *PAIRS)

    assert document["answer"] != "knee", said
    assert [node["name"] for node in document["slow_nodes"]] == ["node5"], said
