"""What a step of `scale` runs: groups, cases, how they are measured, and their names."""

from __future__ import annotations

import pytest
from scale_trials import SIZE, place, step

from collbench.analyze.scale_types import NodeOrder, ScalePattern
from collbench.model import Mode, Pattern, Policy
from collbench.plan.scale_cases import MESSAGES, ScaleRounds


def groups_of(made) -> list[tuple[int, ...]]:
    return [group.ranks for group in made.groups]


@pytest.mark.parametrize(
    ("asked", "gpus", "groups"),
    [
        (step(), 1, [(0, 4), (1, 5)]),
        (step(), 2, [(0, 8), (1, 9), (2, 10), (3, 11)]),
        (step(ScalePattern.HALF, (0, 1, 2, 3)), 1, [(0, 2), (1, 3)]),
        # The last of an odd number rests.
        (step(ScalePattern.HALF, (0, 1, 2, 3, 4)), 1, [(0, 2), (1, 3)]),
        (step(ScalePattern.ALL_REDUCE, (2, 0, 1)), 1, [(2, 0, 1)]),
        (step(ScalePattern.ALL_REDUCE, (2, 0)), 2, [(4, 5, 0, 1)]),
        (step(ScalePattern.ALL_TO_ALL, (3,)), 2, [(6, 7)]),
    ],
)
def test_the_groups_of_a_step(asked, gpus, groups):
    made = ScaleRounds(place(gpus)).of(asked, 7)

    assert groups_of(made) == groups
    assert (made.number, made.repeat) == (7, asked.repeat)
    assert len({group.name for group in made.groups}) == len(groups)


def test_nodes_with_unlike_gpus_exchange_on_the_rails_that_both_have():
    uneven = place(2, ranks={0: (0, 1, 2), 4: (3,)})

    assert groups_of(ScaleRounds(uneven).of(step(nodes=(0, 4)), 0)) == [(0, 3)]


def test_pairs_exchange_and_collectives_span_the_nodes():
    rounds = ScaleRounds(place(2))
    (pair, *_), (ring,) = (
        rounds.of(step(), 0).groups,
        rounds.of(step(ScalePattern.ALL_REDUCE), 1).groups,
    )
    (exchange,), (whole,) = pair.cases, ring.cases

    assert (exchange.collective, exchange.world_size, exchange.nodes) == ("send_recv", 2, 2)
    assert (whole.collective, whole.world_size, whole.nodes) == ("all_reduce", 8, 4)
    assert (whole.mode, whole.pattern) == (Mode.EAGER, Pattern.BACK_TO_BACK)
    assert whole.setting == {"NCCL_ALGO": "Ring"}
    assert {exchange.size_bytes, whole.size_bytes} == {SIZE}


def test_a_name_tells_the_step_and_how_many_groups_ran():
    asked = step(order=NodeOrder.RANDOM, seed=3, growth=1)
    names = [group.name for group in ScaleRounds(place()).of(asked, 0).groups]

    assert names == [f"pairs/random.3/grown1/at4/{SIZE}B/{k}.rail0.of2" for k in range(2)]


def test_all_groups_are_measured_for_the_same_time_long_enough_for_a_p95():
    policy = ScaleRounds(place()).of(step(), 0).policy

    assert not policy.proof
    assert policy.window.timed_s == pytest.approx(MESSAGES * 0.02)
    assert policy.window.lead_s == policy.window.tail_s == pytest.approx(MESSAGES * 0.01)
    assert MESSAGES >= 20


@pytest.mark.parametrize(
    ("fields", "wanted", "checked"),
    [
        ({}, True, True),
        ({"seed": 1}, True, False),
        ({"repeat": 1}, True, False),
        ({}, False, False),
    ],
)
def test_data_are_checked_in_the_first_draw(fields, wanted, checked):
    rounds = ScaleRounds(place(policy=Policy(check=wanted)))

    assert rounds.of(step(**fields), 0).policy.check is checked


def test_a_model_needs_no_calls_before_and_after_the_window():
    window = ScaleRounds(place(backend="simulated")).of(step(), 0).policy.window

    assert (window.lead_s, window.tail_s) == (0.0, 0.0)
    assert window.timed_s == pytest.approx(MESSAGES * 0.02)
