"""``sweep --resume RUN`` as a whole, over the simulated fabric."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench.cli.main import cli
from collbench.errors import UsageError
from collbench.store import read_run

QUESTION = ("--collective", "all_reduce", "--sizes", "4K,1M", "--repeats", "2")


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    fabric = tmp_path / "fabric.toml"
    fabric.write_text("ranks = 2\n")
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path / "results"))

    def call(*arguments: str):
        words = ["sweep", *arguments]
        monkeypatch.setattr(sys, "argv", ["collbench", *words])
        return CliRunner().invoke(cli, words, standalone_mode=False)

    call.fabric = ("--simulate", str(fabric))
    return call


def folder_of(tmp_path) -> Path:
    (path,) = (tmp_path / "results").glob("*/*/run.json")
    return path.parent


def broken_run(sweep, tmp_path, kept=1) -> Path:
    """A run of 4 trials of which the end is gone, as after a kill."""
    sweep(*sweep.fabric, *QUESTION)
    folder = folder_of(tmp_path)
    break_off(folder, kept)
    return folder


def break_off(folder: Path, kept: int) -> None:
    lines = (folder / "trials.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "trials.jsonl").write_bytes(b"".join(lines[:kept]) + lines[-1][:30])
    record = json.loads((folder / "run.json").read_text())
    for name in ("ended_at", "exit_code"):
        record[name] = None
    (folder / "run.json").write_text(json.dumps(record))


@pytest.mark.parametrize("alone", [True, False])
def test_the_rest_is_run_in_the_order_of_before(sweep, tmp_path, alone):
    sweep(*sweep.fabric, *QUESTION)
    folder = folder_of(tmp_path)
    order = [trial.trial_id for trial in read_run(folder).trials]
    before = read_run(folder).run
    break_off(folder, 1)
    given = () if alone else (*sweep.fabric, *QUESTION)
    result = sweep(*given, "--resume", "last")

    assert result.exception is None
    assert result.return_value == 0
    assert f"\nresuming {folder.name}: 1 of 4 trials are there, 3 to go\n" in result.output
    words = shlex.join(["collbench", "sweep", *sweep.fabric, *QUESTION])
    assert (f"\n  with the options of before: {words}\n" in result.output) is alone
    stored = read_run(folder)
    assert [trial.trial_id for trial in stored.trials] == order
    assert stored.problems == ()
    assert all(stored.times_us(trial) is not None for trial in stored.trials)
    run = stored.run
    assert (run.exit_code, len(run.resumed_at)) == (0, 1)
    assert run.ended_at is not None
    assert (run.started_at, run.argv, run.seed) == (before.started_at, before.argv, before.seed)


def test_with_nothing_to_go_the_run_is_closed(sweep, tmp_path):
    sweep(*sweep.fabric, *QUESTION)
    folder = folder_of(tmp_path)
    lines = (folder / "trials.jsonl").read_bytes()
    result = sweep("--resume", folder.name)

    assert result.return_value == 0
    assert f"resuming {folder.name}: 4 of 4 trials are there, 0 to go\n" in result.output
    assert (folder / "trials.jsonl").read_bytes() == lines
    assert read_run(folder).run.exit_code == 0


def test_json_is_of_all_trials(sweep, tmp_path):
    folder = broken_run(sweep, tmp_path)
    result = sweep("--resume", str(folder), "--json")

    document = json.loads(result.stdout)
    assert (document["run_id"], len(document["trials"])) == (folder.name, 4)
    assert f"resuming {folder.name}: 1 of 4" in result.stderr


def test_a_dry_run_changes_nothing(sweep, tmp_path):
    folder = broken_run(sweep, tmp_path, 2)
    left = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = sweep("--resume", "last", "--dry-run")

    assert result.return_value == 0
    assert f"resuming {folder.name}: 2 of 4 trials are there, 2 to go" in result.output
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == left


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--sizes", "4K"), "planned_trials was 4 and is 2; sizes was [4096,1048576]"),
        (("--seed", "5"), "and is 5;"),
        (("-N", "3"), "repeats was 2 and is 3"),
        (("-n", "5"), "samples was not set and is 5"),
    ],
)
def test_another_question_leaves_the_run_as_it_was(sweep, tmp_path, more, words):
    folder = broken_run(sweep, tmp_path)
    run = (folder / "run.json").read_bytes()
    trials = read_run(folder).trials
    result = sweep(*sweep.fabric, *QUESTION, *more, "--resume", "last")

    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
    assert (folder / "run.json").read_bytes() == run
    assert read_run(folder).trials == trials


def test_a_run_of_another_command_is_refused(sweep, tmp_path):
    folder = broken_run(sweep, tmp_path)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"command": "pairwise"}))
    for given in ((), (*sweep.fabric, *QUESTION)):
        result = sweep(*given, "--resume", "last")
        assert str(result.exception) == (
            f"run {folder.name} is of 'pairwise', not of 'sweep'; 'collbench runs' lists all"
        )


def test_a_run_that_is_not_there_is_refused(sweep):
    result = sweep("--resume", "last")
    assert str(result.exception).startswith("no run 'last': there are no runs in ")
