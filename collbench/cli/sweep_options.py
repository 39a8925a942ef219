"""From ``sweep``'s options to a request.

An option is text until here, so that a wrong value gets this project's words. Its value goes over
the suite's; what the machine has to say to it comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from collbench.cli.option import Option
from collbench.cli.sweep_table import LADDER, NEVER_TOGETHER, OPTIONS
from collbench.errors import UsageError
from collbench.suite import (
    Ladder,
    Suite,
    check_sizes,
    check_value,
    load_suite,
    override,
    settings_of,
)
from collbench.units import parse_size

Command = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRequest:
    """What the user wants, before the machine is looked at."""

    suite: Suite
    """The file's, with the options over it; not yet resolved."""
    source: str
    """The suite's name or path as given."""
    results: str | None
    cluster: str | None
    as_json: bool
    dry_run: bool
    expect_gpus: int | None
    plant: str | None
    simulate: str | None
    resume: str | None
    """The run that is continued, as the user calls it."""


def sweep_options(command: Command) -> Command:
    """Gives a command the suite argument and all options; it passes them to ``build_request``."""
    for option in reversed(OPTIONS):
        names = [*option.names]
        command = click.option(*names, metavar=option.metavar, help=option.help, **option.more)(
            command
        )
    return click.argument("suite", default="sweep")(command)


def build_request(suite: str, **given: Any) -> SweepRequest:
    """Returns the request that the options make.

    Args:
        suite: a file, or the name of a shipped suite.
        given: the options' parameters as text, ``as_json`` and ``dry_run`` as bool; None or an
            empty tuple is "not given".

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
    """
    values = read_values(OPTIONS, given)
    _refuse_contradictions(values)
    loaded = load_suite(suite)
    changes = {
        option.key.rpartition(".")[2]: values[option.param]
        for option in OPTIONS
        if option.key is not None and option.param in values
    }
    if any(param in values for param in LADDER):
        changes["sizes"] = _ladder_over(loaded, values)
    if "graph" in values:
        changes["modes"] = values["graph"]
    if "precision" in values:
        changes["samples"] = 0  # over a suite that asks for a fixed number
    merged = override(loaded, **changes)
    with _named("sizes"):
        check_sizes(merged.sweep.sizes)
    settings_of(merged)
    return SweepRequest(
        suite=merged,
        source=suite,
        results=values.get("results"),
        cluster=values.get("cluster"),
        as_json=given.get("as_json", False),
        dry_run=given.get("dry_run", False),
        expect_gpus=values.get("expect_gpus"),
        plant=values.get("plant"),
        simulate=values.get("simulate"),
        resume=values.get("resume"),
    )


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
        with _named(option.label):
            value = option.read(text) if isinstance(text, str) else _joined(option, text)
            if option.key is not None:
                check_value(option.key, value)
        values[option.param] = value
    return values


def _joined(option: Option, texts: Sequence[str]) -> tuple[object, ...]:
    """Returns the values of an option that was repeated."""
    parts = [option.read(text) for text in texts]
    return tuple(value for part in parts if isinstance(part, tuple) for value in part)


def _refuse_contradictions(values: dict[str, Any]) -> None:
    labels = {option.param: option.label for option in OPTIONS}
    for one, other, why in NEVER_TOGETHER:
        if one in values and other in values:
            raise UsageError(
                f"{labels[one]} and {labels[other]} cannot both be given: {why}; leave one out"
            )
    if values.get("backend") == "gloo" and "gpus" in values:
        raise UsageError(
            "--backend gloo and -g/--gpus cannot both be given: Gloo's ranks are on the CPU;"
            " say how many with --ranks"
        )


def _ladder_over(suite: Suite, values: dict[str, Any]) -> Ladder:
    """Returns the suite's ladder with options over it.

    A list of sizes gives way to a ladder from its smallest to its largest.
    """
    base = suite.sweep.sizes
    if not isinstance(base, Ladder):
        sizes = [size if isinstance(size, int) else parse_size(size) for size in base]
        base = Ladder(min=min(sizes), max=max(sizes))
    changes = {field: values[param] for param, field in LADDER.items() if param in values}
    if "step" in changes:
        changes["factor"] = None
    elif "factor" in changes:
        changes["step"] = None
    return msgspec.structs.replace(base, **changes)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Puts what it is about in front of an error."""
    try:
        yield
    except UsageError as problem:
        raise UsageError(f"{what}: {problem}") from None
