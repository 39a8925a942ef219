"""The executor that a fabric answers: records, faults, noise, time."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from fabrics import CALL_US, MB, a_case, a_layout, a_round, outcomes, rates, times_us

from collbench.engine.fabric_engine import FabricEngine
from collbench.engine.fabric_file import Noise
from collbench.engine.fabric_noise import call_factor, trial_factor
from collbench.engine.protocol import Group, Round
from collbench.model import Mode, Policy, ReasonCode, Status, StopReason

PAIR = a_case("send_recv")
MANY = Policy(samples=1000, warmup=0, max_time_s=1e6)
SPLIT = {"split": [{"groups": [[0, 1], [2]]}]}


def test_a_trial_says_who_ran_when_and_how_long():
    first, second = outcomes(
        a_layout(4), a_round(PAIR, (0, 1), (3, 2), number=5, repeat=2), Policy()
    )

    assert first.trial.trial_id == f"{PAIR.case_id}.2@5:0-1"
    assert second.trial.group.ranks == [3, 2]
    assert not second.trial.group.alone
    assert first.trial.status is Status.OK
    assert first.trial.stop_reason is StopReason.PRECISE
    assert first.trial.summary.busbw_gb_per_s == pytest.approx(1000 / 110)
    assert first.trial.check.wrong_elements == 0
    assert first.trial.check.checked_elements > 0
    assert first.times_us.tolist() == [pytest.approx([CALL_US + 100] * 20)] * 2
    assert first.clock == "fake"
    # All calls of 110 us: warm-up and checked ones are in the time as well.
    assert first.trial.duration_s == pytest.approx(110e-6 * _calls(first), rel=1e-2)
    assert first.trial.started_at == second.trial.started_at


def _calls(outcome) -> int:
    summary = outcome.trial.summary
    return 1 + summary.warmup_samples + summary.samples


def test_the_group_of_the_whole_run_has_no_place():
    engine = FabricEngine(a_layout(2), Policy())
    group = Group(ranks=(0, 1), cases=(PAIR,))
    (outcome,) = engine.run(Round(repeat=0, groups=(group,)))

    assert outcome.trial.group is None
    assert outcome.trial.trial_id == PAIR.trial_id(0)


def test_cases_of_different_kinds_share_the_fabric_at_one_time():
    """Step by step: both first cases at once, then what is left alone."""
    layout = a_layout(4, leaves=2, oversubscription=2)
    ring = a_case("all_reduce", 2 * MB)
    groups = (
        Group(ranks=(0, 2), cases=(PAIR, PAIR), name="a"),
        Group(ranks=(1, 3), cases=(ring,), name="b"),
    )
    found = outcomes(layout, Round(repeat=0, groups=groups))

    assert [outcome.trial.case for outcome in found] == [PAIR, ring, PAIR]
    # 10 GB/s for both: 1 MB and 2 x 1/2 x 2 MB at 5; then 1 MB at 10.
    medians = [outcome.trial.summary.median_us for outcome in found]
    assert medians == pytest.approx([CALL_US + 200, CALL_US + 400, CALL_US + 100])
    assert found[0].trial.started_at == found[1].trial.started_at < found[2].trial.started_at


def test_a_round_can_have_a_policy_of_its_own():
    round_ = msgspec.structs.replace(a_round(PAIR, (0, 1)), policy=Policy(samples=7))
    (outcome,) = outcomes(a_layout(2), round_, Policy(samples=3))

    assert outcome.trial.summary.samples == 7


@pytest.mark.parametrize(
    ("case", "status", "code"),
    [
        (a_case(mode=Mode.GRAPH), Status.UNSUPPORTED, ReasonCode.NO_SUCH_MODE),
        (a_case(ranks=1), Status.UNSUPPORTED, ReasonCode.NEEDS_TWO_RANKS),
        (a_case(size_bytes=2**40), Status.SKIPPED, ReasonCode.NO_MEMORY),
        (a_case("all_to_all", ranks=2897), Status.SKIPPED, ReasonCode.BUDGET),
    ],
)
def test_what_cannot_be_is_a_record(case, status, code):
    layout = a_layout(1, gpus_per_node=case.world_size)
    (outcome,) = outcomes(layout, a_round(case, tuple(range(case.world_size))))

    assert (outcome.trial.status, outcome.trial.reason.code) == (status, code)
    assert outcome.times_us is None
    assert outcome.trial.duration_s == 0


def test_a_node_that_hangs_is_the_culprit_with_all_its_ranks():
    layout = a_layout(3, gpus_per_node=2, faults={"hang": [{"node": "node1"}]})
    case = a_case("all_reduce", ranks=4)
    found = outcomes(layout, a_round(case, (0, 1, 2, 3), (0, 1, 4, 5)), Policy(deadline_s=30))

    hung, fine = (outcome.trial for outcome in found)
    assert hung.status is Status.HUNG
    assert hung.reason.code is ReasonCode.NO_PROGRESS
    assert hung.reason.text == "rank 2, 3 (on node1) stopped, in call 0; no progress for 30 s"
    assert [(c.rank, c.node, c.local_rank) for c in hung.culprits] == [
        (2, "node1", 0),
        (3, "node1", 1),
    ]
    assert hung.group.name == "0-1-2-3"
    assert hung.duration_s == 30
    assert fine.status is Status.OK


def test_a_path_that_hangs_has_no_culprit_and_hangs_where_it_is_used():
    layout = a_layout(4, faults={"hang": [{"a": 1, "b": 2}]})
    ring = a_case("all_reduce", ranks=4)
    status = [
        outcome.trial.status
        for round_ in (
            a_round(PAIR, (0, 2), (1, 3)),
            a_round(PAIR, (2, 1)),
            a_round(ring, (0, 1, 2, 3)),
            a_round(ring, (0, 1, 3, 2)),
        )
        for outcome in outcomes(layout, round_)
    ]
    (outcome,) = outcomes(layout, a_round(PAIR, (2, 1)))

    assert status == [Status.OK, Status.OK, Status.HUNG, Status.HUNG, Status.OK]
    assert outcome.trial.culprits == []
    assert outcome.trial.reason.text.startswith(
        "no rank is behind: all are in call 1; nothing passes node1 - node2; no progress"
    )


@pytest.mark.parametrize(
    ("pair", "status"),
    [((0, 1), Status.OK), ((0, 2), Status.HUNG), ((0, 3), Status.OK), ((3, 2), Status.OK)],
)
def test_nodes_of_different_parts_never_start(pair, status):
    """Nodes 0 and 1 cannot reach 2; 3 reaches all."""
    (outcome,) = outcomes(a_layout(4, faults=SPLIT), a_round(PAIR, pair))

    assert outcome.trial.status is status


def test_a_split_group_is_not_ready_until_the_init_deadline():
    (outcome,) = outcomes(a_layout(4, faults=SPLIT), a_round(PAIR, (0, 2)))

    assert outcome.trial.reason.code is ReasonCode.NO_START
    assert outcome.trial.duration_s == Policy().init_deadline_s


def test_what_hangs_sends_nothing():
    layout = a_layout(4, leaves=2, oversubscription=2, faults={"hang": [{"node": 1}]})
    fine, _ = outcomes(layout, a_round(PAIR, (0, 2), (1, 3)))

    assert fine.trial.summary.median_us == pytest.approx(CALL_US + 100)


def test_loss_makes_calls_wait_and_is_counted():
    layout = a_layout(3, faults={"loss": [{"node": 1, "share": 0.01}]})
    lossy, clean = (
        outcomes(layout, a_round(a_case(size_bytes=8), pair), MANY)[0] for pair in ((0, 1), (0, 2))
    )

    slow = int((lossy.times_us[0] > 100_000).sum())
    # Of 1,000 calls with a packet each way: 1 - 0.99^2 of them, +- 3 standard deviations.
    assert slow == pytest.approx(1000 * (1 - 0.99**2), abs=3 * np.sqrt(20))
    assert lossy.times_us[0].max() == pytest.approx(200_000 + CALL_US, rel=1e-3)
    assert lossy.trial.summary.median_us == pytest.approx(CALL_US, rel=1e-3)
    # Warm-up and checked calls are counted, but not timed.
    counted = lossy.trial.counters["node1"]["local_ack_timeout_err"]
    assert slow <= counted <= slow + 2
    text = f"node1: {counted} calls waited until a lost packet was sent again"
    assert lossy.trial.events == [text]
    assert clean.times_us[0].max() == pytest.approx(CALL_US, rel=1e-3)
    assert clean.trial.counters == {}


def test_loss_on_a_path_is_seen_at_both_ends():
    layout = a_layout(3, faults={"loss": [{"a": 0, "b": 1, "share": 0.3}]})
    (outcome,) = outcomes(layout, a_round(PAIR, (0, 1)), Policy(samples=50))

    assert set(outcome.trial.counters) == {"node0", "node1"}
    assert outcome.trial.counters["node0"] == outcome.trial.counters["node1"]


def test_a_node_that_differs_has_no_rank_and_the_others_close_ranks():
    layout = a_layout(
        3,
        faults={
            "differs": [{"node": 1, "what": "driver 570"}],
            "slow_node": [{"node": 2, "factor": 0.5}],
        },
    )

    # Rank 1 is on node 2.
    assert rates(layout, a_round(PAIR, (0, 1))) == pytest.approx([5])


NOISY = {"kind": "normal", "size": 0.05, "jitter": 0.01}


def test_noise_is_the_same_for_the_same_seed_round_repeat_and_group_only():
    layout = a_layout(4, noise=NOISY)
    (first,) = times_us(layout, a_round(PAIR, (0, 1)))

    assert times_us(layout, a_round(PAIR, (0, 1))) == [first]
    others = [
        times_us(a_layout(4, noise=NOISY, seed=2), a_round(PAIR, (0, 1)))[0],
        times_us(layout, a_round(PAIR, (0, 1), number=1))[0],
        times_us(layout, a_round(PAIR, (0, 1), repeat=1))[0],
        times_us(layout, a_round(PAIR, (0, 2)))[0],
    ]
    assert len({first, *others}) == 5


def test_the_size_of_noise_is_between_trials_and_jitter_within_them():
    layout = a_layout(2, noise=NOISY)
    policy = Policy(samples=100, warmup=0, max_time_s=1e6)
    trials = [
        outcomes(layout, a_round(PAIR, (0, 1), number=number), policy)[0].times_us[0]
        for number in range(200)
    ]

    assert np.std([np.mean(times) for times in trials]) / 110 == pytest.approx(0.05, rel=0.2)
    within = np.mean([np.std(times) / np.mean(times) for times in trials])
    assert within == pytest.approx(0.01, rel=0.1)


def draws(noise: Noise, count: int = 4000) -> np.ndarray:
    random = np.random.default_rng(1)
    return np.array([trial_factor(noise, random, 0) for _ in range(count)])


def test_skewed_noise_is_never_faster():
    found = draws(Noise(kind="skewed", size=0.1))

    assert found.min() >= 1
    assert found.mean() == pytest.approx(1.1, rel=0.02)
    assert found.std() == pytest.approx(0.1, rel=0.1)


def test_bimodal_noise_has_two_values():
    found = draws(Noise(kind="bimodal", size=0.08, share=0.1))

    # A rate 8 % lower.
    assert sorted(set(found.tolist())) == pytest.approx([1, 1 / 0.92])
    assert (found > 1).mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("number", "factor"), [(0, 1.0), (25 / 2, 1.1), (25, 1.0), (75 / 2, 0.9), (50, 1.0)]
)
def test_drift_is_a_slow_wave_over_rounds(number, factor):
    noise = Noise(kind="drift", size=0.1)

    assert trial_factor(noise, np.random.default_rng(1), number) == pytest.approx(factor)


def test_no_noise_makes_a_call_free():
    random = np.random.default_rng(1)
    noise = Noise(size=10, jitter=10)

    assert min(trial_factor(noise, random, 0) for _ in range(100)) == 0.05
    assert min(call_factor(noise, random) for _ in range(100)) == 0.05


def test_noise_is_off_where_nothing_is_said():
    assert draws(Noise(), 10).tolist() == [1] * 10
    assert call_factor(Noise(), np.random.default_rng(1)) == 1
