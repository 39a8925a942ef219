"""What each collective sends, and what that takes."""

from __future__ import annotations

import numpy as np
import pytest
from fabrics import CALL_US, MB, a_case, a_layout, a_round, outcomes, times_us

from collbench.collectives import COLLECTIVES
from collbench.engine.fabric_calls import hop_count, hops_of

SENT = [
    # Of 4 MB over 4 ranks in one node: hops, megabytes of each, all of them in order.
    ("all_reduce", 6, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    ("all_gather", 3, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    ("reduce_scatter", 3, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    ("broadcast", 4, [(1, 2), (2, 3), (3, 0)]),
    ("reduce", 4, [(2, 1), (3, 2), (0, 3)]),
    ("scatter", 1, [(1, 2), (1, 3), (1, 0)]),
    ("gather", 1, [(2, 1), (3, 1), (0, 1)]),
    ("send_recv", 4, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    ("all_to_all", 1, [(a, b) for a in range(4) for b in range(4) if a != b]),
]


def test_every_collective_is_there():
    assert {row[0] for row in SENT} == set(COLLECTIVES)


@pytest.mark.parametrize(("name", "megabytes", "expected"), SENT)
def test_hops_are_those_of_the_algorithm(name, megabytes, expected):
    root = 1 if COLLECTIVES[name].has_root else None
    case = a_case(name, 4 * MB, 4, root=root)
    hops = hops_of(case, np.array([[0, 1, 2, 3], [7, 6, 5, 4]]))

    found = list(zip(hops.source.tolist(), hops.target.tolist(), strict=True))
    assert hops.hop_bytes == megabytes * MB
    assert found[: len(expected)] == expected
    assert found[len(expected) :] == [(7 - a, 7 - b) for a, b in expected]
    assert hops.group.tolist() == [0] * len(expected) + [1] * len(expected)
    assert hop_count(case) == len(expected)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_a_rank_alone_sends_nothing(name):
    hops = hops_of(a_case(name, 4 * MB, 1), np.array([[5]]))

    assert hops.group.size == 0


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_busbw_is_the_rate_of_the_wire(name):
    """With a rank a node, a NIC of 10 GB/s is what limits; a root's NIC where there is a root."""
    case = a_case(name, 8000 * MB, 8)
    (outcome,) = outcomes(a_layout(8), a_round(case, tuple(range(8))))

    # 10 us of 0.7 s and more.
    assert outcome.trial.summary.busbw_gb_per_s == pytest.approx(10, rel=2e-5)


LATENCY = [
    # Nodes 0, 1 | 2, 3 in two leaves, 2 GPUs each; hops of 1, 10, 100 us; next to no bytes.
    ("all_reduce", (0, 1), 2 * 0.5 * (1 + 1)),
    ("all_reduce", (0, 2), 2 * 0.5 * (10 + 10)),
    ("all_gather", (0, 4), 0.5 * (100 + 100)),
    ("all_gather", (0, 1, 2, 3), 0.75 * (1 + 10 + 1 + 10)),
    ("all_reduce", (0, 1, 4, 5), 1.5 * (1 + 100 + 1 + 100)),
    ("broadcast", (0, 1, 2, 4), 1 + 10 + 100),
    ("send_recv", (0, 1, 2, 4), 100),
    ("all_to_all", (0, 1, 2), 10),
    ("all_reduce", (0,), 0),
]


@pytest.mark.parametrize(("name", "ranks", "expected"), LATENCY)
def test_latency_is_that_of_the_hops(name, ranks, expected):
    alpha = {"call": CALL_US, "nvlink": 1.0, "leaf": 10.0, "spine": 100.0}
    layout = a_layout(4, leaves=2, gpus_per_node=2, alpha_us=alpha)
    case = a_case(name, 8, len(ranks), root=0 if COLLECTIVES[name].has_root else None)

    found = times_us(layout, a_round(case, ranks))
    assert found == pytest.approx([CALL_US + expected], abs=0.01)


def test_a_message_takes_the_nic_of_the_gpu_that_receives_it():
    # Node 0's two GPUs scatter to node 1's two over two rails: S / 4 on each.
    layout = a_layout(2, gpus_per_node=2, rails=2, nvlink_gb_per_s=1e6)
    case = a_case("scatter", 4 * MB, 4, root=0)
    gather = a_case("gather", 4 * MB, 4, root=0)

    assert times_us(layout, a_round(case, (0, 1, 2, 3))) == pytest.approx([CALL_US + 100], abs=0.01)
    # Both arrive at GPU 0, over its rail.
    assert times_us(layout, a_round(gather, (0, 1, 2, 3))) == pytest.approx(
        [CALL_US + 200], abs=0.01
    )


def test_a_hop_goes_over_all_nics_that_both_ends_have():
    # Ranks 0, 1 of node 0 (both rails) and 2 of node 1 (its rail 0 alone): one rail for a hop.
    layout = a_layout(2, gpus_per_node=2, rails=2, nvlink_gb_per_s=1e6)
    whole = a_case("all_gather", 4 * MB, 4)
    part = a_case("all_gather", 3 * MB, 3)

    # 3/4 of 4 MB at 20 GB/s; 2/3 of 3 MB at 10 GB/s.
    assert times_us(layout, a_round(whole, (0, 1, 2, 3))) == pytest.approx(
        [CALL_US + 150], abs=0.01
    )
    assert times_us(layout, a_round(part, (0, 1, 2))) == pytest.approx([CALL_US + 200], abs=0.01)


def test_ends_without_a_rail_in_common_use_the_senders():
    layout = a_layout(2, gpus_per_node=2, rails=2)
    case = a_case("broadcast", MB, 2, root=0)

    assert times_us(layout, a_round(case, (0, 3))) == pytest.approx([CALL_US + 100])
