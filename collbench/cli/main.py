"""The command line's root: finds commands without importing them, turns errors into one line."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from typing import Any, NoReturn

import click

from collbench.errors import CollbenchError, ExitCode, nearest
from collbench.version import __version__

_COMMANDS = {
    "sweep": (
        "collbench.cli.sweep:sweep",
        "Measure collectives over message size here.",
    ),
    "show": ("collbench.cli.show:show", "Print a stored run again: tables and conclusions."),
    "plot": ("collbench.cli.plot:plot", "Draw bandwidth and latency of a stored run over size."),
    "runs": ("collbench.cli.runs:runs", "List the stored runs."),
}
"""Name -> (where it is, one line of help), so that --help imports none of them."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of the table."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command, or says which is nearest."""
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            raise click.UsageError(
                f"unknown command '{args[0]}'{nearest(args[0], _COMMANDS) or ';'}"
                f" allowed: {', '.join(_COMMANDS)}",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="collbench")
def cli() -> None:
    """Benchmark distributed collectives (PyTorch, NCCL, Gloo) and keep, show and plot the results.

    \b
    Start here:
      python -m collbench sweep                 measure what is here, 30 s
      python -m collbench sweep -b 8 -e 1G -f 2 the ladder of nccl-tests
      collbench plot last                       draw it
    """  # noqa: D301  click's mark for "do not rewrap"


def run(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process with its exit status."""
    try:
        status: Any = cli.main(args=arguments, prog_name="collbench", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as problem:
        status = _say(problem.format_message(), ExitCode.USAGE)
    except click.ClickException as problem:
        status = _say(problem.format_message(), ExitCode.USAGE)
    except CollbenchError as problem:
        status = _say(str(problem), problem.exit_code)
    except (KeyboardInterrupt, click.Abort):
        status = _say("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe (head, less) has gone: end as other tools do, and keep Python from
        # flushing into the closed pipe once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + signal.SIGPIPE
    except Exception:  # noqa: BLE001  the last boundary: everything else is our own error
        traceback.print_exc()
        status = _say("an error of collbench itself; please report it", ExitCode.INTERNAL)
    sys.exit(int(status or 0))


def _say(text: str, status: ExitCode) -> ExitCode:
    click.echo(f"collbench: {text}", err=True)
    return status
