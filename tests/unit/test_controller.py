"""The controller's switching between settings: what it starts, renews and shares."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from controller_runs import (
    RING,
    TREE,
    be_impatient,
    listed,
    pairs,
    play_cases,
    play_rounds,
    statuses,
)
from fake_engine import RANKS, Fails, FakeCluster, Stage, played, round_of
from hypothesis import given, settings
from hypothesis import strategies as st
from setting_cases import VARIABLES, made_case, swept_by

from collbench.engine.lineup import count_starts
from collbench.engine.protocol import Group, Round
from collbench.errors import NothingMeasured
from collbench.model import Mode, Policy, Reason, ReasonCode, Status

SMALL, LARGE = {"NCCL_BUFFSIZE": "1"}, {"NCCL_BUFFSIZE": "2"}
ONE, TWO = {"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"}


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch):
    be_impatient(monkeypatch)


@pytest.fixture
def stage():
    return Stage()


@pytest.fixture
def play(stage):
    return partial(play_cases, stage)


@pytest.fixture
def play_all(stage):
    return partial(play_rounds, stage)


# What is shared


def test_a_communicator_s_setting_renews_and_nothing_else(stage, play):
    trials, _ = play(listed(RING, RING, TREE, {}))

    assert stage.events == [
        ("zygote", {}),
        ("team", 1, True, {"NCCL_ALGO": "Ring"}),
        ("join", 1),
        ("connect", 1, RING),
        ("measure", 1, RING),
        ("measure", 1, RING),
        ("renew", 1, {"NCCL_ALGO": "Tree"}),
        ("connect", 1, TREE),
        ("measure", 1, TREE),
        ("renew", 1, {"NCCL_ALGO": None}),
        ("connect", 1, {}),
        ("measure", 1, {}),
    ]
    ended = [Status.OK, Status.OK, Status.PATH_NOT_USED, Status.OK]
    assert statuses(trials) == ended, "every log tells of Ring"


def test_a_worker_s_setting_takes_new_workers_of_the_same_zygote(stage, play):
    play(listed(SMALL, LARGE, {}))

    assert stage.happened("zygote", "team", "quit", "renew") == [
        ("zygote", {}),
        ("team", 1, True, {"NCCL_BUFFSIZE": "1"}),
        ("quit", 1),
        ("team", 2, True, {"NCCL_BUFFSIZE": "2"}),
        ("quit", 2),
        ("team", 3, True, {"NCCL_BUFFSIZE": None}),
    ]


def test_a_zygote_s_setting_takes_a_new_zygote(stage, play):
    play(listed(ONE, TWO, {}))

    assert stage.happened("zygote", "team", "quit") == [
        ("zygote", {"PYTHONHASHSEED": "1"}),
        ("team", 1, True, {}),
        ("quit", 1),
        ("zygote", {"PYTHONHASHSEED": "2"}),
        ("team", 2, True, {}),
        ("quit", 2),
        ("zygote", {"PYTHONHASHSEED": None}),
        ("team", 3, True, {}),
    ]


def test_eager_on_nccl_is_proved_by_a_twin_that_lives_on(stage, play):
    trials, cluster = play(listed(RING, RING, mode=Mode.EAGER))

    ring = {"NCCL_ALGO": "Ring"}
    assert stage.happened("team", "connect", "measure", "prove") == [
        ("team", 1, False, ring),
        ("connect", 1, RING),
        ("measure", 1, RING),
        ("team", 2, True, ring),
        ("connect", 2, RING),
        ("prove", 2, RING),
        ("measure", 1, RING),
        ("prove", 2, RING),
    ]
    assert [trial.proof.twin for trial in trials] == [True, True]
    assert cluster.controller.facts.proof_s > 0


def test_quiet_variables_are_those_of_quiet_workers_alone(stage, play):
    play(listed({}, mode=Mode.EAGER), quiet={"NCCL_DEBUG": "WARN"})

    assert stage.happened("team") == [("team", 1, False, {"NCCL_DEBUG": "WARN"}),
                                      ("team", 2, True, {})]  # fmt: skip


def test_both_kinds_of_workers_follow_a_new_setting(stage, play):
    play(listed(RING, TREE, mode=Mode.EAGER))

    assert stage.happened("team", "renew") == [
        ("team", 1, False, {"NCCL_ALGO": "Ring"}),
        ("team", 2, True, {"NCCL_ALGO": "Ring"}),
        ("renew", 1, {"NCCL_ALGO": "Tree"}),
        ("renew", 2, {"NCCL_ALGO": "Tree"}),
    ]


def test_both_kinds_of_workers_end_where_a_worker_s_setting_changes(stage, play):
    play(listed(SMALL, LARGE, mode=Mode.EAGER))

    assert stage.happened("team", "quit") == [
        ("team", 1, False, {"NCCL_BUFFSIZE": "1"}),
        ("team", 2, True, {"NCCL_BUFFSIZE": "1"}),
        ("quit", 1),
        ("quit", 2),
        ("team", 3, False, {"NCCL_BUFFSIZE": "2"}),
        ("team", 4, True, {"NCCL_BUFFSIZE": "2"}),
    ]


def test_a_graph_is_timed_and_proved_in_the_same_logged_workers(stage, play):
    trials, cluster = play(listed({}, {}))

    assert stage.happened("team", "prove") == [("team", 1, True, {})]
    assert [(t.proof.twin, t.proof.ranks) for t in trials] == [(False, RANKS)] * 2
    assert cluster.controller.facts.proof_s == 0


@pytest.mark.parametrize(
    ("backend", "policy", "connected"),
    [("gloo", Policy(), []), ("nccl", Policy(proof=False), [("connect", 1, {})])],
)
def test_where_nothing_is_proved_quiet_workers_do(stage, play, backend, policy, connected):
    trials, _ = play(listed({}, {}, mode=Mode.EAGER, backend=backend), policy=policy)

    assert stage.happened("team", "prove") == [("team", 1, False, {})]
    assert stage.happened("connect") == connected
    assert [trial.proof for trial in trials] == [None, None]


def test_what_did_not_end_well_is_not_proved(stage, play):
    stage.status = Status.UNSUPPORTED
    trials, _ = play(listed({}, mode=Mode.EAGER))

    assert stage.happened("prove") == []
    assert trials[0].proof is None


def test_repeats_share_no_process(stage, play_all):
    cases = listed({})
    play_all([round_of(cases), round_of(cases, repeat=1)])

    assert [event[0] for event in stage.happened("zygote", "team", "quit")] == [
        "zygote", "team", "quit", "zygote", "team"
    ]  # fmt: skip


def test_rounds_of_one_repeat_share_what_they_can(stage, play_all):
    cases = listed({})
    play_all([round_of(cases), round_of(cases)])

    assert [event[0] for event in stage.happened("zygote", "team", "join", "measure")] == [
        "zygote", "team", "join", "measure", "measure"
    ]  # fmt: skip


SETTINGS = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VARIABLES.items()}
)
REPEATS = st.lists(
    st.lists(st.tuples(SETTINGS, st.sampled_from(Mode)), min_size=1, max_size=8).map(
        lambda pairs: [made_case(number, *pair) for number, pair in enumerate(pairs, 1)]
    ),
    max_size=3,
)


@settings(deadline=None)
@given(REPEATS, st.booleans())
def test_the_facts_count_what_the_plan_has_counted(repeats, proof):
    policy = Policy(proof=proof)
    swept = swept_by([case for cases in repeats for case in cases])
    rounds = [round_of(cases, repeat) for repeat, cases in enumerate(repeats)]
    stage = Stage()

    async def work():
        cluster = FakeCluster(stage, swept=swept, policy=policy)
        return await cluster.run_all(rounds), cluster.starts()

    found, starts = played(work())
    counted = count_starts(rounds, policy, RANKS, swept)
    assert starts == msgspec.structs.replace(counted, twins=0)
    assert len(stage.happened("prove")) == counted.twins
    assert len(found) == sum(map(len, repeats))


# Groups of a round


def test_groups_run_at_the_same_time_and_each_is_a_world_of_its_own(stage):
    groups = tuple(
        Group(ranks=ranks, cases=(made_case(number, {}, backend="gloo"),))
        for number, ranks in enumerate([(0, 2), (1, 3)], 1)
    )

    async def work():
        cluster = FakeCluster(stage, nodes=(2, 2))
        return await cluster.run(Round(repeat=0, groups=groups))

    outcomes = played(work())

    assert sorted(outcome.trial.case.size_bytes for outcome in outcomes) == [8, 16]
    assert statuses(outcome.trial for outcome in outcomes) == [Status.OK] * 2
    steps = [event[0] for event in stage.events]
    assert steps.index("measure") > max(i for i, step in enumerate(steps) if step == "join")


def test_no_group_is_measured_before_all_of_its_round_stand(stage):
    groups = tuple(
        Group(ranks=ranks, cases=tuple(listed(RING)), name=str(ranks[0])) for ranks in ((0,), (1,))
    )

    async def work():
        cluster = FakeCluster(stage, nodes=(1, 1))
        return await cluster.run(Round(repeat=0, groups=groups, number=0))

    played(work())
    steps = [event[0] for event in stage.events]
    connected = max(place for place, step in enumerate(steps) if step == "connect")
    assert steps.index("measure") > connected


def test_records_of_groups_say_where_they_stood(play_all):
    trials = play_all([pairs(0, (0, 1), (2, 3)), pairs(1, (0, 1))], nodes=(1, 1, 1, 1))
    trials.sort(key=lambda trial: (trial.group.round, trial.group.ranks))

    assert [(t.group.name, t.group.round, t.group.ranks, t.group.alone) for t in trials] == [
        ("0-1", 0, [0, 1], False),
        ("2-3", 0, [2, 3], False),
        ("0-1", 1, [0, 1], True),
    ]
    assert len({trial.case_id for trial in trials}) == 1
    assert [trial.trial_id.partition("@")[2] for trial in trials] == ["0:0-1", "0:2-3", "1:0-1"]


def test_a_group_forms_anew_after_its_workers_stood_in_another(stage, play_all):
    everybody = Group(ranks=(0, 1, 2, 3), cases=tuple(listed(RING)), name="all")
    rounds = [
        pairs(0, (0, 1)),
        pairs(1, (0, 1)),
        Round(repeat=0, groups=(everybody,), number=2),
        pairs(3, (0, 1)),
    ]
    play_all(rounds, nodes=(1, 1, 1, 1))

    # Both of its workers stand in one group, which is not theirs.
    assert [join.world_size for join in stage.joins] == [2, 2, 4, 4, 4, 4, 2, 2]


def test_a_round_may_be_measured_in_a_way_of_its_own(stage, play_all):
    play_all([pairs(0, (0, 1), policy=Policy(samples=1000)), pairs(1, (0, 1))])

    assert [policy.samples for policy in stage.policies] == [1000, None]


def test_a_group_that_never_forms_does_not_end_those_that_do(stage, play_all):
    for number in (2, 3, 4):
        stage.faults[number, "join"] = Fails.DIED
    first = round_of(listed({}), ranks=(0, 1))
    second = round_of(listed({}, {}, {}, {}), ranks=(2, 3))
    trials = play_all([first, second], nodes=(2, 2))

    assert statuses(trials) == [Status.OK] + [Status.CRASHED] * 4
    assert [event[1] for event in stage.happened("team")] == [1, 2, 3, 4], "then it is given up"


# What goes wrong


def test_a_setting_that_all_ranks_refuse_is_formed_once(stage, play_all):
    cases = listed(RING, TREE, TREE, RING)
    rounds = [round_of(cases), round_of(cases, repeat=1)]
    stage.faults[1, "renew"] = Fails.REFUSED
    trials = play_all(rounds, swept_by(cases))

    assert statuses(trials) == [
        Status.OK, Status.UNSUPPORTED, Status.UNSUPPORTED, Status.OK
    ] * 2  # fmt: skip
    refused = Reason(code=ReasonCode.REFUSED, text="refused by rank 0")
    assert [trial.reason for trial in trials[1:3]] == [refused] * 2
    assert stage.happened("renew") == [("renew", 1, {"NCCL_ALGO": "Tree"})]
    assert [event[1] for event in stage.happened("team")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (Fails.DIED, r"rank 1 \(pid 1005\) dead: SIGKILL in call 7 \(rank 1\)"),
        (Fails.RAISED, r"rank 0 raised raised by rank 0 \(rank 0\)"),
    ],
)
def test_formations_that_fail_three_times_in_a_row_end_a_run_without_any(stage, play, fails, words):
    for number in range(1, 4):
        stage.faults[number, "join"] = fails

    with pytest.raises(NothingMeasured, match=f"3 times in a row: {words}; logs: /run/logs"):
        play(listed(RING, RING, RING, RING))

    assert stage.happened("team", "end") == [
        event
        for number in (1, 2, 3)
        for event in [("team", number, True, {"NCCL_ALGO": "Ring"}), ("end", number)]
    ]


def test_a_setting_that_does_not_form_three_times_in_a_row_is_given_up(stage, play):
    stage.faults[1, "renew"] = Fails.DIED
    for number in (2, 3):
        stage.faults[number, "join"] = Fails.DIED
    trials, _ = play(listed(RING, TREE, TREE, TREE, TREE, RING))

    assert statuses(trials) == [Status.OK] + [Status.CRASHED] * 4 + [Status.OK]
    assert [event[1] for event in stage.happened("team")] == [1, 2, 3, 4]


def test_a_formation_that_succeeds_starts_the_count_anew(stage, play):
    for number in (1, 2, 4, 5):
        stage.faults[number, "join"] = Fails.DIED
    stage.faults[3, "measure"] = stage.faults[6, "measure"] = Fails.DIED
    trials, cluster = play(listed(*[{}] * 7))

    assert statuses(trials) == [Status.CRASHED] * 6 + [Status.OK]
    assert cluster.starts().workers == 7 * RANKS
    assert cluster.starts().communicators == 3, "those that stood"


def test_without_a_setting_a_refusal_is_a_failure_like_others(stage, play):
    for number in range(1, 4):
        stage.faults[number, "join"] = Fails.REFUSED

    with pytest.raises(NothingMeasured, match="refused by rank 0"):
        play(listed({}, {}, {}))
