"""``collbench baseline``, and the options that set bars."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from records import make_trial

from collbench.analyze.bars import BarReport, Bars, BarVerdict, CaseBar
from collbench.analyze.baseline import read_baseline
from collbench.cli.bar_options import (
    BAR_OPTIONS,
    BarJudge,
    check_bars,
    read_bars,
    with_bars_of_before,
)
from collbench.cli.baseline import name_of_cases, name_of_pairs
from collbench.cli.main import cli
from collbench.cli.sweep import sweep
from collbench.errors import ExitCode, RunNotFound, UsageError
from collbench.model import Finding
from collbench.store import StoredRun, read_run

RESULTS = Path(__file__).parents[2] / "results"
RUNS = Path(__file__).parents[1] / "data/runs"
DEFAULT = RESULTS / "2xh200/20261130-0635-3947"
MATRIX = RESULTS / "2xh200/20261130-0929-1943"
CPU = RUNS / "vm/20261130-0854-24d5"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLLBENCH_RESULTS", raising=False)


def made(*arguments: object):
    return CliRunner().invoke(cli, ["baseline", *map(str, arguments)], standalone_mode=False)


def changed(run: Path, **changes) -> Path:
    """Copies a run and changes its header."""
    folder = Path(shutil.copytree(run, Path("copies") / run.name))
    header = msgspec.structs.replace(read_run(folder).run, **changes)
    (folder / "run.json").write_bytes(msgspec.json.encode(header))
    return folder


def test_a_file_is_named_by_the_hardware_and_told_in_a_few_lines():
    result = made(DEFAULT)

    assert result.exception is None, result.output
    assert result.stdout.splitlines() == [
        "90 cases, 20 repeats, of 20261130-0635-3947",
        "  2 x NVIDIA H200 a node, 1 node, 2 ranks nccl",
        "  NCCL 2.28.9, torch 2.11.0+cu130, driver 580.159.04, collbench 0.1.0",
        "  scatter of repeats 0.1% to 29.9%, half of the cases below 1.1%",
        "  collbench sweep --baseline baseline-2xH200.json",
    ]
    assert result.stderr == "Kept in baseline-2xH200.json\n"
    kept = read_baseline(Path("baseline-2xH200.json"))
    assert (len(kept.cases), kept.simulated) == (90, False)
    assert "host0" not in Path("baseline-2xH200.json").read_text()


def test_what_is_left_out_and_what_cannot_be_judged_by_it_is_said():
    assert "  left out: trials that are not ok: 765 unsupported" in made(MATRIX).stdout
    assert "fewer than 3 repeats tell no scatter" in made(CPU).stdout
    assert read_baseline(Path("baseline-CPU-2-ranks.json")).hardware.models == ["AMD EPYC"]


def test_a_file_that_is_there_is_not_written_over_unasked():
    Path("b.json").write_text("mine")

    result = made(CPU, "-o", "b.json")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "'b.json' exists; give another name with -o, or --force"
    assert result.stdout == ""
    assert Path("b.json").read_text() == "mine"
    assert made(CPU, "-o", "b.json", "--force").exception is None
    assert read_baseline(Path("b.json")).run_ids == [CPU.name]
    assert [path.name for path in Path().iterdir()] == ["b.json"]


@pytest.mark.parametrize(
    ("argv", "model"),
    [
        (["sweep", "--simulate", "my model.toml"], "'my model.toml'"),
        (["sweep", "--simulate=m.toml", "-b", "8"], "m.toml"),
    ],
)
def test_what_a_model_reached_is_held_against_that_model(argv, model):
    result = made(changed(CPU, simulated=True, argv=argv), "-o", "b.json")

    assert result.exception is None, result.output
    assert result.stdout.splitlines()[-1] == (
        f"  collbench sweep --simulate {model} --baseline b.json"
    )


def test_a_name_is_found_in_the_folder_of_all_runs():
    assert made("20261130-0854", "--results", RUNS).exception is None
    assert isinstance(made("20261130-0854").exception, RunNotFound)


def test_runs_of_two_classes_and_planted_faults_write_nothing():
    with pytest.raises(UsageError, match="are of different hardware"):
        raise made(DEFAULT, CPU).exception
    with pytest.raises(UsageError, match="has a planted fault"):
        raise made(changed(CPU, planted="stop:rank=1,call=12")).exception
    assert list(Path().glob("*.json")) == []


def test_a_place_that_cannot_be_written_is_said_in_a_line():
    with pytest.raises(
        UsageError, match=r"cannot write 'none/b\.json': No such file or directory; "
    ):
        raise made(CPU, "-o", "none/b.json").exception


@pytest.mark.parametrize(
    ("changes", "simulated", "name"),
    [
        ({}, False, "baseline-2xH200.json"),
        ({"nodes": 4, "gpus_per_node": [8]}, False, "baseline-4x8xH200.json"),
        ({"nodes": 2, "gpus_per_node": [7, 8]}, False, "baseline-2x7-8xH200.json"),
        ({"models": ["NVIDIA H100 80GB HBM3"]}, False, "baseline-2xH100-80GB-HBM3.json"),
        ({"emulated": True}, False, "baseline-2xH200-emulated.json"),
        ({"gpus_per_node": [0], "ranks": 4}, False, "baseline-CPU-4-ranks.json"),
        ({"ranks": 4}, True, "baseline-simulated-4-ranks.json"),
    ],
)
def test_the_name_says_the_class(changes, simulated, name):
    made(DEFAULT)
    made_of = read_baseline(Path("baseline-2xH200.json"))
    hardware = msgspec.structs.replace(made_of.hardware, **changes)

    asked = msgspec.structs.replace(made_of, hardware=hardware, simulated=simulated)
    assert name_of_cases(asked) == name


@pytest.mark.parametrize(
    ("changes", "simulated", "name"),
    [
        ({"nodes": 4, "gpus_per_node": [8]}, False, "baseline-8xH200-pairs.json"),
        ({"emulated": True}, False, "baseline-2xH200-emulated-pairs.json"),
        ({"gpus_per_node": [0], "ranks": 4}, False, "baseline-CPU-pairs.json"),
        ({"ranks": 4}, True, "baseline-simulated-pairs.json"),
    ],
)
def test_the_name_of_pairs_says_the_class_of_a_node(changes, simulated, name):
    made(DEFAULT)
    made_of = read_baseline(Path("baseline-2xH200.json"))
    hardware = msgspec.structs.replace(made_of.hardware, **changes)

    asked = msgspec.structs.replace(made_of, hardware=hardware, simulated=simulated)
    assert name_of_pairs(asked) == name


def test_the_options_are_these_and_sweep_has_them():
    names = [option.label for option in BAR_OPTIONS]

    assert names == ["--baseline", "--tolerance", "--min-busbw", "--min-of-limit"]
    of_sweep = {name for param in sweep.params for name in param.opts}
    assert set(names) <= of_sweep


def test_without_options_there_are_no_bars():
    assert read_bars({"baseline": None, "results": "x", "other": 1}) is None


@pytest.mark.parametrize(
    ("text", "every", "of"),
    [
        ("300", 300.0, {}),
        ("all_reduce=300, allgather=2.8e2", None, {"all_reduce": 300.0, "all_gather": 280.0}),
        ("250,broadcast=100", 250.0, {"broadcast": 100.0}),
    ],
)
def test_rates_are_for_all_or_by_collective(text, every, of):
    assert read_bars({"min_busbw": text}) == Bars(min_busbw_gb_per_s=every, min_busbw_of=of)


def test_shares_are_per_cents_or_fractions():
    bars = read_bars({"min_of_limit": "85%", "baseline": str(CPU), "tolerance": "0.1"})

    assert (bars.min_of_limit, bars.tolerance, bars.source) == (0.85, 0.1, str(CPU))
    assert bars.baseline.run_ids == [CPU.name]


def test_a_baseline_is_a_file_or_a_run():
    made(CPU, "-o", "b.json")
    from_file = read_bars({"baseline": "b.json"}).baseline
    from_name = read_bars({"baseline": "20261130-0854", "results": str(RUNS)}).baseline

    assert from_file == from_name == read_bars({"baseline": str(CPU)}).baseline


def test_a_process_that_only_serves_checks_values_and_reads_no_baseline():
    assert read_bars({"baseline": "not here.json"}, judges=False) is None
    with pytest.raises(UsageError, match="--min-busbw: '0' is no rate"):
        read_bars({"min_busbw": "0"}, judges=False)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"min_busbw": "fast"}, "--min-busbw: 'fast' is no rate in GB/s; write 300, or all_reduce"),
        ({"min_busbw": "nan"}, "--min-busbw: 'nan' is no rate"),
        ({"min_busbw": "inf"}, "--min-busbw: 'inf' is no rate"),
        ({"min_busbw": "all_reduce="}, "--min-busbw: '' is no rate"),
        ({"min_busbw": ","}, "--min-busbw: the list is empty"),
        ({"min_busbw": "1,2"}, "--min-busbw: '2' is given twice"),
        (
            {"min_busbw": "all_reduse=3"},
            "--min-busbw: unknown collective 'all_reduse'; did you mean 'all_reduce'?",
        ),
        ({"min_of_limit": "120%"}, "--min-of-limit: share '120%' must be above 0% and below 100%"),
        ({"tolerance": "x", "baseline": "b"}, "--tolerance: share 'x' is not a share"),
        ({"tolerance": "3%"}, "--tolerance is of a baseline; give --baseline as well"),
        ({"baseline": "b.json"}, "--baseline b.json: no such file; 'collbench baseline RUN'"),
    ],
)
def test_a_value_that_cannot_be_names_its_option(given, text):
    with pytest.raises(UsageError, match=f"^{re.escape(text)}"):
        read_bars(given)


def test_a_run_that_is_not_there_names_the_option():
    with pytest.raises(RunNotFound, match=r"^--baseline 2026: no run '2026'"):
        read_bars({"baseline": "2026"})


def test_reading_the_options_imports_no_numpy():
    code = (
        "import sys, collbench.cli.bar_options, collbench.cli.baseline\n"
        "print(sorted({'scipy', 'pandas', 'matplotlib', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def stored(run: Path) -> StoredRun:
    return read_run(run)


def checked(bars: Bars, run: StoredRun, **changes) -> None:
    header = msgspec.structs.replace(run.run, **{"run_id": "new", **changes})
    check_bars(bars, header, run.topology, [trial.case for trial in run.trials])


def test_bars_for_this_hardware_pass():
    checked(read_bars({"baseline": str(DEFAULT), "min_busbw": "all_reduce=1"}), stored(DEFAULT))


@pytest.mark.parametrize(
    ("given", "run", "changes", "text"),
    [
        (
            {"baseline": str(DEFAULT)},
            CPU,
            {},
            "is for other hardware: GPU or CPU NVIDIA H200 there and AMD EPYC here, GPUs a node",
        ),
        (
            {"baseline": str(DEFAULT)},
            DEFAULT,
            {"simulated": True},
            "is measured and this run is simulated",
        ),
        (
            {"baseline": str(DEFAULT)},
            DEFAULT,
            {"run_id": DEFAULT.name},
            "is the run that goes on (20261130-0635-3947); give another",
        ),
        ({"baseline": str(DEFAULT)}, MATRIX, {}, "has none of the 990 cases that are planned"),
        (
            {"min_busbw": "broadcast=3"},
            DEFAULT,
            {},
            (
                "--min-busbw broadcast: it is not measured; measured: all_gather, all_reduce,"
                " reduce_scatter"
            ),
        ),
    ],
)
def test_bars_that_cannot_be_held_against_a_run_are_refused(given, run, changes, text):
    with pytest.raises(UsageError) as caught:
        checked(read_bars(given), stored(run), **changes)
    assert text in str(caught.value)


def test_a_simulated_baseline_against_a_real_run_is_refused():
    bars = read_bars({"baseline": str(DEFAULT)})
    of_a_model = Bars(
        baseline=msgspec.structs.replace(bars.baseline, simulated=True), source="model.json"
    )

    with pytest.raises(UsageError, match=r"--baseline model\.json is simulated and this run is"):
        checked(of_a_model, stored(DEFAULT))


def report_of(verdict: BarVerdict) -> BarReport:
    return BarReport(cases=(CaseBar(case=make_trial(8, 1.0).case, verdict=verdict),))


@pytest.mark.parametrize(
    ("status", "verdict", "expected"),
    [
        (ExitCode.FINE, BarVerdict.MET, ExitCode.FINE),
        (ExitCode.FINE, BarVerdict.BELOW, ExitCode.CONFIRMED_BAD),
        (ExitCode.FINE, BarVerdict.UNCLEAR, ExitCode.INCOMPLETE),
        (ExitCode.FINE, BarVerdict.NO_BAR, ExitCode.INCOMPLETE),
        (ExitCode.INCOMPLETE, BarVerdict.BELOW, ExitCode.CONFIRMED_BAD),
        (ExitCode.INCOMPLETE, BarVerdict.MET, ExitCode.INCOMPLETE),
        (ExitCode.CONFIRMED_BAD, BarVerdict.UNCLEAR, ExitCode.CONFIRMED_BAD),
        (ExitCode.NOTHING_MEASURED, BarVerdict.UNCLEAR, ExitCode.NOTHING_MEASURED),
    ],
)
def test_the_exit_status_counts_the_bars(status, verdict, expected):
    judge = BarJudge(bars=Bars(), report=report_of(verdict))

    assert judge.settled(status) is expected


def test_without_bars_nothing_is_judged_or_said():
    judge = BarJudge(bars=None)
    run = stored(CPU)

    judge.check(run.run, run.topology, [])
    assert judge.among([], run.run, run.topology, run.trials) == []
    assert judge.lines() == []
    assert judge.settled(ExitCode.INCOMPLETE) is ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    ("bars", "codes"),
    [
        (Bars(min_of_limit=0.55, min_busbw_gb_per_s=268.0), ["other", "bars_met"]),
        (Bars(min_of_limit=0.6), ["below_min_of_limit", "other"]),
        (
            Bars(min_of_limit=0.6, min_busbw_of={"all_gather": 300.0}),
            ["below_min_busbw", "below_min_of_limit", "other"],
        ),
    ],
)
def test_a_recorded_run_is_held_against_the_limit_of_its_wire(bars, codes):
    run, judge = stored(DEFAULT), BarJudge(bars=bars)
    other = Finding(code="other", severity="bad", text="x")
    findings = judge.among([other], run.run, run.topology, run.trials)

    assert [finding.code for finding in findings] == codes
    assert any(
        re.fullmatch(
            r"  (pass|BELOW  ) +all_gather float32 1 GiB graph  270\.6 GB/s, --min-of-limit [\d.]+"
            r" GB/s \((55|60) % of 18 NVLinks x 26\.6 GB/s.*\)",
            line,
        )
        for line in judge.lines()
    )


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ([], {"baseline": "b.json", "tolerance": "3%", "min_busbw": None}),
        (["--min-busbw", "300"], {"baseline": None, "tolerance": None, "min_busbw": "300"}),
    ],
)
def test_a_run_that_goes_on_has_the_bars_of_before_unless_new_ones_are_given(now, expected):
    before = "collbench sweep -e 1K --baseline b.json --tolerance 3%"
    with click.Context(sweep).scope(), sweep.make_context("sweep", now) as context:
        given = with_bars_of_before(context, context.params, before)
        assert with_bars_of_before(context, context.params, None) == context.params

    assert {name: given[name] for name in expected} == expected
    assert given["max_size"] is None
