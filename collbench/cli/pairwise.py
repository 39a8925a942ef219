"""``collbench pairwise``: nodes two by two; names the bad node, rail or path."""

from __future__ import annotations

from typing import Any

import click

from collbench.cli.bar_options import bar_options
from collbench.cli.context import CONTEXT
from collbench.cli.launch_options import launch_options
from collbench.cli.pairwise_options import pairwise_options


@click.command(context_settings=dict(CONTEXT))
@pairwise_options
@bar_options
@launch_options
def pairwise(**given: Any) -> int:
    """Run nodes two by two and name the bad node, rail or path, with evidence.

    Every node meets every other (above 64 nodes three partners), rounds of disjoint pairs at the
    same time; whoever looks bad runs again with partners known to be good, until it is confirmed
    or cleared.

    \b
    Examples:
      srun -N 8 --ntasks-per-node=1 collbench pairwise
      srun -N 500 --ntasks-per-node=1 collbench pairwise --baseline RUN --node-json /shared/v
      srun -w node7,node[1-3] --ntasks-per-node=1 collbench pairwise --qualify node7
      collbench pairwise --simulate suites/fabrics/slow_node_8.toml
      collbench pairwise --dry-run --simulate suites/fabrics/large_4096.toml
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.pairwise_run import run_pairwise

    return run_pairwise(click.get_current_context(), given)
