"""``collbench scale``: more and more nodes; finds where the fabric runs out."""

from __future__ import annotations

from typing import Any

import click

from collbench.cli.context import CONTEXT
from collbench.cli.launch_options import launch_options
from collbench.cli.scale_options import scale_options


@click.command(context_settings=dict(CONTEXT))
@scale_options
@launch_options
def scale(**given: Any) -> int:
    """Add nodes one by one and find the oversubscription knee.

    Pairs across leaves, more and more at once, show what the uplinks carry; as many pairs inside
    leaves are the control; halves, rings and all_to_all on the same nodes show what jobs feel.

    \b
    Examples:
      srun -N 16 --ntasks-per-node=1 collbench scale
      srun -N64 --ntasks-per-node=1 collbench scale --patterns pairs,inside --max-oversubscription 2
      collbench scale --simulate suites/fabrics/leaf_spine_64.toml --patterns pairs,inside,half
      collbench scale --dry-run --topology topology.conf
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.scale_run import run_scale

    return run_scale(click.get_current_context(), given)
