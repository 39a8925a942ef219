"""Runs of ``pairwise`` and ``scale`` read back: the words, the JSON and the picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from collbench.cli.main import run as run_command_line
from collbench.store import read_run

FABRIC = (
    "[fabric]\nnodes = 8\ngpus_per_node = 1\nrails = 1\nleaves = 2\noversubscription = 2.0\n"
    "noise = { size = 0.005 }\n[[slow_node]]\nnode = 5\nfactor = 0.7\n"
)
OPTIONS = {
    "pairwise": ("--latency", "0"),
    "qualify": ("--latency", "0", "--qualify", "node5"),
    "scale": ("--repeats", "1", "--redraws", "2", "--patterns", "pairs,inside,half"),
}


@pytest.fixture
def say(monkeypatch, capsys):
    """Runs a command line here; returns (status, stdout, stderr)."""

    def called(*argv):
        monkeypatch.setattr(sys, "argv", ["collbench", *argv])
        with pytest.raises(SystemExit) as end:
            run_command_line(list(argv))
        written = capsys.readouterr()
        return end.value.code, written.out, written.err

    return called


@pytest.fixture(params=sorted(OPTIONS))
def course(request, say, tmp_path, monkeypatch):
    """A run of a fabric: its folder, its status and what it printed."""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("USER", "ann")
    fabric = tmp_path / "fabric.toml"
    fabric.write_text(FABRIC)
    name = request.param
    command = "scale" if name == "scale" else "pairwise"
    root = str(tmp_path / "results")
    told = say(command, "--simulate", str(fabric), "--seed", "3", "--results", root, *OPTIONS[name])
    (folder,) = (tmp_path / "results").glob("*/*")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("USER", "bob")
    return folder, told


def kill(folder: Path, trials: int | None = None) -> None:
    """Leaves a run as it is while it goes on, or after SIGKILL."""
    header = msgspec.structs.replace(read_run(folder).run, exit_code=None, ended_at=None)
    (folder / "run.json").write_bytes(msgspec.json.encode(header))
    lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
    (folder / "trials.jsonl").write_text("".join(lines[:trials]))


def test_a_run_reads_back_as_it_ended(course, say):
    folder, (status, told, _) = course
    first = "SIMULATED: a model answered, no hardware was measured\n"

    text = say("show", str(folder))
    document = json.loads(say("show", str(folder), "--json")[1])
    drawn, paths, _ = say("plot", str(folder))

    report = told.split(first)[-1].partition("\n\nKept in ")[0]
    assert text == (0, f"{first}{report}\n", "")
    command = read_run(folder).run.command
    assert document["schema"] == f"collbench.{'verdict' if command == 'pairwise' else command}/1"
    assert document["exit"] == status == read_run(folder).run.exit_code
    assert drawn == 0
    suffix = "scale" if command == "scale" else "pairs"
    assert [Path(path).name for path in paths.splitlines()] == [
        f"{folder.name}-{suffix}.{kind}" for kind in ("png", "svg")
    ]
    assert all(Path(path).stat().st_size for path in paths.splitlines())


@pytest.mark.parametrize("trials", [0, 12, None], ids=["none", "some", "all"])
def test_a_run_that_was_killed_says_what_it_kept(course, say, trials):
    folder, _ = course
    kill(folder, trials)
    kept = len(read_run(folder).trials)

    status, text, problems = say("show", str(folder))
    document = json.loads(say("show", str(folder), "--json")[1])

    assert (status, problems) == (0, "")
    last = text.splitlines()[-1]
    assert last.startswith(f"{kept} ")
    assert last.endswith("trials: the run goes on, or ended without a chance to say so")
    assert document["exit"] == 4
    assert document["run_id"] == folder.name


def test_job_and_user_are_those_of_when_the_run_was_made(course, say):
    folder, _ = course
    document = json.loads(say("show", str(folder), "--json")[1])
    if document["schema"] != "collbench.verdict/1":
        assert "job_id" not in document
        return

    assert (document["job_id"], document["user"]) == ("4711", "ann")
