"""The course of a run of pairs, with made trials in the place of an engine's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from pair_states import made_node
from records import make_trial
from stored_runs import stored_run

from collbench.analyze.pairwise import judge
from collbench.engine.protocol import Group, Round
from collbench.model import (
    NodeState,
    Policy,
    RankPlace,
    Reason,
    ReasonCode,
    Status,
    Summary,
    Topology,
    Trial,
)
from collbench.plan.message_size import PROBE_BYTES, PROBE_BYTES_ELSE
from collbench.plan.pair_cases import PairPlace
from collbench.plan.pairwise import pair_rounds
from collbench.plan.pairwise_course import PairwiseCourse

LINE = 10.0
"""GB/s of a good node."""
SIZE = 2**26


@dataclass
class Cluster:
    """Nodes with one GPU each; a pair is as fast as the slower one. Answers rounds."""

    nodes: int = 8
    slow: dict[int, float] = field(default_factory=dict)
    sends: dict[int, float] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    backend: str = "nccl"
    rate: Callable[[int, int], float | Status] | None = None
    leaf: int | None = None
    """Nodes a leaf."""
    uplinks: float | None = None
    """Pairs that a leaf's uplinks carry at full rate."""

    @property
    def topology(self) -> Topology:
        nodes = [
            made_node(
                f"node{n}",
                state=NodeState.LOST if n in self.lost else NodeState.PRESENT,
                leaf=None if self.leaf is None else f"leaf{n // self.leaf}",
            )
            for n in range(self.nodes)
        ]
        places = [
            RankPlace(rank=n, node=f"node{n}", local_rank=0, gpu=0) for n in range(self.nodes)
        ]
        return Topology(nodes=nodes, ranks=places)

    def answer(self, round_: Round, group: Group) -> Trial:
        (case,) = group.cases
        a, b = group.ranks
        got = self.rate(a, b) if self.rate else None
        if got is None:
            got = LINE * min(self.slow.get(a, 1.0), self.slow.get(b, 1.0))
            if case.collective != "broadcast" or group.ranks[case.root or 0] in self.sends:
                got *= min(self.sends.get(a, 1.0), self.sends.get(b, 1.0))
        if self.leaf is not None and self.uplinks is not None and a // self.leaf != b // self.leaf:
            got = min(got, LINE * self.uplinks / most_of_a_leaf(round_, self.leaf))
        trial = make_trial(case.size_bytes, 1.0)
        fields = {
            "trial_id": round_.trial_id(group, case),
            "case_id": case.case_id,
            "case": case,
            "group": round_.place_of(group),
        }
        if isinstance(got, Status):
            return msgspec.structs.replace(trial, **fields, status=got, summary=None)
        summary = Summary(
            samples=10,
            ops_per_sample=1,
            warmup_samples=1,
            median_us=1.0,
            min_us=1.0,
            p5_us=1.0,
            mean_over_ranks_us=1.0,
            busbw_gb_per_s=got,
        )
        return msgspec.structs.replace(trial, **fields, summary=summary)

    def course(self, *, size_bytes: int | None = SIZE, serial: bool = False, members=None):
        members = range(self.nodes) if members is None else members
        place = PairPlace(
            names=[f"node{n}" for n in range(self.nodes)],
            ranks={n: (n,) for n in range(self.nodes)},
            backend=self.backend,
            via="torch",
            policy=Policy(),
            setting={},
            latency=False,
        )
        return PairwiseCourse(
            place=place,
            schedule=pair_rounds(len(members), self.leaves(members), seed=3),
            members=members,
            topology=lambda: self.topology,
            stored=lambda: stored_run([]),
            serial=serial,
            size_bytes=size_bytes,
        )

    def leaves(self, members):
        return None if self.leaf is None else [n // self.leaf for n in members]

    def run(self, course: PairwiseCourse, most: int | None = None) -> list[Round]:
        """Runs so many rounds of a course, or all; returns them."""
        done: list[Round] = []
        for round_ in course.rounds():
            if len(done) == most:
                break
            for group in round_.groups:
                course.hear(self.answer(round_, group))
            done.append(round_)
        return done


def most_of_a_leaf(round_: Round, leaf: int) -> int:
    """How many pairs across leaves a leaf has in a round."""
    ends = [[rank // leaf for rank in group.ranks] for group in round_.groups]
    return max(Counter(end for a, b in ends if a != b for end in (a, b)).values(), default=0)


def named(rounds: list[Round], beginning: str = "") -> list[list[tuple[int, int]]]:
    """The pairs of those rounds whose names begin so."""
    return [
        [group.ranks for group in one.groups]
        for one in rounds
        if one.groups[0].name.startswith(beginning)
    ]


def sizes(rounds: list[Round]) -> set[int]:
    return {case.requested_bytes for one in rounds for group in one.groups for case in group.cases}


def test_without_a_fault_every_pair_runs_once_and_nothing_again():
    rounds = Cluster(8).run(Cluster(8).course())

    assert len(rounds) == 14  # 7 rounds of 4 pairs, two questions each
    assert [one.number for one in rounds] == list(range(14))
    pairs = [frozenset(pair) for one in named(rounds) for pair in one]
    assert len(pairs) == 2 * 28
    assert len(set(pairs)) == 28
    assert not any(group.name.startswith("confirm/") for one in rounds for group in one.groups)
    assert sizes(rounds) == {SIZE}


@pytest.mark.parametrize(
    ("backend", "rate", "size"),
    [
        # 20 ms at 10 GB/s are 200 MB: the next power of two.
        ("nccl", 10.0, 2**28),
        ("nccl", 0.01, 2**18),
        ("nccl", 0.5, 2**24),
        ("nccl", 400.0, 2**30),
        # 40 ms at 1 GB/s.
        ("gloo", 1.0, 2**26),
        ("gloo", 0.000001, 2**18),
        ("nccl", Status.HUNG, PROBE_BYTES_ELSE),
        ("gloo", Status.FAILED, PROBE_BYTES["gloo"]),
    ],
)
def test_a_probe_chooses_the_size_within_bounds(backend, rate, size):
    cluster = Cluster(4, backend=backend, rate=lambda _a, _b: rate)
    probe, *rest = cluster.run(cluster.course(size_bytes=None), most=7)

    assert [group.name.partition("/")[0] for group in probe.groups] == ["probe", "probe"]
    assert sizes([probe]) == {PROBE_BYTES.get(backend, PROBE_BYTES_ELSE)}
    assert sizes(rest) == {size}
    assert [one.number for one in (probe, *rest)] == list(range(7))


def test_the_probe_is_of_few_pairs_and_a_pair_that_hangs_does_not_count():
    cluster = Cluster(24, rate=lambda a, b: Status.HUNG if 0 in (a, b) else 10.0)
    probe, first = cluster.run(cluster.course(size_bytes=None), most=2)

    assert len(probe.groups) == 8
    assert sizes([first]) == {2**28}


def test_nodes_that_are_lost_are_left_out_from_then_on():
    cluster = Cluster(6)
    course, done = cluster.course(), []
    for round_ in course.rounds():
        done.append(round_)
        for group in round_.groups:
            course.hear(cluster.answer(round_, group))
        if len(done) == 4:
            cluster.lost = {2}
    before, after = named(done[:4]), named(done[4:])

    assert all(len(one) == 3 for one in before)
    assert all(2 not in pair for one in after for pair in one)
    assert len(after) == 6
    assert sum(map(len, after)) == 2 * (15 - 6 - 3)


def test_members_are_those_nodes_by_number():
    cluster = Cluster(9)
    rounds = cluster.run(cluster.course(members=[1, 4, 6, 8]))

    assert {node for one in named(rounds) for pair in one for node in pair} == {1, 4, 6, 8}


def test_a_suspect_runs_again_with_different_good_partners_until_it_is_confirmed():
    cluster = Cluster(8, slow={5: 0.5})
    course = cluster.course()
    rounds = cluster.run(course)
    again = [
        pair
        for one in rounds
        for group in one.groups
        if group.name.startswith("confirm/") and group.cases[0].collective == "all_reduce"
        for pair in [group.ranks]
    ]
    mine = [pair for pair in again if 5 in pair]

    assert all(len(one.groups) == 1 for one in rounds[14:])  # few nodes: alone
    assert len(mine) >= 2
    assert len({frozenset(pair) for pair in mine}) == len(mine)
    assert any(5 not in pair for pair in again)  # controls
    assert [one.number for one in rounds] == list(range(len(rounds)))


def test_many_nodes_run_again_at_the_same_time_but_for_serial():
    cluster = Cluster(24, slow={5: 0.5, 6: 0.5})
    together = cluster.run(cluster.course())
    one_by_one = cluster.run(cluster.course(serial=True))

    assert max(map(len, named(together, "confirm/"))) > 1
    assert max(map(len, named(one_by_one, "confirm/"))) == 1


def test_a_confirmed_slow_node_sends_one_way_and_back_with_two_partners():
    cluster = Cluster(8, slow={5: 0.5})
    rounds = cluster.run(cluster.course())
    one_way = [
        (group.cases[0].root, group.ranks)
        for one in rounds
        for group in one.groups
        if group.cases[0].collective == "broadcast"
    ]

    assert [root for root, _ in one_way] == [0, 1, 0, 1]
    assert {ranks[0] for _, ranks in one_way} == {5}
    assert len({ranks[1] for _, ranks in one_way}) == 2
    assert rounds[-1].groups[0].cases[0].collective == "broadcast"  # last of all


def test_a_node_that_hangs_is_not_sent_one_way():
    cluster = Cluster(8, rate=lambda a, b: Status.HUNG if 3 in (a, b) else LINE)
    rounds = cluster.run(cluster.course())

    assert all(group.cases[0].collective != "broadcast" for one in rounds for group in one.groups)


@pytest.mark.parametrize("done", [0, 1, 5, 14, 17])
@pytest.mark.parametrize("size_bytes", [None, SIZE])
def test_a_run_that_goes_on_repeats_nothing(done, size_bytes):
    cluster = Cluster(8, slow={5: 0.5})
    whole = cluster.course(size_bytes=size_bytes)
    cluster.run(whole)
    begun = cluster.course(size_bytes=size_bytes)
    cluster.run(begun, most=done)
    resumed = cluster.course(size_bytes=size_bytes)
    for trial in begun.trials.values():
        resumed.hear(trial)
    rest = cluster.run(resumed)

    ids = [one.trial_id(group, group.cases[0]) for one in rest for group in one.groups]
    assert not set(ids) & set(begun.trials)
    assert len(set(ids)) == len(ids)
    first_look = {name for name in whole.trials if "confirm/" not in name}
    assert {name for name in resumed.trials if "confirm/" not in name} == first_look
    assert len(named(cluster.run(resumed))) == 0


def test_of_a_round_that_was_broken_off_only_the_rest_runs():
    cluster = Cluster(8)
    course = cluster.course()
    first = next(course.rounds())
    for group in first.groups[:3]:
        course.hear(cluster.answer(first, group))
    rest = next(course.rounds())

    assert rest.groups == first.groups[3:]
    assert (rest.number, rest.policy) == (first.number, first.policy)


@pytest.mark.parametrize(
    ("status", "comes_again"),
    [
        (Status.SKIPPED, True),
        (Status.NODE_LOST, True),
        (Status.HUNG, False),
        (Status.CRASHED, False),
        (Status.FAILED, False),
        (Status.DATA_WRONG, False),
        (Status.OK, False),
    ],
)
def test_what_an_interruption_left_out_comes_again_and_what_tells_something_does_not(
    status, comes_again
):
    cluster = Cluster(4)
    course = cluster.course()
    first = next(course.rounds())
    for group in first.groups:
        trial = cluster.answer(first, group)
        reason = Reason(code=ReasonCode.INTERRUPTED, text="interrupted")
        course.hear(msgspec.structs.replace(trial, status=status, reason=reason))

    assert (next(course.rounds()).number == first.number) is comes_again


@pytest.mark.parametrize(("uplinks", "at_once"), [(8, 8), (7.9, 7), (0.5, 1)])
def test_pairs_across_run_once_more_no_more_at_once_than_the_uplinks_carry(uplinks, at_once):
    cluster = Cluster(128, leaf=32, uplinks=uplinks)
    rounds = cluster.run(cluster.course())
    first = {frozenset(p) for one in named(rounds) for p in one if p[0] // 32 != p[1] // 32}
    calm = [one for one in rounds if one.groups[0].name.startswith("throttled/")]

    pairs = [frozenset(group.ranks) for one in calm for group in one.groups]
    assert len(pairs) == 2 * 64, "both questions"
    assert set(pairs) == first
    assert {most_of_a_leaf(one, 32) for one in calm[:4]} == {at_once}
    assert max(most_of_a_leaf(one, 32) for one in calm) == at_once


@pytest.mark.parametrize(
    "cluster",
    [Cluster(128, leaf=32, uplinks=30), Cluster(64, leaf=16, uplinks=4), Cluster(128, uplinks=1)],
    ids=["uplinks that are not short", "all pairs", "leaves unknown"],
)
def test_pairs_are_not_throttled_where_it_tells_nothing_more(cluster):
    rounds = cluster.run(cluster.course())

    assert named(rounds, "throttled/") == []


def test_a_run_that_goes_on_does_not_throttle_anew():
    cluster = Cluster(128, leaf=32, uplinks=8)
    before, after = cluster.course(), cluster.course()
    rounds = cluster.run(before)
    for trial in before.trials.values():
        after.hear(trial)

    assert named(rounds, "throttled/") != []
    assert cluster.run(after) == []


def test_a_slow_path_shows_where_the_uplinks_are_not_full():
    cluster = Cluster(128, leaf=32, uplinks=8)
    rounds = cluster.run(cluster.course())
    a, b = named(rounds, "throttled/")[0][0]
    # At 8 of 32 a pair across gets a quarter: half of the line is no bottleneck then.
    cluster.rate = lambda one, other: LINE * (0.5 if {one, other} == {a, b} else 1.0)
    course = cluster.course()
    cluster.run(course)
    result = judge(course.state())

    assert [(one.code, set(one.nodes)) for one in result.fabric] == [("slow_path", {a, b})]
    assert result.across_share == pytest.approx(0.25)
    assert result.throttled_share == pytest.approx(1.0)
