"""``--resume RUN`` of commands that run courses: the options of before, and the same question.

A course makes its rounds from what came before, so that a run that goes on is given its earlier
trials and asks for what is left; here it is made sure that the question is the same.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import click
import msgspec

from collbench.cli.earlier import Earlier, is_given, run_of_before, taken_from
from collbench.errors import UsageError
from collbench.model import Run
from collbench.units import utc_text

_SAME_HEADER = (
    "seed",
    "backend",
    "world_size",
    "via",
    "repeats",
    "simulated",
    "emulated",
    "planted",
)
_SHOWN = 3


def options_of_before(
    context: click.Context,
    given: dict[str, Any],
    asking: Collection[str],
    *,
    judging: Collection[str] = (),
) -> tuple[dict[str, Any], str | None]:
    """Returns the parameters, and the command line that they were taken from if it is another's.

    ``--resume RUN`` with nothing that says what to measure takes that from the run's own command
    line; what concerns this call alone (nodes, output) stays as it is given.

    Args:
        context: of the command, with where each parameter came from.
        given: its parameters.
        asking: those that say what is measured.
        judging: those that say how it is judged: what is given anew counts, beside the others of
            before.

    Raises:
        RunNotFound: no such run.
    """
    if given["resume"] is None or any(is_given(context, name) for name in asking):
        return given, None
    run = run_of_before(given)
    if run.command != context.command.name:
        return given, None  # refused where the run is opened
    kept = [name for name in judging if not is_given(context, name)]
    taken, line = taken_from(context, run, (*asking, *kept))
    return {**given, **taken}, line


def refuse_other_ground(before: Run, *, simulated: bool) -> None:
    """Makes sure that a model's run goes on with a model, and a measured one with hardware.

    Args:
        before: the run's header.
        simulated: whether a model answers now.

    Raises:
        UsageError: it is the other one.
    """
    if before.simulated != simulated:
        kinds = ("measured", "simulated")
        raise UsageError(
            f"run {before.run_id} is {kinds[before.simulated]} and this call is"
            f" {kinds[simulated]}; give the options of before, or --resume alone"
        )


def refuse_other_nodes(before: Run, now: Run) -> None:
    """Makes sure that the same nodes take part, in whatever order.

    Args:
        before: the header of the run that goes on.
        now: the header that a new run would have.

    Raises:
        UsageError: nodes are missing or new; names them.
    """
    nodes, others = set(members_of(before)), set(members_of(now))
    found = [
        f"{len(names)} {word} ({', '.join(sorted(names)[:_SHOWN])}{' ...' * (len(names) > _SHOWN)})"
        for word, names in (("missing", nodes - others), ("new", others - nodes))
        if names
    ]
    if found:
        raise UsageError(
            f"run {before.run_id} cannot be resumed: it was of other nodes: {', '.join(found)};"
            " start a new run"
        )


def members_of(run: Run) -> list[str]:
    """Returns the names of the nodes that take part in a run, in its order."""
    kept = run.suite.get("members")
    return kept if isinstance(kept, list) else []


def refuse_other_options(before: Run, now: Run, same_suite: Sequence[str]) -> None:
    """Makes sure that the question is the same.

    Args:
        before: the header of the run that goes on.
        now: the header that a new run would have.
        same_suite: keys of the stored suite that have to be equal, where the run has them.

    Raises:
        UsageError: options differ; names them.
    """
    pairs = [(name, getattr(before, name), getattr(now, name)) for name in _SAME_HEADER]
    pairs += [
        (name, before.suite[name], now.suite[name]) for name in same_suite if name in before.suite
    ]
    found = [f"{name} was {was} and is {is_now}" for name, was, is_now in pairs if was != is_now]
    if found:
        raise UsageError(
            f"run {before.run_id} cannot be resumed: {'; '.join(found)}; give the options of"
            " before, or --resume alone"
        )


def continued_header(before: Run, **judging: Any) -> Run:
    """Returns the header of a run that goes on.

    Args:
        before: as it is stored.
        judging: keys of its suite that say how it is judged: these may be new.
    """
    return msgspec.structs.replace(
        before,
        suite={**before.suite, **judging},
        resumed_at=[*before.resumed_at, utc_text(time.time())],
        ended_at=None,
        exit_code=None,
        findings=[],
    )


def resuming_lines(earlier: Earlier | None) -> list[str]:
    """Returns what is said of a run that goes on; nothing of a new one."""
    if earlier is None:
        return []
    lines = [f"resuming: {len(earlier.stored.trials)} trials are there"]
    if earlier.argv_of_before is not None:
        lines.append(f"  with the options of before: {earlier.argv_of_before}")
    return lines
