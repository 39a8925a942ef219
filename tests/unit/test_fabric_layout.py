"""From the file's words to arrays."""

from __future__ import annotations

import pytest
from fabrics import a_layout


@pytest.mark.parametrize(
    ("words", "leaf_of"),
    [
        ({}, [0, 0, 0, 0, 0]),
        ({"leaves": 2}, [0, 0, 0, 1, 1]),
        ({"nodes_a_leaf": 2}, [0, 0, 1, 1, 2]),
        ({"leaves": [1, 4]}, [0, 1, 1, 1, 1]),
    ],
)
def test_nodes_are_in_leaves(words, leaf_of):
    assert a_layout(5, **words).leaf_of.tolist() == leaf_of


@pytest.mark.parametrize(
    ("gpus", "rails", "expected"),
    [
        (2, 2, [[True, False], [False, True]]),
        (4, 2, [[True, False], [True, False], [False, True], [False, True]]),
        (1, 2, [[True, True]]),
        (2, 3, [[True, True, False], [False, False, True]]),
    ],
)
def test_a_gpu_sends_over_the_nics_next_to_it(gpus, rails, expected):
    layout = a_layout(1, gpus_per_node=gpus, rails=rails)

    assert layout.rails_of_gpu.tolist() == expected


@pytest.mark.parametrize(
    ("words", "lanes", "rate_of_lane"),
    [
        # A leaf of 4 nodes x 10 GB/s.
        ({"routing": "hashed"}, [4, 2], [10, 10]),
        ({"routing": "hashed", "oversubscription": 2}, [2, 1], [10, 10]),
        ({"routing": "static", "oversubscription": 8}, [1, 1], [5, 2.5]),
        ({"routing": "static", "uplinks": 4}, [4, 4], [10, 5]),
        ({"routing": "static", "uplinks": 4, "uplink_gb_per_s": 3}, [4, 4], [3, 3]),
        ({"routing": "adaptive", "oversubscription": 2}, [1, 1], [20, 10]),
        ({"routing": "adaptive", "uplinks": 4, "uplink_gb_per_s": 3}, [1, 1], [12, 12]),
    ],
)
def test_uplinks_carry_what_the_ratio_leaves(words, lanes, rate_of_lane):
    layout = a_layout(6, leaves=[4, 2], **words)

    assert layout.lanes.tolist() == lanes
    assert layout.up[:, 0, 0].tolist() == rate_of_lane
    assert layout.down[:, 0, 0].tolist() == rate_of_lane


def test_faults_are_where_the_file_says():
    layout = a_layout(
        3,
        rails=2,
        leaves=[2, 1],
        faults={
            "slow_node": [
                {"node": "node1", "factor": 0.5},
                {"node": 2, "factor": 0.1, "direction": "send"},
            ],
            "slow_rail": [{"node": 1, "rail": 1, "factor": 0.4, "direction": "receive"}],
            "slow_path": [{"a": 0, "b": 2, "factor": 0.25}],
            "slow_uplink": [{"leaf": 1, "factor": 0.5, "direction": "receive"}],
            "loss": [{"node": 0, "share": 0.1}, {"a": 0, "b": 2, "share": 0.2}],
        },
    )

    assert layout.send.tolist() == [pytest.approx([9, 9]), [5, 5], [1, 1]]
    assert layout.receive.tolist() == [pytest.approx([9, 9]), [5, 2], [10, 10]]
    assert layout.slow_paths == pytest.approx({(0, 2): 0.2, (2, 0): 0.2})
    assert layout.up[:, 0, 0].tolist() == [20, 10]
    assert layout.down[:, 0, 0].tolist() == [20, 5]


def test_numbers_in_names_are_as_long_as_the_last():
    assert a_layout(11).names[:2] == ("node00", "node01")
