"""The options of ``scale``, and the request that they make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import click

from collbench.cli.course_options import SHARED, SIZE, TOPOLOGY, whole_or
from collbench.cli.earlier import OF_THIS_CALL
from collbench.cli.option import Command, Option, as_whole_from_1, as_words, with_options
from collbench.cli.request import RunRequest, read_values, shared_fields, suite_changes
from collbench.cli.resume_options import (
    options_of_before,
    refuse_other_nodes,
    refuse_other_options,
)
from collbench.cli.sweep_table import OPTIONS
from collbench.errors import UsageError
from collbench.model import Run
from collbench.suite import Suite, override

_AUTO = "auto"


def _as_ratio(value: str) -> float:
    """An oversubscription of one or more."""
    try:
        ratio = float(value.removesuffix(":1"))
    except ValueError:
        ratio = math.nan
    if not 1 <= ratio < math.inf:
        raise UsageError(f"'{value}' is no oversubscription; write 2, or 2:1")
    return ratio


_OWN = (
    TOPOLOGY,
    Option(
        names=("--from-pairwise",),
        metavar="RUN",
        help="Take the leaves from a run of pairwise.",
    ),
    Option(
        names=("--patterns",),
        metavar="LIST",
        read=as_words,
        help="pairs, inside, half, all_reduce, all_gather, reduce_scatter, all_to_all [all but"
        " all_gather and reduce_scatter].",
    ),
    Option(
        names=("--step",),
        metavar="auto|K",
        read=whole_or((_AUTO,), "nodes"),
        help="Every K nodes; auto: every one to 16, then a quarter more each time, and a bisection"
        " round the drop [auto].",
    ),
    Option(
        names=("--redraws",),
        metavar="N",
        read=as_whole_from_1,
        help="Pairings drawn at each number of pairs; 8 where flows are hashed over uplinks [8].",
    ),
    SIZE,
    Option(
        names=("--max-oversubscription",),
        metavar="R",
        read=_as_ratio,
        help="Exit 1 if it is surely more: 2, or 2:1 [no bar].",
    ),
    Option(
        names=("--yes",),
        help="Begin also where it takes longer than 30 minutes.",
    ),
)
SCALE_OPTIONS = (
    *_OWN,
    # The algorithm is forced, and nothing is proved.
    *(option for option in OPTIONS if option.param in {*SHARED, "repeats"} - {"proof"}),
)

_JUDGING = frozenset({"max_oversubscription"})
"""Parameters that a run that goes on may have anew."""
_SAME_SUITE = ("patterns", "step", "redraws", "size_bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleRequest(RunRequest):
    """What the user wants of steps; of the suite the tables ``run`` and ``measure`` count."""

    topology: str | None
    from_pairwise: str | None
    patterns: tuple[str, ...] | None
    step: int | None
    repeats: int | None
    redraws: int | None
    size_bytes: int | None
    max_oversubscription: float | None
    yes: bool


def scale_options(command: Command) -> Command:
    """Gives a command these options; it passes their values to ``build_scale``."""
    return with_options(command, SCALE_OPTIONS)


def build_scale(given: dict[str, Any]) -> ScaleRequest:
    """Returns the request that the options make.

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
    """
    values = read_values(SCALE_OPTIONS, given)
    if "topology" in values and "from_pairwise" in values:
        raise UsageError("--topology and --from-pairwise both say the leaves; leave one out")
    return ScaleRequest(
        suite=override(Suite(name="scale"), **suite_changes(SCALE_OPTIONS, values)),
        topology=values.get("topology"),
        from_pairwise=values.get("from_pairwise"),
        patterns=values.get("patterns"),
        step=None if values.get("step") == _AUTO else values.get("step"),
        repeats=values.get("repeats"),
        redraws=values.get("redraws"),
        size_bytes=values.get("size"),
        max_oversubscription=values.get("max_oversubscription"),
        yes=bool(given.get("yes")),
        **shared_fields(values, given),
    )


def with_options_of_before(
    context: click.Context, given: dict[str, Any]
) -> tuple[dict[str, Any], str | None]:
    """Returns the parameters of a run that goes on: ``resume_options.options_of_before``."""
    asking = {option.param for option in SCALE_OPTIONS} - OF_THIS_CALL - _JUDGING - {"yes"}
    return options_of_before(context, given, asking, judging=_JUDGING)


def refuse_another_question(before: Run, now: Run) -> None:
    """Makes sure that a run goes on with the nodes, leaves and options that it began with.

    The order of the nodes counts too: steps are kept by their numbers.

    Args:
        before: the header of the run that goes on.
        now: the header that a new run would have.

    Raises:
        UsageError: nodes, leaves or options differ; names them.
    """
    refuse_other_nodes(before, now)
    for key, what in (("members", "these nodes in another order"), ("leaf_of", "other leaves")):
        if before.suite.get(key) != now.suite.get(key):
            raise UsageError(
                f"run {before.run_id} cannot be resumed: it was of {what}; start a new run"
            )
    refuse_other_options(before, now, _SAME_SUITE)
