"""The matrix of pairs: what is in a cell, how a terminal shows it, and the pictures."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from pair_states import Pairs, about_of

from collbench.analyze.pair_types import STATUSES
from collbench.analyze.pairwise import judge
from collbench.model import Status
from collbench.report.album import FilesAlbum
from collbench.report.pair_matrix import LETTERS, pair_matrix
from collbench.report.pair_matrix_text import matrix_lines, shown_names
from collbench.report.pair_picture import draw_pair_matrix
from collbench.report.pair_ranks import all_ranks, lowest, spread_within
from collbench.report.pair_shades import shades_of


def lines_of(state):
    return matrix_lines(state, judge(state))


def ended(state, pair, status):
    """Returns a state in which a pair ended in another way."""
    values = state.values.copy()
    mine = (np.minimum(values["a"], values["b"]) == min(pair)) & (
        np.maximum(values["a"], values["b"]) == max(pair)
    )
    values["status"][mine] = STATUSES.index(status)
    return replace(state, values=values)


def test_cells_are_symmetric_and_hold_the_lowest_rail():
    state = Pairs(4, rails=2, slow_rails={(1, 0): 0.5}).state(confirm=False)

    matrix = pair_matrix(state)

    assert matrix.of_rails
    assert matrix.values[1].tolist()[:1] + matrix.values[1].tolist()[2:] == [24.0, 24.0, 24.0]
    assert np.array_equal(matrix.values, matrix.values.T, equal_nan=True)
    assert np.isnan(matrix.values.diagonal()).all()
    # Half of the pairs of rail 0 have node 1: their median lies between both.
    assert matrix.shares[0, 1] == pytest.approx(np.sqrt(0.5))
    assert matrix.shares[0, 2] == pytest.approx(1.0)


def test_pairs_across_leaves_are_held_against_their_like():
    pairs = Pairs(8, leaf=4)
    pairs.paths = {(a, b): 0.25 for a in range(4) for b in range(4, 8)}
    pairs.paths[0, 4] = 0.125

    matrix = pair_matrix(pairs.state(confirm=False))

    assert (matrix.usual, matrix.usual_across) == pytest.approx((48.0, 12.0))
    assert matrix.shares[0, 1] == pytest.approx(1.0)
    assert matrix.shares[0, 5] == pytest.approx(1.0)
    assert matrix.shares[0, 4] == pytest.approx(0.5)


def test_nodes_stand_in_the_order_of_their_leaves():
    state = replace(Pairs(4).state(confirm=False), leaves=("b", "a", "b", "a"))

    matrix = pair_matrix(state)

    assert matrix.order.tolist() == [0, 2, 1, 3]
    assert matrix.bounds == (0, 2, 4)
    assert [line.split()[0] for line in lines_of(state)[2:]] == ["node0", "node2", "node1", "node3"]


def test_many_nodes_share_cells_that_hold_their_slowest_pair():
    state = Pairs(64, leaf=16, slow={5: 0.5}).state(confirm=False)

    matrix = pair_matrix(state, most_cells=16)

    assert matrix.nodes_a_cell == 4
    assert matrix.values.shape == (16, 16)
    assert (matrix.values[1] == 24.0).all()
    assert matrix.values[0, 0] == 48.0


def test_a_pair_that_was_met_only_when_run_again_is_there():
    state = Pairs(4).state(confirm=False)
    first = state.values["round"] != 2
    late = replace(state, confirming=frozenset({2}))

    assert not first.all()
    assert np.isnan(pair_matrix(late).values).sum() == 4
    assert np.isnan(pair_matrix(replace(state, values=state.values[first])).values).sum() == 8


@pytest.mark.parametrize("status", list(LETTERS))
def test_a_pair_without_a_value_has_the_letter_of_its_status(status):
    lines = lines_of(ended(Pairs(8, leaf=4).state(confirm=False), (1, 3), status))

    letter = LETTERS[status]
    assert lines[3].split()[4] == letter
    assert lines[5].split()[2] == letter
    assert lines[-1] == f"  {letter} {str(status).replace('_', ' ')}"


def test_letters_are_of_every_status_but_ok():
    assert set(LETTERS) == set(Status) - {Status.OK}
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_untried_pairs_are_told_from_broken_ones():
    state = Pairs(8, leaf=4).state(confirm=False)
    kept = replace(state, values=state.values[state.values["round"] < 5])

    lines = lines_of(kept)

    assert sum(line.split().count("-") for line in lines[2:10]) == 2 * 8
    assert lines[-1] == "  - not tried"


@pytest.mark.parametrize(
    ("line", "unit", "cell"),
    [
        (397.0, "GB/s", "397"),
        (48.0, "GB/s", "48.0"),
        (1.25, "GB/s", "1.25"),
        (0.187, "MB/s", "187"),
        (2e-5, "KB/s", "20.0"),
    ],
)
def test_all_values_have_one_unit_and_three_digits(line, unit, cell):
    lines = lines_of(Pairs(8, line=line).state(confirm=False))

    assert lines[0] == f"send_recv in {unit}"
    assert lines[2].split() == ["node0", ".", *[cell] * 7]


def test_thirty_two_nodes_fit_with_two_digits_or_stand_in_blocks():
    fast = lines_of(Pairs(32, leaf=8, slow={9: 0.5}).state(confirm=False))
    slow = lines_of(Pairs(32, leaf=8, line=0.187).state(confirm=False))

    assert len(fast) == 1 + 33
    assert fast[2].startswith("node0   . 48 48")
    assert fast[11].endswith("  SUSPECT")
    assert len(slow) == 1 + 2 * 33
    assert max(map(len, [*fast, *slow])) <= 120
    assert lines_of(Pairs(33).state(confirm=False)) == []


@pytest.mark.parametrize(
    ("names", "longest", "shown"),
    [
        (["a1.example.com", "a2.example.com"], 8, ["a1", "a2"]),
        (["rack-one-node001", "rack-one-node002"], 10, ["rack~de001", "rack~de002"]),
        (["alpha.x", "beta.y"], 10, ["alpha.x", "beta.y"]),
        (["same-name", "same-nothing-else"], 10, ["same-name", "s~ing-else"]),
    ],
)
def test_names_are_cut_where_they_are_alike(names, longest, shown):
    assert shown_names(names, longest) == shown


def test_columns_of_unlike_names_are_numbered_beside_the_rows():
    names = ("front-alpha", "front-beta", "front-gamma", "front-delta")

    lines = lines_of(Pairs(4, names=names).state(confirm=False))

    assert lines[1].split() == ["0", "1", "2", "3"]
    assert lines[2].startswith(" 0 front-alpha")


def test_ranks_are_of_better_pairs_lowest_first():
    state = Pairs(8, leaf=4, slow={5: 0.5}).state()
    ranks = all_ranks(state)

    found = lowest(ranks, 3)

    assert [(rank.node, rank.value, rank.share) for rank in found] == [
        (5, pytest.approx(24.0), pytest.approx(0.5)),
        (0, pytest.approx(48.0), pytest.approx(1.0)),
        (1, pytest.approx(48.0), pytest.approx(1.0)),
    ]
    assert spread_within(ranks, range(8)) == pytest.approx(0.5)
    assert spread_within(ranks, [0, 1, 2]) == pytest.approx(0.0)
    assert spread_within(ranks, [5]) is None


def test_slow_uplinks_do_not_spread_the_nodes():
    pairs = Pairs(8, leaf=4)
    pairs.paths = {(a, b): 0.2 + 0.02 * a for a in range(4) for b in range(4, 8)}

    assert spread_within(all_ranks(pairs.state(confirm=False)), range(8)) == pytest.approx(0.0)


def test_colours_end_at_the_lowest_value_between_10_and_75_percent():
    assert shades_of(np.array([1.0, 0.99, np.nan])).limit == pytest.approx(np.log(1.1))
    assert shades_of(np.array([1.0, 0.5])).limit == pytest.approx(np.log(2))
    far = shades_of(np.array([1.0, 0.01]))
    assert (far.limit, far.clipped) == (pytest.approx(np.log(4)), True)
    assert far.is_dark(0.3)
    assert not far.is_dark(0.9)


def drawn(state, tmp_path, **changes):
    """Draws a state and returns the words of its SVG."""
    png, svg = draw_pair_matrix(
        state, judge(state), about_of(state, **changes), FilesAlbum(tmp_path)
    )
    assert png.name == "20261130-0412-7f3a-pairs.png"
    assert png.read_bytes().startswith(b"\x89PNG")
    return re.findall(r"<(?:text|tspan)[^>]*>([^<]*)</", svg.read_text())


def test_few_nodes_have_names_and_figures(tmp_path):
    state = Pairs(8, leaf=4, slow={5: 0.5}, hung=((1, 3),)).state()

    words = drawn(state, tmp_path, share_tried=1.0)

    assert "1 of 8 nodes fails: node5 node_slow -50 %; slow_path node1-node3" in words
    assert words.count("48.0") == 40
    assert words.count("24.0") == 14
    assert words.count("H") == 2
    assert "hung" in words
    assert "not tried" not in words
    assert {f"node{n}" for n in range(8)} <= set(words)
    assert any("usual: 48.0 GB/s inside leaves, 48.0 GB/s across" in line for line in words)
    assert "SIMULATED" not in words


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"simulated": True}, "SIMULATED"),
        ({"emulated": True}, "EMULATED"),
        ({"planted": "stop:1"}, "PLANTED FAULT"),
    ],
)
def test_what_is_not_hardware_has_a_mark_across(changes, mark, tmp_path):
    assert mark in drawn(Pairs(4).state(), tmp_path, **changes)


def test_many_nodes_have_a_map_and_numbers(tmp_path):
    state = Pairs(40, leaf=10, slow={5: 0.5, 31: 0.8}).state()

    words = drawn(state, tmp_path)

    assert "2 of 40 nodes fail: node5 node_slow -50 %, node31 node_slow -20 %" in words
    assert "Nodes, a row a leaf: the better pairs of each node" in words
    assert "1 node5 node_slow -50 %      2 node31 node_slow -20 %" in words
    assert words.count("1") == words.count("2") == 2
    assert {"leaf0", "leaf1", "leaf2", "leaf3"} <= set(words)
    assert "48.0" not in words


def test_single_pairs_among_a_thousand_nodes_are_no_specks(tmp_path):
    state = Pairs(1000, leaf=50, slow={700: 0.6}).state()

    words = drawn(state, tmp_path)

    assert "1 of 1000 nodes fails: node700 node_slow -40 %" in words
    assert any("a cell the slowest pair of 11 x 11 nodes" in line for line in words)
    assert "not tried" in words


def test_without_leaves_or_values_there_is_a_picture_that_says_so(tmp_path):
    state = Pairs(70).state(confirm=False)
    none = replace(state, values=state.values[:0])

    assert "nodes in their order; leaves are unknown" in drawn(state, tmp_path)
    assert "No pair gave a value" in drawn(none, tmp_path)
