"""The options that commands which run courses share: ``pairwise`` and ``scale``."""

from __future__ import annotations

from collections.abc import Callable

from collbench.cli.option import Option, as_whole_from_1
from collbench.errors import UsageError
from collbench.units import parse_size

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


def as_message_size(value: str) -> int:
    """Returns a size above 0, of a message."""
    size = parse_size(value)
    if size < 1:
        raise UsageError("a message has 1 byte or more; write for instance 64M")
    return size


def whole_or(words: tuple[str, ...], what: str) -> Callable[[str], int | str]:
    """Returns what reads a whole number from 1, or one of some words.

    Args:
        words: that stand for themselves.
        what: is counted, for the error.
    """

    def read(value: str) -> int | str:
        if value in words:
            return value
        try:
            return as_whole_from_1(value)
        except UsageError:
            raise UsageError(
                f"'{value}' is not allowed; allowed: {', '.join(words)}, or a number of {what}"
            ) from None

    return read


TOPOLOGY = Option(
    names=("--topology",),
    metavar="FILE",
    help="Which leaf a node is in: Slurm's topology.conf, or lines 'NODE LEAF' [Slurm's own].",
)
SIZE = Option(
    names=("--size",),
    metavar="SIZE",
    read=as_message_size,
    help="Of a message [chosen by a short probe: 1G on fast links, less on slow ones].",
)
