"""Shares of a wire's rate that an algorithm can reach: exact figures."""

import pytest

from collbench.analyze.limit_models import links_share, network_share


@pytest.mark.parametrize(
    ("collective", "algorithm", "ranks", "nodes", "share"),
    [
        ("all_reduce", "Ring", 8, 1, 1.0),
        ("broadcast", "Ring", 8, 1, 1.0),
        ("all_reduce", "Tree", 8, 1, 1.0),
        ("all_reduce", "NVLS", 8, 1, 14 / 9),
        ("all_reduce", "NVLS", 2, 1, 2 / 3),
        ("all_gather", "NVLS", 8, 1, 1.0),
        ("all_to_all", None, 8, 1, 1.0),
        ("send_recv", None, 2, 1, 1.0),
        # Of 8 hops of a ring through 2 nodes of 8 GPUs, 7 a node are NVLink's.
        ("all_gather", "Ring", 16, 2, 8 / 7),
        ("all_reduce", "Tree", 16, 2, 15 / 14),
        ("all_reduce", "NVLSTree", 16, 2, 2 * 15 / 16 * 8 / 9),
        ("all_to_all", None, 16, 2, 15 / 7),
        # Not known, or not there.
        ("all_reduce", "NVLS", 16, 2, None),
        ("all_reduce", "NVLSTree", 8, 1, None),
        ("all_reduce", "CollNetDirect", 16, 2, None),
        ("send_recv", None, 16, 2, None),
        ("all_reduce", None, 8, 1, None),
        ("all_reduce", "Ring", 4, 4, None),
    ],
)
def test_what_one_gpus_nvlinks_allow(collective, algorithm, ranks, nodes, share):
    found = links_share(collective, algorithm, ranks, nodes)

    assert found == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("collective", "algorithm", "ranks", "nodes", "share"),
    [
        ("all_reduce", "Ring", 16, 2, 1.0),
        ("reduce_scatter", "Ring", 2048, 256, 1.0),
        ("all_reduce", "Tree", 16, 2, 1.875),
        ("all_reduce", "NVLSTree", 16, 2, 1.875),
        # Of 3 nodes none has two children and a parent.
        ("all_reduce", "Tree", 24, 3, 2 * 23 / 24 / 1.5),
        ("all_reduce", "Tree", 32, 4, 31 / 32),
        ("all_reduce", "NVLSTree", 2048, 256, 2047 / 2048),
        ("all_gather", "PAT", 4, 4, 1.0),
        # The share is of 8 NICs: 1.875 of one.
        ("all_to_all", None, 16, 2, 1.875 / 8),
        ("all_to_all", None, 4, 4, 1.0),
        ("gather", None, 4, 4, 1.0),
        # Not known.
        ("all_gather", "PAT", 16, 2, None),
        ("all_reduce", "NVLS", 16, 2, None),
        ("all_reduce", "CollNetChain", 16, 2, None),
        ("send_recv", None, 16, 2, None),
        ("all_reduce", None, 16, 2, None),
    ],
)
def test_what_a_nodes_network_devices_allow(collective, algorithm, ranks, nodes, share):
    found = network_share(collective, algorithm, ranks, nodes)

    assert found == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6, 7, 8, 12, 31, 64])
def test_trees_send_what_ncclGetDtree_makes_the_busiest_node_send(nodes):  # noqa: N802
    """Two trees over the nodes, the second one mirrored (even) or shifted by one (odd)."""
    halves = [0] * nodes
    for node in range(nodes):
        for role in (node, (node - 1) % nodes if nodes % 2 else nodes - 1 - node):
            halves[node] += neighbours(nodes)[role]

    share = network_share("all_reduce", "Tree", nodes, nodes)

    assert share == pytest.approx(2 * (nodes - 1) / nodes / (max(halves) / 2))


def neighbours(nodes):
    """Parents and children of each place in a tree in which odd places are leaves."""
    counts = [0] * nodes
    for place in range(1, nodes):
        bit = place & -place
        up = (place ^ bit) | (bit << 1)
        parent = up if up < nodes else place ^ bit
        counts[place] += 1
        counts[parent] += 1
    return counts
