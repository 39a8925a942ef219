"""Verdicts on made fabrics: the plan runs, progressive filling answers, the verdict is read."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from knee_noise import hashed_rounds
from scale_fabric import LARGE, SMALL, MadeFabric, leaves_of

from collbench.analyze.false_knees import FalseKneeKind
from collbench.analyze.knee import KneeAnswer
from collbench.analyze.knee_points import correct_latency
from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern, Step
from collbench.analyze.scale_verdict import ScaleVerdict, judge_scale
from collbench.analyze.scale_words import also, for_you, headline, next_step, not_it, seen
from collbench.errors import UsageError
from collbench.model import Status
from collbench.plan.scale import next_steps
from collbench.plan.scale_design import ScaleDesign

TWO = leaves_of(4, 4)


def measured(fabric: MadeFabric, **fields) -> list[Observation]:
    asked = ScaleDesign(
        leaves=fabric.leaves,
        size_bytes=LARGE,
        **{"small_bytes": SMALL, "repeats": 2, **fields},
    )
    return fabric.run(next_steps(asked))


def judged(fabric: MadeFabric, **fields) -> ScaleVerdict:
    return judge_scale(measured(fabric, **fields), fabric.leaves)


@cache
def two_to_one() -> ScaleVerdict:
    return judged(MadeFabric(TWO, 20.0, noise=0.01, alpha_us=5.0))


@pytest.mark.parametrize(
    ("sizes", "uplink", "ratio"),
    [
        ((4, 4), 10.0, 4.0),
        ((4, 4), 20.0, 2.0),
        ((4, 4), 5.0, 8.0),
        ((2, 2, 2, 2), 10.0, 2.0),
        ((6, 3, 4), 20.0, 3.0),
        ((8, 8), 30.0, 8 / 3),
        ((5, 1, 5), 25.0, 2.0),
    ],
)
def test_the_ratio_is_found(sizes, uplink, ratio):
    verdict = judged(MadeFabric(leaves_of(*sizes), uplink, noise=0.01))

    assert verdict.answer is KneeAnswer.KNEE
    assert verdict.ratio.value == pytest.approx(ratio, rel=0.02)
    # No wider than a node link, and by protocol overhead no figure lies exactly.
    assert verdict.ratio.low - 0.01 <= ratio <= verdict.ratio.high + 0.01
    assert verdict.fit.flows_high - verdict.fit.flows_low < 0.2
    assert verdict.capacity_gb_per_s == pytest.approx(uplink, rel=0.02)
    assert not any(check.found for check in verdict.checks)
    assert verdict.breaks(1.5) is True
    assert verdict.breaks(10.0) is False


@pytest.mark.parametrize("sizes", [(4, 4), (2, 2, 2, 2), (6, 3, 4)])
def test_enough_uplinks_have_no_knee(sizes):
    verdict = judged(MadeFabric(leaves_of(*sizes), 10.0 * max(sizes), noise=0.01))
    ran = sorted(sizes)[-2]

    assert verdict.answer is KneeAnswer.NO_KNEE
    assert verdict.ratio.value is None
    assert verdict.ratio.high < 1.03 * max(sizes) / ran
    assert verdict.breaks(2.0) is False
    assert headline(verdict).startswith(f"No knee up to {ran} flows a leaf")


def test_the_rings_that_hide_it_and_those_that_show_it():
    verdict = two_to_one()
    witnesses = {one.pattern: one for one in verdict.witnesses}
    ring = witnesses[ScalePattern.ALL_REDUCE]

    assert ring.n == 8
    assert ring.rates_gb_per_s[NodeOrder.CONTIGUOUS] == pytest.approx(10.0, rel=0.03)
    assert ring.rates_gb_per_s[NodeOrder.ROUND_ROBIN] == pytest.approx(5.0, rel=0.03)
    for one in witnesses.values():
        assert one.agrees
        assert one.fit.flows == pytest.approx(2.0, rel=0.02)


def test_what_is_said_of_a_knee():
    verdict = two_to_one()

    assert headline(verdict).startswith("Knee: a leaf's uplinks carry 2.0")
    assert "node links of 4: oversubscribed 2.0" in headline(verdict)
    assert "so it is no host limit" in seen(verdict)
    assert any(
        line.startswith("all_reduce on 8 nodes, GB/s: 9.") and "interleaved" in line
        for line in for_you(verdict)
    )
    assert {"no dip at 3 nodes", "no node's arrival explains a drop (2 sequences)"} <= set(
        not_it(verdict)
    )
    assert "leaf order" in next_step(verdict)


def test_patterns_alone_are_fitted_together_without_pairs():
    verdict = judged(
        MadeFabric(TWO, 20.0, noise=0.01),
        patterns=(ScalePattern.ALL_REDUCE, ScalePattern.HALF, ScalePattern.ALL_TO_ALL),
    )

    assert verdict.answer is KneeAnswer.KNEE
    assert verdict.ratio.value == pytest.approx(2.0, rel=0.02)
    assert verdict.full_gb_per_s is None


@pytest.mark.parametrize("uplink", [40.0, 20.0])
def test_a_slow_node_is_called_a_node(uplink):
    verdict = judged(MadeFabric(TWO, uplink, slow={5: 0.33}, noise=0.01))
    check = verdict.check(FalseKneeKind.NODE)

    assert [one.node for one in verdict.slow_nodes] == [5]
    assert verdict.slow_nodes[0].slower == pytest.approx(0.67, abs=0.02)
    assert check.found
    assert "node 5 (67% slower" in check.text
    assert next_step(verdict).startswith("look at node 5 first")
    if uplink == 40.0:
        assert verdict.answer is KneeAnswer.NO_KNEE
    else:
        assert verdict.ratio.value == pytest.approx(2.0, rel=0.02)


def test_a_step_that_follows_the_node_is_a_slow_joiner():
    verdict = judged(
        MadeFabric(TWO, 40.0, slow={2: 0.6}, noise=0.01), patterns=(ScalePattern.ALL_REDUCE,)
    )
    check = verdict.check(FalseKneeKind.NODE)

    assert check.found
    assert "comes with node 2 in 2 sequences" in check.text
    assert verdict.slow_nodes[0].slower == pytest.approx(0.4, abs=0.02)


def test_in_one_sequence_a_slow_joiner_cannot_be_told():
    verdict = judged(
        MadeFabric(TWO, 40.0, slow={2: 0.6}, noise=0.01),
        patterns=(ScalePattern.ALL_REDUCE,),
        growths=1,
    )

    assert verdict.check(FalseKneeKind.NODE).found is None
    assert verdict.slow_nodes == ()


def test_hosts_that_slow_down_are_no_knee():
    verdict = judged(MadeFabric(TWO, 400.0, host_limit=50.0, noise=0.01))

    assert verdict.answer is KneeAnswer.NO_KNEE
    assert verdict.check(FalseKneeKind.HOSTS).found
    assert any(text.startswith("hosts: pairs inside leaves") for text in also(verdict))
    assert next_step(verdict).startswith("look at the hosts")


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        (
            {"algorithm": {1: "Tree/Simple", 3: "Ring/Simple"}},
            FalseKneeKind.ALGORITHM,
            "changes from 2 to 3 nodes (Tree/Simple to Ring/Simple)",
        ),
        ({"own_fall": 0.15}, FalseKneeKind.COLLECTIVE, "in leaf order too (all_reduce"),
        ({"dip_at_three": 0.4}, FalseKneeKind.THREE_NODES, "3 nodes are 40% slower than 2 and 4"),
        ({"alpha_us": 200.0}, FalseKneeKind.LATENCY, "taken out"),
    ],
)
def test_what_falls_with_n_by_itself_is_no_knee(fields, kind, words):
    verdict = judged(MadeFabric(TWO, 40.0, noise=0.005, **fields))

    assert verdict.answer is KneeAnswer.NO_KNEE
    assert verdict.check(kind).found
    assert words in verdict.check(kind).text
    ring = next(w for w in verdict.witnesses if w.pattern is ScalePattern.ALL_REDUCE)
    assert ring.fit.answer is KneeAnswer.NO_KNEE


def test_none_of_them_is_found_on_a_healthy_fabric():
    fabric = MadeFabric(TWO, 40.0, noise=0.005, algorithm={1: "Ring/Simple"}, alpha_us=1.0)
    verdict = judged(fabric)

    assert [check.found for check in verdict.checks] == [False] * 7
    assert "Ring/Simple throughout" in not_it(verdict)


def test_a_fabric_that_hashes_is_not_called_oversubscribed():
    leaves = leaves_of(8, 8)
    verdict = judge_scale(hashed_rounds(8, 8, np.random.default_rng(1)), leaves)

    assert verdict.answer is KneeAnswer.NO_KNEE
    assert headline(verdict).startswith("No oversubscription; collisions: median")
    assert verdict.breaks(1.5) is False


def test_uplinks_that_are_short_beside_collisions_are_found():
    leaves = leaves_of(8, 8)
    verdict = judge_scale(hashed_rounds(8, 4, np.random.default_rng(1)), leaves)

    assert verdict.answer is KneeAnswer.KNEE
    assert verdict.collisions.there
    assert verdict.ratio.value == pytest.approx(2.0, rel=0.15)
    assert "uplinks are short beside them" in headline(verdict)


def unlike_shares(random, carried, scatter, fewest):
    """Rounds over one uplink whose pairs take unlike shares of it, from so many pairs on."""
    rounds = []
    for one in hashed_rounds(4, 1, random, noise=0.001, rate=100.0):
        m = one.step.m
        rates = np.array(one.pair_rates_gb_per_s)
        if one.step.pattern is ScalePattern.PAIRS and m >= fewest:
            weights = np.exp(0.35 * random.standard_normal(m))
            total = carried * np.exp(scatter * random.standard_normal())
            rates = total / m * weights / weights.mean()
        rounds.append(
            Observation(
                step=one.step,
                rate_gb_per_s=float(rates.min()),
                pair_rates_gb_per_s=tuple(map(float, rates)),
            )
        )
    return rounds


@pytest.mark.parametrize("scatter", [0.0, 0.07])
def test_pairs_that_share_one_uplink_unevenly_are_no_collisions(scatter):
    """And a busy host makes what the uplink carries differ from round to round."""
    rounds = unlike_shares(np.random.default_rng(3), 2.0, scatter, 3)
    verdict = judge_scale(rounds, TWO)

    assert verdict.check(FalseKneeKind.COLLISIONS).found is False
    assert verdict.ratio.value == pytest.approx(2.0, rel=0.03 + scatter / 2)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((6,), "cannot see uplinks: the 6 nodes are in one leaf"), ((1, 1), "1 different numbers")],
)
def test_too_few_leaves_or_nodes_cannot_tell(sizes, words):
    verdict = judged(MadeFabric(leaves_of(*sizes), 10.0, noise=0.01))

    assert verdict.answer is KneeAnswer.INCONCLUSIVE
    assert words in headline(verdict)
    assert verdict.breaks(1.0) is None


def test_unknown_leaves_say_from_where_on_and_what_they_cannot_know():
    fabric = MadeFabric(leaves_of(8, 8), 20.0, noise=0.01)
    asked = ScaleDesign(nodes=tuple(range(16)), size_bytes=LARGE, repeats=2)
    verdict = judge_scale(fabric.run(next_steps(asked)), None)

    assert verdict.answer is KneeAnswer.KNEE
    # About 4 k / r = 16 / 2: in random order a quarter of the nodes sends across.
    assert 6 < verdict.fit.flows < 10
    assert verdict.ratio.value is None
    assert "leaves are unknown" in headline(verdict)
    assert "name the leaves" in next_step(verdict)


def test_steps_that_failed_are_named_and_left_out():
    observations = measured(MadeFabric(TWO, 20.0, noise=0.01))
    failed = [
        Observation(step=one.step, status=Status.HUNG) if k % 10 == 0 else one
        for k, one in enumerate(observations)
    ]
    verdict = judge_scale(failed, TWO)

    assert verdict.ratio.value == pytest.approx(2.0, rel=0.02)
    lost = verdict.lost.steps
    assert len(lost) == len(observations[::10])
    assert lost[0].endswith(": hung")
    assert f"{len(lost) - 3} more steps without a rate" in also(verdict)
    assert verdict.lost.node is None


def test_a_node_in_no_leaf_is_an_error():
    observations = measured(MadeFabric(TWO, 20.0))
    with pytest.raises(UsageError, match="is in no leaf"):
        judge_scale(observations, leaves_of(4, 3))


def test_nothing_measured_cannot_tell():
    assert judge_scale([], TWO).answer is KneeAnswer.INCONCLUSIVE
    assert judge_scale([], None).answer is KneeAnswer.INCONCLUSIVE


def timed(size_bytes: int, time_us: float, **fields) -> Observation:
    return Observation(
        step=Step(
            pattern=ScalePattern.ALL_REDUCE, nodes=(0, 1, 2, 3), size_bytes=size_bytes, **fields
        ),
        rate_gb_per_s=size_bytes / time_us / 1e3,
        time_us=time_us,
    )


def test_latency_is_taken_out_by_two_sizes():
    # 100 us and 10 GB/s: 1 MB takes 200 us, 10 MB take 1,100 us.
    corrected, latency = correct_latency([timed(10**6, 200.0), timed(10**7, 1100.0)])

    assert [one.rate_gb_per_s for one in corrected] == pytest.approx([10.0])
    assert latency.corrected
    assert latency.share == pytest.approx(100 / 1100)
    assert latency.share_at_n == 4


@pytest.mark.parametrize(
    "observations",
    [
        [timed(10**7, 1100.0)],
        # Too near to each other for alpha.
        [timed(5 * 10**6, 600.0), timed(10**7, 1100.0)],
    ],
)
def test_one_size_leaves_rates_as_they_are(observations):
    corrected, latency = correct_latency(observations)

    assert corrected[-1].rate_gb_per_s == observations[-1].rate_gb_per_s
    assert not latency.corrected


def on_rails(observations, slow_node: int, slow_rail: int) -> list[Observation]:
    """The same rates on three rails; one node is at half rate on one of them."""
    found = []
    for one in observations:
        for rail in range(3):
            rates = tuple(
                rate * (0.5 if rail == slow_rail and slow_node in pair else 1.0)
                for pair, rate in zip(one.step.pairs, one.pair_rates_gb_per_s, strict=True)
            )
            found.append(
                Observation(
                    step=one.step,
                    rate_gb_per_s=min(rates),
                    pair_rates_gb_per_s=rates,
                    rail=rail,
                )
            )
    return found


def test_a_slow_rail_of_a_node_is_named():
    patterns = (ScalePattern.PAIRS, ScalePattern.INSIDE)
    observations = measured(MadeFabric(TWO, 40.0, noise=0.01), patterns=patterns, small_bytes=None)
    verdict = judge_scale(on_rails(observations, 6, 2), TWO)

    assert [one.name for one in verdict.slow_nodes] == ["node 6 rail 2"]
    assert verdict.answer is KneeAnswer.NO_KNEE


@pytest.mark.parametrize(
    ("uplink", "answer"), [(37.0, KneeAnswer.NO_KNEE), (34.0, KneeAnswer.KNEE)]
)
def test_what_nearly_full_uplinks_cost_is_no_knee(uplink, answer):
    """Four links of 10 GB/s over 37: oversubscribed 1.08:1, if it is at all."""
    verdict = judged(MadeFabric(TWO, uplink, noise=0.003), repeats=3)

    assert verdict.answer is answer
    assert verdict.ratio.high == pytest.approx(40 / uplink, rel=0.03)
    assert (verdict.ratio.value is None) == (answer is KneeAnswer.NO_KNEE)
    assert (verdict.fit.flows is None) == (answer is KneeAnswer.NO_KNEE)


@pytest.mark.parametrize("carried", [1.0, 1.15])
def test_unlike_shares_of_a_single_link_are_no_collisions_however_its_sum_scatters(carried):
    """Over NCCL on two GPUs at 4:1 4 TCP flows had 18 to 50 of 107 MB/s."""
    rounds = unlike_shares(np.random.default_rng(4), carried, 0.15, 2)
    verdict = judge_scale(rounds, TWO)

    check = verdict.check(FalseKneeKind.COLLISIONS)
    assert check.found is False
    assert check.text.startswith("pairs take unlike shares of what the uplinks carry in all")
    assert verdict.answer is KneeAnswer.KNEE
    assert verdict.ratio.low < 4 / carried < verdict.ratio.high
