"""Parallel efficiency and jitter."""

from __future__ import annotations

import pytest

from collbench.analyze.flows import leaf_of_nodes
from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern, Step
from collbench.analyze.scaling import Jitter, efficiencies, jitter, jitter_sets_in

LEAF_OF = leaf_of_nodes([(0, 1, 2, 3), (4, 5, 6, 7)])


def ring(n: int, rate: float, *, tail: float = 1.02, repeat: int = 0, order=NodeOrder.CONTIGUOUS):
    return Observation(
        step=Step(
            pattern=ScalePattern.ALL_REDUCE,
            order=order,
            nodes=tuple(range(n)),
            size_bytes=1,
            repeat=repeat,
        ),
        rate_gb_per_s=rate,
        time_us=100.0,
        p95_us=100.0 * tail,
    )


def test_efficiency_is_against_one_node_and_the_most_nodes_of_one_leaf():
    rates = [ring(1, 100.0), ring(2, 50.0), ring(4, 40.0), ring(8, 30.0), ring(8, 38.0, repeat=1)]
    found = {one.n: one for one in efficiencies(rates, LEAF_OF)}

    assert found[8].rate_gb_per_s == 34.0
    assert found[8].against_one_node == pytest.approx(0.34)
    assert found[8].against_one_leaf == pytest.approx(34 / 40)
    assert found[8].expected is True
    assert found[2].against_one_leaf == pytest.approx(50 / 40)


def test_an_interleaved_ring_is_held_against_the_same_leaf():
    rates = [ring(4, 40.0), ring(8, 20.0, order=NodeOrder.ROUND_ROBIN)]
    found = efficiencies(rates, LEAF_OF)[-1]

    assert (found.order, found.against_one_leaf, found.expected) == ("round_robin", 0.5, False)


def test_without_leaves_and_one_node_there_is_nothing_to_hold_it_against():
    (found,) = efficiencies([ring(8, 20.0)], None)

    assert (found.against_one_node, found.against_one_leaf, found.expected) == (None, None, None)


def test_jitter_of_a_step_is_its_worst_patterns():
    found = jitter([ring(2, 10.0), ring(2, 11.0, repeat=1), ring(2, 12.0, repeat=2, tail=1.3)])

    assert [one.n for one in found] == [2]
    assert found[0].p95_over_median == pytest.approx(1.02)
    assert found[0].repeat_spread == pytest.approx(2 / 11)


@pytest.mark.parametrize(
    ("tails", "n"),
    [
        ((1.02, 1.03, 1.02, 1.2, 1.3, 1.5), 5),
        # One bad step is no onset; it has to stay.
        ((1.02, 1.03, 1.5, 1.02, 1.02, 1.02), None),
        # Loud from the start: it has to be twice that.
        ((1.2, 1.2, 1.2, 1.3, 1.5, 1.6), 6),
        ((1.02, 1.5), None),
        ((1.02, None, 1.02, 1.02), None),
    ],
)
def test_where_jitter_sets_in(tails, n):
    found = [
        Jitter(n=k, p95_over_median=tail, repeat_spread=0.0) for k, tail in enumerate(tails, 2)
    ]

    assert jitter_sets_in(found) == n
