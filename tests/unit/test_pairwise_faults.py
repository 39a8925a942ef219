"""Pairs that give no value, and pairs that lose: whose fault it is."""

from dataclasses import replace

import pytest
from pair_values import all_pairs, fabric, pair, settle, settled, state_of, words

from collbench.analyze.pair_suspects import next_suspects
from collbench.analyze.pair_types import PairKind
from collbench.analyze.pairwise import judge
from collbench.model import Status


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.HUNG, "hangs"),
        (Status.NODE_LOST, "hangs"),
        (Status.CRASHED, "fails"),
        (Status.FAILED, "fails"),
        (Status.DATA_WRONG, "data_wrong"),
    ],
)
@pytest.mark.parametrize("partners", [7, 2])
def test_a_node_whose_pairs_break_with_two_partners_is_named(status, code, partners):
    rate = lambda a, b: status if b == 7 and a < partners else 188.0  # noqa: E731
    result = judge(settled(8, rate))

    assert words(result) == {7: ("fail", code)}
    assert result.of("fail")[0].evidence == (
        f"{status} {partners} times, with {partners} of 7 partners",
    )
    assert result.broken_pairs == partners


def test_one_hang_is_no_nodes_until_it_hangs_with_another():
    first = all_pairs(8, lambda a, b: Status.HUNG if (a, b) == (2, 3) else 188.0)
    state = state_of(8, first)
    assert {node.node for node in judge(state).of("inconclusive")} == {2, 3}

    hangs = lambda a, b, k, alone: [  # noqa: E731
        pair(a, b, number=k, status=Status.HUNG) if 3 in (a, b) else pair(a, b, 188.0, number=k)
    ]
    assert words(judge(settle(state, hangs))) == {3: ("fail", "hangs")}


def test_a_pair_that_hangs_again_while_both_work_with_others_is_a_path():
    rate = lambda a, b: Status.HUNG if (a, b) == (2, 3) else 188.0  # noqa: E731
    result = judge(settled(8, rate))

    assert words(result) == {}
    assert fabric(result) == [("slow_path", (2, 3), True)]
    assert result.fabric[0].evidence == ("hung 2 times", "both nodes work with others")


def test_a_split_fabric_is_nobodys_hang():
    rate = lambda a, b: Status.HUNG if (a < 3) != (b < 3) else 188.0  # noqa: E731
    result = judge(settled(8, rate))

    assert words(result) == {}
    assert fabric(result) == [("split_fabric", (0, 1, 2), True)]
    assert result.fabric[0].pairs == 15


def test_two_bad_nodes_that_break_together_are_both_named():
    rate = lambda a, b: Status.HUNG if {a, b} & {1, 2} else 188.0  # noqa: E731
    assert words(judge(settled(8, rate))) == {1: ("fail", "hangs"), 2: ("fail", "hangs")}


def latency(lossy, slow=9, trips=1000, **counters):
    def measure(a, b, number, alone):
        bad = slow if {a, b} & lossy else 0
        return [
            pair(a, b, 188.0, number=number, alone=alone),
            pair(
                a,
                b,
                kind=PairKind.LATENCY,
                number=number,
                round_trips=trips,
                slow_round_trips=bad,
                **{name: value if {a, b} & lossy else 0 for name, value in counters.items()},
            ),
        ]

    return measure


@pytest.mark.parametrize(("slow", "counters"), [(9, {}), (0, {"retransmits": 300})])
@pytest.mark.parametrize("nodes", [4, 8])
def test_loss_shows_in_the_tail_or_in_the_counters(slow, counters, nodes):
    measure = latency({1}, slow, **counters)
    values = [row for a in range(nodes) for b in range(a + 1, nodes) for row in measure(a, b, 0, 0)]
    result = judge(settle(state_of(nodes, values), measure))

    assert words(result) == {1: ("fail", "lossy")}
    assert result.smallest_loss == 3 / 1000
    assert result.fabric == ()


def test_a_few_slow_round_trips_are_no_loss():
    values = [row for a in range(8) for b in range(a + 1, 8) for row in latency({1}, 2)(a, b, 0, 0)]
    result = judge(state_of(8, values))

    assert words(result) == {}


def test_a_path_that_loses_is_named_once_it_does_again():
    measure = latency(set())
    values = [row for a in range(8) for b in range(a + 1, 8) for row in measure(a, b, 0, 0)]
    losing = pair(2, 3, kind=PairKind.LATENCY, round_trips=1000, slow_round_trips=9)
    result = judge(state_of(8, [*values, losing, replace(losing, round=1)]))

    assert words(result) == {}
    assert fabric(result) == [("slow_path", (2, 3), True)]
    assert result.fabric[0].unit == "of round trips above 100 ms"


def test_a_path_that_loses_once_runs_again_and_is_cleared_where_it_is_fine():
    measure = latency(set())
    values = [row for a in range(8) for b in range(a + 1, 8) for row in measure(a, b, 0, 0)]
    losing = pair(2, 3, kind=PairKind.LATENCY, round_trips=1000, slow_round_trips=9)
    state = state_of(8, [*values, losing])

    again = [(one.suspect, one.partner, one.alone) for one in next_suspects(state)]
    assert again == [(2, 3, True)]
    result = judge(settle(state, measure))
    assert (words(result), fabric(result)) == ({}, [])
