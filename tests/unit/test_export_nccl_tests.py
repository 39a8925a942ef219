"""``collbench export nccl-tests``: what a reader of nccl-tests' tables finds in it."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from statistics import fmean, median

import msgspec
import pytest
from click.testing import CliRunner
from records import make_trial
from stored_runs import put, stored_run

from collbench.analyze.curves import question
from collbench.cli.main import cli
from collbench.interop.nccl_tests_text import nccl_tests_text, number_text
from collbench.model import Check, Mode, Reason, ReasonCode, Status
from collbench.store import read_run

RESULTS = Path(__file__).parents[2] / "results/2xh200"
DATA = Path(__file__).parents[1] / "data"
SWEEP, PAIRWISE = RESULTS / "20261130-0635-3947", RESULTS / "20261130-1319-63a8"


def called(*arguments):
    return CliRunner().invoke(cli, ["export", "nccl-tests", *map(str, arguments)])


def in_case(trial, **changes):
    return msgspec.structs.replace(trial, case=msgspec.structs.replace(trial.case, **changes))


def checked(trial):
    return msgspec.structs.replace(trial, check=Check(checked=True, checked_elements=4))


def tables_in(text):
    """Reads as scripts do: blanks divide columns, ``#`` begins what is no row."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("# Collective test starting:"):
            found.append({"program": words[-1], "rows": [], "ranks": 0})
        elif line.startswith("#  Rank"):
            found[-1]["ranks"] += 1
        elif line.startswith("# Avg bus bandwidth"):
            found[-1]["mean"] = float(words[-1])
        elif words and words[0].isdigit():
            found[-1]["rows"].append(words)
    return found


def number(word):
    return None if word == "N/A" else float(word)


def rows_of(stored):
    return [row for table in tables_in(nccl_tests_text(stored)) for row in table["rows"]]


def notes_of(stored):
    """Returns the comments that stand between the last row and the closing lines."""
    text = nccl_tests_text(stored)
    return [line for line in text.splitlines() if re.match(r"# \d+ B ", line)]


def test_a_reference_run_reads_back_with_the_same_figures():
    stored = read_run(SWEEP)

    tables = tables_in(called(SWEEP).stdout)

    cases = {}
    for trial in stored.trials:
        cases.setdefault(trial.case_id, (trial.case, []))[1].append(trial.summary)
    expected = {}
    for case, summaries in cases.values():
        time_us = median(one.median_us for one in summaries)
        algbw = case.size_bytes / time_us / 1e3
        ratio = summaries[0].busbw_gb_per_s / summaries[0].algbw_gb_per_s
        key = (case.collective, case.mode, case.size_bytes, case.count, case.in_place)
        expected[key] = (time_us, algbw, algbw * ratio)
    # Each table is of one collective and mode, in the order of the collectives and modes.
    names = ["all_reduce", "all_gather", "reduce_scatter"]
    shared = [(name, mode) for name in names for mode in (Mode.EAGER, Mode.GRAPH)]
    assert [table["program"] for table in tables] == [f"{name}_perf" for name, _ in shared]
    found = {}
    for (name, mode), table in zip(shared, tables, strict=True):
        assert table["ranks"] == 2
        for row in table["rows"]:
            for in_place, part in ((False, row[5:9]), (True, row[9:13])):
                if part[0] != "N/A":
                    found[name, mode, int(row[0]), int(row[1]), in_place] = part
    assert found.keys() == expected.keys()
    for key, part in found.items():
        # Two decimals are printed; from 10000 us one.
        assert [float(word) for word in part[:3]] == pytest.approx(
            expected[key], abs=0.00501, rel=6e-6
        ), key
        assert part[3] == "0"


def test_columns_are_as_wide_as_those_of_nccl_tests():
    stored = stored_run([checked(make_trial(33554432, 140.43))])

    lines = nccl_tests_text(stored).splitlines()

    row = next(line for line in lines if line.startswith("    33554432"))
    assert row == (
        "    33554432       8388608     float    none      -1      N/A     N/A     N/A     N/A"
        "   140.43  238.94  238.94       0"
    )
    heads = lines[lines.index("# Using devices") + 4 :][:3]
    # As all_reduce_perf 2.19.6 prints them, blanks at the ends of lines included.
    assert heads == (DATA / "nccl_tests_columns.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.0, 7, "   0.00"),
        (1703.27, 7, "1703.27"),
        (9999.994, 7, "9999.99"),
        (9999.996, 7, "10000.0"),
        (99999.96, 7, " 100000"),
        (123456789.0, 7, "123456789"),
        (999.99, 6, "999.99"),
        (1000.0, 6, "1000.0"),
    ],
)
def test_numbers_lose_decimals_before_they_outgrow_their_column(value, width, text):
    assert number_text(value, width) == text


def test_both_placements_share_a_row_and_repeats_give_their_median():
    trials = [checked(make_trial(1024, time, repeat=k)) for k, time in enumerate((9.0, 2.0, 4.0))]
    trials.append(in_case(make_trial(1024, 8.0), in_place=False))

    rows = rows_of(stored_run(trials))

    assert [" ".join(row) for row in rows] == [
        "1024 256 float none -1 8.00 0.13 0.13 N/A 4.00 0.26 0.26 0"
    ]


def test_the_mean_of_the_table_is_over_both_placements():
    trials = [make_trial(2**20, 10.0), in_case(make_trial(2**20, 20.0), in_place=False)]

    table = tables_in(nccl_tests_text(stored_run(trials)))[0]

    assert table["mean"] == pytest.approx(fmean([104.8576, 52.4288]), rel=1e-5)


def test_each_type_operator_root_mode_and_setting_has_a_table():
    plain = make_trial(64, 5.0)
    trials = [
        plain,
        in_case(plain, dtype="bfloat16", redop="max"),
        in_case(plain, mode=Mode.GRAPH),
        in_case(plain, setting={"NCCL_ALGO": "Tree"}),
        in_case(plain, collective="broadcast", root=1),
        in_case(plain, collective="all_to_all"),
        in_case(plain, collective="send_recv", dtype="float16"),
    ]
    stored = stored_run(trials)

    text = nccl_tests_text(stored)

    tables = tables_in(text)
    assert len(tables) == len({question(one.case) for one in trials}) == 7
    assert [(table["program"], *table["rows"][0][2:5]) for table in tables] == [
        ("all_reduce_perf", "bfloat16", "max", "-1"),
        ("all_reduce_perf", "float", "none", "-1"),
        ("all_reduce_perf", "float", "none", "-1"),
        ("all_reduce_perf", "float", "none", "-1"),
        ("broadcast_perf", "float", "none", "1"),
        ("alltoall_perf", "float", "none", "-1"),
        ("sendrecv_perf", "half", "none", "-1"),
    ]
    said = [line for line in text.splitlines() if "setting:" in line]
    assert [line.rpartition("mode ")[2] for line in said[1:4]] == [
        "eager, back_to_back, setting: default",
        "eager, back_to_back, setting: Tree",
        "graph, back_to_back, setting: default",
    ]


def test_what_did_not_work_is_a_comment_with_its_reason():
    reason = Reason(code=ReasonCode.ILLEGAL, text="no Tree\nfor all_gather")
    bad = msgspec.structs.replace(
        make_trial(64, 5.0), status=Status.UNSUPPORTED, reason=reason, summary=None
    )
    slow = msgspec.structs.replace(make_trial(32, 5.0, repeat=1), status=Status.PATH_NOT_USED)
    stored = stored_run([bad, slow, make_trial(32, 6.0)])

    assert [row[0] for row in rows_of(stored)] == ["32"]
    assert rows_of(stored)[0][9] == "6.00"
    assert notes_of(stored) == [
        "# 32 B in-place repeat 1: path_not_used",
        "# 64 B in-place repeat 0: unsupported illegal: no Tree for all_gather",
    ]


def test_wrong_elements_are_counted_as_nccl_tests_says_them():
    wrong = msgspec.structs.replace(
        make_trial(64, 5.0),
        status=Status.DATA_WRONG,
        check=Check(checked=True, checked_elements=16, wrong_elements=3),
    )

    lines = nccl_tests_text(stored_run([wrong, make_trial(8, 1.0)])).splitlines()

    assert "# Out of bounds values : 3 FAILED" in lines


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([8, 32, 128], "minBytes 8 maxBytes 128 step: 4(factor) "),
        ([100, 150, 200], "minBytes 100 maxBytes 200 step: 50(bytes) "),
        ([8, 32, 100], "minBytes 8 maxBytes 100 step: 0(bytes) "),
        ([8], "minBytes 8 maxBytes 8 step: 0(bytes) "),
    ],
)
def test_the_line_of_parameters_says_the_ladder(sizes, words):
    text = nccl_tests_text(stored_run([make_trial(size, 5.0) for size in sizes]))

    assert words in text
    assert "warmup iters: 1 iters: 40 agg iters: 1 validation: 1 graph: 0" in text


def test_lines_of_a_table_are_rows_comments_or_empty():
    lines = called(SWEEP).stdout.splitlines()

    kinds = {key for key, _ in groupby(lines, key=lambda line: line[:1].strip() or "row")}
    assert kinds == {"#", "row"}
    assert {len(line.split()) for line in lines if line and line[0] != "#"} == {13}


def test_a_simulated_run_says_so_before_all_else(tmp_path):
    folder = put(stored_run([make_trial(8, 1.0)], simulated=True), tmp_path)

    lines = called(folder).stdout.splitlines()

    assert lines[1] == "# SIMULATED: a model answered, no hardware was measured"


def test_a_run_of_pairs_has_no_such_tables():
    result = CliRunner().invoke(cli, ["export", "nccl-tests", str(PAIRWISE)], standalone_mode=False)

    assert "is of 'pairwise', which 'export' does not read" in str(result.exception)
    assert result.exception.exit_code == 2
