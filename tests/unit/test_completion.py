"""The shell's completion: what is offered, and that bash gets it by click's variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class
from stored_runs import put, stored_run

from collbench.cli.main import cli

COMPLETE = "_COLLBENCH_COMPLETE"
NEWEST_FIRST = ["last", "20261130-0411-7f3a", "20261130-0410-7f3a"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A results folder with two runs, which is everybody's by the variable."""
    for n in (0, 1):
        one = stored_run(
            [], run_id=f"20261130-041{n}-7f3a", started_at=f"2026-11-30T04:1{n}:00+00:00"
        )
        put(one, tmp_path / "lab")
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))
    return tmp_path


def offered(*words):
    """What the last of the words may go on as."""
    shell = get_completion_class("bash")(cli, {}, "collbench", COMPLETE)
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def ran(*command, **variables):
    """What a process with these variables prints."""
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_all_commands_are_offered_in_their_order():
    assert offered("") == list(cli.list_commands(None))


def test_an_option_is_completed():
    assert offered("scale", "--max-over") == ["--max-oversubscription"]


def test_a_topic_is_completed_by_name_and_by_code():
    assert offered("explain", "no_rd") == ["no_rdma_device"]
    assert "busbw" in offered("explain", "")
    assert offered("explain", "no", "abs") == []


@pytest.mark.parametrize(
    "command", ["show", "plot", "report", "compare", "analyze", "baseline", "drain"]
)
def test_runs_are_completed_the_newest_first(results, command):
    assert offered(command, "") == NEWEST_FIRST


@pytest.mark.parametrize("form", ["csv", "nccl-tests", "prometheus", "tuner"])
def test_runs_to_be_exported_are_completed(results, form):
    assert offered("export", form, "") == NEWEST_FIRST


def test_the_results_folder_that_is_typed_counts(results, monkeypatch):
    monkeypatch.delenv("COLLBENCH_RESULTS")

    assert offered("show", "--results", str(results), "20261130-0410") == ["20261130-0410-7f3a"]


def test_what_is_no_run_may_be_a_folder(results):
    shell = get_completion_class("bash")(cli, {}, "collbench", COMPLETE)

    (item,) = shell.get_completions(["show"], "results/2x")

    assert (item.type, item.value) == ("dir", "results/2x")


def test_completing_a_run_waits_for_nothing_heavy(results):
    code = (
        "import sys\n"
        "from collbench.cli.main import run\n"
        "try:\n"
        "    run()\n"
        "except SystemExit:\n"
        "    print(sorted({'numpy', 'pandas', 'rich', 'torch'} & set(sys.modules)))\n"
    )
    asking = {COMPLETE: "bash_complete", "COMP_WORDS": "collbench show ", "COMP_CWORD": "2"}

    found = ran(sys.executable, "-c", code, **asking).splitlines()

    assert found == [*(f"plain,{name}" for name in NEWEST_FIRST), "[]"]


def test_bash_completes_by_the_line_of_the_docs(tmp_path):
    script = (
        f'eval "$({COMPLETE}=bash_source collbench)"\n'
        "COMP_WORDS=(collbench pair); COMP_CWORD=1\n"
        "_collbench_completion collbench\n"
        'echo "${COMPREPLY[@]}"\n'
        "complete -p collbench\n"
    )
    program = tmp_path / "collbench"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m collbench "$@"\n')
    program.chmod(0o755)

    answer, installed = ran(
        "bash", "-c", script, PATH=f"{tmp_path}:{os.environ['PATH']}"
    ).splitlines()

    assert answer == "pairwise"
    assert installed.endswith("-F _collbench_completion collbench")
