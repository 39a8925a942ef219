"""Command lines of help texts and pages: whether collbench would take them; nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from collbench.cli.main import cli

_ENDS = {"&&", "||", "|", ";"}
_REMARK = re.compile(r"\s{2,}\S.*$|\s#\s.*$")
"""What stands behind a command: two spaces and words, or a comment."""


def commands_in(line: str) -> Iterator[list[str]]:
    """Yields the words after ``collbench`` of each call of it in a line of a shell."""
    words = shlex.split(line.replace(";", " ; "))
    while "collbench" in words:
        words = words[words.index("collbench") + 1 :]
        end = next((k for k, word in enumerate(words) if word in _ENDS), len(words))
        yield words[:end]


def without_remark(line: str) -> str:
    """Returns a line of examples without what is said beside it."""
    return _REMARK.sub("", line.strip())


def refuse_what_cannot_be(words: list[str]) -> None:
    """Parses a command line down to its subcommand; runs nothing.

    Raises:
        click.UsageError: no such command or option, a value that cannot be.
    """
    context = click.Context(cli, info_name="collbench")
    command: click.Command = cli
    while isinstance(command, click.Group):
        options = [word for word in words[:1] if word.startswith("-")]
        if not words or options:
            return
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        context = click.Context(found, parent=context, info_name=found.name)
        command = found
    command.make_context(command.name, list(words), parent=context.parent).close()
