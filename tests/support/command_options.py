"""What tests of a command's options ask: what a command line means, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from stored_runs import put, stored_run

from collbench.cli.launch_options import launch_options
from collbench.errors import UsageError


def kept_by(command: click.Command, *arguments: str) -> Any:
    """Returns what a command appends to its context's object, called with these arguments."""
    found: list[Any] = []
    command.main(list(arguments), standalone_mode=False, obj=found)
    return found[0]


def refusal_of(call: Callable[..., object], *arguments: Any) -> str:
    """Returns the text of the usage error that a call ends with."""
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    return str(caught.value)


def words(value: object) -> str:
    """Names a case by its arguments, and by nothing else."""
    return " ".join(value) if isinstance(value, list) else ""


def options_of(command: click.Command) -> list[click.Option]:
    """Returns the options of a command, without its arguments."""
    return [param for param in command.params if isinstance(param, click.Option)]


def names_of(command: click.Command) -> set[str]:
    """Returns the names of a command's options, as in ``-g/--gpus``."""
    return {"/".join(one.opts) for one in options_of(command)}


@click.command()
@launch_options
def _launched(**_given: Any) -> None:
    pass


LAUNCH = names_of(_launched)
"""The options that are about nodes."""


def changed_in(request: Any, without: Any) -> set[str]:
    """Returns the fields in which a request differs from one without options."""
    return {
        one.name
        for one in fields(request)
        if getattr(request, one.name) != getattr(without, one.name)
    }


def put_run(folder: Path, command: str, *argv: str) -> list[str]:
    """Writes a run that was started so; returns the options that find it."""
    put(stored_run([], command=command, argv=[command, *argv]), folder / "lab")
    return ["--resume", "last", "--results", str(folder)]
