"""``collbench history run``: several releases of NCCL in one go."""

from __future__ import annotations

from typing import Any

import click

from collbench.cli.context import CONTEXT
from collbench.cli.filled_command import FilledCommand
from collbench.cli.launch_options import launch_options
from collbench.cli.sweep_options import sweep_options


@click.command(
    cls=FilledCommand,
    fill="collbench.cli.history_run_plan:with_libraries",
    context_settings=dict(CONTEXT),
)
@sweep_options(suite="history")
@launch_options
@click.option(
    "--libraries", metavar="DIR", help="Where releases are installed [~/.cache/collbench/nccl]."
)
@click.option("--cuda", default="13", metavar="12|13", help="The CUDA of their wheels [13].")
def run(**given: Any) -> int:
    """Measure releases of NCCL interleaved, each on its own library, and judge the newest.

    --nccl takes releases by number, which are installed if they are missing (200 to 350 MB each),
    and libraries of your own: NAME=/path/libnccl.so.2[,plugin=/path/libnccl-net.so]. Every repeat
    (5 if nothing is said) starts fresh processes for every library, in an order of its own. No
    torch takes part: --via native. SUITE is history if nothing is said.

    \b
    Examples:
      collbench history run --nccl 2.28.9,2.29.7,2.30.7
      collbench history run --nccl 2.29.7 --nccl ours=/opt/nccl/libnccl.so.2
      srun -N 4 --ntasks-per-node=1 collbench history run --nccl 2.28.9,2.29.7 --libraries DIR
      collbench history run --resume last
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.history_run_plan import run_history

    return run_history(click.get_current_context(), given)
