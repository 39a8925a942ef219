"""The options of ``pairwise``, the request that they make, and those of a run that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from collbench.cli.course_options import SHARED, SIZE, TOPOLOGY, whole_or
from collbench.cli.earlier import OF_THIS_CALL
from collbench.cli.option import Command, Option, as_bool, with_options
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

_OF_THIS_CALL = OF_THIS_CALL | {"node_json"}
_SAME_SUITE = ("rounds", "serial", "inside", "qualify", "size_bytes", "latency")


_OWN = (
    TOPOLOGY,
    Option(
        names=("--rounds",),
        metavar="auto|all|K",
        read=whole_or(("auto", "all"), "rounds"),
        help="auto: all pairs up to 64 nodes, three partners above; all; or K rounds [auto].",
    ),
    Option(
        names=("--serial",),
        help="One pair at a time: slower, and no pair disturbs another.",
    ),
    SIZE,
    Option(
        names=("--latency",),
        metavar="0|1",
        read=as_bool,
        help="A thousand small exchanges a pair, to see loss [1; 0 where ranks share a GPU].",
    ),
    Option(
        names=("--inside",),
        help="Pair the GPUs inside each node instead of the nodes; all nodes at once.",
    ),
    Option(
        names=("--qualify",),
        metavar="NODE",
        help="Judge this node alone, by three others.",
    ),
    Option(
        names=("--against",),
        metavar="FILE|LEAF",
        help="Who the others of --qualify may be: a file with a node a line, or a leaf [all].",
    ),
    Option(
        names=("--node-json",),
        metavar="DIR",
        help="Write each node's verdict to DIR/NODE.json as well.",
    ),
)
PAIRWISE_OPTIONS = (
    *_OWN,
    *(option for option in OPTIONS if option.param in SHARED),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseRequest(RunRequest):
    """What the user wants of pairs; of the suite the tables ``run`` and ``measure`` count."""

    topology: str | None
    rounds: str | int
    serial: bool
    size_bytes: int | None
    latency: bool | None
    """None: where it says something."""
    inside: bool
    qualify: str | None
    against: str | None
    node_json: str | None


def pairwise_options(command: Command) -> Command:
    """Gives a command these options; it passes their values to ``build_pairwise``."""
    return with_options(command, PAIRWISE_OPTIONS)


def build_pairwise(given: dict[str, Any]) -> PairwiseRequest:
    """Returns the request that the options make.

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
    """
    values = read_values(PAIRWISE_OPTIONS, given)
    if given.get("inside") and "qualify" in values:
        raise UsageError("--inside pairs GPUs and --qualify judges a node; leave one out")
    if "against" in values and "qualify" not in values:
        raise UsageError("--against says who a node is judged by; name the node with --qualify")
    return PairwiseRequest(
        suite=override(Suite(name="pairwise"), **suite_changes(PAIRWISE_OPTIONS, values)),
        topology=values.get("topology"),
        rounds=values.get("rounds", "auto"),
        serial=bool(given.get("serial")),
        size_bytes=values.get("size"),
        latency=values.get("latency"),
        inside=bool(given.get("inside")),
        qualify=values.get("qualify"),
        against=values.get("against"),
        node_json=values.get("node_json"),
        **shared_fields(values, given),
    )


def with_options_of_before(
    context: click.Context, given: dict[str, Any]
) -> tuple[dict[str, Any], str | None]:
    """Returns the parameters of a run that goes on: ``resume_options.options_of_before``."""
    asking = {option.param for option in PAIRWISE_OPTIONS} - _OF_THIS_CALL
    return options_of_before(context, given, asking)


def refuse_another_question(before: Run, now: Run) -> None:
    """Makes sure that a run goes on with the nodes and the options that it began with.

    Raises:
        UsageError: nodes or options differ; names them.
    """
    refuse_other_nodes(before, now)
    refuse_other_options(before, now, _SAME_SUITE)
