"""``collbench export tuner``."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from best_trials import SIZES, grid
from click.testing import CliRunner

from collbench.cli.main import cli
from collbench.interop.tuner import choice, read_tuner
from collbench.report.closing import wrapped

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0929-1943"
SENTENCE = (
    "Default within 3.7 % of the best everywhere except all_reduce graph 4 MiB: Ring/LL128"
    " 7.0 % faster; all_gather graph 4 MiB: Ring/LL128 18.8 % faster."
)


def called(*arguments):
    return CliRunner().invoke(cli, ["export", *map(str, arguments)], standalone_mode=False)


@pytest.fixture
def stored(tmp_path):
    """Writes a run of trials and returns its folder."""

    def written(trials):
        for name in ("run.json", "topology.json"):
            (tmp_path / name).write_bytes((REFERENCE / name).read_bytes())
        lines = [msgspec.json.encode(trial) + b"\n" for trial in trials]
        (tmp_path / "trials.jsonl").write_bytes(b"".join(lines))
        return tmp_path

    return written


def test_without_an_output_the_file_goes_to_stdout_and_the_rest_to_stderr():
    result = called("tuner", REFERENCE)

    assert result.return_value == 0
    rows = read_tuner(result.stdout)
    assert len(rows) == 20
    assert not any(row.misread for row in rows)
    row = choice(rows, "all_gather", 4 * 2**20, 1, 2)
    assert (row.algorithm, row.protocol, row.channels) == ("Ring", "LL128", 24)
    assert result.stderr.splitlines() == [
        *wrapped(SENTENCE, "", "  "),
        "  not measured: broadcast, reduce: they run on 1 channel with this file",
    ]


def test_what_is_written_is_found_as_meant(tmp_path):
    file = tmp_path / "tuner.conf"

    assert called("tuner", REFERENCE, "-o", file).return_value == 0
    result = called("tuner", REFERENCE, "--check", file)

    assert result.return_value == 0
    lines = result.stdout.splitlines()
    assert lines[-1] == "All 48 sizes are as meant."
    assert sum(line.endswith("as meant") for line in lines) == 48
    assert max(len(line) for line in lines) <= 120


def test_a_file_that_exists_is_kept_unless_forced(tmp_path):
    file = tmp_path / "tuner.conf"
    file.write_text("mine")

    result = called("tuner", REFERENCE, "-o", file)
    assert str(result.exception) == f"'{file}' exists; give another name with -o, or --force"
    assert (result.stdout, result.stderr) == ("", "")
    assert file.read_text() == "mine"

    result = called("tuner", REFERENCE, "-o", file, "--force")
    assert result.return_value == 0
    assert result.stderr.splitlines()[0] == f"Kept in {file}"
    assert len(read_tuner(file.read_text())) == 20


def test_another_file_is_found_to_choose_otherwise(tmp_path):
    file = tmp_path / "tuner.conf"
    called("tuner", REFERENCE, "-o", file)
    changed = file.read_text().replace("ring,ll128,24", "ring,LL128,24")
    file.write_text(changed.replace(",18446744073709551615,", ",4294967295,"))

    result = called("tuner", REFERENCE, "--check", file)

    assert result.return_value == 1
    lines = result.stdout.splitlines()
    assert "'LL128' is taken for 'simple'" in lines[0]
    wrong = [line for line in lines if "NOT MEANT" in line]
    assert len(wrong) == 5
    assert wrong[0].split()[-3:] == ["Ring/LL128", "24", "ch"]
    assert "no line: NCCL's own, 1 ch" in wrong[1]
    assert lines[-1] == "The file makes the plug-in choose something else at 5 of 48 sizes."


def test_the_helpers_csv_is_another_format():
    result = called("tuner", REFERENCE, "--format", "optimizer")

    lines = result.stdout.splitlines()
    assert lines[0].startswith("collective,size_bytes,algorithm,protocol,channels,nodes,ranks,")
    # 16 sizes that any of the 3 collectives has, and the top.
    assert len(lines) == 1 + 3 * 17


def test_too_few_repeats_are_said_with_the_command(stored):
    result = called("tuner", stored(grid({"Tree/Simple": SIZES}, repeats=2)))

    assert result.return_value == 4
    assert result.stdout == ""
    assert result.stderr == (
        "no best setting from 2 repeats: needs 3 more repeats: collbench sweep nccl_matrix"
        " --ib default --via native --cluster 2xh200 --repeats 5\n"
    )


def test_a_run_without_settings_is_refused(stored):
    result = called("tuner", stored(grid({}, settings=("default",))))

    assert "has no algorithm or protocol beside NCCL's own choice" in str(result.exception)
    assert result.exception.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--check", "/none/x"], "cannot read '/none/x': No such file or directory"),
        (["-o", "/none/x"], "cannot write '/none/x': No such file or directory; give another"),
        (["-o", "x", "--check", "y"], "--check reads the plug-in's file and writes none"),
        (["--format", "optimizer", "--check", "y"], "--check reads the plug-in's file"),
    ],
)
def test_bad_options_are_usage_errors(arguments, words):
    result = called("tuner", REFERENCE, *arguments)

    assert words in str(result.exception)
    assert result.exception.exit_code == 2


def test_help_lists_the_formats():
    for arguments in ([], ["--help"]):
        result = CliRunner().invoke(cli, ["export", *arguments])
        assert result.exit_code == 0
        assert re.search(r"tuner +Best settings for NCCL's example tuner plug-in", result.output)
    assert CliRunner().invoke(cli, ["export", "tuner", "--help"]).exit_code == 0
