"""The plan of `scale`: what runs, in which order, and what follows from what came out."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_fabric import LARGE, SMALL, MadeFabric, leaves_of

from collbench.analyze.flows import flows_per_uplink, leaf_of_nodes
from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern
from collbench.errors import UsageError
from collbench.model import Status
from collbench.plan import scale_draw as draws
from collbench.plan.scale import next_steps
from collbench.plan.scale_design import ScaleDesign, estimate, pattern_of

LEAVES = leaves_of(4, 4)


def design(leaves=LEAVES, **fields) -> ScaleDesign:
    return ScaleDesign(leaves=leaves, size_bytes=LARGE, **fields)


def of(steps, pattern, order=None):
    return [s for s in steps if s.pattern is pattern and order in (None, s.order)]


def test_the_ladder_takes_every_number_to_16_and_then_a_quarter_more():
    assert draws.ladder(1, 64) == (*range(1, 17), 20, 25, 31, 38, 47, 58, 64)
    assert draws.ladder(2, 5) == (2, 3, 4, 5)
    assert draws.ladder(2, 9, 3) == (2, 5, 8, 9)
    assert draws.ladder(1, 0) == ()


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(0, 5000))
def test_a_ladder_rises_to_its_end(first, more):
    found = draws.ladder(first, first + more)

    assert (found[0], found[-1]) == (first, first + more)
    assert all(a < b <= max(a + 1, 1.25 * a) for a, b in pairwise(found))


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=7), st.integers(1, 9), st.integers(0, 99))
def test_pairs_across_are_disjoint_and_load_all_uplinks_alike(sizes, asked, seed):
    leaves = leaves_of(*sizes)
    leaf_of = leaf_of_nodes(leaves)
    nodes = draws.pairs_across(leaves, asked, draws.generator(seed))
    loads = Counter(leaf_of[node] for node in nodes)

    assert len(set(nodes)) == len(nodes)
    assert all(leaf_of[a] != leaf_of[b] for a, b in zip(nodes[::2], nodes[1::2], strict=True))
    assert max(loads.values()) == min(asked, draws.most_pairs_a_leaf(leaves))
    if len(set(sizes)) == 1:
        assert len(loads) == len(sizes) // 2 * 2
        assert set(loads.values()) == {min(asked, sizes[0])}


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.integers(0, 20), st.integers(0, 99))
def test_pairs_inside_are_disjoint_and_as_many_as_there_can_be(sizes, asked, seed):
    leaves = leaves_of(*sizes)
    leaf_of = leaf_of_nodes(leaves)
    nodes = draws.pairs_inside(leaves, asked, draws.generator(seed))

    assert len(set(nodes)) == len(nodes)
    assert all(leaf_of[a] == leaf_of[b] for a, b in zip(nodes[::2], nodes[1::2], strict=True))
    assert len(nodes) // 2 == min(asked, sum(size // 2 for size in sizes))


def test_all_that_is_compared_runs_over_the_same_nodes():
    steps = next_steps(design(repeats=1))
    for n in range(2, 9):
        rings = [s for s in of(steps, ScalePattern.ALL_REDUCE) if s.asked == n and s.growth == 0]
        assert len({frozenset(s.nodes) for s in rings}) == 1
        assert Counter(s.order for s in rings) == (
            {NodeOrder.CONTIGUOUS: 1}
            if n <= 4
            else {NodeOrder.CONTIGUOUS: 1, NodeOrder.ROUND_ROBIN: 1, NodeOrder.RANDOM: 3}
        )


def test_every_number_of_pairs_is_drawn_eight_times_anew():
    steps = next_steps(design(repeats=2))
    pairs = of(steps, ScalePattern.PAIRS)
    leaf_of = leaf_of_nodes(LEAVES)

    assert Counter((s.repeat, s.asked) for s in pairs) == {
        (r, m): 8 for r in range(2) for m in range(1, 5)
    }
    assert all(flows_per_uplink(s, leaf_of) == s.asked == s.m for s in pairs)
    assert len({s.nodes for s in pairs}) > 50
    control = of(steps, ScalePattern.INSIDE)
    assert {s.m for s in control} == {1, 2, 3, 4}
    assert all(flows_per_uplink(s, leaf_of) == 0 for s in control)


def test_nodes_are_added_in_two_sequences_in_leaf_order():
    steps = of(next_steps(design(repeats=1)), ScalePattern.ALL_REDUCE, NodeOrder.CONTIGUOUS)
    leaf_of = leaf_of_nodes(LEAVES)
    by_growth = {g: {s.asked: s.nodes for s in steps if s.growth == g} for g in (0, 1)}

    assert by_growth[0][8] == tuple(range(8))
    for grown in by_growth.values():
        assert all(grown[n] == grown[8][:n] for n in range(2, 9))
        assert all(flows_per_uplink(s, leaf_of) <= 1 for s in steps)
    assert by_growth[0][8] != by_growth[1][8]


def test_patterns_are_interleaved_in_an_order_of_the_seed():
    steps = next_steps(design(repeats=2))
    first = [s.pattern for s in steps if s.repeat == 0]
    changes = sum(a is not b for a, b in pairwise(first))

    assert [s.repeat for s in steps] == sorted(s.repeat for s in steps)
    assert changes > len(first) / 3
    assert steps == next_steps(design(repeats=2))
    assert steps != next_steps(design(repeats=2, seed=1))


def test_the_second_size_runs_once_a_step():
    steps = next_steps(design(repeats=2, small_bytes=SMALL))
    small = [s for s in steps if s.size_bytes == SMALL]
    large = {msgspec.structs.replace(s, size_bytes=SMALL) for s in steps if s not in small}

    assert {(s.repeat, s.seed) for s in small} == {(0, 0)}
    assert set(small) <= large


def test_a_plan_that_ran_is_through():
    steps = next_steps(design())
    done = MadeFabric(LEAVES, 20.0, noise=0.01).run(steps)

    assert next_steps(design(), done) == ()


def test_what_is_left_follows():
    steps = next_steps(design())
    done = MadeFabric(LEAVES, 20.0).run(steps[:100])

    assert set(next_steps(design(), done)) == set(steps[100:])


def test_the_drop_is_bisected_until_neighbours_stand_around_it():
    leaves = leaves_of(64, 64)
    asked = design(leaves, repeats=1, redraws=2, patterns=(ScalePattern.PAIRS, ScalePattern.INSIDE))
    fabric = MadeFabric(leaves, 345.0, noise=0.005)
    done, batches = fabric.run(next_steps(asked)), []
    while steps := next_steps(asked, done):
        batches.append({s.asked for s in steps})
        done += fabric.run(steps)

    # The knee is at 34.5, between 31 and 38 of the ladder.
    assert batches == [{34}, {36}, {35}]


def test_without_a_knee_nothing_is_bisected():
    leaves = leaves_of(20, 20)
    asked = design(leaves, repeats=1, patterns=(ScalePattern.PAIRS, ScalePattern.INSIDE))
    done = MadeFabric(leaves, 400.0, noise=0.01).run(next_steps(asked))

    assert next_steps(asked, done) == ()


def test_a_lost_node_is_planned_around():
    steps = next_steps(design(repeats=1))
    done = [
        Observation(step=s, status=Status.NODE_LOST)
        if 3 in s.nodes
        else Observation(step=s, rate_gb_per_s=1.0)
        for s in steps
    ]
    again = next_steps(design(repeats=1), done, frozenset({3}))

    assert again
    assert all(3 not in s.nodes for s in again)
    # Pairs of four a leaf are no more.
    assert max(s.asked for s in of(again, ScalePattern.PAIRS)) == 3


def test_what_failed_without_a_lost_node_is_not_run_again():
    steps = next_steps(design(repeats=1))
    done = [Observation(step=s, status=Status.HUNG) for s in steps]

    assert next_steps(design(repeats=1), done) == ()


def test_unknown_leaves_get_random_orders_alone():
    asked = ScaleDesign(nodes=tuple(range(6)), size_bytes=LARGE, repeats=1)
    steps = next_steps(asked)

    assert {s.order for s in steps} == {NodeOrder.RANDOM}
    assert {s.pattern for s in steps} == {
        ScalePattern.HALF,
        ScalePattern.ALL_REDUCE,
        ScalePattern.ALL_TO_ALL,
    }
    rings = {(s.growth, s.asked): set(s.nodes) for s in of(steps, ScalePattern.ALL_REDUCE)}
    # Each seed adds nodes in a sequence of its own.
    assert all(rings[g, n] < rings[g, n + 1] for g in range(3) for n in range(2, 6))
    assert len({frozenset(rings[g, 3]) for g in range(3)}) > 1


def test_one_node_alone_has_no_halves():
    steps = next_steps(design(repeats=1, one_node=True))

    assert {s.pattern for s in steps if s.n == 1} == {
        ScalePattern.ALL_REDUCE,
        ScalePattern.ALL_TO_ALL,
    }


@pytest.mark.parametrize(("repeats", "asks"), [(1, False), (20, True)])
def test_the_estimate_counts_all_nodes_that_are_held(repeats, asks):
    steps = next_steps(design(repeats=repeats))
    found = estimate(steps, nodes=8, step_s=1.5, start_s=4.0)

    assert found.seconds == pytest.approx(1.5 * len(steps) + 4.0 * repeats)
    assert found.node_hours == pytest.approx(8 * found.seconds / 3600)
    assert found.asks is asks


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "either leaves or nodes"),
        ({"leaves": LEAVES, "nodes": (0, 1)}, "either leaves or nodes"),
        ({"leaves": ((0, 1), (1, 2))}, "node 1 is in leaf 0 and in leaf 1"),
        ({"nodes": (3,)}, "scale has 1 nodes"),
        ({"leaves": LEAVES, "repeats": 0}, "repeats is 0"),
        ({"leaves": LEAVES, "step": 0}, "step is 0"),
        ({"leaves": LEAVES, "patterns": ()}, "no pattern"),
    ],
)
def test_what_cannot_be_is_said(fields, words):
    with pytest.raises(UsageError) as raised:
        next_steps(ScaleDesign(**fields, size_bytes=LARGE))

    assert words in str(raised.value)


def test_a_pattern_is_found_by_name():
    assert pattern_of("half") is ScalePattern.HALF
    with pytest.raises(UsageError, match="did you mean 'pairs'"):
        pattern_of("pair")
