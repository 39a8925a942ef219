"""Which command of collbench a line calls, what it reads, and what answers for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click
from command_lines import refuse_what_cannot_be

from collbench.cli.main import cli

MODEL = """\
[fabric]
nodes = 8
gpus_per_node = 1
rails = 1
leaves = 2
noise = { size = 0.005 }

[[slow_node]]
node = "node5"
factor = 0.7
"""
"""What answers in the place of nodes, where a page does not bring a model."""

WANTED = {
    "drain": "pairwise --nodes",
    "nodes": "pairwise --nodes",
    "history": "history run",
    "export tuner": "sweep nccl_matrix",
}
"""By command the kind of run that it reads, where that is not just a sweep."""


def command_of(words: Sequence[str]) -> str:
    """Returns the name of the command: one word, or two of a group."""
    context = click.Context(cli, info_name="collbench")
    group, _, rest = cli.resolve_command(context, list(words))
    assert group is not None
    of_group = isinstance(cli.get_command(context, group), click.Group)
    return f"{group} {rest[0]}" if of_group and rest and rest[0][0] != "-" else group


def kind_for(name: str) -> str:
    """Returns the kind of run that a command reads."""
    return WANTED.get(name) or WANTED.get(name.split()[0], "sweep")


def is_name_only(name: str, rest: Sequence[str]) -> bool:
    """Says whether a span only names a command, or an option of it that takes a value."""
    if not rest:
        return True
    try:
        refuse_what_cannot_be([*name.split(), *rest])
    except click.BadOptionUsage as problem:
        return "requires an argument" in str(problem)
    except click.UsageError:
        return False
    return False


def essential(words: Sequence[str]) -> Iterator[str]:
    """Yields the words by which a run is known again, paths of libraries as ``PATH``."""
    skip = False
    for word in words:
        if skip or word in ("--repeats", "--seed"):
            skip = not skip
        else:
            yield re.sub(r"^([\w.]+)=.*(PATH|\.so.*)$", r"\1=PATH", word)
