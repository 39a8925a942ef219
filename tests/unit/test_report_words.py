"""Headings, the plan line, closing lines, JSON, pictures."""

import json
from pathlib import Path

import msgspec
import pytest

from collbench.report.closing import closing
from collbench.report.heading import heading, plan_line
from collbench.report.json_output import json_document
from collbench.report.plot import plot_run
from collbench.store import read_run

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0635-3947"
GOLDEN = Path(__file__).parents[1] / "data/golden/v1"


@pytest.fixture(scope="module")
def reference():
    return read_run(REFERENCE)


def no_limit(_case):
    return None


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


def test_the_plan_line_counts_the_axes(reference):
    cases = [trial.case for trial in reference.trials if trial.repeat == 0]

    assert plan_line(cases, 20, 290.0, "20261130-0635-3947") == (
        "plan: 3 collectives x 15 sizes x 2 modes: 90 cases, 20 repeats, about 4 min 50 s"
        "    run 20261130-0635-3947"
    )


def test_the_closing_lines_hold_peak_half_and_latency(reference):
    lines = closing(reference.trials, [], no_limit, REFERENCE, "last").splitlines()

    assert lines[1] == (
        "all_reduce float32 graph: 329.3 GB/s busbw at 1 GiB, half of it from 7.78 MiB;"
        " 5.67 us at 4 B."
    )
    assert lines[-3:] == [f"Kept in {REFERENCE}", "  collbench plot last", "  collbench show last"]


def test_json_has_one_shape_and_no_nan():
    stored = read_run(GOLDEN)
    data = json_document(stored.run.run_id, 4, stored.trials, stored.run.findings)

    document = json.loads(data, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert list(document) == ["schema", "run_id", "exit_code", "trials", "verdicts"]
    assert len(document["trials"]) == len(stored.trials)
    assert document["trials"][0]["case"]["collective"] == stored.trials[0].case.collective


def test_a_picture_has_its_axes_its_lines_and_its_ticks(reference, tmp_path):
    png, svg = plot_run(reference.run, reference.topology, reference.trials, no_limit, tmp_path)

    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for words in (
        "bus bandwidth, GB/s",
        "time of a call, us",
        "all_gather eager",
        "all_gather graph",
        ">4 MiB<",
        "range of the repeats",
        "2 x NVIDIA H200 on 1 node",
    ):
        assert words in text
    assert "SIMULATED" not in text


def test_a_picture_of_a_simulated_run_has_a_watermark(reference, tmp_path):
    run = msgspec.structs.replace(reference.run, simulated=True)

    _, svg = plot_run(run, reference.topology, reference.trials[:50], no_limit, tmp_path)

    assert ">SIMULATED<" in svg.read_text()


def test_a_run_with_every_status_can_be_drawn(tmp_path):
    stored = read_run(GOLDEN)

    for path in plot_run(stored.run, stored.topology, stored.trials, no_limit, tmp_path):
        assert path.stat().st_size > 1000
