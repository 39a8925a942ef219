"""Verdicts on pairs, on small clusters whose truth is planted by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pair_values import all_pairs, fabric, pair, settle, settled, state_of, words

from collbench.analyze.pair_state import PairwiseState, Reference
from collbench.analyze.pair_suspects import control_pairs, next_suspects, one_way_pairs
from collbench.analyze.pair_types import PairKind, pair_table
from collbench.analyze.pairwise import judge
from collbench.errors import ExitCode, UsageError
from collbench.model import Status

TWO_LEAVES = ("l0",) * 4 + ("l1",) * 4


def slow_nodes(*bad, low=63.0, usual=188.0):
    return lambda a, b: low if {a, b} & set(bad) else usual


def test_nothing_is_wrong():
    result = judge(settled(8, lambda a, b: 188.0, TWO_LEAVES))

    assert result.counts["pass"] == 8
    assert result.fabric == ()
    assert result.exit_code is ExitCode.FINE
    assert result.words_on_reference == "no absolute reference: equal is not fast"
    assert result.smallest_fault == pytest.approx(0.04)
    assert (result.across_share, result.collisions) == (pytest.approx(1.0), 0.0)
    assert {(node.partners, node.rounds) for node in result.nodes} == {(7, 1)}


@pytest.mark.parametrize("leaves", [None, TWO_LEAVES])
@pytest.mark.parametrize("bad", [(5,), (0,), (1, 2), (3, 4), (0, 6, 7)])
def test_nodes_at_a_third_are_named_and_no_partner(leaves, bad):
    result = judge(settled(8, slow_nodes(*bad), leaves))

    assert words(result) == dict.fromkeys(bad, ("fail", "node_slow"))
    assert result.fabric == ()
    assert result.exit_code is ExitCode.CONFIRMED_BAD
    for node in result.of("fail"):
        assert node.confirmed
        assert (node.measured, node.expected) == (pytest.approx(63), pytest.approx(188))
        assert node.effect.share == pytest.approx(63 / 188 - 1)
        assert node.effect.low <= node.effect.share <= node.effect.high < -0.6
        assert "known-good partners: low" in node.evidence[-1]


@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_the_smallest_clusters_in_which_a_node_can_be_named(nodes):
    assert words(judge(settled(nodes, slow_nodes(1)))) == {1: ("fail", "node_slow")}


def test_two_slow_of_three_cannot_be_told_from_all_equal():
    assert words(judge(settled(3, slow_nodes(0, 1)))) == {}


def test_half_of_all_nodes_is_not_told_from_the_other_half():
    result = judge(settled(4, slow_nodes(0, 1)))

    assert words(result) == {0: ("inconclusive", "node_slow"), 1: ("inconclusive", "node_slow")}
    assert result.exit_code is ExitCode.INCOMPLETE


def test_a_suspect_is_no_name_until_it_was_run_again():
    state = state_of(8, all_pairs(8, slow_nodes(5)))
    result = judge(state)

    assert words(result) == {5: ("suspect", "node_slow")}
    assert not result.of("suspect")[0].confirmed
    assert result.exit_code is ExitCode.INCOMPLETE


def test_a_suspect_that_is_fine_again_is_cleared():
    state = state_of(8, all_pairs(8, slow_nodes(5)))
    result = judge(settle(state, lambda a, b, k, alone: [pair(a, b, 188.0, number=k)]))

    (suspect,) = result.of("suspect")
    assert (suspect.node, suspect.confirmed, suspect.cleared) == (5, False, True)
    assert suspect.evidence[-1] == "run again with known-good partners: low 0 of 2"
    assert result.exit_code is ExitCode.FINE


def test_suspects_get_different_good_partners_of_their_leaf_and_controls_beside():
    state = state_of(8, all_pairs(8, slow_nodes(0, 4)), TWO_LEAVES)
    first = next_suspects(state)

    assert [(one.suspect, one.partner, one.alone) for one in first] == [
        (0, 1, False),
        (4, 5, False),
    ]
    controls = control_pairs(state, first)
    assert sorted(controls) == [(2, 3), (6, 7)]
    rows = [pair(a, b, 63.0, number=9) for a, b in [(0, 1), (4, 5)]]
    rows += [pair(a, b, 188.0, number=9) for a, b in controls]
    state = replace(
        state,
        values=np.concatenate([state.values, pair_table(rows)]),
        confirming=frozenset({9}),
    )
    assert [(one.suspect, one.partner) for one in next_suspects(state)] == [(0, 2), (4, 6)]
    assert control_pairs(state, ()) == ()


def test_a_round_that_is_slow_as_a_whole_accuses_nobody():
    values = []
    for number, factor in enumerate((1.0, 0.5, 0.9)):
        for k in range(8):
            a, b = k, 8 + (k + number) % 8
            values.append(pair(a, b, 100.0 * factor, number=number))
    result = judge(state_of(16, values))

    assert words(result) == {}
    assert result.fabric == ()


def test_a_slow_path_is_named_and_neither_of_its_ends():
    rate = lambda a, b: 63.0 if (a, b) == (2, 5) else 188.0  # noqa: E731
    result = judge(settled(8, rate))

    assert words(result) == {}
    assert fabric(result) == [("slow_path", (2, 5), True)]
    assert result.fabric[0].effect.share == pytest.approx(63 / 188 - 1)
    assert result.exit_code is ExitCode.CONFIRMED_BAD


def test_an_uplink_of_three_leaves_is_named_and_no_node():
    leaves = ("a",) * 3 + ("b",) * 3 + ("c",) * 3
    crossing = lambda a, b: (leaves[a] == "b") != (leaves[b] == "b")  # noqa: E731
    result = judge(settled(9, lambda a, b: 63.0 if crossing(a, b) else 188.0, leaves))

    assert words(result) == {}
    assert fabric(result) == [("leaf_uplink_slow", ("b",), True)]


@pytest.mark.parametrize(("alone", "named"), [(63.0, True), (188.0, False)])
def test_of_two_leaves_a_pair_alone_tells_a_slow_uplink_from_oversubscription(alone, named):
    crosses = lambda a, b: TWO_LEAVES[a] != TWO_LEAVES[b]  # noqa: E731
    state = state_of(8, all_pairs(8, lambda a, b: 47.0 if crosses(a, b) else 188.0), TWO_LEAVES)
    result = judge(
        settle(
            state,
            lambda a, b, k, single: [
                pair(a, b, alone if crosses(a, b) else 188.0, number=k, alone=single)
            ],
        )
    )

    assert words(result) == {}
    assert result.across_share == pytest.approx(0.25)
    wanted = [("leaf_uplink_slow", ("l0", "l1"), True)] if named else []
    assert fabric(result) == wanted
    assert (result.exit_code is ExitCode.CONFIRMED_BAD) is named


def rails_of(slow):
    """All pairs of 8 nodes on 4 rails; ``slow`` holds (node, rail)."""

    def measure(a, b, number, alone):
        return [
            pair(
                a,
                b,
                43.0 if {(a, rail), (b, rail)} & slow else 48.0,
                number=number,
                rail=rail,
                alone=alone,
            )
            for rail in range(4)
        ]

    values = [row for a in range(8) for b in range(a + 1, 8) for row in measure(a, b, 0, False)]
    return settle(state_of(8, values), measure)


@pytest.mark.parametrize(
    ("rails", "code"),
    [({2}, "rail_slow"), ({1, 3}, "rail_slow"), ({0, 1, 2, 3}, "node_slow")],
)
def test_one_rail_or_all(rails, code):
    result = judge(rails_of({(6, rail) for rail in rails}))

    assert words(result) == {6: ("fail", code)}
    (node,) = result.of("fail")
    assert set(node.rails) == rails
    assert node.rail in rails


@pytest.mark.parametrize(
    ("sends", "receives", "code"),
    [(63.0, 191.0, "slow_send"), (191.0, 63.0, "slow_receive"), (63.0, 63.0, "node_slow")],
)
def test_one_way_values_tell_the_direction(sends, receives, code):
    state = settled(8, slow_nodes(5))
    pairs = one_way_pairs(state)
    assert {node for node, _ in pairs} == {5}
    assert len({partner for _, partner in pairs}) == 2
    rows = [pair(node, other, sends, kind=PairKind.SEND, number=5000) for node, other in pairs]
    rows += [pair(other, node, receives, kind=PairKind.SEND, number=5001) for node, other in pairs]
    state = replace(state, values=np.concatenate([state.values, pair_table(rows)]))

    assert words(judge(state)) == {5: ("fail", code)}
    assert one_way_pairs(state) == ()


def test_a_difference_known_from_outside_and_a_node_that_was_not_there():
    result = judge(
        settled(
            8,
            lambda a, b: 188.0,
            config_differs={2: "NVLS off, 7 nodes have it"},
            not_tested={3: "absent"},
        )
    )

    assert words(result) == {2: ("fail", "config_differs")}
    assert [node.node for node in result.of("not_tested")] == [3]
    assert result.nodes[3].evidence == ("absent",)


def test_a_node_without_a_value_was_not_tested():
    values = all_pairs(4, lambda a, b: Status.SKIPPED if b == 3 else 188.0)

    assert [node.node for node in judge(state_of(4, values)).of("not_tested")] == [3]


BAR = Reference(source="--min-busbw", at_least={(PairKind.SEND_RECV, None): 100.0})


def test_two_nodes_are_inconclusive():
    result = judge(settled(2, lambda a, b: 50.0))

    assert result.counts["inconclusive"] == 2
    assert result.exit_code is ExitCode.INCOMPLETE


@pytest.mark.parametrize(("value", "code"), [(50.0, 1), (150.0, 4)])
def test_two_nodes_against_a_bar(value, code):
    result = judge(settled(2, lambda a, b: value, reference=BAR))

    assert result.counts["inconclusive"] == 2
    assert result.exit_code == code
    assert result.words_on_reference == "--min-busbw"


def test_all_below_a_bar_all_fail():
    result = judge(settled(4, lambda a, b: 50.0, reference=BAR))

    assert words(result) == dict.fromkeys(range(4), ("fail", "node_slow"))
    assert "below 100 GB/s (--min-busbw)" in result.nodes[0].evidence


def test_a_bar_names_the_one_below_it():
    result = judge(settled(8, slow_nodes(5), reference=BAR))

    assert words(result) == {5: ("fail", "node_slow")}


def test_a_node_that_is_only_a_little_slow_is_no_slow_path_to_everybody():
    rate = lambda a, b: 100.0 * (0.965 if 5 in (a, b) else 1.0)  # noqa: E731
    result = judge(settled(16, rate))

    assert words(result) == {}
    assert result.fabric == ()


@pytest.mark.parametrize(
    ("values", "leaves", "message"),
    [
        ([pair(0, 4, 1.0)], None, "a value of a node that is not among 4"),
        ([pair(1, 1, 1.0)], None, "a value of a node with itself; pairs have two nodes"),
        ([pair(0, 1, 1.0)], ("a",), "leaves of 1 nodes for 4; give one a node"),
    ],
)
def test_a_state_that_cannot_be(values, leaves, message):
    with pytest.raises(UsageError) as caught:
        state_of(4, values, leaves)

    assert str(caught.value) == message


def test_no_values_at_all():
    result = judge(PairwiseState(names=("a", "b", "c"), values=pair_table([])))

    assert result.counts["not_tested"] == 3
    assert (result.smallest_fault, result.smallest_loss) == (None, None)
    assert next_suspects(PairwiseState(names=("a", "b", "c"), values=pair_table([]))) == ()


def test_verdicts_are_plain_numbers():
    for node in judge(settled(8, slow_nodes(5), TWO_LEAVES)).nodes:
        json.dumps([node.node, node.measured, node.expected, node.partners, node.rounds])
