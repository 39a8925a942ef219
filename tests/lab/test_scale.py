"""``scale`` over real links behind shaped uplinks: the knee stands where the uplinks end."""

from __future__ import annotations

import json

import pytest
from lab.fabric import Fabric
from lab.processes import Processes
from lab.sweeps import Sweeps

NODES = 8
MBIT_PER_S = 50
DEADLINE_S = 240.0
PAIRS = ("--patterns", "pairs,inside", "--redraws", "3", "--repeats", "1")


def stepping(processes, folder):
    for node in range(NODES):
        processes.fabric.set_rate(node, MBIT_PER_S)
    return Sweeps(processes, folder, "scale")


@pytest.fixture
def steps(lab, tmp_path):
    return stepping(lab, tmp_path / "steps")


def asked(steps, leaves, links, *arguments, nodes=NODES):
    """Runs scale over leaves whose uplinks carry so many node links; returns what it answers.

    Args:
        steps: starts it.
        leaves: how many; the nodes are on them by turns of equal length.
        links: node links that an uplink carries.
        arguments: further ones.
        nodes: the first so many take part.
    """
    on_a_leaf = NODES // leaves
    topology = steps.results.parent / "leaves"
    topology.write_text("".join(f"node{n} leaf{n // on_a_leaf}\n" for n in range(nodes)))
    for leaf in range(leaves):
        steps.lab.fabric.set_uplink_rate(leaf, links * MBIT_PER_S)
    steps.start_plain(nodes, "--topology", str(topology), "--seed", "3", "--json", *arguments)
    done = steps.finish(DEADLINE_S)
    said = done[0].stdout + done[0].stderr
    assert done[0].stdout.startswith("{"), said
    return done[0].returncode, json.loads(done[0].stdout), said


def is_knee_at(links, document, said):
    """The answer is a knee whose interval holds the links of an uplink and is below one wide."""
    knee = document["knee"]
    assert document["answer"] == "knee", said
    # Headers are on node links and uplinks alike; what is left of them is 1 to 2 percent.
    assert 0.98 * knee["flows_low"] <= links <= 1.02 * knee["flows_high"], said
    assert knee["flows_high"] - knee["flows_low"] <= 1, said


@pytest.mark.timeout(300)
def test_two_to_one_has_its_knee_at_two_node_links(steps):
    status, document, said = asked(steps, 2, 2, *PAIRS, "--max-oversubscription", "1.5")

    is_knee_at(2, document, said)
    assert status == 1


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_four_to_one_has_its_knee_at_one_node_link(steps):
    status, document, said = asked(steps, 2, 1, *PAIRS)

    is_knee_at(1, document, said)
    assert document["oversubscription"]["value"] == pytest.approx(4, rel=0.1)
    assert status == 0


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_one_to_one_has_no_knee(steps):
    status, document, said = asked(steps, 2, 4.4, *PAIRS)

    assert document["answer"] == "no_knee", said
    assert document["oversubscription"]["high"] < 1.15, said
    assert status == 0


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_unequal_leaves_work(steps):
    _, document, said = asked(steps, 2, 2, *PAIRS, nodes=7)

    is_knee_at(2, document, said)
    assert document["leaf_size"] == 4


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_all_patterns_agree_with_the_pairs(steps):
    _, document, said = asked(steps, 2, 2, "--redraws", "3", "--repeats", "1")

    is_knee_at(2, document, said)


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_four_leaves_of_two(tmp_path):
    with Fabric(tmp_path, leaves=4, nodes_a_leaf=2) as fabric:
        processes = Processes(fabric, tmp_path)
        try:
            _, document, said = asked(stepping(processes, tmp_path / "steps"), 4, 1, *PAIRS)
        finally:
            processes.end()

    is_knee_at(1, document, said)


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_one_slow_node_is_a_node_and_no_knee(steps, lab):
    lab.fabric.set_rate(5, MBIT_PER_S / 3)

    _, document, said = asked(steps, 2, 4.4, *PAIRS)

    assert document["answer"] != "knee", said
    assert [node["node"] for node in document["slow_nodes"]] == ["node5"], said
