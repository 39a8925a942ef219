"""From trials back to steps: what a round asked, what it gave, and what it leaves open."""

from __future__ import annotations

import msgspec
import pytest
from pair_states import made_node
from scale_trials import SIZE, answer, place, step

from collbench.analyze.scale_rows import breaking_nodes, observations_of, unfinished_rounds
from collbench.analyze.scale_types import NodeOrder, ScalePattern
from collbench.model import RankPlace, Status, Topology
from collbench.plan.scale_cases import ScaleRounds


def topology(gpus: int = 1, nodes: int = 8) -> Topology:
    ranks = [
        RankPlace(rank=n * gpus + g, node=f"node{n}", local_rank=g, gpu=g)
        for n in range(nodes)
        for g in range(gpus)
    ]
    return Topology(nodes=[made_node(f"node{n}") for n in range(nodes)], ranks=ranks)


def trials_of(asked, number: int = 0, gpus: int = 1, rates=None, **fields):
    """One trial a group; without rates 10, 11, 12 ... GB/s."""
    made = ScaleRounds(place(gpus)).of(asked, number)
    rates = rates or [10.0 + k for k in range(len(made.groups))]
    return [
        answer(made, group, rate, **fields) for group, rate in zip(made.groups, rates, strict=True)
    ]


@pytest.mark.parametrize(
    "asked",
    [
        step(order=NodeOrder.RANDOM, seed=5),
        step(ScalePattern.INSIDE, order=NodeOrder.RANDOM, repeat=2),
        step(ScalePattern.HALF, (0, 1, 4, 5)),
        step(ScalePattern.ALL_REDUCE, (3, 0, 2), growth=1),
        step(ScalePattern.ALL_TO_ALL, (6,)),
    ],
)
def test_a_step_comes_back_as_it_was_asked(asked):
    (found,) = observations_of(topology(), trials_of(asked))

    assert found.step == asked
    assert found.rail is None
    assert found.rate_gb_per_s == 10.0


@pytest.mark.parametrize("pattern", [ScalePattern.PAIRS, ScalePattern.HALF])
def test_pairs_and_halves_have_a_rate_each_and_the_slowest_ones_time(pattern):
    (found,) = observations_of(topology(), trials_of(step(pattern), rates=[12.0, 10.0]))

    assert found.pair_rates_gb_per_s == (12.0, 10.0)
    assert found.rate_gb_per_s == 10.0
    assert found.time_us == pytest.approx(SIZE / 10.0 / 1e3)
    assert found.p95_us == pytest.approx(1.02 * SIZE / 10.0 / 1e3)


def test_rails_stand_apart():
    found = observations_of(topology(2), trials_of(step(), gpus=2))

    assert [one.rail for one in found] == [0, 1]
    assert [one.pair_rates_gb_per_s for one in found] == [(10.0, 12.0), (11.0, 13.0)]
    assert {one.step for one in found} == {step()}


@pytest.mark.parametrize("status", [Status.HUNG, Status.DATA_WRONG, Status.NODE_LOST])
def test_one_pair_that_broke_leaves_the_step_without_a_rate(status):
    good, bad = trials_of(step())
    (found,) = observations_of(topology(), [good, msgspec.structs.replace(bad, status=status)])

    assert (found.status, found.rate_gb_per_s, found.usable) == (status, None, False)
    assert found.step == step()


def test_a_round_that_was_torn_off_has_no_rate():
    """Two pairs of which one is kept: at how many flows it ran is not known any more."""
    (found,) = observations_of(topology(), trials_of(step())[:1])

    assert (found.status, found.usable) == (Status.SKIPPED, False)
    assert unfinished_rounds(trials_of(step(), 3)[:1]) == {3}


def test_what_ran_again_counts_as_it_came_out_last():
    lost = trials_of(step(), 0, status=Status.NODE_LOST)
    other = trials_of(step(ScalePattern.HALF), 1)
    again = trials_of(step(nodes=(0, 4, 2, 6)), 2)
    found = observations_of(topology(), [*lost, *other, *again])

    assert [one.step.pattern for one in found] == [ScalePattern.HALF, ScalePattern.PAIRS]
    assert found[1].status is Status.OK
    assert found[1].step.nodes == (0, 4, 2, 6)


def test_draws_repeats_and_sizes_are_different_questions():
    asked = [step(), step(seed=1), step(repeat=1), msgspec.structs.replace(step(), size_bytes=8)]
    trials = [t for k, one in enumerate(asked) for t in trials_of(one, k)]

    assert [one.step for one in observations_of(topology(), trials)] == asked


@pytest.mark.parametrize(
    ("status", "open_"),
    [
        (Status.SKIPPED, True),
        (Status.NODE_LOST, True),
        (Status.HUNG, False),
        (Status.FAILED, False),
        (Status.OK, False),
    ],
)
def test_what_was_left_out_is_unfinished_and_what_failed_is_not(status, open_):
    first, second = trials_of(step(), 4)
    trials = [first, msgspec.structs.replace(second, status=status)]

    assert unfinished_rounds(trials) == ({4} if open_ else set())


def test_other_rounds_are_nothing_of_it():
    probe = trials_of(step())[0]
    assert probe.group is not None
    named = msgspec.structs.replace(probe.group, name="probe/node0-node4")
    other = msgspec.structs.replace(probe, group=named)

    assert observations_of(topology(), [other]) == []
    assert unfinished_rounds([other]) == frozenset()


def test_a_node_that_three_rounds_are_laid_to_is_named():
    twice = [t for n in range(2) for t in trials_of(step(), n, culprit="node3")]
    thrice = [t for n in range(3) for t in trials_of(step(), n, culprit="node5")]

    assert breaking_nodes(twice) == {}
    assert breaking_nodes([*twice, *thrice]) == {"node5": 3}
