"""Who gets which rate: every figure by hand. NICs 10 GB/s, GPUs 100 GB/s inside a node."""

from __future__ import annotations

import numpy as np
import pytest
from fabrics import MB, a_case, a_layout, a_round, rates

PAIR = a_case("send_recv")
ONE_WAY = a_case("broadcast", root=0)

ALONE = [
    # faults, ranks of the only pair, both ways at once, one way from the first to the second
    ({}, (0, 1), 10, 10),
    ({"slow_node": [{"node": 1, "factor": 0.5}]}, (0, 1), 5, 5),
    ({"slow_node": [{"node": 1, "factor": 0.5}]}, (2, 3), 10, 10),
    ({"slow_node": [{"node": 1, "factor": 0.5, "direction": "send"}]}, (0, 1), 5, 10),
    ({"slow_node": [{"node": 1, "factor": 0.5, "direction": "send"}]}, (1, 0), 5, 5),
    ({"slow_node": [{"node": 1, "factor": 0.5, "direction": "receive"}]}, (0, 1), 5, 5),
    ({"slow_node": [{"node": 1, "factor": 0.5, "direction": "receive"}]}, (1, 0), 5, 10),
    ({"slow_path": [{"a": 1, "b": 2, "factor": 0.3}]}, (2, 1), 3, 3),
    ({"slow_path": [{"a": 1, "b": 2, "factor": 0.3}]}, (0, 1), 10, 10),
    ({"loss": [{"node": 1, "share": 0.1}]}, (0, 1), 9, 9),
]


@pytest.mark.parametrize(("faults", "pair", "both", "one_way"), ALONE)
def test_a_pair_alone_has_the_rate_of_its_slowest_link(faults, pair, both, one_way):
    layout = a_layout(4, faults=faults, loss_timeout_us=0)

    assert rates(layout, a_round(PAIR, pair)) == pytest.approx([both])
    assert rates(layout, a_round(ONE_WAY, pair)) == pytest.approx([one_way])


def test_a_slow_node_costs_its_partner_alone():
    layout = a_layout(4, faults={"slow_node": [{"node": 1, "factor": 0.5}]})

    assert rates(layout, a_round(PAIR, (0, 1), (2, 3))) == pytest.approx([5, 10])


SHARED = [
    # 8 nodes in 2 leaves, 4 x 10 GB/s: oversubscription, pairs across, rate of each
    (1, [(0, 4), (1, 5), (2, 6), (3, 7)], [10, 10, 10, 10]),
    (2, [(0, 4)], [10]),
    (2, [(0, 4), (1, 5)], [10, 10]),
    (2, [(0, 4), (1, 5), (2, 6), (3, 7)], [5, 5, 5, 5]),
    (4, [(0, 4), (1, 5)], [5, 5]),
    (4, [(0, 4), (1, 5), (2, 6)], [10 / 3] * 3),
    (4, [(0, 4), (1, 5), (2, 3)], [5, 5, 10]),
    (4, [(0, 1), (2, 3), (4, 5), (6, 7)], [10, 10, 10, 10]),
]


@pytest.mark.parametrize(("ratio", "pairs", "expected"), SHARED)
def test_pairs_across_share_the_uplink(ratio, pairs, expected):
    layout = a_layout(8, leaves=2, oversubscription=ratio)

    assert rates(layout, a_round(PAIR, *pairs)) == pytest.approx(expected)


def test_what_a_slow_pair_leaves_of_an_uplink_the_others_share():
    # 20 GB/s for three: one is held at 2 by its node, the others have 9 each.
    layout = a_layout(
        8, leaves=2, oversubscription=2, faults={"slow_node": [{"node": 0, "factor": 0.2}]}
    )

    assert rates(layout, a_round(PAIR, (0, 4), (1, 5), (2, 6))) == pytest.approx([2, 9, 9])


def test_no_routing_is_no_limit():
    layout = a_layout(8, leaves=2, oversubscription=4, routing="none")

    assert rates(layout, a_round(PAIR, (0, 4), (1, 5))) == pytest.approx([10, 10])


@pytest.mark.parametrize(
    ("direction", "expected"), [("both", [4, 4]), ("send", [4, 10]), ("receive", [10, 4])]
)
def test_a_slow_uplink_is_slow_in_its_direction(direction, expected):
    # Of leaf 0: 4 GB/s. One way from leaf 0, then to it; each alone.
    faults = {"slow_uplink": [{"leaf": 0, "factor": 0.1, "direction": direction}]}
    layout = a_layout(8, leaves=2, faults=faults)

    found = [rates(layout, a_round(ONE_WAY, pair))[0] for pair in ((0, 4), (4, 0))]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("number", "expected"), [(1, 10), (2, 5), (3, 5), (4, 10)])
def test_foreign_traffic_comes_and_goes(number, expected):
    foreign = {"leaf": 1, "share": 0.5, "first_round": 2, "last_round": 3}
    layout = a_layout(2, leaves=2, faults={"foreign": [foreign]})

    assert rates(layout, a_round(PAIR, (0, 1), number=number)) == pytest.approx([expected])


def test_static_routing_goes_by_the_receiver():
    # Uplink = number of the receiver modulo 4: 4, 5, 6, 7 are apart, 4 and 4 + 4 meet.
    layout = a_layout(12, leaves=3, routing="static")

    assert rates(layout, a_round(ONE_WAY, (0, 4), (1, 5), (2, 6), (3, 7))) == pytest.approx(
        [10, 10, 10, 10]
    )
    assert rates(layout, a_round(ONE_WAY, (0, 4), (1, 8), (2, 6))) == pytest.approx([5, 5, 10])


def test_hashed_flows_collide_as_the_seed_says():
    pairs = [(node, node + 16) for node in range(16)]
    layout = a_layout(32, leaves=2, routing="hashed", seed=1)
    found = rates(layout, a_round(ONE_WAY, *pairs))
    again = rates(layout, a_round(ONE_WAY, *pairs))
    others = rates(a_layout(32, leaves=2, routing="hashed", seed=2), a_round(ONE_WAY, *pairs))
    redrawn = rates(layout, a_round(ONE_WAY, *pairs, number=1))

    # 10 GB/s an uplink, shared by 1, 2, 3 ... flows: n of them where each has 10 / n.
    sharing, flows = np.unique(np.rint(10 / np.array(found)).astype(int), return_counts=True)
    assert 10 / np.array(found) == pytest.approx(np.rint(10 / np.array(found)))
    assert (flows % sharing == 0).all()
    assert {1, 2} <= set(sharing.tolist())
    assert found == again
    assert found != others
    assert found != redrawn


def test_hashing_loses_about_as_much_as_balls_in_bins():
    """64 flows over 64 uplinks: (1 - 1 / 64) ^ 63 = 0.37 of them are alone on theirs."""
    pairs = [(node, node + 64) for node in range(64)]
    layout = a_layout(128, leaves=2, routing="hashed")
    alone = [
        np.isclose(rates(layout, a_round(ONE_WAY, *pairs, number=number)), 10).mean()
        for number in range(15)
    ]

    assert np.mean(alone) == pytest.approx((1 - 1 / 64) ** 63, abs=0.05)


def test_every_rail_is_a_plane_of_its_own():
    layout = a_layout(
        2,
        gpus_per_node=2,
        rails=2,
        faults={"slow_rail": [{"node": 1, "rail": 1, "factor": 0.9}]},
    )

    assert rates(layout, a_round(PAIR, (0, 2), (1, 3))) == pytest.approx([10, 9])


def test_gpus_that_share_a_nic_share_its_rate():
    layout = a_layout(2, gpus_per_node=2, rails=1)

    assert rates(layout, a_round(PAIR, (0, 2), (1, 3))) == pytest.approx([5, 5])


@pytest.mark.parametrize(("nvlink", "expected"), [(100.0, 18), (15.0, 15)])
def test_nvlink_hides_a_slow_rail(nvlink, expected):
    """A ring over both nodes has 9 + 9 of 10 + 9 GB/s, since it sends as much over both rails."""
    layout = a_layout(
        2,
        gpus_per_node=2,
        rails=2,
        nvlink_gb_per_s=nvlink,
        faults={"slow_rail": [{"node": 1, "rail": 1, "factor": 0.9}]},
    )
    # 2 (n - 1) / n = 1.5 of the message on each hop.
    case = a_case("all_reduce", ranks=4)

    assert rates(layout, a_round(case, (0, 1, 2, 3))) == pytest.approx([expected / 1.5])


RINGS = [
    # 8 nodes in 2 leaves, 4:1, so 10 GB/s for all of a leaf. Order of the ring: its busbw.
    ((0, 1, 2, 3, 4, 5, 6, 7), 10),
    ((0, 4, 1, 5, 2, 6, 3, 7), 2.5),
    ((0, 1, 4, 5, 2, 3, 6, 7), 5),
]


@pytest.mark.parametrize(("order", "busbw"), RINGS)
def test_a_ring_is_as_fast_as_its_crossings_let_it(order, busbw):
    layout = a_layout(8, leaves=2, oversubscription=4)
    found = rates(layout, a_round(a_case("all_reduce", 8 * MB, 8), order))

    assert found == pytest.approx([busbw / 1.75])


def test_an_all_to_all_fills_the_uplinks():
    # A leaf of 4 sends 4 x 4 / 8 of the message over its 10 GB/s: 2 S.
    layout = a_layout(8, leaves=2, oversubscription=4)
    found = rates(layout, a_round(a_case("all_to_all", 8 * MB, 8), tuple(range(8))))

    assert found == pytest.approx([10 / 2])


def test_groups_that_run_at_once_share():
    # Two rings of 4, each over both leaves: an uplink of 10 GB/s carries a hop of both.
    layout = a_layout(8, leaves=2, oversubscription=4)
    case = a_case("all_reduce", 8 * MB, 4)

    assert rates(layout, a_round(case, (0, 1, 4, 5), (2, 3, 6, 7))) == pytest.approx(
        [5 / 1.5, 5 / 1.5]
    )
