"""The course of a `scale` run, with made trials in the place of an engine's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from pair_states import made_node
from scale_fabric import MadeFabric, leaves_of
from scale_trials import answer, place

from collbench.analyze.scale_types import ScalePattern, Step
from collbench.engine.protocol import Round
from collbench.model import NodeState, RankPlace, Status, Topology, Trial
from collbench.plan.message_size import PROBE_BYTES_ELSE
from collbench.plan.pair_cases import PairRounds
from collbench.plan.scale import next_steps
from collbench.plan.scale_course import SMALLER, ScaleCourse, planned_trials
from collbench.plan.scale_design import ScaleDesign

TWO = leaves_of(4, 4)
SIZE = 2**26
DESIGN = ScaleDesign(
    leaves=TWO,
    size_bytes=SIZE,
    patterns=(ScalePattern.PAIRS, ScalePattern.INSIDE, ScalePattern.ALL_REDUCE),
    repeats=1,
    redraws=2,
    seed=3,
)


@dataclass
class Cluster:
    """Nodes with one GPU each, answered by a made fabric."""

    design: ScaleDesign = DESIGN
    lost: set[int] = field(default_factory=set)
    status: Callable[[tuple[int, ...]], Status] = lambda _ranks: Status.OK
    culprit: int | None = None

    @property
    def topology(self) -> Topology:
        count = 1 + max(self.design.all_nodes)
        return Topology(
            nodes=[
                made_node(f"node{n}", state=NodeState.LOST if n in self.lost else NodeState.PRESENT)
                for n in range(count)
            ],
            ranks=[RankPlace(rank=n, node=f"node{n}", local_rank=0, gpu=0) for n in range(count)],
        )

    def course(self, *, probe: bool = False) -> ScaleCourse:
        return ScaleCourse(
            place=place(nodes=1 + max(self.design.all_nodes)),
            design=self.design,
            probe=probe,
            topology=lambda: self.topology,
        )

    def trials(self, round_: Round) -> list[Trial]:
        """One a group; who takes part in what breaks is its culprit, if there is one."""
        found = []
        for group in round_.groups:
            status = self.status(group.ranks)
            blamed = f"node{self.culprit}" if status is not Status.OK and self.culprit else None
            rate = 10.0 if status is Status.OK else None
            found.append(answer(round_, group, rate, status=status, culprit=blamed))
        return found

    def run(self, course: ScaleCourse, most: int | None = None) -> list[Round]:
        """Runs so many rounds of a course, or all; returns them."""
        done: list[Round] = []
        for round_ in course.rounds():
            if len(done) == most:
                break
            for trial in self.trials(round_):
                course.hear(trial)
            done.append(round_)
            assert len(done) < 2000, "it does not end"
        return done


def ranks_in(rounds: list[Round]) -> set[int]:
    return {rank for one in rounds for group in one.groups for rank in group.ranks}


def names_in(rounds: list[Round]) -> list[tuple[str, int]]:
    return [(group.name, one.repeat) for one in rounds for group in one.groups]


def test_every_step_runs_once_in_rounds_of_rising_number():
    cluster = Cluster()
    rounds = cluster.run(cluster.course())

    assert len(rounds) == len(next_steps(DESIGN))
    assert [one.number for one in rounds] == list(range(len(rounds)))
    assert len(set(names_in(rounds))) == len(names_in(rounds))
    assert all(one.groups for one in rounds)


@pytest.mark.parametrize(
    "design",
    [
        # One leaf, one node alone too, unknown leaves, leaves with one node.
        msgspec.structs.replace(DESIGN, leaves=leaves_of(5), one_node=True),
        ScaleDesign(nodes=tuple(range(5)), size_bytes=SIZE, one_node=True, repeats=1),
        ScaleDesign(leaves=leaves_of(1, 1), size_bytes=SIZE, one_node=True, repeats=1),
        ScaleDesign(leaves=leaves_of(4, 1, 3), size_bytes=SIZE, one_node=True, repeats=1),
        ScaleDesign(nodes=(0, 1), size_bytes=SIZE, repeats=1),
    ],
    ids=["one leaf", "unknown", "two alone", "one alone", "two"],
)
def test_no_round_is_without_groups(design):
    cluster = Cluster(design)
    rounds = cluster.run(cluster.course())

    assert rounds
    assert all(len(group.ranks) >= 1 for one in rounds for group in one.groups)
    assert all(one.groups for one in rounds)


def test_in_one_leaf_the_control_runs_all_the_same():
    design = msgspec.structs.replace(DESIGN, leaves=leaves_of(6))
    cluster = Cluster(design)
    names = {name.split("/")[0] for name, _ in names_in(cluster.run(cluster.course()))}

    assert names == {"inside", "all_reduce"}


def test_a_node_that_is_lost_is_planned_around():
    cluster = Cluster()
    course, done = cluster.course(), []
    for round_ in course.rounds():
        for trial in cluster.trials(round_):
            course.hear(trial)
        done.append(round_)
        if len(done) == 5:
            cluster.lost = {2}
        assert len(done) < 2000, "it does not end"

    assert 2 not in ranks_in(done[5:])
    # Whatever was asked has run: all pairs that three nodes of a leaf can make.
    pairs = [one.step for one in course.observations() if one.step.pattern is ScalePattern.PAIRS]
    assert {step.asked for step in pairs} >= {1, 2, 3}
    assert all(one.usable for one in course.observations())


def test_the_steps_that_a_lost_node_broke_run_again_without_it():
    cluster = Cluster()
    course, broken = cluster.course(), None
    for round_ in course.rounds():
        if broken is None and 2 in ranks_in([round_]) and len(ranks_in([round_])) == 4:
            cluster.lost, broken = {2}, round_
            for group in round_.groups:
                course.hear(answer(round_, group, None, status=Status.NODE_LOST))
            continue
        for trial in cluster.trials(round_):
            course.hear(trial)

    assert broken is not None
    asked = broken.groups[0].name.rpartition("/")[0]
    again = [t for t in course.trials.values() if t.group and t.group.name.startswith(asked)]
    assert {t.status for t in again if t.group.round > broken.number} == {Status.OK}
    assert all(2 not in t.group.ranks for t in again if t.group.round > broken.number)


@pytest.mark.parametrize("status", [Status.HUNG, Status.FAILED, Status.CRASHED, Status.SKIPPED])
def test_what_failed_for_another_reason_is_not_repeated(status):
    cluster = Cluster(status=lambda ranks: status if 5 in ranks else Status.OK)
    rounds = cluster.run(cluster.course())

    assert len(rounds) == len(next_steps(DESIGN))


def test_a_node_that_breaks_what_it_takes_part_in_is_left_out():
    cluster = Cluster(status=lambda ranks: Status.HUNG if 5 in ranks else Status.OK, culprit=5)
    course = cluster.course()
    rounds = cluster.run(course)
    with_it = [one.number for one in rounds if 5 in ranks_in([one])]

    assert len(with_it) == 3
    assert len(rounds) - 1 > max(with_it)
    assert {one.step.asked for one in course.observations() if one.usable} >= {2, 3, 7}


def test_a_round_of_which_nothing_is_heard_comes_once():
    course = Cluster().course()
    rounds = [one for one, _ in zip(course.rounds(), range(2000), strict=False)]

    assert len(rounds) == len(next_steps(DESIGN))


@pytest.mark.parametrize("done", [0, 1, 7, 30])
@pytest.mark.parametrize("probe", [True, False])
def test_a_run_that_goes_on_does_what_is_left(done, probe):
    cluster = Cluster()
    whole = cluster.course(probe=probe)
    cluster.run(whole)
    begun = cluster.course(probe=probe)
    cluster.run(begun, most=done)
    resumed = cluster.course(probe=probe)
    for trial in begun.trials.values():
        resumed.hear(trial)
    rest = cluster.run(resumed)

    ids = {one.trial_id(group, group.cases[0]) for one in rest for group in one.groups}
    assert not ids & set(begun.trials)
    assert [one.step for one in sorted_steps(resumed)] == [one.step for one in sorted_steps(whole)]
    assert cluster.run(resumed) == []


def sorted_steps(course: ScaleCourse):
    return sorted(course.observations(), key=lambda one: repr(one.step))


@pytest.mark.parametrize(
    ("status", "comes_again"),
    [
        (Status.SKIPPED, True),
        (Status.NODE_LOST, True),
        (Status.HUNG, False),
        (Status.FAILED, False),
        (Status.OK, False),
    ],
)
def test_what_was_left_out_before_comes_again_and_what_tells_something_does_not(
    status, comes_again
):
    cluster = Cluster()
    begun, resumed = cluster.course(), cluster.course()
    first = next(begun.rounds())
    for group in first.groups:
        resumed.hear(answer(first, group, 1.0 if status is Status.OK else None, status=status))
    rounds = cluster.run(resumed)

    name = first.groups[0].name
    assert (name in dict(names_in(rounds))) is comes_again
    assert rounds[0].number == 1


def test_a_round_that_was_torn_off_runs_again_as_a_whole():
    cluster = Cluster()
    begun, resumed = cluster.course(), cluster.course()
    torn = next(one for one in begun.rounds() if len(one.groups) > 1)
    resumed.hear(cluster.trials(torn)[0])
    again = [one for one in cluster.run(resumed) if one.groups[0].name == torn.groups[0].name]

    assert [one.groups for one in again] == [torn.groups]
    assert again[0].number > torn.number
    assert all(one.usable for one in resumed.observations())


@pytest.mark.parametrize(
    ("rate", "status", "size"),
    [
        # 20 ms at 10 GB/s are 200 MB: the next power of two.
        (10.0, Status.OK, 2**28),
        (0.5, Status.OK, 2**24),
        (None, Status.HUNG, PROBE_BYTES_ELSE),
    ],
)
def test_a_probe_chooses_the_size(rate, status, size):
    course = Cluster().course(probe=True)
    rounds = course.rounds()
    probe = next(rounds)
    for group in probe.groups:
        course.hear(answer(probe, group, rate, status=status))
    next(rounds)

    assert [group.ranks for group in probe.groups] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert (course.design.size_bytes, course.design.small_bytes) == (size, size // SMALLER)


def test_a_run_that_goes_on_takes_the_size_from_the_probe_of_before():
    """Even where all steps that are there are of the small size."""
    course = Cluster().course(probe=True)
    probe = PairRounds(place(), PROBE_BYTES_ELSE).probe([(0, 1)], PROBE_BYTES_ELSE)
    course.hear(answer(probe, probe.groups[0], 10.0))
    first = next(course.rounds())

    assert not first.groups[0].name.startswith("probe/")
    assert course.design.size_bytes == 2**28
    assert first.number == 1


@pytest.mark.parametrize(
    ("step", "trials"),
    [
        (Step(pattern=ScalePattern.PAIRS, nodes=(0, 4, 1, 5), size_bytes=8), 6),
        (Step(pattern=ScalePattern.HALF, nodes=(0, 1, 2, 3, 4), size_bytes=8), 6),
        (Step(pattern=ScalePattern.ALL_REDUCE, nodes=(0, 1, 2), size_bytes=8), 1),
    ],
)
def test_trials_are_counted_by_rail(step, trials):
    assert planned_trials([step], 3) == trials


def test_the_drop_is_bisected_in_the_course():
    leaves = leaves_of(32, 32)
    design = msgspec.structs.replace(
        DESIGN, leaves=leaves, patterns=(ScalePattern.PAIRS, ScalePattern.INSIDE)
    )
    cluster, fabric = Cluster(design), MadeFabric(leaves, 225.0, noise=0.005)
    course = cluster.course()
    for round_ in course.rounds():
        for group in round_.groups:
            across = group.name.startswith("pairs")
            rate = min(10.0, fabric.uplink / len(round_.groups)) if across else 10.0
            course.hear(answer(round_, group, rate))

    asked = {one.step.asked for one in course.observations()}
    # The knee is at 22.5, between 20 and 25 of the ladder.
    assert asked - set(range(17)) == {20, 22, 23, 25, 31, 32}
