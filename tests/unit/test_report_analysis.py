"""The text and the JSON of an analysis: exact lines on made curves."""

import json
from dataclasses import replace

import msgspec
import pytest
from records import make_trial
from setting_trials import RAN_RING, RING_LL, TREE, under
from stored_runs import law, stored_run, trials_of

from collbench.analyze.best_table import best_of_run
from collbench.analyze.laws import laws_of
from collbench.analyze.limit import Limit
from collbench.model import Finding, Mode
from collbench.report.analysis import Analysis, analysis_json, analysis_text
from collbench.report.table import WIDTH

FLAG = Finding(code="bimodal", severity="warning", text="Two kinds.", next_step="look")
SIMPLE = msgspec.structs.replace(RAN_RING, protocol="Simple")


def no_limit(_case, _proof):
    return None


def some_limit(_case, proof):
    return Limit(200.0, "8 NVLinks x 25.0 GB/s" + (f", {proof.algorithm}" if proof else ""))


def analysis(trials, limit_of=no_limit, flags=(), **changes):
    stored = stored_run(trials, **changes)
    return Analysis(
        run=stored.run,
        topology=stored.topology,
        laws=laws_of(trials, limit_of),
        best=best_of_run(trials),
        flags=flags,
        name="last",
    )


def lines_of(*args, **changes):
    return analysis_text(analysis(*args, **changes)).splitlines()


def two_laws():
    """LL up to 128 KiB, Simple above, as the proof says."""
    slow, fast = law(5.0, 10.0), law(20.0, 150.0)
    small = [make_trial(8 * 4**k, slow(8 * 4**k), proof=RAN_RING) for k in range(8)]
    return small + [make_trial(8 * 4**k, fast(8 * 4**k), proof=SIMPLE) for k in range(8, 14)]


def test_a_curve_has_a_row_a_segment_with_what_ran_and_the_limit():
    lines = lines_of(two_laws(), some_limit)

    start = lines.index("all_reduce float32 eager")
    rows = [" ".join(line.split()) for line in lines[start + 1 : start + 4]]
    assert rows == [
        "sizes points alpha us B GB/s half of B from ran",
        "8 B to 128 KiB 8 5.00 [5.00, 5.00] 10.00 [10.00, 10.00] 48.8 KiB Ring/LL",
        "512 KiB to 512 MiB 6 20.00 [20.00, 20.00] 150.0 [150.0, 150.0] 2.86 MiB Ring/Simple",
    ]
    assert lines[start + 4] == "  Switches at 512 KiB; times scatter by 0.0% about the law."
    assert lines[start + 5] == (
        "  149.2 GB/s at 512 MiB, 75% of 200.0 GB/s (8 NVLinks x 25.0 GB/s, Ring); half of the peak"
        " from 3.14 MiB."
    )


def test_the_first_lines_say_what_ran_and_what_the_columns_are():
    lines = lines_of(two_laws())

    assert lines[0].startswith("2 x NVIDIA H200 on 1 node")
    assert lines[1] == "run 20261130-0412-aa11, 2026-11-30 04:12 UTC"
    assert lines[3] == (
        "time = alpha + S / B, a law for each span of sizes; B as bus bandwidth, GB/s; [intervals"
        " of 95 %]"
    )


def test_a_time_that_does_not_grow_is_said_in_words():
    def row(*times_us):
        lines = lines_of([make_trial(8 * 4**k, time_us) for k, time_us in enumerate(times_us)])
        (found,) = [line for line in lines if line.startswith("  8 B to")]
        return found.split("]", 1)[1].split()

    assert row(10.0, 10.0, 10.0, 10.0) == ["the", "time", "does", "not", "grow", "-"]
    fuzzy = row(10.1, 9.9, 10.0, 9.9)
    assert fuzzy[:5] == ["the", "time", "does", "not", "grow"]
    assert fuzzy[-3:] == ["or", "more]", "-"]
    assert float(fuzzy[5].lstrip("[")) > 0


@pytest.mark.parametrize(("count", "sizes"), [(1, "1 size"), (2, "2 sizes")])
def test_a_curve_with_too_few_sizes_says_what_cannot_be_fitted(count, sizes):
    lines = lines_of(two_laws()[:count])

    start = lines.index("all_reduce float32 eager")
    assert lines[start + 1] == (
        f"  {sizes}: alpha and B cannot be told apart; a law needs 3 sizes, each further protocol"
        " 3 more."
    )
    assert "  Next: collbench sweep -b 8 -e 1G -f 4    (sizes enough for a law)" in lines


def test_without_a_limit_that_is_said():
    lines = lines_of(two_laws())

    assert any(", the wire's limit is not known; half" in line for line in lines)
    assert "  How close to the wire this is cannot be said: its limit is not known." in lines


def test_a_path_that_was_not_used_shows_no_bandwidth():
    trials = [make_trial(8 * 4**k, 10.0 + 4**k, rate=False) for k in range(6)]

    lines = lines_of(trials, some_limit)

    (row,) = [line for line in lines if line.startswith("  8 B to")]
    assert row.split("]")[1].split() == ["-", "-"]
    assert "  1034 us at 8 KiB." in lines


def test_the_conclusion_names_each_curve_and_the_next_commands():
    graph = [make_trial(8 * 4**k, law(6.0, 150.0)(8 * 4**k), mode=Mode.GRAPH) for k in range(14)]

    lines = lines_of(two_laws() + graph, some_limit, repeats=1)

    start = lines.index("Conclusion")
    assert lines[start + 1] == (
        "  Of the wire's limit the largest size reaches: all_reduce eager 75%, all_reduce graph"
        " 75%."
    )
    assert lines[start + 2 :] == [
        "  The smallest messages cost: all_reduce eager 5.00 us, all_reduce graph 6.00 us.",
        "  Next: collbench sweep --repeats 5    (to compare, or to choose a setting)",
        "  Next: collbench sweep nccl_matrix --repeats 5    (what else NCCL can choose)",
        "  Next: collbench plot last",
    ]


def test_a_run_of_large_messages_alone_says_nothing_of_small_ones():
    sizes = [2**20 * 4**k for k in range(6)]
    lines = lines_of([make_trial(size, law(5.0, 100.0)(size)) for size in sizes])

    assert not any("The smallest messages cost" in line for line in lines)


def test_a_name_is_quoted_where_it_is_to_be_copied():
    found = replace(analysis(two_laws()), name="my run")

    assert analysis_text(found).splitlines()[-1] == "  Next: collbench plot 'my run'"


def test_of_many_curves_the_conclusion_has_the_two_ends():
    names = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"]
    trials = [
        make_trial(8 * 4**k, law(5.0 + place, 100.0)(8 * 4**k), name=name)
        for place, name in enumerate([*names, "send_recv"])
        for k in range(6)
    ]

    lines = lines_of(trials)

    assert (
        "  The smallest messages cost: 5.00 us (all_reduce eager) to 11.00 us (send_recv eager), 7"
        " curves." in lines
    )


def test_flags_stand_with_what_to_do_and_nothing_is_said_too():
    assert "  Two kinds. Next: look." in lines_of(two_laws(), flags=[FLAG])
    nothing = "  Nothing: no samples of two kinds, no drift that can be told from noise."
    assert nothing in lines_of(two_laws())


def settings(faster):
    default = trials_of(law(10.0, 100.0))
    others = [
        under(setting, trial.case.size_bytes, trial.summary.median_us * factor, repeat=trial.repeat)
        for setting, factor in ((RING_LL, 1.5), (TREE, faster))
        for trial in default
    ]
    return [*default, *others]


@pytest.mark.parametrize(("faster", "exported"), [(0.8, True), (1.2, False)])
def test_best_settings_follow_and_are_exported_where_one_is_faster(faster, exported):
    lines = lines_of(settings(faster))

    assert any(line.startswith("Best settings: 3 settings, 5 repeats") for line in lines)
    told = "  Next: collbench export tuner last    (NCCL chooses the best by itself)"
    assert (told in lines) is exported
    # The matrix was measured: it is no next step.
    assert not any("nccl_matrix" in line for line in lines)


def test_the_conclusion_of_a_run_of_settings_is_that_of_the_default():
    lines = lines_of(settings(1.2))

    assert "  The smallest messages cost: all_reduce eager (default) 10.00 us." in lines


def test_lines_fit_the_page():
    assert max(map(len, lines_of(two_laws(), some_limit, [FLAG]))) <= WIDTH


def test_json_has_the_same_and_null_for_what_has_no_end():
    flat = [make_trial(8 * 4**k, 10.0) for k in range(6)]
    found = json.loads(analysis_json(analysis(flat, some_limit, [FLAG]), 0))

    (curve,) = found["curves"]
    (segment,) = curve["segments"]
    assert found["schema"] == "collbench.analysis/1"
    assert (found["exit_code"], found["best_settings"]) == (0, None)
    assert found["flags"][0]["code"] == "bimodal"
    assert segment["alpha_us"] == pytest.approx(10.0)
    assert (segment["busbw_gb_per_s"], segment["half_size_bytes"]) == (None, None)
    assert (curve["limit_gb_per_s"], curve["limit_text"]) == (200.0, "8 NVLinks x 25.0 GB/s")
    assert curve["too_few"] is None
    assert found["conclusion"][-1] == "Next: collbench plot last"


def test_json_of_a_curve_without_a_law_says_why():
    found = json.loads(analysis_json(analysis(two_laws()[:1]), 4))

    (curve,) = found["curves"]
    assert curve["segments"] == []
    assert curve["too_few"].startswith("1 size: ")
    assert curve["share_of_limit"] is None
