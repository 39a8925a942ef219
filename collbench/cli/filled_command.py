"""Commands that fill in parameters of their own, also where a stored command line is read again."""

from __future__ import annotations

import importlib
from typing import Any

import click


class FilledCommand(click.Command):
    """A command whose parameters go through a function as soon as they are read.

    Args:
        fill: ``module:function``, which takes and returns the parameters as a dictionary; it is
            imported when a command line is read, so that --help does without.
    """

    def __init__(self, *args: Any, fill: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fill = fill

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads a command line into ``ctx.params``."""
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            module, _, name = self._fill.partition(":")
            ctx.params = getattr(importlib.import_module(module), name)(ctx.params)
        return rest
