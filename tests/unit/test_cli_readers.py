"""Which command reads which run: one line for a wrong one, that says who does."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from stored_runs import put, stored_run

from collbench.cli.main import cli

RUN_ID = "20261130-0412-7f3a"
COMMANDS = {
    "show": ["show"],
    "plot": ["plot"],
    "compare": ["compare"],
    "analyze": ["analyze"],
    "baseline": ["baseline"],
    "export": ["export", "tuner"],
    "drain": ["drain"],
}
READERS = {
    "sweep": "show, plot, report, compare, analyze, baseline, export",
    "ab": "show, plot, report, compare, analyze, baseline, export",
    "pairwise": "show, plot, report, drain, baseline, pairwise --baseline, scale --from-pairwise",
    "scale": "show, plot, report",
}
WRONG = [
    (kind, reader)
    for kind, readers in READERS.items()
    for reader in COMMANDS
    if reader not in readers.split(", ")
]


@pytest.fixture
def asked(tmp_path):
    """Returns what a command says of a run without trials, of another command."""

    def ask(kind, *arguments):
        put(stored_run([], RUN_ID, command=kind), tmp_path / "lab")
        words = [*arguments, RUN_ID, "--results", str(tmp_path)]
        return CliRunner().invoke(cli, words, standalone_mode=False)

    return ask


@pytest.mark.parametrize(("kind", "reader"), WRONG)
def test_a_run_that_a_command_does_not_read_is_one_line(asked, kind, reader):
    result = asked(kind, *COMMANDS[reader])

    assert result.stdout == ""
    assert str(result.exception) == (
        f"run '{RUN_ID}' is of '{kind}', which '{reader}' does not read; these do: {READERS[kind]}"
    )


@pytest.mark.parametrize("reader", ["show", "plot", "analyze"])
def test_a_run_of_a_command_to_come_is_one_line(asked, reader):
    assert str(asked("forecast", reader).exception) == (
        f"run '{RUN_ID}' is of 'forecast', which this collbench does not know; it reads runs of"
        " sweep, ab, history run, pairwise, scale, nccl-tests"
    )


@pytest.mark.parametrize("kind", ["sweep", "pairwise", "scale"])
def test_of_a_run_without_times_there_is_no_picture(asked, kind):
    assert str(asked(kind, "plot").exception) == (
        f"run '{RUN_ID}' has no times to draw; 'collbench show' says why"
    )
