"""Headings, the plan line, closing lines, JSON."""

import json
from pathlib import Path

import msgspec
import pytest
from records import make_run, make_trial

from collbench.analyze.limit import Limit
from collbench.model import Finding, Reason, ReasonCode, Status
from collbench.plan.sweep import plan_sweep
from collbench.report.closing import closing, figure_lines, took_line
from collbench.report.heading import heading, plan_line, refused_lines
from collbench.report.json_output import json_document
from collbench.report.table import WIDTH
from collbench.store import read_run
from collbench.suite import Suite, override, resolve

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0635-3947"
GOLDEN = Path(__file__).parents[1] / "data/golden/v1"


@pytest.fixture(scope="module")
def reference():
    return read_run(REFERENCE)


def no_limit(_case, _proof):
    return None


def some_limit(_case, _proof):
    return Limit(478.116, "18 NVLinks x 26.6 GB/s")


def test_the_heading_names_hardware_and_loaded_versions(reference):
    assert heading(reference.run, reference.topology) == (
        "2 x NVIDIA H200 on 1 node (NV18, no IB device) | torch 2.11.0+cu130, NCCL 2.28.9 loaded,"
        " driver 580.159.04 | collbench 0.1.0"
    )


def test_a_loaded_nccl_other_than_the_compiled_one_is_said(reference):
    environment = reference.run.environment
    nccl = msgspec.structs.replace(environment.nccl, version="2.32.3")
    run = msgspec.structs.replace(
        reference.run, environment=msgspec.structs.replace(environment, nccl=nccl)
    )

    assert "NCCL 2.32.3 loaded (torch was built with 2.28.9)" in heading(run, reference.topology)


def test_what_is_not_real_is_said_first(reference):
    simulated = msgspec.structs.replace(reference.run, simulated=True)
    planted = msgspec.structs.replace(reference.run, planted="late:rank=1,ms=20")

    assert heading(simulated, reference.topology).startswith("SIMULATED: a model answered")
    assert heading(planted, reference.topology).startswith("PLANTED FAULT (late:rank=1,ms=20) | ")


def test_a_heading_without_gpus_or_a_note_still_says_what_ran(reference):
    bare = msgspec.structs.replace(
        reference.topology,
        nodes=[msgspec.structs.replace(reference.topology.nodes[0], gpus=[], gpu_links=[])],
    )

    assert heading(reference.run, bare).startswith("2 ranks on CPUs | torch")


def plan(suite, *, backend="nccl", gpu=True, **how):
    found = plan_sweep(resolve(suite, gpu=gpu), backend=backend, world_size=2, seed=7, **how)
    return msgspec.structs.replace(found, estimate_s=290.0)


def test_the_plan_line_counts_the_axes_and_what_is_started():
    asked = override(Suite(), repeats=20)

    assert plan_line(plan(asked), "20261130-0635-3947") == (
        "plan: 3 collectives x 15 sizes x 2 modes: 90 cases, 20 repeats, 20 zygotes, 80 workers,"
        " 40 communicators, 900 cases proved apart, about 4 min 50 s\n  run 20261130-0635-3947"
    )


def test_the_plan_line_has_settings_where_some_are_swept():
    asked = override(
        Suite(), collectives=("all_reduce",), sizes=("8",), modes=("graph",), proto=("LL", "Simple")
    )

    assert plan_line(plan(asked), "x") == (
        "plan: 1 collective x 1 size x 2 settings: 2 cases, 1 repeat, 1 zygote, 2 workers,"
        " 2 communicators, about 4 min 50 s\n  run x"
    )


def test_the_plan_line_counts_processes_of_gloo_too():
    asked = override(
        Suite(),
        collectives=("all_reduce",),
        sizes=("8", "64"),
        env=("OMP_NUM_THREADS=1", "OMP_NUM_THREADS=2"),
        repeats=3,
    )

    assert plan_line(plan(asked, backend="gloo", gpu=False), "x") == (
        "plan: 1 collective x 2 sizes x 2 settings: 4 cases, 3 repeats, 6 zygotes, 12 workers,"
        " 6 communicators, about 4 min 50 s\n  run x"
    )


@pytest.mark.parametrize(("emulated", "each"), [(False, " a process"), (True, "")])
def test_on_several_nodes_each_process_has_its_zygotes(emulated, each):
    asked = override(Suite(), collectives=("all_reduce",), sizes=("8",), repeats=2)
    found = plan(asked, backend="gloo", gpu=False, nodes=2, emulated=emulated)

    assert " ".join(plan_line(found, "x").split()) == (
        f"plan: 1 collective x 1 size: 1 case, 2 repeats, 2 zygotes{each}, 4 workers,"
        " 2 communicators, about 4 min 50 s run x"
    )


def test_a_model_starts_no_processes():
    asked = override(Suite(), collectives=("all_reduce",), sizes=("8", "64"))

    assert plan_line(plan(asked, backend="simulated", gpu=False), "x") == (
        "plan: 1 collective x 2 sizes: 2 cases, 1 repeat, about 4 min 50 s    run x"
    )


def test_what_is_refused_gets_a_line_a_collective_with_its_settings():
    asked = override(
        Suite(),
        collectives=("all_reduce", "broadcast"),
        sizes=("8", "64"),
        algo=("Ring", "Tree", "PAT"),
    )

    def refusal(case):
        runs = {"all_reduce": ("Ring", "Tree"), "broadcast": ("Ring",)}[case.collective]
        known = case.setting["NCCL_ALGO"] in runs
        return None if known else Reason(code=ReasonCode.ILLEGAL, text="has none")

    assert refused_lines(plan(asked, refusal=refusal)) == [
        "cannot be, not run: all_reduce with PAT",
        "cannot be, not run: broadcast with Tree; PAT",
    ]
    assert refused_lines(plan(asked)) == []


STARTED = "2026-11-30T04:12:00.000+00:00"


@pytest.mark.parametrize(
    ("changes", "durations_s", "line"),
    [
        (
            {"ended_at": "2026-11-30T04:16:52.400+00:00", "proof_s": 5.04},
            (200.0, 20.0),
            (
                "Took 4 min 52 s: 3 min 40 s in cases, warm-up and checks included; 5.0 s proving"
                " what ran."
            ),
        ),
        (
            {"ended_at": "2026-11-30T04:12:30.000+00:00"},
            (21.0, 0.5),
            "Took 30 s: 22 s in cases, warm-up and checks included.",
        ),
        ({"ended_at": None}, (21.0,), None),
        (
            {
                "ended_at": "2026-11-30T04:16:52.400+00:00",
                "resumed_at": ["2026-11-30T04:16:00.000+00:00"],
            },
            (21.0,),
            None,
        ),
        ({"ended_at": "2026-11-30T04:12:30.000+00:00", "simulated": True}, (21.0,), None),
        ({"ended_at": "2026-11-30T04:12:30.000+00:00"}, (), None),
        ({"ended_at": "2026-11-30T04:12:30.000+00:00"}, (0.0, 0.0), None),
        ({"ended_at": "2026-11-30T04:12:30.000+00:00", "proof_s": 9.5}, (21.0,), None),
    ],
    ids=[
        "proved apart",
        "nothing proved apart",
        "not ended",
        "resumed",
        "simulated",
        "no trials",
        "taken in from elsewhere",
        "a clock was set",
    ],
)
def test_the_wall_time_is_said_where_it_is_known(changes, durations_s, line):
    run = make_run(started_at=STARTED, **changes)
    trials = [
        msgspec.structs.replace(make_trial(8, 1.0), duration_s=seconds) for seconds in durations_s
    ]

    assert took_line(run, trials) == line


def test_the_wall_time_stands_above_where_the_run_is_kept():
    assert closing([], [], REFERENCE, "last", took="Took 30 s: 22 s in cases.").splitlines() == [
        "",
        "Took 30 s: 22 s in cases.",
        f"Kept in {REFERENCE}",
        "  collbench plot last",
        "  collbench show last",
    ]


def test_the_closing_lines_hold_peak_half_and_latency(reference):
    lines = closing(figure_lines(reference.trials, no_limit), [], REFERENCE, "last").splitlines()

    assert lines[1] == (
        "all_reduce float32 graph: 329.3 GB/s busbw at 1 GiB, half of it from 7.78 MiB;"
        " 5.67 us at 4 B."
    )
    assert lines[-3:] == [f"Kept in {REFERENCE}", "  collbench plot last", "  collbench show last"]


def test_the_closing_lines_hold_within_the_width_and_keep_options_whole(reference):
    long_path = "/scratch/" + "deep/" * 30
    hung = Finding(
        code="hung",
        severity="bad",
        text="word " * 40 + "end.",
        evidence=[f"line {k} " + "x " * 80 for k in range(8)],
        next_step=f"read {long_path}",
    )

    lines = closing(
        figure_lines(reference.trials, some_limit), [hung], REFERENCE, "last"
    ).splitlines()

    assert [line for line in lines if len(line) > WIDTH] == [f"    {long_path}."]
    assert lines[0] == (
        "all_reduce float32 eager: 328.2 GB/s busbw at 1 GiB (69% of the limit), half of it from"
        " 9.86 MiB; 37.24 us at 64 KiB."
    )
    shown = [line.split()[1] for line in lines if line.startswith("      line ")]
    assert shown == ["2", "3", "4", "5", "6", "7"]


def test_a_run_without_a_time_closes_with_its_place(reference):
    assert closing([], [], REFERENCE, "last").splitlines() == [
        "",
        f"Kept in {REFERENCE}",
        "  collbench plot last",
        "  collbench show last",
    ]


def test_a_name_with_a_blank_is_quoted_where_it_is_to_be_copied():
    assert closing([], [], REFERENCE, "my runs/1").splitlines()[-2:] == [
        "  collbench plot 'my runs/1'",
        "  collbench show 'my runs/1'",
    ]


def test_what_did_not_carry_the_data_has_no_figure_to_remember(reference):
    status = Status.PATH_NOT_USED
    trials = [msgspec.structs.replace(trial, status=status) for trial in reference.trials]
    asked = Finding(code="x", severity="info", text="No device.", next_step="is it there?")

    ran = [
        msgspec.structs.replace(trial, case=msgspec.structs.replace(trial.case, setting={"A": "1"}))
        for trial in reference.trials
    ]

    assert figure_lines(trials, no_limit) == []
    of_both = figure_lines([*trials, *ran], no_limit)
    assert len(of_both) == len(figure_lines(ran, no_limit)) == 6
    assert all("(A=1)" in line for line in of_both)
    assert closing([], [asked], REFERENCE, "last").splitlines()[:2] == [
        "What stands out",
        "  * No device. Next: is it there?",
    ]


def test_placements_of_one_collective_are_told_apart_in_the_closing_lines(reference):
    (trial, *_) = reference.trials
    case = msgspec.structs.replace(trial.case, in_place=not trial.case.in_place)
    both = [trial, msgspec.structs.replace(trial, case=case)]

    lines = closing(figure_lines(both, no_limit), [], REFERENCE, "last").splitlines()

    assert {line.partition(":")[0].rpartition(str(trial.case.mode))[2] for line in lines[:2]} == {
        " in place",
        " out of place",
    }


def test_json_has_one_shape_and_no_nan():
    stored = read_run(GOLDEN)
    data = json_document(stored.run.run_id, 4, stored.trials, stored.run.findings)

    document = json.loads(data, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert list(document) == ["schema", "run_id", "exit_code", "trials", "verdicts"]
    assert len(document["trials"]) == len(stored.trials)
    assert document["trials"][0]["case"]["collective"] == stored.trials[0].case.collective
