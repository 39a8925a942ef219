"""GPUs of a node two by two: each stands as a node, and its node as a leaf."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.analyze.pair_inside import per_rank
from collbench.errors import UsageError
from collbench.model import Gpu, Nic, Node, NodeState, RankPlace, Topology
from collbench.plan.pairwise import RoundKind, inside_rounds


def gpu(index):
    return Gpu(
        index=index,
        name="H200",
        uuid=f"GPU-{index}",
        pci_bus_id=f"0000:{index:02x}:00.0",
        memory_bytes=1,
    )


def node(name, gpus=0, state=NodeState.PRESENT):
    return Node(
        name=name,
        state=state,
        cpu_model="cpu",
        cpus=8,
        numa_nodes=1,
        memory_bytes=1,
        gpus=[gpu(index) for index in range(gpus)],
        nics=[Nic(name="mlx5_0", kind="infiniband", state="ACTIVE")],
        leaf="leaf0",
    )


def place(rank, name, local_rank, gpu=None):
    return RankPlace(rank=rank, node=name, local_rank=local_rank, gpu=gpu)


def test_every_gpu_is_a_node_in_the_leaf_of_its_node():
    topology = Topology(
        nodes=[node("a", 2), node("b", 2, NodeState.LOST), node("c", 2, NodeState.ABSENT)],
        ranks=[place(0, "a", 0, 0), place(1, "a", 1, 1), place(2, "b", 0, 0), place(3, "b", 1, 1)],
    )
    found = per_rank(topology)

    assert [(n.name, n.leaf, n.state) for n in found.nodes] == [
        ("a:gpu0", "a", NodeState.PRESENT),
        ("a:gpu1", "a", NodeState.PRESENT),
        ("b:gpu0", "b", NodeState.LOST),
        ("b:gpu1", "b", NodeState.LOST),
        ("c", "leaf0", NodeState.ABSENT),
    ]
    assert [[one.index for one in n.gpus] for n in found.nodes[:4]] == [[0], [1], [0], [1]]
    assert [n.nics for n in found.nodes[:4]] == [[]] * 4
    assert [(p.rank, p.node, p.local_rank) for p in found.ranks] == [
        (0, "a:gpu0", 0),
        (1, "a:gpu1", 0),
        (2, "b:gpu0", 0),
        (3, "b:gpu1", 0),
    ]


def test_on_a_cpu_ranks_have_names():
    topology = Topology(nodes=[node("a")], ranks=[place(0, "a", 0), place(1, "a", 1)])

    assert [n.name for n in per_rank(topology).nodes] == ["a:rank0", "a:rank1"]


@pytest.mark.parametrize("serial", [False, True])
def test_all_meet_all_of_their_own_node_and_nobody_else(serial):
    leaves = ["a"] * 4 + ["b"] * 3 + ["c"]
    schedule = inside_rounds(leaves, serial=serial, seed=3)

    met = [tuple(sorted(pair)) for one in schedule.rounds for pair in one.tuples()]
    assert sorted(met) == [
        *((i, j) for i in range(4) for j in range(i + 1, 4)),
        *((i, j) for i in range(4, 7) for j in range(i + 1, 7)),
    ]
    assert (schedule.paths, schedule.share_tried) == (9, 1.0)
    for one in schedule.rounds:
        assert one.kind is RoundKind.INSIDE
        assert len(np.unique(one.pairs)) == one.pairs.size
        assert not serial or one.alone


def test_nodes_of_one_gpu_cannot_be_looked_into():
    with pytest.raises(UsageError, match="no node has two ranks to pair"):
        inside_rounds(["a", "b"])
