"""Groups of commands that are found without importing them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from collbench.errors import nearest

Table = Mapping[str, tuple[str, str]]
"""Name -> (where it is, one line of help)."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Args:
        table: by name, where a command is (``module:function``) and one line of help, so that
            --help imports none of them.
    """

    def __init__(self, *args: Any, table: Table, **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of the table."""
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a command."""
        del ctx
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command, or says which is nearest."""
        if args[0] not in self._table:
            raise click.UsageError(
                f"unknown command '{args[0]}'{nearest(args[0], self._table) or ';'}"
                f" allowed: {', '.join(self._table)}",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes a name or an option without importing the commands."""
        named = [
            CompletionItem(name, help=text)
            for name, (_, text) in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]
