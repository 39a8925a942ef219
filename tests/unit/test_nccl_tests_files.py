"""The recorded files of nccl-tests 2.19 on two H200, as text and as JSON, become trials."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.interop.nccl_tests_read_file import read_file
from collbench.interop.nccl_tests_read_runs import make_runs
from collbench.model import Mode, Pattern, ReasonCode, Status

DATA = Path(__file__).parents[1] / "data" / "nccl-tests"
NO_ROWS = DATA / "all_gather_tree_unsupported.txt"
JSONS = sorted(DATA.rglob("*.json"))
TEXTS = sorted(path for path in DATA.rglob("*.txt") if path != NO_ROWS)
NOW = "2026-11-30T04:12:00.000+00:00"


def made_of(*paths, collective=None):
    files = [read_file(path) for path in paths]
    return make_runs(files, collective=collective, cluster="lab", argv=["import"], now=NOW)


def by_placement(trials):
    """Returns trials by size and placement; the recorded files hold each once."""
    return {(trial.case.size_bytes, trial.case.in_place): trial for trial in trials}


def test_all_the_recorded_files_are_there():
    assert (len(JSONS), len(TEXTS)) == (13, 14)


@pytest.mark.parametrize("path", JSONS, ids=lambda path: path.name)
def test_the_figures_of_json_are_those_of_the_file_to_six_decimals(path):
    made = made_of(path)
    results = json.loads(path.read_text())["results"]

    (run,) = made.runs
    assert made.odd == ()
    found = by_placement(run.trials)
    assert len(found) == 2 * len(results)
    for result in results:
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            trial, figures = found[result["size"], in_place], result[key]
            assert trial.case.count == result["count"]
            if result["size"] == 0:
                assert (trial.status, trial.summary) == (Status.SKIPPED, None)
                assert trial.reason.code is ReasonCode.ZERO_BYTES
                continue
            summary = trial.summary
            assert trial.status is Status.OK
            assert summary.median_us == summary.mean_over_ranks_us == figures["time"]
            assert summary.reported_algbw_gb_per_s == figures["alg_bw"]
            assert summary.reported_busbw_gb_per_s == figures["bus_bw"]
            assert summary.algbw_gb_per_s == pytest.approx(figures["alg_bw"], abs=6e-7)
            assert summary.busbw_gb_per_s == pytest.approx(figures["bus_bw"], abs=6e-7)
            assert trial.check.checked == (figures["nwrong"] is not None)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_the_figures_of_text_are_those_of_json_within_the_printed_rounding(path):
    made = made_of(path)
    (run,) = made.runs

    assert made.odd == ()
    twin = path.with_suffix(".json")
    if twin.exists():
        (other,) = made_of(twin).runs
        exact, found = by_placement(other.trials), by_placement(run.trials)
        assert found.keys() == exact.keys()
        for key, trial in found.items():
            assert trial.case == exact[key].case
            assert trial.status is exact[key].status
            assert trial.check == exact[key].check
            if trial.summary is not None:
                assert trial.summary.median_us == pytest.approx(
                    exact[key].summary.median_us, abs=0.005000001
                )


def test_a_table_of_another_type_and_operator_has_its_own_cases():
    (run,) = made_of(DATA / "all_reduce_bf16_max.txt").runs

    assert len(run.trials) == 8
    assert {(t.case.dtype, t.case.redop, t.case.root) for t in run.trials} == {
        ("bfloat16", "max", None)
    }
    trial = by_placement(run.trials)[64 * 2**20, False]
    assert trial.summary.median_us == 250.25
    assert trial.summary.busbw_gb_per_s == pytest.approx(2**26 / 250.25e3)
    assert trial.summary.reported_busbw_gb_per_s == 268.16


@pytest.mark.parametrize(
    ("name", "collective", "redop", "root"),
    [
        ("all_gather_g0_1", "all_gather", None, None),
        ("alltoall_g0_1", "all_to_all", None, None),
        ("broadcast_g0_1", "broadcast", None, 0),
        ("gather_g0_1", "gather", None, 0),
        ("reduce_g0_1", "reduce", "sum", 0),
        ("reduce_scatter_g0_1", "reduce_scatter", "sum", None),
        ("scatter_g0_1", "scatter", None, 0),
        ("sendrecv_g0_1", "send_recv", None, None),
    ],
)
@pytest.mark.parametrize("suffix", ["json", "txt"])
def test_cases_are_those_of_a_sweep(name, suffix, collective, redop, root):
    (run,) = made_of(DATA / f"{name}.{suffix}").runs

    (asked,) = {
        (c.collective, c.backend, c.dtype, c.redop, c.root, c.world_size, c.nodes, c.via)
        for c in (trial.case for trial in run.trials)
    }
    assert asked == (collective, "nccl", "float32", redop, root, 2, 1, "native")
    assert {trial.case.pattern for trial in run.trials} == {Pattern.BACK_TO_BACK}
    assert {trial.case.mode for trial in run.trials} == {Mode.EAGER}


def test_a_placement_that_was_not_checked_is_told_from_one_that_was():
    (run,) = made_of(DATA / "sendrecv_g0_1.txt").runs

    assert {(t.case.in_place, t.check.checked) for t in run.trials} == {
        (False, True),
        (True, False),
    }


def test_graph_is_another_run_and_text_and_json_of_one_launch_are_two_repeats():
    made = made_of(
        *[DATA / f"all_reduce_g{g}_1.{suffix}" for g in (0, 1) for suffix in ("txt", "json")]
    )

    assert [(one.run.repeats, len(one.trials)) for one in made.runs] == [(2, 56), (2, 56)]
    assert [{t.case.mode for t in one.trials} for one in made.runs] == [{Mode.EAGER}, {Mode.GRAPH}]


def test_other_collectives_of_one_kind_share_the_repeat():
    made = made_of(DATA / "all_reduce_g0_1.json", DATA / "all_gather_g0_1.json")

    (run,) = made.runs
    assert run.run.repeats == 1
    assert {t.case.collective for t in run.trials} == {"all_reduce", "all_gather"}
    assert len({t.trial_id for t in run.trials}) == 56


@pytest.mark.parametrize("suffix", ["json", "txt"])
def test_what_the_first_lines_tell_is_kept(suffix):
    (one,) = made_of(DATA / f"all_reduce_g1_1.{suffix}").runs
    run, topology = one.run, one.topology

    assert (run.command, run.backend, run.via, run.world_size) == (
        "nccl-tests",
        "nccl",
        "native",
        2,
    )
    assert run.environment.nccl.version == "2.28.9"
    assert (run.policy.samples, run.policy.warmup, run.policy.check) == (1, 5, True)
    (node,) = topology.nodes
    assert [gpu.name for gpu in node.gpus] == ["NVIDIA H200"] * 2
    assert [(p.rank, p.node, p.local_rank, p.gpu) for p in topology.ranks] == [
        (0, "host", 0, 0),
        (1, "host", 1, 1),
    ]
    assert node.gpus[0].pci_bus_id == "0000:00:06"
    (table,) = run.suite["tables"]
    assert table["program"] == "all_reduce_perf"
    assert {trial.summary.ops_per_sample for trial in run_trials(one)} == {20}


def run_trials(one):
    return [trial for trial in one.trials if trial.summary is not None]


def test_host_names_stand_in_the_topology_alone():
    for suffix in ("json", "txt"):
        (one,) = made_of(DATA / f"broadcast_g0_1.{suffix}").runs
        told = json.dumps(one.run.suite) + str(one.run.note) + str(one.run.environment)
        assert "host " not in told
        assert '"host"' not in told


def test_variables_are_those_of_the_file():
    (one,) = made_of(DATA / "calls" / "all_reduce_iter.json").runs

    assert one.run.environment.variables == {"NCCL_NVLS_ENABLE": "0"}


def test_the_times_of_single_calls_are_samples_and_the_time_stays_the_mean():
    path = DATA / "calls" / "all_reduce_iter.json"
    result = json.loads(path.read_text())["results"][0]["out_of_place_per_iter"]
    (one,) = made_of(path).runs
    reading = one.readings[0]
    summary = reading.trial.summary

    assert reading.calls_us.shape == (1, 50)
    assert np.allclose(reading.calls_us[0], result["times_us"])
    assert (summary.samples, summary.ops_per_sample, summary.warmup_samples) == (50, 1, 1)
    assert summary.median_us == 10.66938
    assert summary.min_us == pytest.approx(result["min_us"], abs=1e-5)
    assert summary.p95_us == pytest.approx(12.336, abs=1e-3)
    assert (summary.p99_us, summary.ci95_us) == (None, None)
    assert reading.trial.notes == ["nccl_tests_mean", "nccl_tests_calls"]


def test_a_table_without_rows_says_what_the_program_said():
    with pytest.raises(UsageError) as refused:
        read_file(NO_ROWS)

    assert str(refused.value) == (
        f"'{NO_ROWS}' has no row with figures: the program ended with \"Test NCCL failure"
        " all_gather.cu:50 'invalid usage (run with NCCL_DEBUG=WARN for details) / '\"; give what"
        " nccl-tests printed, or its -J file of a run that measured"
    )
