"""The options that are about nodes, shared by the commands that many processes run together."""

from __future__ import annotations

from typing import Any

from collbench.cli.option import (
    Command,
    Option,
    as_text,
    as_whole,
    as_whole_from_1,
    with_options,
)
from collbench.cli.request import named
from collbench.errors import UsageError
from collbench.launch.hostlist import expand_hostlist
from collbench.launch.options import LaunchOptions, parse_rendezvous
from collbench.units import parse_duration


def _as_rank(value: str) -> int:
    """A whole number from 0."""
    number = as_whole(value)
    if number < 0:
        raise UsageError(f"{number} must be at least 0")
    return number


def _as_rendezvous(value: str) -> str:
    """A place to meet, as it stands."""
    parse_rendezvous(as_text(value))
    return as_text(value)


def _as_nodes(value: str) -> tuple[str, ...]:
    """A list of nodes, expanded."""
    return tuple(expand_hostlist(value))


LAUNCH_OPTIONS = (
    Option(
        names=("--nodes",),
        metavar="N",
        read=as_whole_from_1,
        help="Nodes of the run [as the launcher says].",
    ),
    Option(
        names=("--node-rank",),
        metavar="R",
        read=_as_rank,
        help="Which of them this is, from 0; without a launcher, with --nodes and --rendezvous.",
    ),
    Option(
        names=("--node-name",),
        metavar="NAME",
        help="What this node is called [as Slurm or Kubernetes call it, else the host name].",
    ),
    Option(
        names=("--rendezvous",),
        metavar="PLACE",
        read=_as_rendezvous,
        help="Where the nodes meet: HOST:PORT of node 0, or file:PATH on a shared folder.",
    ),
    Option(
        names=("--interface",),
        metavar="NAME",
        help="Network interface at which the nodes reach this one [by the route to node 0].",
    ),
    Option(
        names=("--wait",),
        metavar="TIME",
        read=parse_duration,
        help="So long nodes may be missing at the start [120s].",
    ),
    Option(
        names=("--min-nodes",),
        metavar="N",
        read=as_whole_from_1,
        help="Fewest nodes to begin with after that [all].",
    ),
    Option(
        names=("--exclude",),
        metavar="LIST",
        read=_as_nodes,
        help="Nodes that take no part: gpu[001-003,7],gpu9.",
    ),
    Option(
        names=("--strict",),
        help="Refuse nodes that differ from the others, instead of leaving them out.",
    ),
    Option(
        names=("--secret-file",),
        metavar="FILE",
        help="Holds what the nodes know each other by; mode 0600 [$COLLBENCH_SECRET].",
    ),
)
_FIELDS = {"wait": "wait_s"}
"""Of the record, where it is not called as the parameter."""


def launch_options(command: Command) -> Command:
    """Gives a command these options; it passes their values to ``read_launch_options``."""
    return with_options(command, LAUNCH_OPTIONS)


def read_launch_options(given: dict[str, Any]) -> LaunchOptions:
    """Returns the record of the options.

    Args:
        given: parameters as click gives them, text or None; others beside them are not looked at.

    Raises:
        UsageError: a value that cannot be; names the option.
    """
    values: dict[str, Any] = {}
    for option in LAUNCH_OPTIONS:
        value = given.get(option.param)
        if isinstance(value, str):
            with named(option.label):
                value = option.read(value)
            if value in ("", ()):
                raise UsageError(f"{option.label}: the value is empty; leave the option out")
        if value is not None:
            values[_FIELDS.get(option.param, option.param)] = value
    return LaunchOptions(**values)
