"""The command line's root: one line for every error, the right status, nothing heavy for --help."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from collbench.cli import main
from collbench.errors import (
    EngineError,
    NothingMeasured,
    RunNotFound,
    StoreError,
    SuiteError,
    UsageError,
)

HEAVY = ("torch", "numpy", "pandas", "matplotlib", "rich", "scipy", "msgspec")

COMMANDS = (
    "sweep",
    "ab",
    "pairwise",
    "scale",
    "history",
    "show",
    "plot",
    "report",
    "compare",
    "analyze",
    "baseline",
    "export",
    "import",
    "drain",
    "runs",
    "explain",
    "nodes",
    "sbatch",
    "placement",
)


@pytest.fixture
def run(capsys):
    """Returns what runs the command line here: (status, stdout, stderr)."""

    def called(*arguments):
        with pytest.raises(SystemExit) as end:
            main.run(list(arguments))
        written = capsys.readouterr()
        return end.value.code, written.out, written.err

    return called


@pytest.fixture
def command(monkeypatch):
    """Returns what puts a function in the place of ``sweep``."""

    def replace(body):
        @click.command()
        @click.option("-x", "--extra")
        def sweep(extra):
            del extra
            return body()

        monkeypatch.setattr(
            main.LazyGroup,
            "get_command",
            lambda _self, _ctx, name: sweep if name == "sweep" else None,
        )

    return replace


def raising(problem):
    def body():
        raise problem

    return body


@pytest.mark.parametrize("returned", [None, 0, 1, 3, 4])
def test_a_command_returns_its_status(run, command, returned):
    command(lambda: returned)

    assert run("sweep") == (returned or 0, "", "")


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (UsageError("x"), 2),
        (SuiteError("x"), 2),
        (RunNotFound("x"), 2),
        (NothingMeasured("x"), 3),
        (StoreError("x"), 3),
        (EngineError("x"), 70),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_line_and_its_status(run, command, problem, status):
    command(raising(problem))

    assert run("sweep") == (status, "", "collbench: x\n")


def test_an_interruption_is_130(run, command):
    command(raising(KeyboardInterrupt()))

    assert run("sweep") == (130, "", "collbench: interrupted\n")


def test_an_interruption_may_carry_its_own_status(run, command):
    stop = KeyboardInterrupt()
    stop.exit_code = 143
    command(raising(stop))

    assert run("sweep") == (143, "", "collbench: interrupted\n")


def test_an_error_of_our_own_says_so_and_then_where(run, command):
    command(raising(ValueError("of our own")))

    status, out, err = run("sweep")

    first, rest = err.split("\n", 1)
    assert status == 70
    assert out == ""
    assert first == (
        "collbench: an error of collbench 0.1.0 itself (ValueError); please report it with what"
        " follows"
    )
    assert rest.startswith("Traceback (most recent call last):\n")
    assert rest.endswith("ValueError: of our own\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["swep"],
            f"unknown command 'swep'; did you mean 'sweep'? allowed: {', '.join(COMMANDS)}",
        ),
        (["zzz"], f"unknown command 'zzz'; allowed: {', '.join(COMMANDS)}"),
        (["--vers"], "no such option --vers; did you mean '--version'? see collbench --help"),
        (
            ["sweep", "--extr"],
            "no such option --extr; did you mean '--extra'? see collbench sweep --help",
        ),
        (["sweep", "-z"], "no such option -z; see collbench sweep --help"),
        (["sweep", "more"], "got unexpected extra argument (more); see collbench sweep --help"),
    ],
)
def test_misspelt_words_get_one_line(run, command, arguments, text):
    command(lambda: 0)

    assert run(*arguments) == (2, "", f"collbench: {text}\n")


def test_an_option_without_its_value_gets_one_line(run, command):
    command(lambda: 0)

    status, out, err = run("sweep", "-x")

    assert (status, out) == (2, "")
    assert err.startswith("collbench: option '-x' requires an argument; see collbench")
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []], ids=["--help", "-h", "none"])
def test_help_lists_the_commands(run, arguments):
    status, out, err = run(*arguments)

    assert (status, err) == (0, "")
    lines = out.partition("Commands:\n")[2].splitlines()
    # A help of two lines is indented further.
    assert tuple(line.split()[0] for line in lines if line[2] != " ") == COMMANDS


def test_version(run):
    assert run("--version") == (0, "collbench 0.1.0\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_has_a_help(run, name):
    status, out, err = run(name, "-h")

    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: collbench {name} ")


def test_help_imports_nothing_heavy():
    code = (
        "import runpy, sys\n"
        "sys.argv = ['collbench', '--help']\n"
        "try:\n"
        "    runpy.run_module('collbench', run_name='__main__')\n"
        "except SystemExit as end:\n"
        f"    heavy = sorted(set({HEAVY}) & set(sys.modules))\n"
        "    print('status', end.code, 'heavy', heavy)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "status 0 heavy []"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_waits_for_no_numbers(command):
    code = (
        "import sys\n"
        f"sys.argv = ['collbench', '{command}', '--help']\n"
        "import collbench.cli.main as main\n"
        "try:\n"
        "    main.run()\n"
        "except SystemExit as end:\n"
        f"    print(end.code, sorted(set({HEAVY[:-1]}) & set(sys.modules)))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "0 []"


def test_reading_the_options_of_sweep_imports_no_torch():
    code = (
        "import sys, collbench.cli.sweep_options\n"
        f"print(sorted(set({HEAVY[:-1]}) & set(sys.modules)))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_a_reader_that_has_gone_ends_the_command_quietly():
    read, write = os.pipe()
    os.close(read)

    done = subprocess.run(
        [sys.executable, "-m", "collbench", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)

    assert (done.returncode, done.stderr) == (141, b"")


def test_another_broken_pipe_is_an_error_of_our_own():
    code = (
        "from collbench.cli import main\n"
        "def broken(arguments): raise BrokenPipeError('a socket')\n"
        "main._invoke = broken\n"
        "main.run([])\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 70
    assert done.stderr.startswith("collbench: an error of collbench 0.1.0 itself (BrokenPipeError)")
