"""Rounds of pairs: who meets whom, how often, and what a round loads."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.plan.pair_matchings import circle, circle_length
from collbench.plan.pairwise import RoundKind, confirmation_rounds, pair_rounds


def met(schedule):
    return Counter(tuple(sorted(pair)) for one in schedule.rounds for pair in one.tuples())


def assert_disjoint(rounds):
    for one in rounds:
        ends = one.pairs.ravel().tolist()
        assert len(ends) == len(set(ends))


def leaves_of(*sizes):
    return [leaf for leaf, size in enumerate(sizes) for _ in range(size)]


def test_the_circle_of_four_by_hand():
    members = np.array([7, 8, 9, 5], np.int32)
    rounds = circle(members, np.arange(circle_length(4)))

    assert [one.tolist() for one in rounds] == [
        [[5, 7], [8, 9]],
        [[5, 8], [9, 7]],
        [[5, 9], [7, 8]],
    ]


@pytest.mark.parametrize(("count", "rounds"), [(0, 0), (1, 0), (2, 1), (3, 3), (6, 5), (7, 7)])
def test_length_of_the_circle(count, rounds):
    assert circle_length(count) == rounds


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 13, 64])
@pytest.mark.parametrize("serial", [False, True])
def test_all_pairs_meet_once(nodes, serial):
    schedule = pair_rounds(nodes, seed=3, serial=serial)

    assert_disjoint(schedule.rounds)
    assert met(schedule) == Counter(combinations(range(nodes), 2))
    assert schedule.share_tried == 1
    assert {one.kind for one in schedule.rounds} == {RoundKind.ANY}
    wanted = nodes * (nodes - 1) // 2 if serial else nodes - 1 + nodes % 2
    assert len(schedule.rounds) == wanted
    assert all(one.alone for one in schedule.rounds) is (serial or nodes <= 3)


@pytest.mark.parametrize(
    "sizes", [(4, 4), (3, 3), (4, 4, 4), (2, 3, 5), (1, 6), (1, 1, 1), (8, 3, 3, 1)]
)
@pytest.mark.parametrize("most", [None, 1, 2])
def test_leaves_meet_inside_first_and_then_each_other(sizes, most):
    leaves = leaves_of(*sizes)
    schedule = pair_rounds(len(leaves), leaves, across_at_once=most, seed=1)

    assert_disjoint(schedule.rounds)
    assert met(schedule) == Counter(combinations(range(len(leaves)), 2))
    kinds = [one.kind for one in schedule.rounds]
    assert kinds == sorted(kinds, key=[RoundKind.INSIDE, RoundKind.ACROSS].index)
    for one in schedule.rounds:
        crosses = {leaves[a] != leaves[b] for a, b in one.tuples()}
        assert crosses == {one.kind is RoundKind.ACROSS}
        if one.kind is RoundKind.ACROSS and most is not None:
            load = Counter(leaves[node] for node in one.pairs.ravel())
            assert max(load.values()) <= most


@pytest.mark.parametrize(
    ("leaves", "size", "most"), [(2, 4, None), (4, 8, None), (4, 8, 3), (6, 2, 1)]
)
def test_every_leaf_has_the_same_load_between_leaves(leaves, size, most):
    numbers = leaves_of(*[size] * leaves)
    schedule = pair_rounds(len(numbers), numbers, across_at_once=most, seed=2)
    across = [one for one in schedule.rounds if one.kind is RoundKind.ACROSS]
    loads = [Counter(numbers[node] for node in one.pairs.ravel()) for one in across]

    assert all(len(load) == leaves and len(set(load.values())) == 1 for load in loads)
    full = min(size, most or size)
    assert sum(set(load.values()) != {full} for load in loads) <= leaves - 1


def test_inside_rounds_hold_all_leaves_at_once():
    schedule = pair_rounds(12, leaves_of(4, 4, 4), seed=5)
    inside = [one for one in schedule.rounds if one.kind is RoundKind.INSIDE]

    assert [len(one.pairs) for one in inside] == [6, 6, 6]


@pytest.mark.parametrize(("sizes", "rounds"), [((32,) * 4, 2), ((33,) * 4, 3), ((16, 31, 40), 3)])
def test_above_64_nodes_two_matchings_inside_and_one_across(sizes, rounds):
    leaves = leaves_of(*sizes)
    schedule = pair_rounds(len(leaves), leaves, seed=8)
    inside = [one for one in schedule.rounds if one.kind is RoundKind.INSIDE]
    partners = Counter(node for one in inside for node in one.pairs.ravel().tolist())

    assert_disjoint(schedule.rounds)
    assert len(inside) == rounds
    # Who had a rest meets one more; its partner has three then.
    assert set(partners) == set(range(len(leaves)))
    assert min(partners.values()) == 2
    assert set(met(schedule).values()) == {1}
    (across,) = (one for one in schedule.rounds if one.kind is RoundKind.ACROSS)
    assert all(leaves[a] != leaves[b] for a, b in across.tuples())
    alone = set(range(len(leaves))) - set(across.pairs.ravel().tolist())
    assert len({leaves[node] for node in alone}) <= 1
    assert len(across.pairs) >= 0.9 * min(sum(sizes) // 2, sum(sizes) - max(sizes))


def test_a_matching_across_lets_a_leaf_meet_many_others():
    leaves = leaves_of(*[8] * 16)
    schedule = pair_rounds(128, leaves, seed=4)
    (across,) = (one for one in schedule.rounds if one.kind is RoundKind.ACROSS)
    others = {leaf: set() for leaf in range(16)}
    for a, b in across.tuples():
        others[leaves[a]].add(leaves[b])
        others[leaves[b]].add(leaves[a])

    assert {len(met_) for met_ in others.values()} == {8}


def test_a_matching_across_is_throttled_to_the_uplink():
    leaves = leaves_of(*[16] * 8)
    schedule = pair_rounds(128, leaves, across_at_once=4, seed=4)
    across = [one for one in schedule.rounds if one.kind is RoundKind.ACROSS]

    assert sum(len(one.pairs) for one in across) == 64
    for one in across:
        assert max(Counter(leaves[node] for node in one.pairs.ravel()).values()) <= 4


def test_shares_of_paths_tried():
    schedule = pair_rounds(128, leaves_of(*[32] * 4), seed=1)

    assert (schedule.paths, schedule.paths_across) == (8128, 6144)
    assert schedule.tried() == 128 + 64
    assert schedule.share_tried == 192 / 8128
    assert schedule.share_across_tried == 64 / 6144
    assert pair_rounds(4, seed=1).share_across_tried == 1


@pytest.mark.parametrize(("rounds", "inside", "across"), [(1, 1, 1), (4, 4, 2), ("all", 7, 8)])
def test_rounds_asked_for(rounds, inside, across):
    schedule = pair_rounds(16, leaves_of(8, 8), rounds=rounds, seed=1)
    kinds = Counter(one.kind for one in schedule.rounds)

    assert kinds == {RoundKind.INSIDE: inside, RoundKind.ACROSS: across}


def test_unknown_leaves_above_64_can_go_few_at_a_time():
    plain = pair_rounds(100, seed=6)
    few = pair_rounds(100, at_once=8, seed=6)

    assert len(plain.rounds) == 3
    assert len(few.rounds) == 3 * 7
    assert max(len(one.pairs) for one in few.rounds) == 8
    assert met(few) == met(plain)


def test_the_seed_decides():
    once, again, other = (pair_rounds(16, leaves_of(8, 8), seed=seed) for seed in (1, 1, 2))

    def order(schedule):
        return [one.tuples() for one in schedule.rounds]

    assert order(once) == order(again) != order(other)
    assert (once.seed, other.seed) == (1, 2)


def test_confirmation_packs_what_is_disjoint():
    rounds = confirmation_rounds([(0, 1), (2, 3), (1, 4), (5, 6)], [(0, 7)], serial=False)

    assert [one.tuples() for one in rounds] == [((0, 1), (2, 3), (5, 6)), ((1, 4),), ((0, 7),)]
    assert {one.kind for one in rounds} == {RoundKind.CONFIRM}


def test_serial_confirmation_is_one_by_one():
    rounds = confirmation_rounds([(0, 1), (2, 3)], [(0, 7)], serial=True)

    assert [one.tuples() for one in rounds] == [((0, 1),), ((2, 3),), ((0, 7),)]
    assert confirmation_rounds([], serial=False) == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 1}, "1 node cannot pair; give 2 or more"),
        ({"nodes": 4, "leaves": [0, 1]}, "leaves of 2 nodes for 4; give one a node"),
        ({"nodes": 4, "rounds": 0}, "--rounds 0: allowed: auto, all, or a number above 0"),
        ({"nodes": 4, "rounds": "few"}, "--rounds few: allowed: auto, all, or a number above 0"),
        ({"nodes": 4, "across_at_once": 0}, "across_at_once 0: allowed: 1 and more"),
        ({"nodes": 4, "at_once": -1}, "at_once -1: allowed: 1 and more"),
    ],
)
def test_what_cannot_be(arguments, message):
    with pytest.raises(UsageError) as caught:
        pair_rounds(**arguments)

    assert str(caught.value) == message
