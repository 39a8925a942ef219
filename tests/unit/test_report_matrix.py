"""The table of several settings: exact text on made records."""

from __future__ import annotations

import msgspec
import pytest
from setting_trials import RAN_RING, RING_LL, TREE, ended, under

from collbench.model import Mode, ReasonCode, Status
from collbench.report.matrix import COLUMNS, matrix_lines, repeats_line
from collbench.report.table import render_tables

MIB = 2**20
GIB = 2**30
IN_BRACKETS = "  (in brackets: a time of something else than what was asked for)"


def no_limit(_case, _proof):
    return None


def not_used(trial):
    return ended(trial, Status.PATH_NOT_USED, ReasonCode.OTHER_ALGORITHM, "Ring ran")


def without_result(trial, status=Status.UNSUPPORTED):
    return ended(trial, status, ReasonCode.REFUSED, "its reason")


def row_of(lines, size):
    """The words of a row behind its size."""
    (line,) = [line for line in lines if line.strip().startswith(f"{size} ")]
    return line.strip().removeprefix(size).split()


def test_a_row_a_size_and_a_column_a_setting():
    trials = [
        under({}, 8, 10.0, proof=RAN_RING),
        under(RING_LL, 8, 9.8),
        not_used(under(TREE, 8, 12.0)),
        under({}, GIB, 4000.0, proof=msgspec.structs.replace(RAN_RING, protocol="Simple")),
        under(RING_LL, GIB, 3000.0),
        without_result(under(TREE, GIB, 1.0)),
    ]

    assert matrix_lines(trials, Mode.EAGER) == [
        "                                    Ring/   Tree/",
        "     size default ran                  LL  Simple lowest",
        "      8 B   10.00 Ring/LL 24 ch      9.80 (12.00) -",
        "    1 GiB    4000 Ring/Simple 24 ch  3000       - Ring/LL -25%",
        "peak GB/s   268.4                   357.9       -",
        IN_BRACKETS,
    ]


def test_without_the_reference_nothing_is_said_of_what_ran():
    trials = [under(RING_LL, MIB, 40.0, proof=RAN_RING), under(TREE, MIB, 50.0)]

    assert matrix_lines(trials, Mode.EAGER) == [
        "          Ring/  Tree/",
        "     size    LL Simple lowest",
        "    1 MiB 40.00  50.00 -",
        "peak GB/s 26.21  20.97",
    ]


def test_only_the_trials_of_the_mode_count():
    trials = [
        under({}, 8, 10.0),
        under(RING_LL, 8, 11.0),
        under({}, 64, 5.0, mode=Mode.GRAPH),
        not_used(under(RING_LL, 64, 6.0, mode=Mode.GRAPH)),
    ]

    eager, graph = matrix_lines(trials, Mode.EAGER), matrix_lines(trials, Mode.GRAPH)

    assert row_of(eager, "8 B") == ["10.00", "-", "11.00", "-"]
    assert row_of(graph, "64 B") == ["5.00", "-", "(6.00)", "-"]
    assert (len(eager), len(graph)) == (4, 5)
    assert graph[-1] == IN_BRACKETS


@pytest.mark.parametrize(
    ("count", "widths"), [(COLUMNS, [8]), (COLUMNS + 1, [8, 1]), (2 * COLUMNS + 3, [8, 8, 3])]
)
def test_more_than_eight_settings_take_further_tables(count, widths):
    names = ["default", *(f"BUFFSIZE={number}" for number in range(1, count))]
    settings = [{}, *({"NCCL_BUFFSIZE": str(number)} for number in range(1, count))]
    trials = [under(setting, MIB, 100.0 + k) for k, setting in enumerate(settings)]

    lines = matrix_lines(trials, Mode.EAGER)
    heads = [line.split() for line in lines if "size" in line.split()]
    shown = [[word for word in head if word in names] for head in heads]

    assert [len(columns) for columns in shown] == widths
    assert [name for columns in shown for name in columns] == names
    assert ["lowest" in head for head in heads] == [False] * (len(widths) - 1) + [True]
    assert ["ran" in head for head in heads] == [True] + [False] * (len(widths) - 1)
    assert sum(line.startswith("peak GB/s") for line in lines) == len(widths)


def test_the_lowest_is_looked_for_in_all_tables():
    settings = [{"NCCL_BUFFSIZE": str(number)} for number in range(1, COLUMNS + 2)]
    times = [100.0, 50.0, *[100.0] * (COLUMNS - 1)]
    trials = [under(setting, MIB, t) for setting, t in zip(settings, times, strict=True)]

    lines = matrix_lines(trials, Mode.EAGER)

    assert [line.split()[-2:] for line in lines if "1 MiB" in line][-1] == ["BUFFSIZE=2", "-50%"]


@pytest.mark.parametrize(
    ("time_us", "words"),
    [(97.1, ["-"]), (96.9, ["Ring/LL", "-3%"]), (50.0, ["Ring/LL", "-50%"]),
     (120.0, ["-"])],
)  # fmt: skip
def test_the_lowest_is_named_beyond_three_percent(time_us, words):
    lines = matrix_lines([under({}, MIB, 100.0), under(RING_LL, MIB, time_us)], Mode.EAGER)

    assert row_of(lines, "1 MiB")[3:] == words


def test_the_lowest_of_several_is_named():
    trials = [under({}, MIB, 100.0), under(RING_LL, MIB, 80.0), under(TREE, MIB, 90.0)]

    assert row_of(matrix_lines(trials, Mode.EAGER), "1 MiB")[-2:] == ["Ring/LL", "-20%"]


@pytest.mark.parametrize("status", [Status.HUNG, Status.PATH_NOT_USED, None], ids=str)
def test_no_lowest_where_the_first_column_has_no_time_of_its_own(status):
    first = under({}, MIB, 100.0)
    missing = {None: [], Status.HUNG: [without_result(first, Status.HUNG)]}
    trials = [
        under({}, 8, 10.0),
        *missing.get(status, [not_used(first)]),
        under(RING_LL, 8, 5.0),
        under(RING_LL, MIB, 5.0),
    ]

    lines = matrix_lines(trials, Mode.EAGER)

    assert row_of(lines, "8 B")[-2:] == ["Ring/LL", "-50%"]
    assert row_of(lines, "1 MiB")[-2:] == ["5.00", "-"]


@pytest.mark.parametrize("spoil", [not_used, without_result], ids=lambda spoil: spoil.__name__)
def test_what_was_not_used_is_never_the_lowest(spoil):
    trials = [
        under({}, MIB, 100.0),
        under(RING_LL, MIB, 99.0),
        under(TREE, 8, 5.0),
        spoil(under(TREE, MIB, 50.0)),
    ]

    assert row_of(matrix_lines(trials, Mode.EAGER), "1 MiB")[-1] == "-"


@pytest.mark.parametrize(
    ("status", "cell"),
    [
        (Status.UNSUPPORTED, "-"),
        (Status.DATA_WRONG, "data_wrong"),
        (Status.HUNG, "hung"),
        (Status.CRASHED, "crashed"),
        (Status.FAILED, "failed"),
        (Status.SKIPPED, "skipped"),
    ],
)
def test_what_has_no_time_stands_by_its_status(status, cell):
    trials = [
        under({}, 8, 10.0),
        under(RING_LL, 8, 10.0),
        under({}, MIB, 100.0),
        without_result(under(RING_LL, MIB, 1.0), status),
    ]

    assert row_of(matrix_lines(trials, Mode.EAGER), "1 MiB") == ["100.0", "-", cell, "-"]


def test_a_cell_is_the_median_of_the_repeats():
    trials = [under({}, MIB, t, repeat=r) for r, t in enumerate((30.0, 10.0, 20.0))]
    trials += [under(RING_LL, MIB, t, repeat=r) for r, t in enumerate((9.0, 11.0))]

    assert row_of(matrix_lines(trials, Mode.EAGER), "1 MiB")[::2] == ["20.00", "10.00", "-50%"]


@pytest.mark.parametrize(
    ("spoil", "cell"),
    [(not_used, "(15.00)"), (lambda trial: without_result(trial, Status.CRASHED), "crashed")],
    ids=["not used", "crashed"],
)
def test_one_bad_repeat_marks_its_cell(spoil, cell):
    trials = [under({}, MIB, 20.0, repeat=r) for r in (0, 1)]
    trials += [under(RING_LL, MIB, 10.0), spoil(under(RING_LL, MIB, 20.0, repeat=1))]

    row = row_of(matrix_lines(trials, Mode.EAGER), "1 MiB")

    assert row == ["20.00", "-", cell, "-"]


def test_what_ran_is_told_once_and_every_kind_of_it():
    tree = msgspec.structs.replace(RAN_RING, algorithm="Tree")
    proofs = (RAN_RING, tree, RAN_RING)
    trials = [under({}, MIB, 20.0, repeat=r, proof=proof) for r, proof in enumerate(proofs)]
    trials.append(under(RING_LL, MIB, 20.0))

    assert "20.00 Ring/LL 24 ch, Tree/LL 24 ch " in matrix_lines(trials, Mode.EAGER)[2]


def test_the_peak_is_the_largest_rate_of_what_was_asked_for():
    trials = [
        under({}, MIB, 50.0),
        under({}, GIB, 4000.0),
        under(RING_LL, MIB, 25.0),
        not_used(under(RING_LL, GIB, 1000.0)),
    ]

    # Two ranks' all_reduce: busbw = size / time.
    assert matrix_lines(trials, Mode.EAGER)[-2].split() == ["peak", "GB/s", "268.4", "41.94"]


def test_settings_without_any_time_take_no_column():
    trials = [under({}, 8, 10.0), without_result(under(TREE, 8, 1.0)), under(RING_LL, 8, 10.0)]

    assert matrix_lines(trials, Mode.EAGER)[0].split() == ["Ring/"]


@pytest.mark.parametrize(
    ("repeats", "words"), [(1, "1 repeat"), (2, "2 repeats"), (3, None), (5, None)]
)
def test_few_repeats_are_said(repeats, words):
    settings = ({}, RING_LL)
    trials = [under(s, 8, 10.0, repeat=repeat) for s in settings for repeat in range(repeats)]
    line = f"  lowest: more than 3 % below the first column; seen in {words}, no verdict"

    assert repeats_line(trials) == ([] if words is None else [f"{line} (--repeats 5)"])


def test_of_one_setting_that_ran_none_is_the_lowest():
    assert repeats_line([under({}, 8, 10.0), not_used(under(TREE, 8, 9.0))]) == []


# Among the other tables

TITLE = "all_reduce  float32  in place  back to back  "
REST = "2 ranks, slowest rank, median; busbw = 1 x algbw"
EAGER = "  eager: what a program feels, host launch included"


def test_two_settings_make_a_matrix_and_the_title_names_none():
    trials = [
        under({}, MIB, 40.0, proof=RAN_RING),
        under(RING_LL, MIB, 30.0, proof=RAN_RING),
        without_result(under(TREE, MIB, 1.0)),
    ]

    assert render_tables(trials, no_limit).splitlines() == [
        TITLE + REST,
        EAGER,
        "                                Ring/",
        "     size default ran              LL lowest",
        "    1 MiB   40.00 Ring/LL 24 ch 30.00 Ring/LL -25%",
        "peak GB/s   26.21               34.95",
        (
            "  lowest: more than 3 % below the first column; seen in 1 repeat, no verdict"
            " (--repeats 5)"
        ),
        "  path: P2P/CUMEM over NVL  (NCCL's log of 2 ranks)",
        "  unsupported: Tree/Simple: its reason",
    ]


def test_each_mode_has_its_own_matrix():
    trials = [
        under(setting, MIB, 40.0, mode=mode)
        for setting in ({}, RING_LL)
        for mode in (Mode.EAGER, Mode.GRAPH)
    ]

    lines = render_tables(trials, no_limit).splitlines()

    assert [line for line in lines if line.startswith(("  eager:", "  graph:"))] == [
        EAGER,
        "  graph: device time, captured in a CUDA graph",
    ]
    assert sum(line.startswith("peak GB/s") for line in lines) == 2


def test_one_measured_and_one_refused_setting_make_a_plain_table():
    trials = [
        without_result(under(RING_LL, 8, 1.0)),
        under(TREE, MIB, 50.0),
        without_result(under(RING_LL, MIB, 1.0)),
        under(TREE, 8, 10.0),
    ]

    lines = render_tables(trials, no_limit).splitlines()

    assert lines[0] == f"{TITLE}Tree/Simple  {REST}"
    assert [line.split()[0:2] for line in lines[4:6]] == [["8", "B"], ["1", "MiB"]]
    assert lines[6:] == ["  unsupported: Ring/LL: its reason (2 cases)"]


def test_the_refused_setting_is_said_once_where_the_modes_do_not_fit_side_by_side():
    trials = [
        *(under(TREE, MIB, 50.0, mode=mode) for mode in (Mode.EAGER, Mode.GRAPH)),
        *(without_result(under(RING_LL, MIB, 1.0, mode=mode)) for mode in (Mode.EAGER, Mode.GRAPH)),
    ]

    lines = render_tables(trials, no_limit, width=80).splitlines()

    assert [line for line in lines if line.startswith(TITLE)] == [f"{TITLE}Tree/Simple  {REST}"] * 2
    assert [line for line in lines if "its reason" in line] == [
        "  unsupported: Ring/LL: its reason (2 cases)"
    ]


def test_with_none_measured_the_reasons_stand_alone():
    alone = [without_result(under(RING_LL, size, 1.0)) for size in (8, MIB)]
    both = [*alone, without_result(under(TREE, 8, 1.0), Status.CRASHED)]

    assert render_tables(alone, no_limit).splitlines() == [
        f"{TITLE}Ring/LL  {REST}",
        "  unsupported: its reason (2 cases)",
    ]
    assert render_tables(both, no_limit).splitlines() == [
        TITLE + REST,
        "  unsupported: Ring/LL: its reason (2 cases)",
        "  crashed: Tree/Simple: its reason",
    ]
