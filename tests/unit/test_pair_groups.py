"""Order statistics by group, the cut, tails, baselines: by hand."""

import math

import numpy as np
import pytest

from collbench.analyze.pair_baselines import Classes
from collbench.analyze.pair_confirm import Again, Outcome, joint
from collbench.analyze.pair_effects import effect_of
from collbench.analyze.pair_groups import (
    clipped_spread,
    distinct,
    group_medians,
    group_scores,
    partner_counts,
    robust_cut,
    tail,
)
from collbench.analyze.pair_types import (
    KINDS,
    NO_RAIL,
    UNREADABLE,
    PairKind,
    PairValue,
    empty_table,
    pair_table,
)
from collbench.model import Status

LEAST = -math.log(0.96)


@pytest.mark.parametrize("size", [4, 70_000])
def test_medians_and_scores_of_groups(size):
    values = np.array([5.0, 1.0, 3.0, 2.0, 10.0, 8.0, 9.0, 7.0, 4.0])
    groups = np.array([0, 0, 0, 2, 3, 3, 3, 3, 3])

    assert group_medians(values, groups, size)[:4] == pytest.approx([3, np.nan, 2, 8], nan_ok=True)
    # Best of three and of one; the upper quartile of five.
    assert group_scores(values, groups, size)[:4] == pytest.approx([5, np.nan, 2, 9], nan_ok=True)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 63])
def test_scores_are_numpys_quantile_from_four_on(count):
    values = np.random.default_rng(count).standard_normal(count)
    (score,) = group_scores(values, np.zeros(count, np.intp), 1)

    assert score == pytest.approx(np.quantile(values, 0.75) if count >= 4 else values.max())


def test_no_values_at_all():
    assert np.isnan(group_medians(np.empty(0), np.empty(0, np.intp), 2)).all()
    assert robust_cut(np.array([np.nan])).depth == pytest.approx(LEAST)


@pytest.mark.parametrize(
    ("scores", "center", "scale"),
    [
        # The upper of two middle values; the scale of the upper half: median of 0, 0.02.
        ([-0.5, -0.1, 0.0, 0.02], 0.0, 1.4826 * 0.01),
        ([0.0, 0.0, 0.0], 0.0, 0.005),
        ([-0.3, -0.2, 0.1, 0.2, 0.5], 0.1, 1.4826 * 0.1),
        ([np.nan, 0.0, 0.1], 0.1, 0.005),
    ],
)
def test_the_cut(scores, center, scale):
    cut = robust_cut(np.array(scores))

    assert (cut.center, cut.scale) == (pytest.approx(center), pytest.approx(scale))
    assert cut.depth == pytest.approx(max(3.5 * scale, LEAST))
    assert cut.low == pytest.approx(center - max(3.5 * scale, LEAST))


def test_distinct_numbers_and_partners():
    assert distinct(np.array([3, 1, 3, -1, 1])).tolist() == [-1, 1, 3]
    assert distinct(np.array([], np.int64)).tolist() == []
    a, b = np.array([0, 1, 0, 2]), np.array([1, 0, 2, 0])
    assert partner_counts(a, b, 4).tolist() == [2, 1, 1, 0]


@pytest.mark.parametrize(
    ("tries", "chance", "hits", "wanted"),
    [(3, 0.1, 3, 1e-3), (2, 0.5, 1, 0.75), (4, 0.2, 0, 1.0), (0, 0.1, 0, 1.0)],
)
def test_the_tail(tries, chance, hits, wanted):
    assert tail(tries, chance, hits) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("tries", "low", "more", "outcome"),
    [
        (0, 0, {}, Outcome.OPEN),
        (1, 1, {}, Outcome.OPEN),
        # 1000 x 0.01^3 = 0.001 < 0.005, and 1000 x 0.01^2 = 0.1 is not.
        (2, 2, {}, Outcome.OPEN),
        (3, 3, {}, Outcome.CONFIRMED),
        (3, 3, {"controls": 2}, Outcome.OPEN),
        (3, 3, {"chance_of_gap": 1e-5}, Outcome.OPEN),
        (1, 0, {}, Outcome.OPEN),
        (2, 0, {}, Outcome.CLEARED),
        (2, 1, {}, Outcome.OPEN),
        (3, 1, {}, Outcome.CLEARED),
        # 1000 x (4 x 0.01^3 x 0.99 + 0.01^4) = 0.004
        (4, 3, {}, Outcome.CONFIRMED),
        (8, 5, {"chance": 0.3}, Outcome.UNDECIDED),
        (8, 8, {"chance_of_gap": 1e-3}, Outcome.UNDECIDED),
    ],
)
def test_how_often_a_suspect_must_be_low_again(tries, low, more, outcome):
    again = Again(**{"tries": tries, "low": low, "chance": 0.01, "tested": 1000, **more})

    assert again.outcome is outcome


def test_the_spread_leaves_far_values_out():
    values = np.array([-0.02, -0.01, 0.0, 0.01, 0.02])

    assert clipped_spread(np.append(values, [-0.7])) == pytest.approx(values.std(ddof=1))
    assert clipped_spread(np.zeros(5)) == 1e-3


def test_over_several_rails_one_open_keeps_a_node_open():
    confirmed = Again(tries=3, low=3, chance=0.001, tested=10)
    cleared = Again(tries=3, low=0, chance=0.001, tested=10)
    unknown = Again(tries=0, low=0, chance=0.001, tested=10)

    assert joint([confirmed, cleared]) is Outcome.CONFIRMED
    assert joint([confirmed, unknown]) is Outcome.OPEN
    assert joint([cleared]) is Outcome.CLEARED


def classes(rounds, across=None, blocks=None):
    size = len(rounds)
    return Classes(
        np.zeros(size, bool) if across is None else np.array(across),
        np.zeros(size, bool),
        np.array(rounds),
        np.zeros(size, np.intp) if blocks is None else np.array(blocks),
    )


def test_a_round_of_six_has_its_own_baseline():
    values = np.array([0.0] * 6 + [1.0] * 6)
    found = classes([0] * 6 + [1] * 6).baselines(values)

    assert found.tolist() == values.tolist()


def test_a_small_round_moves_by_what_its_pairs_have_in_common():
    values = np.array([0.0, 0.0, 0.0, 0.0, -0.3, -0.2, -0.3, 0.1, -0.5])
    found = classes([0, 0, 1, 1, 2, 2, 3, 3, 4]).baselines(values)

    # Round 2 is lower as a whole; of round 3 and of a single pair nothing can be said.
    assert found == pytest.approx([0, 0, 0, 0, -0.2, -0.2, 0, 0, 0])


@pytest.mark.parametrize(
    ("blocks", "own"), [([1, 1, 1, 2, 2, 2], False), ([1, 1, 2, 2, 3, 3], True)]
)
def test_across_leaves_a_round_needs_three_pairs_of_leaves(blocks, own):
    made = classes([0] * 6 + [1] * 6, [True] * 12, [*blocks, *blocks])
    found = made.baselines(np.array([0.0] * 6 + [1.0] * 6))

    assert found[0] == (0.0 if own else 0.5)


def test_an_effect_of_few_and_of_more_values():
    few = effect_of(np.log([0.9]), 0.01)
    assert few.share == pytest.approx(-0.1)
    assert few.low == pytest.approx(0.9 * math.exp(-1.96 * 0.01) - 1)
    assert few.high == pytest.approx(0.9 * math.exp(1.96 * 0.01) - 1)

    more = effect_of(np.log([0.9] * 4), 0.01)
    assert more.high == pytest.approx(0.9 * math.exp(1.96 * 1.2533 * 0.01 / 2) - 1)

    # Held against four healthy values, whose median errs as much.
    both = effect_of(np.log([0.9] * 4), 0.01, 4)
    assert both.high == pytest.approx(0.9 * math.exp(1.96 * 1.2533 * 0.01 / 2 * 2**0.5) - 1)


def test_values_as_a_table():
    table = pair_table(
        [
            PairValue(a=1, b=0, kind=PairKind.SEND, round=3, rail=2, value=48.5, alone=True),
            PairValue(a=0, b=2, kind=PairKind.LATENCY, round=4, status=Status.HUNG, retransmits=7),
        ]
    )

    assert table["kind"].tolist() == [KINDS.index(PairKind.SEND), KINDS.index(PairKind.LATENCY)]
    assert (table["a"].tolist(), table["b"].tolist()) == ([1, 0], [0, 2])
    assert (table["rail"].tolist(), table["round"].tolist()) == ([2, NO_RAIL], [3, 4])
    assert table["value"].tolist() == pytest.approx([48.5, np.nan], nan_ok=True)
    assert table["alone"].tolist() == [True, False]
    assert table["retransmits"].tolist() == [UNREADABLE, 7]


def test_an_empty_table_is_ok_and_knows_nothing():
    assert (
        empty_table(2).tobytes()
        == pair_table([PairValue(a=0, b=0, kind=PairKind.SEND_RECV, round=0)] * 2).tobytes()
    )
