"""From ``sweep``'s options to a request.

An option is text until here, so that a wrong value gets this project's words. Its value goes over
the suite's; what the machine has to say to it comes later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from collbench.cli.option import Command, with_options
from collbench.cli.request import RunRequest, named, read_values, shared_fields, suite_changes
from collbench.cli.sweep_table import LADDER, NEVER_TOGETHER, OPTIONS
from collbench.errors import UsageError
from collbench.suite import (
    Ladder,
    Suite,
    check_sizes,
    load_suite,
    override,
    settings_of,
)
from collbench.units import parse_size


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRequest(RunRequest):
    """What the user wants of a sweep: the suite is the file's, with the options over it."""

    source: str
    """The suite's name or path as given."""


def sweep_options(suite: str = "sweep") -> Callable[[Command], Command]:
    """Gives a command the suite argument and all options; it passes them to ``build_request``.

    Args:
        suite: the one that is meant if none is named.
    """

    def give(command: Command) -> Command:
        return click.argument("suite", default=suite)(with_options(command, OPTIONS))

    return give


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
    changes = suite_changes(OPTIONS, values)
    if any(param in values for param in LADDER):
        changes["sizes"] = _ladder_over(loaded, values)
    if "graph" in values:
        changes["modes"] = values["graph"]
    if "precision" in values:
        changes["samples"] = 0  # over a suite that asks for a fixed number
    merged = override(loaded, **changes)
    with named("sizes"):
        check_sizes(merged.sweep.sizes)
    settings_of(merged)
    return SweepRequest(suite=merged, source=suite, **shared_fields(values, given))


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
