"""The options of ``pairwise``, the request that they make, and those of a run that goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from collbench.cli.option import Option, as_bool, as_whole_from_1
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
from collbench.units import parse_size

Command = Callable[..., Any]

SHARED = (
    "backend",
    "gpus",
    "via",
    "nccl",
    "fake_hosts",
    "expect_gpus",
    "seed",
    "check",
    "proof",
    "deadline",
    "init_deadline",
    "cluster",
    "results",
    "as_json",
    "dry_run",
    "resume",
    "simulate",
    "plant",
)
"""Parameters that mean what they mean to ``sweep``."""


_OF_THIS_CALL = OF_THIS_CALL | {"node_json"}
_SAME_SUITE = ("rounds", "serial", "inside", "qualify", "size_bytes", "latency")


def as_message_size(value: str) -> int:
    """Returns a size above 0, of a message."""
    size = parse_size(value)
    if size < 1:
        raise UsageError("a message has 1 byte or more; write for instance 64M")
    return size


def _as_rounds(value: str) -> str | int:
    """auto, all or a number."""
    if value in ("auto", "all"):
        return value
    try:
        return as_whole_from_1(value)
    except UsageError:
        raise UsageError(
            f"'{value}' is not allowed; allowed: auto, all, or a number of rounds"
        ) from None


_OWN = (
    Option(
        names=("--topology",),
        metavar="FILE",
        help="Which leaf a node is in: Slurm's topology.conf, or lines 'NODE LEAF' [Slurm's own].",
    ),
    Option(
        names=("--rounds",),
        metavar="auto|all|K",
        read=_as_rounds,
        help="auto: all pairs up to 64 nodes, three partners above; all; or K rounds [auto].",
    ),
    Option(
        names=("--serial",),
        help="One pair at a time: slower, and no pair disturbs another.",
        more={"is_flag": True},
    ),
    Option(
        names=("--size",),
        metavar="SIZE",
        read=as_message_size,
        help="Of a message [chosen by a short probe: 1G on fast links, less on slow ones].",
    ),
    Option(
        names=("--latency",),
        metavar="0|1",
        read=as_bool,
        help="A thousand small exchanges a pair, to see loss [1; 0 where ranks share a GPU].",
    ),
    Option(
        names=("--inside",),
        help="Pair the GPUs inside each node instead of the nodes; all nodes at once.",
        more={"is_flag": True},
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
class PairwiseRequest:
    """What the user wants, before the machine is looked at."""

    suite: Suite
    """Its tables ``run`` and ``measure``."""
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
    expect_gpus: int | None
    simulate: str | None
    plant: str | None
    resume: str | None
    results: str | None
    cluster: str | None
    as_json: bool
    dry_run: bool


def pairwise_options(command: Command) -> Command:
    """Gives a command these options; it passes their values to ``build_pairwise``."""
    for option in reversed(PAIRWISE_OPTIONS):
        command = click.option(
            *option.names, metavar=option.metavar, help=option.help, **option.more
        )(command)
    return command


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
    changes = {
        option.key.rpartition(".")[2]: values[option.param]
        for option in PAIRWISE_OPTIONS
        if option.key is not None and option.param in values
    }
    return PairwiseRequest(
        suite=override(Suite(name="pairwise"), **changes),
        topology=values.get("topology"),
        rounds=values.get("rounds", "auto"),
        serial=bool(given.get("serial")),
        size_bytes=values.get("size"),
        latency=values.get("latency"),
        inside=bool(given.get("inside")),
        qualify=values.get("qualify"),
        against=values.get("against"),
        node_json=values.get("node_json"),
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
    asking = {option.param for option in PAIRWISE_OPTIONS} - _OF_THIS_CALL
    return options_of_before(context, given, asking)


def refuse_another_question(before: Run, now: Run) -> None:
    """Makes sure that a run goes on with the nodes and the options that it began with.

    Raises:
        UsageError: nodes or options differ; names them.
    """
    refuse_other_nodes(before, now)
    refuse_other_options(before, now, _SAME_SUITE)
