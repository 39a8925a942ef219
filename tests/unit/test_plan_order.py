"""The order of a repeat: what shares a process or a communicator stands together."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st
from setting_cases import VARIABLES, made_case, swept_by

from collbench.nccl.settings import needs_of
from collbench.plan.order import in_blocks

SETTINGS = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VARIABLES.items()}
)
MIXES = st.lists(SETTINGS, max_size=24).map(
    lambda settings: [made_case(number, setting) for number, setting in enumerate(settings, 1)]
)
SHUFFLES = st.none() | st.integers(0, 99)


def ordered(cases, seed=None):
    shuffle = None if seed is None else random.Random(seed)
    return in_blocks(cases, swept_by(cases), shuffle)


def blocks(cases, depth):
    """The runs of neighbours that share a zygote (1), also workers (2), also a communicator (3)."""
    swept = swept_by(list(cases))

    def shared(case):
        needs = needs_of(case.setting, swept)
        return (needs.zygote, needs.worker, needs.communicator)[:depth]

    return [(key, list(group)) for key, group in itertools.groupby(cases, shared)]


@given(MIXES, SHUFFLES)
def test_every_block_is_contiguous(cases, seed):
    found = ordered(cases, seed)

    for depth in (1, 2, 3):
        keys = [key for key, _ in blocks(found, depth)]
        assert len(set(keys)) == len(keys)


@given(MIXES, SHUFFLES)
def test_no_case_is_lost_or_doubled(cases, seed):
    assert sorted(ordered(cases, seed), key=lambda case: case.count) == cases


@given(MIXES)
def test_without_a_shuffle_each_block_keeps_the_reading_order_and_the_first_case_leads(cases):
    found = ordered(cases)

    for _, block in blocks(found, 3):
        numbers = [case.count for case in block]
        assert numbers == sorted(numbers)
    for depth in (1, 2, 3):
        for _, outer in blocks(found, depth - 1):
            firsts = [block[0].count for _, block in blocks(outer, depth)]
            assert firsts == sorted(firsts)


@given(MIXES, st.integers(0, 99))
def test_a_seed_gives_the_same_order_again(cases, seed):
    assert ordered(cases, seed) == ordered(cases, seed)


def test_without_settings_the_reading_order_stays_as_it_is():
    cases = [made_case(number, {}) for number in range(1, 40)]

    assert ordered(cases) == tuple(cases)


def test_without_settings_a_shuffle_is_the_seeds_own():
    cases = [made_case(number, {}) for number in range(1, 40)]
    expected = list(cases)
    random.Random(5).shuffle(expected)

    assert ordered(cases, 5) == tuple(expected)


def test_a_shuffle_draws_the_order_of_blocks_as_well_as_of_cases():
    cases = [
        made_case(number, {"NCCL_BUFFSIZE": size, "NCCL_ALGO": algorithm})
        for number, (size, algorithm, _) in enumerate(
            itertools.product(("1", "2", "3", "4"), ("Ring", "Tree"), range(3)), 1
        )
    ]
    orders = [ordered(cases, seed) for seed in range(20)]

    def drawn(what):
        return len({tuple(what(found)) for found in orders})

    first = cases[0].setting
    assert drawn(lambda found: [key for key, _ in blocks(found, 2)]) > 5
    assert (
        drawn(
            lambda found: [
                case.setting["NCCL_ALGO"]
                for case in found
                if case.setting["NCCL_BUFFSIZE"] == first["NCCL_BUFFSIZE"]
            ]
        )
        == 2
    )
    assert drawn(lambda found: [case.count for case in found if case.setting == first]) > 3
