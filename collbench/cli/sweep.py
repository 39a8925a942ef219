"""``collbench sweep``: collectives over message size on one machine or many."""

from __future__ import annotations

from typing import Any

import click

from collbench.cli.bar_options import bar_options
from collbench.cli.context import CONTEXT
from collbench.cli.launch_options import launch_options
from collbench.cli.sweep_options import sweep_options


@click.command(context_settings=dict(CONTEXT))
@sweep_options()
@bar_options
@launch_options
def sweep(**given: Any) -> int:
    """Measure collectives over message size, on this machine or on all that a launcher started.

    SUITE is a file, or one of sweep (the default), latency, bandwidth, smoke, nccl_matrix,
    ib_on_off, history.

    \b
    Examples:
      collbench sweep                                    all that is here, 30 s on a CPU
      collbench sweep -b 8 -e 8G -f 2                    the ladder of nccl-tests
      srun -N 4 --ntasks-per-node=1 collbench sweep      on four nodes
      collbench sweep --collective all_to_all -d bfloat16 --repeats 5
      collbench sweep --algo ring,tree --proto LL,LL128,Simple --reference
      collbench sweep nccl_matrix --via native           all that NCCL can choose, and what ran
      collbench sweep latency --json
      collbench sweep --baseline FILE --min-busbw 300    exit 1 if it does not reach them
      collbench sweep --resume last                      what an interruption or a kill left out
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help does not wait for numpy and the engine.
    from collbench.cli.sweep_run import run_sweep

    return run_sweep(click.get_current_context(), given)
