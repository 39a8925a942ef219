"""What is printed of a comparison: the counts first, claims with their place, what is needed."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from setting_trials import RAN_RING, TREE, under
from stored_runs import SIZES, environment_of, law, stored_run, topology_of, trials_of

from collbench.analyze.compared import Side, compare_sides
from collbench.errors import UsageError
from collbench.model import Mode, Proof, Status
from collbench.report.comparison import (
    case_names,
    comparison_markdown,
    comparison_text,
    needs_line,
)
from collbench.report.comparison_json import comparison_dict, comparison_json

BASE, WIRE = law(10, 100), law(10, 88)
NEWER = environment_of("2.31.2")


def side(trials, run_id="20261130-0412-aa11", **changes) -> Side:
    return Side(name=f"run {run_id}", runs=(stored_run(trials, run_id, **changes),))


def compared(new, base=None, *, force=False, threshold=0.03, **changes):
    before = side(trials_of(BASE) if base is None else base)
    after = side(new, "20261130-0500-bb22", **changes)
    return compare_sides(before, after, force=force, threshold=threshold)


def slower_wire(**changes):
    return compared(trials_of(WIRE), environment=NEWER, **changes)


def test_a_slower_wire_in_text():
    lines = comparison_text(slower_wire()).splitlines()

    counts = "10 cases, 5 repeats each: 2 SLOWER, 0 FASTER, 8 SAME, 0 UNCLEAR"
    place = "B -12 %, alpha the same: the wire, or the channels used"
    assert lines[:3] == [f"NCCL 2.31.2 against 2.30.7: {counts}", "", "SLOWER (2)"]
    head, first, second = (" ".join(line.split()) for line in lines[3:6])
    assert head == "case size base -> new us change 95 % interval surely beyond"
    assert first.startswith("all_reduce eager 512 KiB 15.24 -> 15.96 +4.7 % [+4.")
    assert second.startswith("all_reduce eager 2 MiB 30.97 -> 33.83 +9.2 % [+8.")
    assert lines[6] == f"  all_reduce eager 512 KiB, 2 MiB: {place}"
    assert (
        "  all_reduce eager 8 B to 2 MiB 10.00 -> 10.00 100.0 -> 88.00 977 KiB -> 859 KiB" in lines
    )
    assert "  software: NCCL 2.30.7 -> 2.31.2" in lines
    assert any(line.startswith("  permutation of whole repeats") for line in lines)
    assert lines[-4:] == [
        "Conclusion",
        lines[-3],
        "  next: compare the paths, devices and channels that ran (collbench show of both)",
        "  two runs after each other may differ by drift: collbench ab measures interleaved",
    ]
    assert lines[-3].startswith(
        "  2 of 10 cases are slower; most of all all_reduce eager 2 MiB: +9.2 %, surely beyond +"
    )
    assert max(len(line) for line in lines) <= 120


def test_markdown_has_the_same_content():
    found = slower_wire()
    text, markdown = comparison_text(found), comparison_markdown(found)
    lines = markdown.splitlines()

    assert lines[0] == f"**{text.splitlines()[0]}**"
    titles = [line for line in text.splitlines()[1:] if line and not line.startswith(" ")]
    assert [line[3:].replace("\\", "") for line in lines if line.startswith("## ")] == titles
    assert "| case | size | base -> new us | change | 95 % interval | surely beyond |" in lines
    assert "| :-- | --: | --: | --: | :-- | --: |" in lines
    words = " ".join(text.split())
    for line in lines:
        if line.startswith("- "):
            assert " ".join(line[2:].replace("\\", "").split()) in words


def test_markup_in_a_setting_is_only_text():
    odd = {"X": "[red]|`a`"}
    base = [under(odd, 8, time, repeat=k) for k, time in enumerate((10.0, 10.1, 9.9))]
    new = [
        *(under(odd, 8, time, repeat=k) for k, time in enumerate((20.0, 20.1, 19.9))),
        *trials_of(BASE, repeats=3),
    ]
    found = compared(new, base=[*base, *trials_of(BASE, repeats=3)])

    assert "all_reduce eager (X=[red]|`a`)" in comparison_text(found)
    assert "all_reduce eager (X=[red]\\|\\`a\\`)" in comparison_markdown(found)


def test_faster_is_said_by_the_time_that_is_saved():
    found = compared(trials_of(law(5, 100)))
    lines = comparison_text(found).splitlines()
    row = lines[lines.index("FASTER (10)") + 2].split()
    sure = found.comparison.cases[0].surely

    assert row[2:8] == ["8", "B", "10.00", "->", "5.00", "-50.0"]
    assert row[-2] == f"{100 * (1 / (1 + sure) - 1):+.1f}"
    assert -50 < float(row[-2]) < -48
    assert any("8 B to 2 MiB (10 sizes): alpha -5.0 us, B the same" in line for line in lines)


def test_what_ran_is_said_where_it_is_not_the_same():
    tree = msgspec.structs.replace(RAN_RING, algorithm="Tree", protocol="Simple")
    found = compared(trials_of(law(12, 100), proof=tree), base=trials_of(BASE, proof=RAN_RING))
    text = " ".join(comparison_text(found).split())

    assert "not the wire; ran Ring/LL 24 ch, now Tree/Simple 24 ch" in text


@pytest.mark.parametrize("proof", [None, Proof(ranks=2), RAN_RING])
def test_what_ran_is_not_said_where_it_is_the_same_or_not_known(proof):
    found = compared(trials_of(law(12, 100), proof=proof), base=trials_of(BASE, proof=RAN_RING))

    assert "ran Ring" not in comparison_text(found)


def with_levels(count, levels, repeats=5):
    """A table whose first cases jump between two levels."""
    trials = []
    for trial in trials_of(BASE, repeats=repeats, sizes=[8 * (k + 1) for k in range(60)]):
        assert trial.summary is not None
        k = trial.case.size_bytes // 8 - 1
        factor = levels[trial.repeat] if k < count else 1.0
        summary = msgspec.structs.replace(trial.summary, median_us=factor * trial.summary.median_us)
        trials.append(msgspec.structs.replace(trial, summary=summary))
    return trials


@pytest.mark.parametrize(("count", "more"), [(2, None), (23, "  and 3 more")])
def test_unclear_cases_stand_by_reason_and_not_without_end(count, more):
    base = with_levels(count, [1, 1, 1.3, 1.3, 1])
    new = with_levels(count, [1.3, 1, 1.3, 1, 1.3])
    lines = comparison_text(compared(new, base=base)).splitlines()

    assert lines[0].endswith(f"{count} UNCLEAR (repeats disagree: bimodal)")
    start = lines.index(f"UNCLEAR ({count}): repeats disagree: bimodal")
    rows = lines[start + 2 : lines.index("", start)]
    assert len(rows) == min(count, 21)
    assert all(row.startswith("  all_reduce eager") for row in rows[:20])
    assert more is None or rows[-1] == more
    assert f"  nothing is slower or faster: {60 - count} of 60 are the same. {count} cannot be" in (
        "\n".join(lines)
    )
    assert lines[-1] == "  for the UNCLEAR more repeats: collbench sweep --repeats 10"


def test_unclear_for_several_reasons_is_counted():
    new = trials_of(BASE)
    gone = [trial for trial in new if (trial.case.size_bytes, trial.repeat) != (8, 3)]
    noisy = [
        t
        if t.case.size_bytes != 32 or t.summary is None
        else msgspec.structs.replace(
            t,
            summary=msgspec.structs.replace(t.summary, median_us=10 * (1 + 0.2 * (t.repeat - 2))),
        )
        for t in gone
    ]
    lines = comparison_text(compared(noisy)).splitlines()

    assert lines[0].endswith("8 SAME, 2 UNCLEAR (1 missing, 1 noisy)")
    assert "UNCLEAR (1): repeats are missing" in lines
    assert "  repeats are missing: 5 + 4 repeats of 5 + 5" in lines
    assert "UNCLEAR (1): noisy" in lines


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (1, 1, "needs 4 more repeats: collbench sweep --repeats 5 (base and new)"),
        (5, 2, "needs 3 more repeats: collbench sweep --repeats 5 (new)"),
        (1, 8, "needs 4 more repeats: collbench sweep --repeats 5 (base)"),
    ],
)
def test_too_few_repeats_are_one_line_with_the_command(old, new, line):
    found = compared(trials_of(WIRE, repeats=new), base=trials_of(BASE, repeats=old))

    assert comparison_text(found) == comparison_markdown(found) == line
    assert comparison_dict(found, 4)["needs"] == {
        "repeats": found.comparison.needs_repeats,
        "text": line,
    }


def test_sides_of_other_command_lines_have_one_each():
    base = side(trials_of(BASE, repeats=1), argv=["sweep", "-e", "1M"])
    new = side(trials_of(BASE, repeats=1), "b", argv=["sweep", "--repeats=2", "my suite.toml"])

    assert needs_line(compare_sides(base, new)) == (
        "needs 4 more repeats: collbench sweep -e 1M --repeats 5 (base);"
        " collbench sweep 'my suite.toml' --repeats 5 (new)"
    )


def test_cases_of_one_side_are_counted_and_the_first_are_named():
    new = [*trials_of(BASE, mode=Mode.GRAPH), *trials_of(BASE, sizes=SIZES[:8])]
    lines = comparison_text(compared(new)).splitlines()
    start = lines.index("Cases of one side, not compared")
    first = [f"all_reduce graph {size} B" for size in (8, 32, 128)]

    assert lines[start + 1 : start + 3] == [
        "  2 only in base: all_reduce eager 512 KiB, all_reduce eager 2 MiB",
        f"  10 only in new: {', '.join(first)} and 7 more",
    ]


def test_a_setting_is_named_only_where_both_sides_have_several():
    new = [*trials_of(WIRE), *(under(TREE, size, 99.0, repeat=r) for size in SIZES for r in (0, 1))]
    unsupported = [msgspec.structs.replace(t, status=Status.UNSUPPORTED) for t in new[-2:]]
    lines = comparison_text(compared([*new[:-2], *unsupported])).splitlines()

    assert "  all_reduce eager 512 KiB, 2 MiB: B -12 %" in lines[6]
    assert "  9 only in new: all_reduce eager (Tree/Simple) 8 B, " in "\n".join(lines)


def test_placements_are_kept_apart():
    outside = [
        msgspec.structs.replace(trial, case=msgspec.structs.replace(trial.case, in_place=False))
        for trial in trials_of(WIRE)
    ]
    found = compared([*trials_of(BASE), *outside], base=[*trials_of(BASE), *outside])

    assert set(case_names(found).values()) == {
        "all_reduce eager in place",
        "all_reduce eager out of place",
    }


def test_two_settings_of_a_run_need_no_word_of_drift():
    trials = [
        *trials_of(BASE),
        *(under(TREE, s, 2 * BASE(s) + 0.001 * r, repeat=r) for s in SIZES for r in range(5)),
    ]
    both = side(trials)
    text = comparison_text(compare_sides(both.under("default"), both.under("Tree/Simple")))

    assert text.startswith("Tree/Simple against default: 10 cases, 5 repeats each: 10 SLOWER, ")
    assert "  measuring: setting default -> Tree/Simple" in text.splitlines()
    assert "drift" not in text
    assert "next:" not in text


def test_simulated_planted_and_forced_are_said_before_all_else():
    base = side(trials_of(BASE), simulated=True, planted="wrong_element")
    new = side(trials_of(BASE), "b", simulated=True, topology=topology_of(model="NVIDIA H100"))
    found = compare_sides(base, new, force=True)
    lines = comparison_text(found).splitlines()

    assert lines[0].startswith("SIMULATED: run b against run 20261130-0412-aa11: 10 cases")
    assert lines[1].startswith("PLANTED: run 20261130-0412-aa11 has a planted fault")
    assert lines[2] == (
        "FORCED: the sides have different shapes, so this says nothing of software alone:"
        " hardware: NVIDIA H200 -> NVIDIA H100"
    )
    assert comparison_dict(found, 0)["forced"] is True
    with pytest.raises(UsageError, match="have different shapes: hardware: NVIDIA H200 -> NVIDIA"):
        compare_sides(base, new)


def test_forced_sides_of_another_number_of_ranks_are_matched():
    wide = [
        msgspec.structs.replace(
            trial, case=msgspec.structs.replace(trial.case, world_size=4, nodes=2)
        )
        for trial in trials_of(WIRE)
    ]
    found = compared(wide, topology=topology_of(2, 2), force=True)

    assert len(found.comparison.cases) == 10
    assert [one.name for one in found.forced] == ["placement", "ranks", "NICs"][:2]


def test_torch_and_native_are_matched():
    native = [
        msgspec.structs.replace(trial, case=msgspec.structs.replace(trial.case, via="native"))
        for trial in trials_of(WIRE)
    ]
    found = compared(native, via="native")

    assert comparison_text(found).startswith("via native against torch: 10 cases")


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (
            trials_of(BASE, mode=Mode.GRAPH, name="all_gather"),
            "collective is all_reduce against all_gather; mode is eager against graph",
        ),
        (
            trials_of(BASE, sizes=[3, 5, 7, 9]),
            "size_bytes is 8 B, 32 B, 128 B, and 7 more against 3 B, 5 B, 7 B, and 1 more",
        ),
        (
            [*trials_of(BASE, sizes=[3]), *trials_of(BASE, sizes=[8], mode=Mode.GRAPH)],
            "each part of a case is there on both sides, but never together",
        ),
    ],
)
def test_nothing_in_common_says_what_differs(new, words):
    with pytest.raises(UsageError) as raised:
        compared(new)

    assert str(raised.value) == (
        f"the two sides have no case in common: {words}; measure the same on both sides"
    )


def test_a_side_without_a_right_case_is_said():
    wrong = [msgspec.structs.replace(t, status=Status.DATA_WRONG) for t in trials_of(BASE)]
    with pytest.raises(UsageError, match=r"^run 20261130-0500-bb22 has no case that is ok; 'coll"):
        compared(wrong)


def test_several_runs_add_their_repeats():
    parts = tuple(stored_run(trials_of(WIRE, repeats=1), f"r{k}") for k in range(5))
    found = compare_sides(side(trials_of(BASE)), Side(name="5 runs in x", runs=parts))

    assert (found.comparison.base_repeats, found.comparison.new_repeats) == (5, 5)
    assert comparison_text(found).startswith("5 runs in x against run 20261130-0412-aa11: ")


def test_json_holds_every_case_and_no_nan():
    flat = trials_of(lambda _size: 10.0, noise=0.0)
    found = compared(flat, base=flat)
    document = json.loads(comparison_json(found, 0), parse_constant=pytest.fail)

    assert document["schema"] == "collbench.comparison/1"
    assert document["counts"] == {"SAME": 10, "FASTER": 0, "SLOWER": 0, "UNCLEAR": 0}
    assert document["curves"][0]["base"][0]["algbw_gb_per_s"] is None
    assert " flat -> flat " in comparison_text(found)


def test_json_of_a_claim():
    found = slower_wire()
    document = json.loads(comparison_json(found, 1))
    case = document["cases"][-1]

    assert document["exit_code"] == 1
    assert document["base"] == {
        "name": "run 20261130-0412-aa11",
        "repeats": 5,
        "runs": [{"run_id": "20261130-0412-aa11", "started_at": "2026-11-30T04:12:00.000+00:00"}],
    }
    assert document["differences"]["software"] == [
        {"name": "NCCL", "base": "2.30.7", "new": "2.31.2"}
    ]
    assert (case["collective"], case["mode"], case["size_bytes"]) == ("all_reduce", "eager", 2**21)
    assert case["verdict"] == "SLOWER"
    assert case["ci95"][0] < case["ratio"] < case["ci95"][1]
    assert math.isclose(case["ratio"], WIRE(2**21) / BASE(2**21), rel_tol=1e-3)
    assert case["located"] == {
        "kind": "bandwidth",
        "text": "B -12 %, alpha the same: the wire, or the channels used",
    }
    assert case["ran"] == {"base": None, "new": None}
    assert document["needs"] is None
    assert "secret-host" not in comparison_json(found, 1).decode()
