"""``collbench analyze``: real runs, made ones, its exit status, its errors."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from setting_trials import ended
from stored_runs import law, put, stored_run, trials_of

from collbench.cli import main
from collbench.model import ReasonCode, Status

RESULTS = Path(__file__).parents[2] / "results"
NOISE = RESULTS / "2xh200/20261130-0635-3947"
GRID = RESULTS / "2xh200/20261130-0929-1943"


def analyzed(*arguments):
    words = ["analyze", *map(str, arguments)]
    return CliRunner().invoke(main.cli, words, standalone_mode=False)


def test_a_real_run_has_its_laws_its_limit_and_its_flags():
    result = analyzed(NOISE)

    assert result.return_value == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith("2 x NVIDIA H200 on 1 node (NV18, no IB device)")
    assert "all_reduce float32 sum graph" in lines
    assert any(
        line.startswith("  329.3 GB/s at 1 GiB, 69% of 478.1 GB/s (18 NVLinks x 26.6 GB/s); half")
        for line in lines
    )
    assert any("22 of 1800 trials have two kinds of samples" in line for line in lines)
    assert lines[-1] == f"  Next: collbench plot {NOISE}"


def test_a_real_grid_tells_the_protocol_of_each_segment_and_the_best_settings():
    document = json.loads(analyzed(GRID, "--json").stdout)

    curves = {curve["name"]: curve for curve in document["curves"]}
    default = curves["all_reduce graph (default)"]
    assert [segment["ran"] for segment in default["segments"]] == ["Ring/LL", "Ring/Simple"]
    assert default["limit_text"] == "18 NVLinks x 26.6 GB/s, Ring"
    assert curves["all_reduce graph (Tree/Simple)"]["share_of_limit"] == pytest.approx(
        0.717, abs=0.001
    )
    assert document["best_settings"]["settings"] == 7
    assert document["exit_code"] == 0


@pytest.fixture
def root(tmp_path):
    lab = tmp_path / "lab"
    put(stored_run(trials_of(law(10, 100)), "whole"), lab)
    put(stored_run(trials_of(law(10, 100), sizes=[64]), "one-size"), lab)
    bare = [
        ended(trial, Status.FAILED, ReasonCode.RAISED, "no") for trial in trials_of(law(10, 100))
    ]
    put(stored_run(bare, "failed"), lab)
    return tmp_path


def test_a_run_is_found_by_its_name(root):
    result = analyzed("whole", "--results", root)

    assert result.return_value == 0
    # Elsewhere than in the usual folder, the next commands need its whole name.
    assert f"  Next: collbench plot {root / 'lab/whole'}" in result.stdout.splitlines()


def test_a_run_of_one_size_cannot_be_told_and_says_so(root):
    result = analyzed("one-size", "--results", root)

    assert result.return_value == 4
    assert "  1 size: alpha and B cannot be told apart" in result.stdout
    assert json.loads(analyzed("one-size", "--results", root, "--json").stdout)["exit_code"] == 4


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("failed", "collbench: run 'failed' has no times to fit; 'collbench show' says why"),
        ("nothing", "collbench: no run 'nothing'"),
    ],
)
def test_what_cannot_be_analyzed_is_one_line(root, run, words, capsys):
    with pytest.raises(SystemExit) as end:
        main.run(["analyze", run, "--results", str(root)])

    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(words)


def test_help_fits_the_page():
    result = CliRunner().invoke(main.cli, ["analyze", "--help"])

    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 120
