"""What became of the nodes of a course, from its records."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from records import make_run, make_trial

from collbench.cli.course_output import who_came
from collbench.model import Culprit, Node, NodeState, Status, Topology
from collbench.store import StoredRun


def node(name, state=NodeState.PRESENT):
    return Node(name=name, state=state, cpu_model="", cpus=2, numa_nodes=1, memory_bytes=1)


def lost(name, why):
    culprit = Culprit(
        rank=1, node=name, local_rank=0, pid=7, calls=0, what=f"its node is lost: {why}"
    )
    trial = make_trial(8, 1.0)
    return replace(trial, status=Status.NODE_LOST, summary=None, culprits=[culprit])


def test_every_state_of_a_node_is_told_with_its_reason():
    nodes = [
        node("a"),
        node("b", NodeState.LOST),
        node("c", NodeState.UNKILLABLE),
        node("d", NodeState.EXCLUDED),
        node("e", NodeState.GPU_MISSING),
        node("f", NodeState.ABSENT),
        node("g", NodeState.LOST),
    ]
    stored = StoredRun(
        folder=Path("nowhere"),
        run=make_run(command="pairwise", suite={"left_out": {"e": "a GPU is promised"}}),
        topology=Topology(nodes=nodes, ranks=[]),
        trials=(
            make_trial(8, 1.0),
            lost("b", "no torch: nowhere; --exclude b"),
            lost("b", "said again"),
            lost("c", "rank 1 (pid 7) is there"),
        ),
    )

    assert who_came(stored) == {
        "asked": tuple("abcdefg"),
        "answered": tuple("abcg"),
        "absent": {"f": ""},
        "excluded": {"d": "", "e": "a GPU is promised"},
        "lost": {"b": "no torch: nowhere; --exclude b", "c": "rank 1 (pid 7) is there", "g": ""},
    }
