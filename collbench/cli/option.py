"""An option: how it is spelt, what its text means, where in a suite it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from collbench.errors import UsageError
from collbench.suite import ALL_ROOTS, AUTO
from collbench.units import parse_size

Command = Callable[..., Any]


def as_text(value: str) -> str:
    """Text without blanks around it."""
    return value.strip()


def as_whole(value: str) -> int:
    """A whole number."""
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"'{value}' is no whole number; write for instance 5") from None


def as_whole_from_1(value: str) -> int:
    """A whole number from 1."""
    number = as_whole(value)
    if number < 1:
        raise UsageError(f"{number} must be at least 1")
    return number


def as_whole_or_auto(value: str) -> int | str:
    """A whole number, or the word auto."""
    return AUTO if value.strip() == AUTO else as_whole(value)


def as_number(value: str) -> float:
    """A number."""
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"'{value}' is no number; write for instance 2") from None


def as_words(value: str) -> tuple[str, ...]:
    """A list at commas."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def as_whole_text(value: str) -> tuple[str, ...]:
    """A value that commas belong to."""
    return (value,)


def as_sizes(value: str) -> tuple[str, ...]:
    """A list of sizes, as they stand."""
    words = as_words(value)
    for word in words:
        parse_size(word)
    return words


def as_roots(value: str) -> tuple[int, ...]:
    """A list of ranks; all is every one."""
    return tuple(ALL_ROOTS if word == "all" else as_whole(word) for word in as_words(value))


def as_modes(value: str) -> str | tuple[str, ...]:
    """A list of modes, or the word auto."""
    words = as_words(value)
    return AUTO if words == (AUTO,) else words


def as_bool(value: str) -> bool:
    """1 or 0."""
    if value.strip() not in ("0", "1"):
        raise UsageError(f"'{value}' is not allowed; allowed: 0 (no), 1 (yes)")
    return value.strip() == "1"


def as_graph_modes(value: str) -> tuple[str, ...]:
    """The modes for nccl-tests' -G."""
    launches = as_whole(value)
    if launches < 0:
        raise UsageError(f"{launches} must be 0 (eager only) or more (CUDA graph only)")
    return ("graph",) if launches else ("eager",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """An option: how it is spelt, read, and where in the suite it goes."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    """None: a flag."""
    key: str | None = None
    """The suite's key that it overrides; None: for the run alone, or with a rule of its own."""
    read: Callable[[str], object] = as_text
    more: dict[str, Any] = field(default_factory=dict)
    """For click."""

    @property
    def param(self) -> str:
        """The name of its parameter."""
        return self.names[-1].lstrip("-").replace("-", "_")

    @property
    def label(self) -> str:
        """What errors call it: ``-d/--dtype``."""
        return "/".join(name for name in self.names if name.startswith("-"))


def with_options(command: Command, options: Sequence[Option]) -> Command:
    """Gives a command options, in their order; it gets their values as text, flags as bool."""
    for option in reversed(options):
        kind: dict[str, Any] = {"is_flag": True} if option.metavar is None else {}
        command = click.option(
            *option.names, metavar=option.metavar, help=option.help, **{**kind, **option.more}
        )(command)
    return command
