"""What commands that measure ask for: how their options are read, and what their requests share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from collbench.cli.option import Option
from collbench.errors import UsageError
from collbench.suite import Suite, check_value


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What the user wants, before the machine is looked at."""

    suite: Suite
    """With the options over it; not yet resolved."""
    results: str | None
    cluster: str | None
    as_json: bool
    dry_run: bool
    expect_gpus: int | None
    plant: str | None
    simulate: str | None
    resume: str | None
    """The run that is continued, as the user calls it."""


_Request = TypeVar("_Request", bound=RunRequest, covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked(Generic[_Request]):
    """A command line as it is meant, that of a run that goes on included."""

    given: dict[str, Any]
    """The parameters, with those of the run that goes on."""
    argv_of_before: str | None
    """The command line that they were taken from, where it is not this one."""
    request: _Request


def shared_fields(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``RunRequest`` but for the suite.

    Args:
        values: from ``read_values``.
        given: parameters as click gives them.
    """
    texts = ("results", "cluster", "expect_gpus", "plant", "simulate", "resume")
    flags = ("as_json", "dry_run")
    return {name: values.get(name) for name in texts} | {
        name: bool(given.get(name)) for name in flags
    }


def suite_changes(options: Sequence[Option], values: dict[str, Any]) -> dict[str, Any]:
    """Returns what goes over a suite's keys, for ``suite.override``."""
    return {
        option.key.rpartition(".")[2]: values[option.param]
        for option in options
        if option.key is not None and option.param in values
    }


def read_values(options: Sequence[Option], given: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of the options that were given, by parameter.

    Args:
        options: the command's, a flag without a key aside.
        given: parameters as click gives them.

    Raises:
        UsageError: a value that cannot be; names the option.
    """
    values: dict[str, Any] = {}
    for option in options:
        text = given.get(option.param)
        if option.metavar is None:
            if option.key is not None and text:
                values[option.param] = True
            continue
        if text is None or text == ():
            continue
        with named(option.label):
            value = option.read(text) if isinstance(text, str) else _joined(option, text)
            if option.key is not None:
                check_value(option.key, value)
        values[option.param] = value
    return values


def _joined(option: Option, texts: Sequence[str]) -> tuple[object, ...]:
    """Returns the values of an option that was repeated."""
    parts = [option.read(text) for text in texts]
    return tuple(value for part in parts if isinstance(part, tuple) for value in part)


@contextmanager
def named(what: str) -> Iterator[None]:
    """Puts what it is about in front of an error."""
    try:
        yield
    except UsageError as problem:
        raise UsageError(f"{what}: {problem}") from None
