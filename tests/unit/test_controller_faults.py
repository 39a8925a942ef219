"""The controller's faults: what each costs, and how a run begins."""

from __future__ import annotations

from functools import partial

import pytest
from controller_runs import RING, TREE, be_impatient, listed, pairs, play_cases, statuses
from fake_engine import Fails, FakeCluster, Stage, played, round_of
from setting_cases import swept_by

from collbench.errors import NothingMeasured
from collbench.model import Mode, NodeState, Proof, Reason, ReasonCode, Status

KILLED = "rank 1 (pid 1001) dead: SIGKILL in call 7"


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch):
    be_impatient(monkeypatch)


@pytest.fixture
def stage():
    return Stage()


@pytest.fixture
def play(stage):
    return partial(play_cases, stage)


@pytest.mark.parametrize("step", ["connect", "measure"])
def test_a_fault_costs_one_case_and_its_workers(stage, play, step):
    stage.faults[1, step] = Fails.DIED
    trials, _ = play(listed({}, {}))

    assert statuses(trials) == [Status.CRASHED, Status.OK]
    assert trials[0].reason == Reason(code=ReasonCode.KILLED, text=KILLED)
    assert [culprit.log_tail for culprit in trials[0].culprits] == [["last words"]]
    assert stage.happened("team", "end") == [
        ("team", 1, True, {}),
        ("end", 1),
        ("team", 2, True, {}),
    ]


@pytest.mark.parametrize("step", ["join", "connect", "prove"])
def test_a_twin_that_faults_leaves_the_timing(stage, play, step):
    stage.faults[2, step] = Fails.DIED
    trials, _ = play(listed({}, {}, mode=Mode.EAGER))

    assert statuses(trials) == [Status.OK] * 2
    assert [trial.summary.median_us for trial in trials] == [5.0, 5.0]
    assert trials[0].proof == Proof(twin=True, problem=KILLED.replace("1001", "1003"))
    assert trials[1].proof.problem is None
    assert [event[:3] for event in stage.happened("team", "end")] == [
        ("team", 1, False),
        ("team", 2, True),
        ("end", 2),
        ("team", 3, True),
    ]


def test_a_worker_that_survives_sigkill_on_the_only_node_ends_the_run(stage, play):
    stage.faults[1, "measure"] = Fails.RAISED
    stage.unkillable = {0, 1}

    with pytest.raises(
        NothingMeasured,
        match=r"n0: rank 0 \(pid 1000\), rank 1 \(pid 1001\) are there 5 s after SIGKILL",
    ):
        play(listed({}, {}))


def test_a_worker_that_survives_sigkill_costs_its_node_and_no_more(stage):
    stage.faults[2, "measure"] = Fails.RAISED
    stage.unkillable = {2}

    async def work():
        cluster = FakeCluster(stage, nodes=(1, 1, 1))
        across = await cluster.run(round_of(listed({}, {}, {}), ranks=(0, 2)))
        others = await cluster.run(round_of(listed({}), ranks=(0, 1)))
        return [o.trial for o in (*across, *others)], cluster.controller.facts

    trials, facts = played(work())

    assert statuses(trials) == [
        Status.FAILED, Status.NODE_LOST, Status.SKIPPED, Status.OK
    ]  # fmt: skip
    assert trials[1].reason.text.startswith("n2 is lost: rank 2 (pid 1001) is there 5 s after")
    assert [node.state for node in facts.topology.nodes] == [
        NodeState.PRESENT,
        NodeState.PRESENT,
        NodeState.UNKILLABLE,
    ]


def test_a_station_that_cannot_fork_on_the_only_node_ends_the_run(stage, play):
    stage.cannot_fork[0] = "the zygote process has ended: no torch"

    with pytest.raises(NothingMeasured, match=r"^n0: the zygote process has ended: no torch$"):
        play(listed({}))


def test_a_node_that_cannot_fork_costs_its_cases_and_no_more(stage):
    stage.cannot_fork[1] = "no torch"

    async def work():
        cluster = FakeCluster(stage, nodes=(1, 1, 1))
        found = await cluster.run(pairs(0, (0, 1)))
        again = await cluster.run(pairs(1, (0, 2)))
        return [o.trial for o in (*found, *again)], cluster.controller.facts

    trials, facts = played(work())

    assert statuses(trials) == [Status.NODE_LOST, Status.OK]
    assert trials[0].reason.text == "n1 is lost: no torch; --exclude n1 begins without it"
    assert [node.state for node in facts.topology.nodes] == [
        NodeState.PRESENT,
        NodeState.LOST,
        NodeState.PRESENT,
    ]


def test_a_new_repeat_that_a_node_cannot_begin_costs_that_repeat(stage):
    async def work():
        cluster = FakeCluster(stage, nodes=(1, 1))
        first = await cluster.run(round_of(listed({}, {})))
        stage.cannot_fork[1] = "no torch"
        second = await cluster.run(round_of(listed({}, {}), repeat=1))
        return [outcome.trial for outcome in (*first, *second)]

    assert statuses(played(work())) == [
        Status.OK, Status.OK, Status.NODE_LOST, Status.SKIPPED
    ]  # fmt: skip


def test_a_node_that_is_lost_costs_its_cases_and_no_more(stage):
    async def work():
        cluster = FakeCluster(stage, nodes=(2, 2))
        whole = await cluster.run(round_of(listed({}), ranks=(0, 2)))
        cluster.crew.lose(cluster.posts[1], "its connection ended")
        across = await cluster.run(round_of(listed({}, {}, {}), ranks=(0, 2)))
        within = await cluster.run(round_of(listed({}), ranks=(0, 1)))
        return [o.trial for o in (*whole, *across, *within)], cluster.controller.facts

    trials, facts = played(work())

    assert statuses(trials) == [
        Status.OK, Status.NODE_LOST, Status.SKIPPED, Status.SKIPPED, Status.OK
    ]  # fmt: skip
    lost = Reason(code=ReasonCode.NODE_LOST, text="n1 is lost: its connection ended")
    assert [trial.reason for trial in trials[1:4]] == [lost] * 3
    assert [[c.node for c in trial.culprits] for trial in trials[1:4]] == [["n1"], [], []]
    assert [(node.name, node.state) for node in facts.topology.nodes] == [
        ("n0", NodeState.PRESENT),
        ("n1", NodeState.LOST),
    ]


# The first group


def started(stage, cases, swept=()):
    """Runs ``start`` and then the round; returns the versions between them and the trials."""

    async def work():
        cluster = FakeCluster(stage, swept=swept)
        assert cluster.controller.facts.nccl is None
        await cluster.controller.start(round_of(cases))
        nccl = cluster.controller.facts.nccl
        return nccl, [outcome.trial for outcome in await cluster.run(round_of(cases))]

    return played(work())


def test_start_forms_the_group_that_the_first_case_uses(stage):
    nccl, _ = started(stage, listed(RING, TREE), ["NCCL_ALGO"])

    assert nccl.version == "2.28.9"
    assert stage.happened("team", "renew") == [
        ("team", 1, True, {"NCCL_ALGO": "Ring"}),
        ("renew", 1, {"NCCL_ALGO": "Tree"}),
    ]


@pytest.mark.parametrize(
    ("fails", "words"), [(Fails.DIED, "dead: SIGKILL"), (Fails.REFUSED, "refused by rank 0")]
)
def test_a_first_group_without_a_setting_has_to_come_together(stage, fails, words):
    stage.faults[1, "join"] = fails

    with pytest.raises(
        NothingMeasured, match=f"the ranks do not come together: .*{words}.*; logs: /run/logs"
    ):
        started(stage, listed({}))

    assert stage.events[-1] == ("end", 1)


@pytest.mark.parametrize("setting", [{}, RING], ids=["none", "a setting"])
def test_a_first_group_of_all_that_a_node_cannot_join_is_the_end(stage, setting):
    stage.cannot_fork[1] = "no torch"

    async def work():
        cluster = FakeCluster(stage, nodes=(1, 1), swept=["NCCL_ALGO"])
        await cluster.controller.start(round_of(listed(setting)))

    words = "n1 is lost: no torch; --exclude n1 begins without it"
    with pytest.raises(NothingMeasured, match=f"the ranks do not come together: {words} "):
        played(work())


def test_a_first_pair_that_a_node_cannot_join_is_not(stage):
    stage.cannot_fork[1] = "no torch"

    async def work():
        cluster = FakeCluster(stage, nodes=(1, 1, 1))
        first = pairs(0, (0, 1))
        await cluster.controller.start(first)
        found = [*await cluster.run(first), *await cluster.run(pairs(1, (0, 2)))]
        return [outcome.trial for outcome in found]

    assert statuses(played(work())) == [Status.NODE_LOST, Status.OK]


def test_a_first_setting_that_is_refused_is_told_by_its_cases(stage):
    stage.faults[1, "join"] = Fails.REFUSED
    cases = listed(TREE, RING)
    _, trials = started(stage, cases, swept_by(cases))

    assert statuses(trials) == [Status.UNSUPPORTED, Status.OK]
    assert [event[1] for event in stage.happened("team")] == [1, 2]
