"""The tuner plug-in's file: read as it reads it, written so that it chooses what is meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from best_trials import RAN, SIZES, grid, level

from collbench.errors import UsageError
from collbench.interop.tuner import (
    COLLECTIVES,
    TOP_BYTES,
    TunerRow,
    choice,
    optimizer_text,
    plugin_text,
    read_tuner,
)
from collbench.interop.tuner_choices import choices_of
from collbench.interop.tuner_lines import about, check_rows, optimizer_rows, tuner_rows
from collbench.model import Mode
from collbench.store import read_run

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0929-1943"
MIB = 2**20


@pytest.fixture(scope="module")
def run():
    return read_run(REFERENCE).run


def told(row):
    """Returns a row as its line."""
    return None if row is None else (row.algorithm, row.protocol, row.channels)


# --- reading -----------------------------------------------------------------------------------


def test_a_line_has_its_ten_fields():
    (row,) = read_tuner("allgather, 0,\t65536 ,tree,ll128,2,4,32,1,0\n")

    assert row == TunerRow(
        collective="all_gather",
        min_bytes=0,
        max_bytes=65536,
        algorithm="Tree",
        protocol="LL128",
        channels=2,
        nodes=4,
        ranks=32,
        pipe_ops=1,
        registered=0,
        line=1,
    )


# What the plug-in of NCCL 2.30.7 makes of a line, as its source says and as it answered.
READ = {
    "8 fields": ("allreduce,0,9,ring,ll,3,1,2", ("all_reduce", 0, 9, "Ring", "LL", 3, -1, -1)),
    "9 fields": ("reduce,0,9,pat,ll,3,1,2,4", ("reduce", 0, 9, "PAT", "LL", 3, 4, -1)),
    "more than 10": ("reduce,0,9,pat,ll,3,1,2,4,1,7", ("reduce", 0, 9, "PAT", "LL", 3, 4, 1)),
    "two commas": ("reduce,,0,9,nvls,ll,3,1,2", ("reduce", 0, 9, "NVLS", "LL", 3, -1, -1)),
    "no such collective": ("scan,0,9,ring,ll,3,1,2", ("all_reduce", 0, 9, "Ring", "LL", 3, -1, -1)),
    "no such algorithm": ("reduce,0,9,Tree,ll,3,1,2", ("reduce", 0, 9, "Ring", "LL", 3, -1, -1)),
    "no such protocol": ("reduce,0,9,ring,LL,3,1,2", ("reduce", 0, 9, "Ring", "Simple", 3, -1, -1)),
    "no number": ("reduce,x,9k,ring,ll,many,1,2", ("reduce", 0, 9, "Ring", "LL", 0, -1, -1)),
    "-1 as a limit": (
        "reduce,0,-1,ring,ll,3,1,2",
        ("reduce", 0, TOP_BYTES, "Ring", "LL", 3, -1, -1),
    ),
    "beyond the top": (
        "reduce,0,99999999999999999999999,ring,ll,3,1,2",
        ("reduce", 0, TOP_BYTES, "Ring", "LL", 3, -1, -1),
    ),
}


@pytest.mark.parametrize(("line", "read"), READ.values(), ids=READ)
def test_a_line_is_read_as_the_plug_in_does(line, read):
    (row,) = read_tuner(line)

    assert (
        row.collective,
        row.min_bytes,
        row.max_bytes,
        row.algorithm,
        row.protocol,
        row.channels,
        row.pipe_ops,
        row.registered,
    ) == read


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "# allreduce,0,9,ring,ll,3,1,2", "allreduce,0,9,ring,ll,3,1", "\r\n", ",,,"],
)
def test_what_is_no_entry(text):
    assert read_tuner(text) == ()


def test_a_name_that_it_does_not_know_is_said():
    rows = read_tuner("# c\nall_reduce,0,9,Ring,Simple,3,1,2\nallreduce,0,9,ring,ll,3,1,2\n")

    assert [row.line for row in rows] == [2, 3]
    assert rows[0].misread == (
        "'all_reduce' is taken for 'allreduce'",
        "'Ring' is taken for 'ring'",
        "'Simple' is taken for 'simple'",
    )
    assert rows[1].misread == ()


def test_a_comment_longer_than_its_buffer_becomes_an_entry():
    entry = "allreduce,0,9,ring,ll,3,1,2"

    assert read_tuner("#" + "c" * (254 - len(entry)) + entry) == ()
    (row,) = read_tuner("#" + "c" * 254 + entry)
    assert told(row) == ("Ring", "LL", 3)


# --- choosing ----------------------------------------------------------------------------------

FILE = """
allreduce,0,100,ring,ll,1,1,2,-1,-1
allreduce,100,200,tree,ll,2,-1,-1,-1,-1
allreduce,201,300,tree,ll,3,-1,-1,4,-1
allreduce,201,400,ring,simple,4,1,-1,-1,1
allgather,0,400,ring,ll128,5,-1,8,-1,0
"""
CHOSEN = {
    "the first that matches": (("all_reduce", 100, 1, 2, 0), ("Ring", "LL", 1)),
    "limits are inclusive": (("all_reduce", 200, 1, 2, 0), ("Tree", "LL", 2)),
    "other nodes": (("all_reduce", 100, 2, 2, 0), ("Tree", "LL", 2)),
    "other ranks": (("all_reduce", 100, 1, 4, 0), ("Tree", "LL", 2)),
    "other ranks and no more lines": (("all_reduce", 99, 1, 4, 0), None),
    "several pipelined operations are not ours": (
        ("all_reduce", 201, 1, 2, 1),
        ("Ring", "Simple", 4),
    ),
    "not registered": (("all_reduce", 201, 1, 2, 0), None),
    "registered": (("all_gather", 1, 1, 8, 1), None),
    "any node": (("all_gather", 1, 3, 8, 0), ("Ring", "LL128", 5)),
    "above the last": (("all_reduce", 401, 1, 2, 1), None),
    "another collective": (("broadcast", 1, 1, 2, 0), None),
}


@pytest.mark.parametrize(("asked", "told_row"), CHOSEN.values(), ids=CHOSEN)
def test_the_first_line_that_matches_wins(asked, told_row):
    *call, registered = asked

    assert told(choice(read_tuner(FILE), *call, registered=registered)) == told_row


# --- writing -----------------------------------------------------------------------------------


def test_winners_beyond_noise_have_lines_and_elsewhere_what_the_default_ran(run):
    choices = choices_of(run, grid({"Tree/Simple": SIZES[-2:], "Ring/LL": [SIZES[0]]}))
    text = plugin_text(tuner_rows(choices), [])

    entries = [line for line in text.splitlines() if not line.startswith("#")]
    assert entries == [
        "allreduce,0,2048,ring,ll,24,1,2,-1,-1",
        "allreduce,2049,134217728,ring,simple,24,1,2,-1,-1",
        "allreduce,134217729,18446744073709551615,tree,simple,16,1,2,-1,-1",
    ]
    notes = [line for line in text.splitlines() if line.startswith("#")]
    assert notes[0].startswith("# all_reduce graph 1 KiB: Ring/LL -8.0 % [")


def test_what_is_written_is_read_back_the_same(run):
    rows = tuner_rows(choices_of(run, grid({"Tree/Simple": SIZES[-2:]})))

    read = read_tuner(plugin_text(rows, ["first paragraph", "second " * 60]))

    assert [replace(row, line=0) for row in read] == [replace(row, notes=()) for row in rows]


def test_every_size_is_covered_and_chooses_what_was_meant(run):
    choices = choices_of(run, grid({"Tree/Simple": [4 * MIB, 2**30]}))
    rows = read_tuner(plugin_text(tuner_rows(choices), about(run, choices)))

    for size in [0, 1, *SIZES, *(s + 1 for s in SIZES), 2**32, 2**40, TOP_BYTES]:
        assert choice(rows, "all_reduce", size, 1, 2) is not None
    assert told(choice(rows, "all_reduce", 4 * MIB, 1, 2)) == ("Tree", "Simple", 16)
    assert told(choice(rows, "all_reduce", MIB, 1, 2)) == ("Ring", "Simple", 24)
    assert all(one.as_meant for one in check_rows(choices, rows))


def test_no_line_is_longer_than_the_buffer_and_none_is_a_header(run):
    choices = choices_of(run, grid({"Tree/Simple": SIZES[::2]}))
    text = plugin_text(tuner_rows(choices), [*about(run, choices), "word " * 200, "w" * 999])

    lines = text.splitlines()
    assert max(len(line.encode()) for line in lines) < 255
    assert all(line.startswith(("#", "allreduce,")) for line in lines)
    assert run.run_id in lines[0]


def test_a_comment_is_ascii_and_never_an_entry():
    text = plugin_text([], ["a\nallreduce,0,9,ring,ll,3,1,2", "Größe"])

    assert read_tuner(text) == ()
    assert text.isascii()


def test_eager_and_captured_calls_get_lines_of_their_own_where_they_differ(run):
    trials = [
        *grid({"Tree/Simple": SIZES}, mode=Mode.EAGER, repeats=5),
        *grid({}, mode=Mode.GRAPH, repeats=5),
    ]
    choices = choices_of(run, trials)
    rows = tuner_rows(choices)

    assert [(row.algorithm, row.registered) for row in rows] == [("Tree", 0), ("Ring", 1)]
    assert told(choice(rows, "all_reduce", MIB, 1, 2, registered=0)) == ("Tree", "Simple", 16)
    assert told(choice(rows, "all_reduce", MIB, 1, 2, registered=1)) == ("Ring", "Simple", 24)
    assert all(one.as_meant for one in check_rows(choices, rows))


def test_eager_and_captured_calls_share_lines_where_they_agree(run):
    trials = [*grid({}, mode=Mode.EAGER), *grid({}, mode=Mode.GRAPH)]

    (row,) = tuner_rows(choices_of(run, trials))
    assert (row.min_bytes, row.max_bytes, row.registered) == (0, TOP_BYTES, -1)


def test_a_line_of_both_modes_has_the_notes_of_both(run):
    faster = {"Tree/Simple": SIZES}
    trials = [*grid(faster, mode=Mode.EAGER), *grid(faster, mode=Mode.GRAPH)]

    (row,) = tuner_rows(choices_of(run, trials))
    assert [note.split(":")[0] for note in row.notes[:: len(SIZES)]] == [
        "all_reduce eager 1 KiB",
        "all_reduce graph 1 KiB",
    ]
    comments = [line for line in plugin_text([row], []).splitlines() if line.startswith("#")]
    assert len(comments) == 2 * len(SIZES)


@pytest.mark.parametrize(("first", "warned"), [(0, False), (1, True)])
def test_small_calls_that_nothing_is_known_of_are_told(run, first, warned):
    choices = choices_of(run, grid({}, sizes=SIZES[first:]))

    told_of = [line for line in choices.left_out if line.startswith("NOT MEASURED")]
    warning = (
        "NOT MEASURED below 4 KiB: all_reduce: smaller calls run as at 4 KiB, however slow that"
        " is; before it is used sweep from -b 8"
    )
    assert told_of == [warning] * warned


def test_the_reference_run(run):
    choices = choices_of(run, read_run(REFERENCE).trials)
    rows = tuner_rows(choices)

    assert {row.collective for row in rows} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert told(choice(rows, "all_gather", 4 * MIB, 1, 2)) == ("Ring", "LL128", 24)
    assert told(choice(rows, "all_gather", 2**30, 1, 2)) == ("Ring", "Simple", 16)
    assert choices.left_out == (
        "not measured: broadcast, reduce: they run on 1 channel with this file",
    )


# --- what a tuner cannot say ---------------------------------------------------------------------


def test_settings_that_a_tuner_cannot_set_take_no_part(run):
    trials = grid({"BUFFSIZE=8M": SIZES}, settings=("default", "Tree/Simple", "BUFFSIZE=8M"))
    choices = choices_of(run, trials)

    assert {one.ran for one in choices.chosen} == {("Ring", "Simple", 24)}
    assert (
        "left out: BUFFSIZE=8M: a tuner sets algorithm, protocol and channels" in choices.left_out
    )


def test_ll128_that_was_forced_takes_no_part(run):
    trials = [
        msgspec.structs.replace(trial, notes=["ll128_forced"]) if trial.case.setting else trial
        for trial in grid({"Ring/LL": SIZES}, settings=("default", "Ring/LL"))
    ]

    with pytest.raises(UsageError, match="has no algorithm or protocol beside NCCL's own choice"):
        choices_of(run, trials)


def test_other_collectives_are_left_out(run):
    choices = choices_of(run, [*grid({}), *grid({}, name="all_to_all")])

    assert {one.collective for one in choices.chosen} == {"all_reduce"}
    assert choices.left_out[0] == "left out: all_to_all: NCCL asks a tuner for none of them"


def test_with_too_few_repeats_nothing_is_chosen(run):
    choices = choices_of(run, grid({"Tree/Simple": SIZES}, repeats=2))

    assert (choices.chosen, choices.table.needs_repeats) == ((), 3)


RING = RAN["default"]
REFUSED = {
    "not proved": (
        {"default": None},
        "all_reduce 1 KiB graph, default: what ran is not proved, and a tuner needs it",
    ),
    "no channels": (
        {"default": msgspec.structs.replace(RING, channels=None)},
        "all_reduce 1 KiB graph, default: the proof has no channels",
    ),
    "no protocol and no nodes": (
        {"default": msgspec.structs.replace(RING, protocol=None, nodes=None)},
        "the proof has no protocol and no nodes",
    ),
    "no word for it": (
        {"default": msgspec.structs.replace(RING, algorithm="Symmetric")},
        "Symmetric/Simple ran, for which the plug-in has no word; it knows Tree, Ring,",
    ),
    "of the winner": (
        {"Tree/Simple": None},
        "all_reduce 1 GiB graph, Tree/Simple: what ran is not proved",
    ),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_without_proof_nothing_is_guessed(run, changes, words):
    trials = grid({"Tree/Simple": [2**30]}, ran={**RAN, **changes})

    with pytest.raises(UsageError) as raised:
        choices_of(run, trials)
    assert words in str(raised.value)


def test_repeats_that_ran_differently_are_refused(run):
    other = grid({}, ran={**RAN, "default": RAN["Ring/LL"]})
    trials = [*[t for t in grid({}) if t.repeat < 2], *[t for t in other if t.repeat == 2]]

    with pytest.raises(UsageError) as raised:
        choices_of(run, trials)
    assert "repeats ran Ring/Simple on 24 channels and Ring/LL on 24 channels" in str(raised.value)


def test_a_size_without_the_default_is_refused(run):
    trials = [t for t in grid({}) if t.case.setting or t.case.size_bytes != MIB]

    with pytest.raises(UsageError, match="all_reduce 1 MiB graph has no time of NCCL's own choice"):
        choices_of(run, trials)


ALIKE = {
    "types": (
        [*grid({}), *grid({}, dtype="bfloat16")],
        "all_reduce was measured with dtype float32 and bfloat16, which a tuner cannot tell apart",
    ),
    "modes": (
        [*grid({}, mode=Mode.EAGER), *grid({}, mode=Mode.EAGER_DEVICE)],
        "the run has the modes eager and eager_device, which a tuner cannot tell apart",
    ),
}


@pytest.mark.parametrize(("trials", "words"), ALIKE.values(), ids=ALIKE)
def test_what_a_tuner_cannot_tell_apart_is_refused(run, trials, words):
    with pytest.raises(UsageError, match=words):
        choices_of(run, trials)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"simulated": True}, "is simulated"),
        ({"emulated": True}, "is emulated"),
        ({"planted": "late:rank=1,ms=20"}, r"is one with a planted fault \(late"),
        ({"backend": "gloo"}, "is of gloo"),
    ],
)
def test_a_run_that_says_nothing_of_nccl_is_refused(run, changes, words):
    with pytest.raises(UsageError, match=words):
        choices_of(msgspec.structs.replace(run, **changes), grid({}))


# --- held against a file -------------------------------------------------------------------------


def test_a_file_is_held_against_the_run(run):
    choices = choices_of(run, grid({"Tree/Simple": [2**30]}))
    rows = read_tuner(
        "allreduce,0,536870911,ring,simple,24,1,2\nallreduce,536870912,4294967295,tree,simple,0,1,2"
    )
    checked = check_rows(choices, rows)

    # 0 channels are NCCL's own number; the last line ends below the top.
    assert [one.as_meant for one in checked] == [True] * 11 + [False]
    assert checked[-1].larger
    assert checked[-1].row is None


@pytest.mark.parametrize(
    "line",
    [
        "allreduce,0,-1,ring,simple,-1,1,2",
        "allreduce,0,-1,ring,simple,16,1,2",
        "allreduce,0,-1,ring,ll,24,1,2",
        "allreduce,0,-1,tree,simple,24,1,2",
        "allreduce,0,-1,ring,simple,24,2,2",
        "allgather,0,-1,ring,simple,24,1,2",
    ],
)
def test_a_line_that_says_something_else_is_not_as_meant(run, line):
    checked = check_rows(choices_of(run, grid({})), read_tuner(line))

    assert not any(one.as_meant for one in checked)


# --- for the helper ------------------------------------------------------------------------------


def test_the_helper_gets_each_size_and_the_top(run):
    choices = choices_of(run, grid({"Tree/Simple": [2**30]}, sizes=(MIB, 2**30)))
    lines = optimizer_text(optimizer_rows(choices)).splitlines()

    assert lines[0] == (
        "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,"
        "cost_metric,bandwidth_gbps,latency_us"
    )
    fields = [line.split(",") for line in lines[1:]]
    assert [",".join(line[:9]) for line in fields] == [
        "allreduce,1048576,ring,simple,24,1,2,-1,-1",
        "allreduce,1073741824,tree,simple,16,1,2,-1,-1",
        "allreduce,18446744073709551615,tree,simple,16,1,2,-1,-1",
    ]
    times_us = [level(MIB), 0.92 * level(2**30), 0.92 * level(2**30)]
    sizes = [MIB, 2**30, 2**30]
    assert [float(line[11]) for line in fields] == pytest.approx(times_us, rel=1e-3)
    rates = [size / time / 1e3 for size, time in zip(sizes, times_us, strict=True)]
    assert [float(line[10]) for line in fields] == pytest.approx(rates, rel=1e-3)


def test_the_helper_gets_all_sizes_for_each_collective_and_mode(run):
    trials = [
        *grid({}, sizes=(4, MIB)),
        *grid({}, sizes=(4, MIB), mode=Mode.EAGER),
        *grid({}, sizes=(8, MIB), name="all_gather"),
    ]
    rows = optimizer_rows(choices_of(run, trials))

    assert [(row.collective, row.registered) for row in rows[::4]] == [
        ("all_reduce", 0),
        ("all_reduce", 1),
        ("all_gather", -1),
    ]
    assert [row.size_bytes for row in rows] == [4, 8, MIB, TOP_BYTES] * 3


def test_the_plug_in_knows_five_collectives():
    assert sorted(COLLECTIVES) == [
        "all_gather",
        "all_reduce",
        "broadcast",
        "reduce",
        "reduce_scatter",
    ]
