"""The command line's root: finds commands without importing them, turns errors into one line."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from typing import Any, NoReturn, TextIO

import click

from collbench.cli.context import CONTEXT
from collbench.cli.lazy_group import LazyGroup
from collbench.errors import CollbenchError, ExitCode, nearest
from collbench.version import __version__

_COMMANDS = {
    "sweep": (
        "collbench.cli.sweep:sweep",
        "Measure collectives over message size on this machine.",
    ),
    "ab": (
        "collbench.cli.ab:ab",
        "Measure settings, libraries or environments interleaved, and say which is faster.",
    ),
    "pairwise": (
        "collbench.cli.pairwise:pairwise",
        "Run nodes two by two and name the bad node, rail or path.",
    ),
    "scale": (
        "collbench.cli.scale:scale",
        "Add nodes one by one and find the oversubscription knee.",
    ),
    "history": (
        "collbench.cli.history:history",
        "Track releases of NCCL: did an upgrade make anything slower?",
    ),
    "show": ("collbench.cli.show:show", "Print a stored run again: tables and conclusions."),
    "plot": (
        "collbench.cli.plot:plot",
        "Draw a stored run: curves, the matrix of pairs, rates over nodes.",
    ),
    "report": (
        "collbench.cli.report:report",
        "Write stored runs as one HTML file that can be handed over.",
    ),
    "compare": (
        "collbench.cli.compare:compare",
        "Compare stored runs, or two settings of one: what got slower, and where.",
    ),
    "analyze": (
        "collbench.cli.analyze:analyze",
        "Fit a stored run's curves, name its best settings, say what is odd.",
    ),
    "baseline": (
        "collbench.cli.baseline:baseline",
        "Write what a good run reached, for later runs to be held against.",
    ),
    "export": ("collbench.cli.export:export", "Write a stored run in another tool's format."),
    "import": (
        "collbench.cli.import_results:import_results",
        "Take results of nccl-tests or rccl-tests in as a run.",
    ),
    "drain": ("collbench.cli.drain:drain", "Print the lines that take a run's bad nodes out."),
    "runs": ("collbench.cli.runs:runs", "List the stored runs."),
    "explain": (
        "collbench.cli.explain:explain",
        "Say what a word of a table or a verdict means.",
    ),
    "nodes": (
        "collbench.cli.node_list:node_list",
        "List each node's last verdict and how old it is.",
    ),
    "sbatch": (
        "collbench.cli.sbatch:sbatch",
        "Write a Slurm batch script that starts it on every node.",
    ),
    "placement": (
        "collbench.cli.placement:placement",
        "Show what started this process, and where all would meet.",
    ),
}
"""Name -> (where it is, one line of help), so that --help imports none of them."""

_COMPLETE = "_COLLBENCH_COMPLETE"
"""The variable in which click's completion scripts ask."""


@click.group(
    cls=LazyGroup,
    table=_COMMANDS,
    context_settings=dict(CONTEXT),
)
@click.version_option(__version__, prog_name="collbench", message="%(prog)s %(version)s")
def cli() -> None:
    """Benchmark distributed collectives (PyTorch, NCCL, Gloo) and keep, show and plot the results.

    \b
    Start here:
      python -m collbench sweep                 measure what is here, 30 s
      python -m collbench sweep -b 8 -e 1G -f 2 the ladder of nccl-tests
      collbench plot last                       draw it
      srun -N 8 --ntasks-per-node=1 python -m collbench pairwise    name the bad node
    """  # noqa: D301  click's mark for "do not rewrap"


def run(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process with its exit status.

    A command returns its exit status (None: 0), or raises. Every error is one line on stderr;
    only an error of collbench itself is followed by a traceback.

    Args:
        arguments: without the program's name; by default those of the process. None at all is
            ``--help``.
    """
    try:
        if asked := os.environ.get(_COMPLETE):
            status = _complete(asked)
        else:
            status = _invoke(arguments if arguments is not None else sys.argv[1:])
        sys.stdout.flush()
    except click.ClickException as problem:
        status = _say(_one_line(problem), ExitCode.USAGE)
    except CollbenchError as problem:
        status = _say(str(problem), problem.exit_code)
    except KeyboardInterrupt as stop:
        # SIGTERM is turned into a KeyboardInterrupt that carries its own status.
        status = _say("interrupted", getattr(stop, "exit_code", ExitCode.INTERRUPTED))
    except Exception as problem:  # noqa: BLE001  the last boundary: the rest is our own error
        if isinstance(problem, BrokenPipeError) and _reader_gone(sys.stdout):
            # head or less has gone: end as other tools do, and keep Python from flushing into
            # the closed pipe once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 128 + signal.SIGPIPE
        else:
            status = _say(
                f"an error of collbench {__version__} itself ({type(problem).__name__}); please"
                " report it with what follows",
                ExitCode.INTERNAL,
            )
            traceback.print_exc()
    sys.exit(status)


def _complete(asked: str) -> int:
    """Answers a shell that asks how a command line may go on, or for its script.

    ``cli.main`` would do it, which is not used (below).

    Args:
        asked: what click's script of the shell asks: ``bash_source``, ``bash_complete``.
    """
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "collbench", _COMPLETE, asked)


def _invoke(arguments: list[str]) -> int:
    """Runs a command and returns its status.

    ``cli.main`` is not used: it turns every KeyboardInterrupt into the same one, and a reader that
    has gone into status 1, which here means "the answer is no".
    """
    try:
        with cli.make_context("collbench", list(arguments) or ["--help"]) as context:
            returned: Any = cli.invoke(context)
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code
    return int(returned or 0)


def _one_line(problem: click.ClickException) -> str:
    """Returns click's words in our form: what, the nearest that is allowed, where to look."""
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    command = context.command_path if context is not None else "collbench"
    if isinstance(problem, click.NoSuchOption):
        options = (
            [name for param in context.command.params for name in param.opts] if context else []
        )
        hint = nearest(problem.option_name, options) if problem.option_name[1:2] == "-" else ""
        text = f"no such option {problem.option_name}{hint}"
    else:
        text = " ".join(problem.format_message().split()).rstrip(".")
        if "allowed: " in text:
            return text
        text = text[:1].lower() + text[1:]
    return f"{text}{'' if text.endswith('?') else ';'} see {command} --help"


def _reader_gone(stream: TextIO) -> bool:
    """Whether the other end of a pipe is closed: not every broken pipe is the one to stdout."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _say(text: str, status: ExitCode) -> int:
    click.echo(f"collbench: {text}", err=True)
    return int(status)
