"""``collbench show``: the same words as at the end of the sweep, and the same JSON."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from collbench.cli.main import cli
from collbench.store import read_run

GOLDEN = Path(__file__).parents[1] / "data/golden/v1"
AB = Path(__file__).parents[2] / "results/2xh200/20261130-1233-9fc5"


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(GOLDEN, tmp_path / "run"))


def shown(*arguments):
    return CliRunner().invoke(cli, ["show", *map(str, arguments)])


def test_a_run_is_shown_from_its_heading_to_where_it_is_kept():
    stored = read_run(GOLDEN)

    result = shown(GOLDEN)

    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[1].startswith(f"run {stored.run.run_id}, ")
    assert f"Kept in {GOLDEN}" in lines
    for trial in stored.trials:
        assert trial.case.collective in result.stdout
    for finding in stored.run.findings:
        assert finding.text.split()[0] in result.stdout


def test_json_is_one_document_and_nothing_else():
    stored = read_run(GOLDEN)

    result = shown(GOLDEN, "--json")

    document = json.loads(result.stdout)
    assert document["run_id"] == stored.run.run_id
    assert document["exit_code"] == stored.run.exit_code
    assert len(document["trials"]) == len(stored.trials)
    assert len(document["verdicts"]) == len(stored.run.findings)


def test_a_torn_line_is_told_and_the_rest_is_shown(copy):
    with (copy / "trials.jsonl").open("ab") as lines:
        lines.write(b'{"schema": 1, "trial_')

    result = shown(copy)

    assert result.exit_code == 0
    assert result.stderr.startswith("collbench: ")
    assert "trials.jsonl" in result.stderr
    assert f"Kept in {copy}" in result.stdout


def test_a_run_without_an_end_is_judged_by_what_it_kept(copy):
    header = read_run(copy).run
    unfinished = msgspec.structs.replace(header, exit_code=None, planned_trials=90, findings=[])
    (copy / "run.json").write_bytes(msgspec.json.encode(unfinished))
    kept = len(read_run(copy).trials)

    lines = shown(copy).stdout.splitlines()
    document = json.loads(shown(copy, "--json").stdout)

    assert "What stands out" in lines
    assert {"hung", "data_wrong"} <= {verdict["code"] for verdict in document["verdicts"]}
    assert document["exit_code"] == 4
    assert lines[-1] == (
        f"{kept} of 90 trials: the run goes on, or ended without a chance to say so"
    )


def test_a_run_of_ab_shows_its_sides_against_the_first():
    result = shown(AB)

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    (start,) = [k for k, line in enumerate(lines) if line.startswith("Tree/Simple against default")]
    assert "10 cases, 5 repeats each: 0 SLOWER, 5 FASTER, 3 SAME, 2 UNCLEAR" in lines[start]
    assert lines.index("What stands out") > start
