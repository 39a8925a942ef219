"""The local engine's switching between settings: what it starts, renews, shares and gives up."""

from __future__ import annotations

import msgspec
import pytest
from fake_engine import RANKS, Stage, fault, make_engine, outcomes, round_of, starts_of
from hypothesis import given
from hypothesis import strategies as st
from setting_cases import VARIABLES, made_case, swept_by

import collbench.engine.supervisor as supervisor
from collbench.engine.lineup import count_starts
from collbench.errors import NothingMeasured
from collbench.model import Mode, Policy, Proof, Reason, ReasonCode, Status

RING, TREE = {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}
SMALL, LARGE = {"NCCL_BUFFSIZE": "1"}, {"NCCL_BUFFSIZE": "2"}
ONE, TWO = {"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"}
QUIET_VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


@pytest.fixture
def stage(monkeypatch):
    stage = Stage()
    monkeypatch.setattr(supervisor, "Muster", stage.muster)
    monkeypatch.setattr(supervisor, "Zygote", stage.zygote)
    return stage


@pytest.fixture
def play(stage, tmp_path):
    """Runs cases of one repeat; returns their trials and the engine."""

    def run(cases, *, backend="nccl", policy=None):
        engine = make_engine(tmp_path, swept_by(cases), backend=backend, policy=policy)
        return [outcome.trial for outcome in engine.run(round_of(cases))], engine

    return run


def listed(*settings, mode=Mode.GRAPH, backend="nccl"):
    return [made_case(number, setting, mode, backend) for number, setting in enumerate(settings, 1)]


# What is shared


def test_a_communicator_s_setting_renews_and_nothing_else(stage, play):
    trials, _ = play(listed(RING, RING, TREE, {}))

    assert stage.events == [
        ("zygote", "torch", QUIET_VARIABLES),
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
    assert [trial.status for trial in trials] == ended, "every log tells of Ring"


def test_a_worker_s_setting_takes_a_new_team_of_the_same_zygote(stage, play):
    play(listed(SMALL, LARGE, {}))

    assert stage.happened("zygote", "zygote ends", "team", "quit", "renew") == [
        ("zygote", "torch", QUIET_VARIABLES),
        ("team", 1, True, {"NCCL_BUFFSIZE": "1"}),
        ("quit", 1),
        ("team", 2, True, {"NCCL_BUFFSIZE": "2"}),
        ("quit", 2),
        ("team", 3, True, {"NCCL_BUFFSIZE": None}),
    ]


def test_a_zygote_s_setting_takes_a_new_zygote(stage, play):
    play(listed(ONE, TWO, {}))

    assert stage.happened("zygote", "zygote ends", "team", "quit") == [
        ("zygote", "torch", {**QUIET_VARIABLES, "PYTHONHASHSEED": "1"}),
        ("team", 1, True, {}),
        ("quit", 1),
        ("zygote ends",),
        ("zygote", "torch", {**QUIET_VARIABLES, "PYTHONHASHSEED": "2"}),
        ("team", 2, True, {}),
        ("quit", 2),
        ("zygote ends",),
        ("zygote", "torch", {**QUIET_VARIABLES, "PYTHONHASHSEED": None}),
        ("team", 3, True, {}),
    ]


def test_eager_on_nccl_is_proved_by_a_twin_that_lives_on(stage, play):
    trials, engine = play(listed(RING, RING, mode=Mode.EAGER))

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
    assert engine.facts().proof_s > 0


def test_both_teams_follow_a_new_setting(stage, play):
    play(listed(RING, TREE, mode=Mode.EAGER))

    assert stage.happened("team", "renew") == [
        ("team", 1, False, {"NCCL_ALGO": "Ring"}),
        ("team", 2, True, {"NCCL_ALGO": "Ring"}),
        ("renew", 1, {"NCCL_ALGO": "Tree"}),
        ("renew", 2, {"NCCL_ALGO": "Tree"}),
    ]


def test_both_teams_end_where_a_worker_s_setting_changes(stage, play):
    play(listed(SMALL, LARGE, mode=Mode.EAGER))

    assert stage.happened("team", "quit") == [
        ("team", 1, False, {"NCCL_BUFFSIZE": "1"}),
        ("team", 2, True, {"NCCL_BUFFSIZE": "1"}),
        ("quit", 1),
        ("quit", 2),
        ("team", 3, False, {"NCCL_BUFFSIZE": "2"}),
        ("team", 4, True, {"NCCL_BUFFSIZE": "2"}),
    ]


def test_a_graph_is_timed_and_proved_in_one_logged_team(stage, play):
    trials, engine = play(listed({}, {}))

    assert stage.happened("team", "prove") == [("team", 1, True, {})]
    assert [(t.proof.twin, t.proof.ranks) for t in trials] == [(False, RANKS)] * 2
    assert engine.facts().proof_s == 0


@pytest.mark.parametrize(
    ("backend", "policy", "connected"),
    [("gloo", Policy(), []), ("nccl", Policy(proof=False), [("connect", 1, {})])],
)
def test_where_nothing_is_proved_one_quiet_team_does(stage, play, backend, policy, connected):
    cases = listed({}, {}, mode=Mode.EAGER, backend=backend)
    trials, _ = play(cases, backend=backend, policy=policy)

    assert stage.happened("team", "prove") == [("team", 1, False, {})]
    assert stage.happened("connect") == connected
    assert [trial.proof for trial in trials] == [None, None]


def test_what_did_not_end_well_is_not_proved(stage, play):
    stage.status = Status.UNSUPPORTED
    trials, _ = play(listed({}, mode=Mode.EAGER))

    assert stage.happened("prove") == []
    assert trials[0].proof is None


def test_repeats_share_no_process(stage, tmp_path):
    cases = listed({})
    engine = make_engine(tmp_path, [])
    list(outcomes(engine, [round_of(cases), round_of(cases, repeat=1)]))
    engine.close()
    engine.close()

    assert [event[0] for event in stage.happened("zygote", "team", "quit", "zygote ends")] == [
        "zygote", "team", "quit", "zygote ends"
    ] * 2  # fmt: skip


SETTINGS = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VARIABLES.items()}
)
REPEATS = st.lists(
    st.lists(st.tuples(SETTINGS, st.sampled_from(Mode)), min_size=1, max_size=8).map(
        lambda pairs: [made_case(number, *pair) for number, pair in enumerate(pairs, 1)]
    ),
    max_size=3,
)


@given(REPEATS, st.booleans())
def test_the_facts_count_what_the_plan_has_counted(tmp_path_factory, repeats, proof):
    policy = Policy(proof=proof)
    swept = swept_by([case for cases in repeats for case in cases])
    rounds = [round_of(cases, repeat) for repeat, cases in enumerate(repeats)]
    stage = Stage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "Muster", stage.muster)
        patch.setattr(supervisor, "Zygote", stage.zygote)
        engine = make_engine(tmp_path_factory.getbasetemp(), swept, policy=policy)
        found = list(outcomes(engine, rounds))

    counted = count_starts(rounds, policy, RANKS, swept)
    assert starts_of(engine) == msgspec.structs.replace(counted, twins=0)
    assert len(stage.happened("prove")) == counted.twins
    assert len(found) == sum(map(len, repeats))


# What goes wrong


def test_a_setting_that_all_ranks_refuse_is_formed_once(stage, tmp_path):
    cases = listed(RING, TREE, TREE, RING)
    rounds = [round_of(cases), round_of(cases, repeat=1)]
    stage.faults[1, "renew"] = fault(Status.UNSUPPORTED, "no Tree here")
    engine = make_engine(tmp_path, swept_by(cases))
    trials = [outcome.trial for outcome in outcomes(engine, rounds)]

    assert [trial.status for trial in trials] == [
        Status.OK, Status.UNSUPPORTED, Status.UNSUPPORTED, Status.OK
    ] * 2  # fmt: skip
    refused = Reason(code=ReasonCode.REFUSED, text="no Tree here")
    assert [trial.reason for trial in trials[1:3]] == [refused] * 2
    assert stage.happened("renew") == [("renew", 1, {"NCCL_ALGO": "Tree"})]
    assert [event[:2] for event in stage.happened("team")] == [("team", 1), ("team", 2),
                                                               ("team", 3)]  # fmt: skip


@pytest.mark.parametrize("status", [Status.CRASHED, Status.HUNG, Status.FAILED])
def test_formations_that_fail_three_times_in_a_row_end_the_run(stage, play, status):
    for number in range(1, 4):
        stage.faults[number, "join"] = fault(status, f"attempt {number}")

    with pytest.raises(NothingMeasured, match="3 times in a row: attempt 3; logs: "):
        play(listed(RING, RING, RING, RING))

    assert len(stage.happened("team")) == 3
    assert stage.happened("end") == [("end", 1), ("end", 2), ("end", 3)]


def test_a_formation_that_succeeds_starts_the_count_anew(stage, play):
    for number in (1, 2, 4, 5):
        stage.faults[number, "join"] = fault(Status.CRASHED, "gone")
    stage.faults[3, "measure"] = stage.faults[6, "measure"] = fault(Status.CRASHED, "gone")
    trials, engine = play(listed(*[{}] * 7))

    assert [trial.status for trial in trials] == [Status.CRASHED] * 6 + [Status.OK]
    assert starts_of(engine).workers == 7 * RANKS
    assert starts_of(engine).communicators == 3, "those that stood"


def test_without_a_setting_a_refusal_is_a_failure_like_others(stage, play):
    for number in range(1, 4):
        stage.faults[number, "join"] = fault(Status.UNSUPPORTED, "never")

    with pytest.raises(NothingMeasured, match="never"):
        play(listed({}, {}, {}))


@pytest.mark.parametrize("step", ["connect", "measure"])
def test_a_fault_costs_one_case_and_its_team(stage, play, step):
    stage.faults[1, step] = fault(Status.CRASHED, "rank 1 was killed")
    trials, _ = play(listed({}, {}))

    assert [trial.status for trial in trials] == [Status.CRASHED, Status.OK]
    assert stage.happened("team", "end") == [
        ("team", 1, True, {}),
        ("end", 1),
        ("team", 2, True, {}),
    ]


@pytest.mark.parametrize("step", ["join", "connect", "prove"])
def test_a_twin_that_faults_leaves_the_timing(stage, play, step):
    stage.faults[2, step] = fault(Status.CRASHED, "rank 1 was killed")
    trials, _ = play(listed({}, {}, mode=Mode.EAGER))

    assert [trial.status for trial in trials] == [Status.OK] * 2
    assert [trial.summary.median_us for trial in trials] == [5.0, 5.0]
    assert trials[0].proof == Proof(twin=True, problem="rank 1 was killed")
    assert trials[1].proof.problem is None
    assert [event[:3] for event in stage.happened("team", "end")] == [
        ("team", 1, False),
        ("team", 2, True),
        ("end", 2),
        ("team", 3, True),
    ]


def test_a_dead_zygote_is_replaced(stage, tmp_path):
    engine = make_engine(tmp_path, [])
    rounds = engine.run(round_of(listed({}, {})))
    next(rounds)
    stage.faults[1, "measure"] = fault(Status.CRASHED, "gone")
    stage.zygotes[0].alive = False
    assert next(rounds).trial.status is Status.CRASHED
    rounds.close()
    list(engine.run(round_of(listed({}))))

    assert [event[0] for event in stage.happened("zygote", "zygote ends")] == [
        "zygote", "zygote ends", "zygote"
    ]  # fmt: skip


def test_an_abandoned_round_leaves_no_team(stage, tmp_path):
    engine = make_engine(tmp_path, [])
    rounds = engine.run(round_of(listed({}, {}, mode=Mode.EAGER)))
    next(rounds)
    rounds.close()

    assert stage.happened("end") == [("end", 1), ("end", 2)]


# The first group


def test_start_forms_the_group_that_the_first_case_uses(stage, tmp_path):
    first = round_of(listed(RING, TREE))
    engine = make_engine(tmp_path, ["NCCL_ALGO"])
    assert engine.facts().nccl is None
    engine.start(first)
    assert engine.facts().nccl.version == "2.28.9"
    list(engine.run(first))

    assert stage.happened("team", "renew") == [
        ("team", 1, True, {"NCCL_ALGO": "Ring"}),
        ("renew", 1, {"NCCL_ALGO": "Tree"}),
    ]


@pytest.mark.parametrize("status", [Status.CRASHED, Status.UNSUPPORTED])
def test_a_first_group_without_a_setting_has_to_come_together(stage, tmp_path, status):
    stage.faults[1, "join"] = fault(status, "rank 1 was killed")
    engine = make_engine(tmp_path, [])

    with pytest.raises(
        NothingMeasured, match="the ranks do not come together: rank 1 was killed; logs: "
    ):
        engine.start(round_of(listed({})))

    assert stage.events[-1] == ("zygote ends",)


def test_a_first_setting_that_is_refused_is_told_by_its_cases(stage, tmp_path):
    stage.faults[1, "join"] = fault(Status.UNSUPPORTED, "no Tree here")
    cases = listed(TREE, RING)
    engine = make_engine(tmp_path, swept_by(cases))
    engine.start(round_of(cases))
    trials = [outcome.trial for outcome in engine.run(round_of(cases))]

    assert [trial.status for trial in trials] == [Status.UNSUPPORTED, Status.OK]
    assert [event[1] for event in stage.happened("team")] == [1, 2]
