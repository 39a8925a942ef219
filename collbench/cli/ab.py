"""``collbench ab``: settings, libraries or environments against each other, interleaved."""

from __future__ import annotations

from typing import Any

import click

from collbench.cli.context import CONTEXT
from collbench.cli.filled_command import FilledCommand
from collbench.cli.launch_options import launch_options
from collbench.cli.sweep_options import sweep_options


@click.command(
    cls=FilledCommand,
    fill="collbench.cli.ab_run:with_defaults",
    context_settings=dict(CONTEXT),
)
@sweep_options()
@launch_options
@click.option(
    "--threshold",
    metavar="SHARE",
    help="A smaller change is of no interest [3%].",
)
@click.option(
    "--fail-on",
    metavar="WORD",
    help="slower: exit with 1 if a side is slower than the first anywhere [nothing].",
)
def ab(**given: Any) -> int:
    """Measure two or more sides in one go, interleaved, and hold each against the first.

    Sides are whole settings (--setting), NCCL libraries (--nccl NAME=PATH) or the values of
    sweep's axes (--ib off,on). Every repeat (5 if nothing is said) starts fresh processes and
    measures all sides, in an order of its own, so that drift does not look like a difference.

    \b
    Examples:
      collbench ab --setting default --setting 'NCCL_ALGO=Tree NCCL_PROTO=Simple' -b 64M -e 1G
      collbench ab --nccl old=/opt/nccl-2.28/libnccl.so.2 --nccl new=/opt/nccl-2.30/libnccl.so.2
      srun -N2 --ntasks-per-node=1 collbench ab --ib on,off
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.ab_run import run_ab

    return run_ab(click.get_current_context(), given)
