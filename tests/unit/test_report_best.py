"""Best settings as text and JSON."""

from __future__ import annotations

import json

import pytest
from best_trials import SIZES, grid

from collbench.analyze.best_table import best_of_run
from collbench.report.best import best_json, best_lines

MIB = 2**20


@pytest.fixture
def table():
    found = best_of_run(grid({"Tree/Simple": [2**30]}, sizes=(*SIZES[5:], SIZES[0])))
    assert found is not None
    return found


def test_a_row_a_size_then_the_conclusion(table):
    lines = best_lines(table)

    assert lines[0].startswith("Best settings: 3 settings, 3 repeats; against default:")
    assert lines[2] == "all_reduce graph"
    rows = {tuple(line.split()[:2]): line for line in lines[4:-2]}
    assert len(rows) == 7
    small = "1 KiB 10.01 Ring/Simple 24 ch - - - the default is the best"
    assert rows["1", "KiB"].split() == small.split()
    assert rows["1", "GiB"].split()[2:10] == (
        ["10747", "Ring/Simple", "24", "ch", "Tree/Simple", "9888", "-8.0", "%"]
    )
    assert rows["1", "GiB"].endswith("faster")
    assert lines[-1] == (
        "Default is the best everywhere except all_reduce graph 1 GiB: Tree/Simple 8.0 % faster."
    )
    assert max(len(line) for line in lines) <= 120


def test_why_nothing_is_claimed_stands_beside_the_row():
    table = best_of_run(grid({"BUFFSIZE=8M": [MIB]}, settings=("default", "BUFFSIZE=8M")))
    assert table is not None
    (line,) = [line for line in best_lines(table) if line.strip().startswith("1 MiB")]
    assert line.endswith("faster")

    table = best_of_run(
        grid({"BUFFSIZE=8M": [MIB]}, settings=("default", "BUFFSIZE=8M"), share=0.005)
    )
    assert table is not None
    (line,) = [line for line in best_lines(table) if line.strip().startswith("1 MiB")]
    assert line.endswith("the same ran")

    table = best_of_run(grid({"Tree/Simple": [MIB]}, share=0.005))
    assert table is not None
    (line,) = [line for line in best_lines(table) if line.strip().startswith("1 MiB")]
    assert line.endswith("the gap is within 1%")


def test_with_too_few_repeats_one_line_says_what_to_run():
    table = best_of_run(grid({}, repeats=1))
    assert table is not None

    (line,) = best_lines(table, ["sweep", "nccl_matrix", "--repeats", "1"])
    assert line == (
        "no best setting from 1 repeat: needs 4 more repeats: collbench sweep nccl_matrix"
        " --repeats 5"
    )


def test_sizes_that_the_default_does_not_have_are_named():
    trials = [
        t for t in grid({}) if t.case.setting or t.case.size_bytes not in (*SIZES[:3], SIZES[-1])
    ]
    table = best_of_run(trials)
    assert table is not None

    assert (
        "  left out: all_reduce 1 KiB, all_reduce 4 KiB, all_reduce 16 KiB and 1 more: the default"
        " has no time there"
    ) in best_lines(table)


def test_json_has_every_row_and_no_nan(table):
    document = best_json(table)

    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    assert (document["repeats"], document["settings"], document["needs_repeats"]) == (3, 3, 0)
    assert len(document["rows"]) == 7
    last = document["rows"][-1]
    assert last["gap"] == pytest.approx(1 / 0.92 - 1)
    assert (last["winner"], last["claimed"], last["winner_ran"]) == (
        "Tree/Simple",
        True,
        ["Tree/Simple 16 ch"],
    )
    assert document["rows"][0]["gap"] is None
    assert document["conclusion"] == (
        "default is the best everywhere except all_reduce graph 1 GiB: Tree/Simple 8.0 % faster"
    )
