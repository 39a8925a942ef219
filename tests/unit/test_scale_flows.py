"""Flows per uplink: counted by hand, and as the lab measured them."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.analyze.flows import flows_of_pairs, flows_per_uplink, leaf_of_nodes
from collbench.analyze.scale_types import ScalePattern, Step
from collbench.errors import UsageError

TWO = leaf_of_nodes([(0, 1, 2, 3), (4, 5, 6, 7)])
FOUR = leaf_of_nodes([(0, 1), (2, 3), (4, 5), (6, 7)])
INTERLEAVED = (0, 4, 1, 5, 2, 6, 3, 7)


def flows(pattern, nodes, leaf_of=TWO):
    return flows_per_uplink(Step(pattern=pattern, nodes=tuple(nodes), size_bytes=1), leaf_of)


@pytest.mark.parametrize(
    ("n", "in_leaf_order", "interleaved", "half", "all_to_all"),
    [
        (1, 0, 0, 0, 0),
        (2, 0, 1, 0, 0),
        (3, 0, 1, 0, 0),
        (4, 0, 2, 0, 0),
        (5, 1, 2, 1, 4 * 1 / 4),
        (6, 1, 3, 2, 4 * 2 / 5),
        (7, 1, 3, 3, 4 * 3 / 6),
        (8, 1, 4, 4, 4 * 4 / 7),
    ],
)
def test_two_leaves_of_four(n, in_leaf_order, interleaved, half, all_to_all):
    assert flows(ScalePattern.ALL_REDUCE, range(n)) == in_leaf_order
    assert flows(ScalePattern.ALL_GATHER, INTERLEAVED[:n]) == interleaved
    assert flows(ScalePattern.HALF, range(n)) == half
    assert flows(ScalePattern.ALL_TO_ALL, range(n)) == pytest.approx(all_to_all)


@pytest.mark.parametrize(
    ("pattern", "nodes", "expected"),
    [
        # A leaf that is full adds no more: the floor.
        (ScalePattern.ALL_REDUCE, (0, 2, 4, 6, 1, 3, 5, 7), 2),
        (ScalePattern.ALL_REDUCE, range(8), 1),
        # 2 x 6 / 7 leave each leaf.
        (ScalePattern.ALL_TO_ALL, range(8), 12 / 7),
        (ScalePattern.HALF, range(8), 2),
    ],
)
def test_four_leaves_of_two(pattern, nodes, expected):
    assert flows(pattern, nodes, FOUR) == pytest.approx(expected)


def test_a_ring_counts_out_and_in_apart():
    # 0 -> 4 -> 5 -> 0: one out of each leaf, one in.
    assert flows(ScalePattern.ALL_REDUCE, (0, 4, 5)) == 1


@pytest.mark.parametrize("size", [4, 8, 16])
def test_random_rings_have_the_mean_that_theory_gives(size):
    leaf_of = leaf_of_nodes([range(size), range(size, 2 * size)])
    random = np.random.default_rng(1)
    found = [
        flows(ScalePattern.ALL_REDUCE, random.permutation(2 * size).tolist(), leaf_of)
        for _ in range(2000)
    ]

    assert np.mean(found) == pytest.approx(size**2 / (2 * size - 1), rel=0.02)


def test_pairs_count_where_they_are_limited():
    leaf_of = leaf_of_nodes([(0, 1, 2), (3, 4), (5, 6, 7)])
    step = Step(pattern=ScalePattern.PAIRS, nodes=(0, 3, 1, 4, 2, 5, 6, 7), size_bytes=1)

    # Leaf 0 has three pairs across, leaf 1 two, leaf 2 one; the last pair is inside.
    assert flows_of_pairs(step, leaf_of) == (3.0, 3.0, 3.0, 0.0)
    assert flows_per_uplink(step, leaf_of) == 3.0
    assert step.m == 4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: leaf_of_nodes([(0, 1), (1, 2)]), "node 1 is in leaf 0 and in leaf 1"),
        (lambda: flows(ScalePattern.ALL_REDUCE, (0, 9)), "node 9 of all_reduce is in no leaf"),
    ],
)
def test_bad_leaves_are_said(make, words):
    with pytest.raises(UsageError) as raised:
        make()

    assert words in str(raised.value)
