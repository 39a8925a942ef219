"""The best settings of a run: rows, what ran, and the sentence on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from best_trials import RAN, SIZES, grid, level
from setting_trials import ended

from collbench.analyze.best import Best
from collbench.analyze.best_table import best_of_run, conclusion, saved_text
from collbench.model import Mode, ReasonCode, Status
from collbench.store import read_run

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0929-1943"
MIB = 2**20


def test_a_row_has_both_times_the_gap_and_what_ran():
    table = best_of_run(grid({"Tree/Simple": [SIZES[-1]]}))

    assert table is not None
    assert (table.repeats, table.settings, table.needs_repeats) == (3, 3, 0)
    assert [row.key.size_bytes for row in table.rows] == list(SIZES)
    last = table.rows[-1]
    assert (last.best.winner, last.best.claimed, last.repeats) == ("Tree/Simple", True, 3)
    assert last.default_us == pytest.approx(level(SIZES[-1]), rel=1e-3)
    assert last.winner_us == pytest.approx(0.92 * level(SIZES[-1]), rel=1e-3)
    assert [(p.algorithm, p.protocol, p.channels) for p in last.default_ran] == [
        ("Ring", "Simple", 24)
    ]
    assert [(p.algorithm, p.protocol, p.channels, p.nodes) for p in last.winner_ran] == [
        ("Tree", "Simple", 16, 1)
    ]
    assert table.rows[0].best.reason == "the default is the best"


def test_rows_stand_by_question_mode_and_size_whatever_order_they_came_in():
    trials = [
        trial
        for mode in (Mode.GRAPH, Mode.EAGER)
        for name in ("reduce_scatter", "all_reduce")
        for trial in grid({}, name=name, mode=mode, sizes=(4 * MIB, MIB))
    ]
    table = best_of_run(trials)

    assert table is not None
    assert [table.name(group[0]) for group in table.groups()] == [
        "all_reduce eager",
        "all_reduce graph",
        "reduce_scatter eager",
        "reduce_scatter graph",
    ]
    assert all([r.key.size_bytes for r in g] == [MIB, 4 * MIB] for g in table.groups())


@pytest.mark.parametrize(
    "settings", [("default",), ("Ring/LL", "Tree/Simple")], ids=["nothing else", "no default"]
)
def test_without_a_default_and_another_there_is_no_table(settings):
    assert best_of_run(grid({}, settings=settings)) is None


def test_another_setting_that_never_was_ok_is_none():
    trials = [
        ended(trial, Status.UNSUPPORTED, ReasonCode.ILLEGAL, "no") if trial.case.setting else trial
        for trial in grid({})
    ]
    assert best_of_run(trials) is None


def test_a_size_at_which_only_the_default_ran_keeps_its_row():
    trials = [t for t in grid({}) if not t.case.setting or t.case.size_bytes != MIB]
    table = best_of_run(trials)

    assert table is not None
    row = next(row for row in table.rows if row.key.size_bytes == MIB)
    assert (row.best.winner, row.best.reason) == ("default", "no other setting was measured")


def test_a_size_without_the_default_is_named():
    trials = [t for t in grid({}) if t.case.setting or t.case.size_bytes != MIB]
    table = best_of_run(trials)

    assert table is not None
    assert MIB not in {row.key.size_bytes for row in table.rows}
    assert [case.size_bytes for case in table.without_default] == [MIB]


@pytest.mark.parametrize(("repeats", "needs"), [(1, 4), (2, 3), (3, 0), (5, 0)])
def test_from_three_repeats_on(repeats, needs):
    table = best_of_run(grid({"Tree/Simple": SIZES}, repeats=repeats))

    assert table is not None
    assert table.needs_repeats == needs
    assert any(row.best.claimed for row in table.rows) == (not needs)
    assert conclusion(table).startswith("no best setting from") == bool(needs)


def test_what_ran_differently_in_repeats_stands_once_each():
    trials = [
        *grid({}, repeats=2, ran={**RAN}),
        *[t for t in grid({}, repeats=3, ran={**RAN, "default": RAN["Ring/LL"]}) if t.repeat == 2],
    ]
    table = best_of_run(trials)

    assert table is not None
    assert [proof.protocol for proof in table.rows[0].default_ran] == ["Simple", "LL"]
    assert not table.rows[0].same_ran


SAID = {
    "the largest": ([SIZES[-1]], "1 GiB: Tree/Simple 8.0 % faster"),
    "the larger ones": (SIZES[-2:], ">= 256 MiB: Tree/Simple 8.0 % faster"),
    "the smaller ones": (SIZES[:3], "<= 16 KiB: Tree/Simple 8.0 % faster"),
    "one between": ([4 * MIB], "4 MiB: Tree/Simple 8.0 % faster"),
    "some between": ([MIB, 4 * MIB, 16 * MIB], "1 MiB to 16 MiB: Tree/Simple 8.0 % faster"),
    "two stretches": (
        [1024, 2**30],
        "1 KiB: Tree/Simple 8.0 % faster; all_reduce graph 1 GiB: Tree/Simple 8.0 % faster",
    ),
}


@pytest.mark.parametrize(("sizes", "words"), SAID.values(), ids=SAID)
def test_the_sentence_names_sizes_that_are_faster(sizes, words):
    table = best_of_run(grid({"Tree/Simple": sizes}, share=0.08, repeats=5))

    assert table is not None
    text = conclusion(table)
    prefix = "default is the best everywhere except all_reduce graph "
    assert text == prefix + words


def test_where_all_are_beaten_the_default_is_the_best_nowhere():
    table = best_of_run(grid({"Tree/Simple": SIZES}, repeats=5))

    assert table is not None
    text = conclusion(table)
    assert text == (
        "the default is the best nowhere: all_reduce graph at all sizes: Tree/Simple 8.0 % faster"
    )


def test_where_nothing_is_claimed_the_largest_gap_is_named_with_its_interval():
    table = best_of_run(grid({"Tree/Simple": [MIB]}, share=0.006))

    assert table is not None
    text = conclusion(table)
    assert text.startswith("no setting beats the default beyond noise; the largest gap is -0.6 % [")
    assert text.endswith("(Tree/Simple, all_reduce graph 1 MiB)")


def test_where_none_is_faster_that_is_said():
    table = best_of_run(grid({}))

    assert table is not None
    assert conclusion(table) == (
        "no setting beats the default beyond noise: in none of 11 rows is another one faster"
    )


def test_a_setting_that_ran_what_the_default_ran_is_no_gap():
    same = {**RAN, "Tree/Simple": RAN["default"]}
    table = best_of_run(grid({"Tree/Simple": [MIB]}, share=0.006, ran=same))

    assert table is not None
    assert next(row for row in table.rows if row.key.size_bytes == MIB).same_ran
    assert conclusion(table).endswith("in none of 11 rows is another one faster")


def test_the_gap_is_told_as_a_share_of_the_defaults_time():
    best = Best(winner="Tree/Simple", claimed=True, gap=0.25, low=0.0, high=1.0)

    assert saved_text(best) == "-20.0 % [-50.0, +0.0]"
    assert saved_text(Best(winner="default", claimed=False)) == "-"


def test_the_reference_run_says_what_it_said():
    table = best_of_run(read_run(REFERENCE).trials)

    assert table is not None
    assert len(table.rows) == 45
    assert conclusion(table) == (
        "default within 3.7 % of the best everywhere except all_reduce graph 4 MiB: Ring/LL128"
        " 7.0 % faster; all_gather graph 4 MiB: Ring/LL128 18.8 % faster"
    )
