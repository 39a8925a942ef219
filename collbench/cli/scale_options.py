"""The options of ``scale``, and the request that they make."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from collbench.cli.option import Option, as_whole_from_1, as_words
from collbench.cli.pairwise_options import SHARED, as_message_size
from collbench.cli.resume_options import (
    OF_THIS_CALL,
    options_of_before,
    refuse_other_nodes,
    refuse_other_options,
)
from collbench.cli.sweep_options import read_values
from collbench.cli.sweep_table import OPTIONS
from collbench.errors import UsageError
from collbench.model import Run
from collbench.suite import Suite, override

Command = Callable[..., Any]


def _as_step(value: str) -> int | None:
    """Auto or a number."""
    if value == "auto":
        return None
    try:
        return as_whole_from_1(value)
    except UsageError:
        raise UsageError(f"'{value}' is not allowed; allowed: auto, or a number of nodes") from None


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
    Option(
        names=("--topology",),
        metavar="FILE",
        help="Which leaf a node is in: Slurm's topology.conf, or lines 'NODE LEAF' [Slurm's own].",
    ),
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
        read=_as_step,
        help="Every K nodes; auto: every one to 16, then a quarter more each time, and a bisection"
        " round the drop [auto].",
    ),
    Option(
        names=("--redraws",),
        metavar="N",
        read=as_whole_from_1,
        help="Pairings drawn at each number of pairs; 8 where flows are hashed over uplinks [8].",
    ),
    Option(
        names=("--size",),
        metavar="SIZE",
        read=as_message_size,
        help="Of a message [chosen by a short probe: 1G on fast links, less on slow ones].",
    ),
    Option(
        names=("--max-oversubscription",),
        metavar="R",
        read=_as_ratio,
        help="Exit 1 if it is surely more: 2, or 2:1 [no bar].",
    ),
    Option(
        names=("--yes",),
        help="Begin also where it takes longer than 30 minutes.",
        more={"is_flag": True},
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
class ScaleRequest:
    """What the user wants, before the machine is looked at."""

    suite: Suite
    """Its tables ``run`` and ``measure``."""
    topology: str | None
    from_pairwise: str | None
    patterns: tuple[str, ...] | None
    step: int | None
    repeats: int | None
    redraws: int | None
    size_bytes: int | None
    max_oversubscription: float | None
    yes: bool
    expect_gpus: int | None
    simulate: str | None
    plant: str | None
    resume: str | None
    results: str | None
    cluster: str | None
    as_json: bool
    dry_run: bool


def scale_options(command: Command) -> Command:
    """Gives a command these options; it passes their values to ``build_scale``."""
    for option in reversed(SCALE_OPTIONS):
        command = click.option(
            *option.names, metavar=option.metavar, help=option.help, **option.more
        )(command)
    return command


def build_scale(given: dict[str, Any]) -> ScaleRequest:
    """Returns the request that the options make.

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
    """
    values = read_values(SCALE_OPTIONS, given)
    if "topology" in values and "from_pairwise" in values:
        raise UsageError("--topology and --from-pairwise both say the leaves; leave one out")
    changes = {
        option.key.rpartition(".")[2]: values[option.param]
        for option in SCALE_OPTIONS
        if option.key is not None and option.param in values
    }
    return ScaleRequest(
        suite=override(Suite(name="scale"), **changes),
        topology=values.get("topology"),
        from_pairwise=values.get("from_pairwise"),
        patterns=values.get("patterns"),
        step=values.get("step"),
        repeats=values.get("repeats"),
        redraws=values.get("redraws"),
        size_bytes=values.get("size"),
        max_oversubscription=values.get("max_oversubscription"),
        yes=bool(given.get("yes")),
        expect_gpus=values.get("expect_gpus"),
        simulate=values.get("simulate"),
        plant=values.get("plant"),
        resume=values.get("resume"),
        results=values.get("results"),
        cluster=values.get("cluster"),
        as_json=bool(given.get("as_json")),
        dry_run=bool(given.get("dry_run")),
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
    if before.repeats != now.repeats:
        raise UsageError(
            f"run {before.run_id} cannot be resumed: repeats was {before.repeats} and is"
            f" {now.repeats}; give the options of before, or --resume alone"
        )
