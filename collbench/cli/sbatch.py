"""``collbench sbatch``: a batch script that starts collbench on the nodes of a Slurm job."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from collbench.cli.context import CONTEXT
from collbench.errors import UsageError
from collbench.report.slurm_script import SlurmRequest, slurm_script


@click.command(context_settings={**CONTEXT, "allow_interspersed_args": False})
@click.option("-N", "--nodes", type=int, required=True, metavar="N", help="Nodes of the job.")
@click.option(
    "--gpus-per-node",
    type=int,
    default=8,
    show_default=True,
    metavar="N",
    help="GPUs of a node; 0: none, for Gloo.",
)
@click.option(
    "-t",
    "--time",
    "time_limit",
    default="1:00:00",
    show_default=True,
    metavar="TIME",
    help="The job's time limit, as Slurm spells it.",
)
@click.option("-p", "--partition", metavar="NAME", help="Slurm's partition [the default one].")
@click.option("-A", "--account", metavar="NAME", help="The account to charge [yours].")
@click.option("--per-gpu", is_flag=True, help="One task a GPU instead of one a node.")
@click.option("--container", metavar="IMAGE", help="Run in this image (enroot with pyxis).")
@click.option("-o", "--output", metavar="FILE", help="Where the script goes [standard output].")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def sbatch(
    context: click.Context,
    nodes: int,
    gpus_per_node: int,
    time_limit: str,
    partition: str | None,
    account: str | None,
    per_gpu: bool,
    container: str | None,
    output: str | None,
    command: tuple[str, ...],
) -> None:
    """Write the Slurm batch script that starts COMMAND on every node; nothing is submitted.

    COMMAND is sweep (the default), ab, pairwise, scale, history run or placement, with its
    options. What it would refuse when it begins is refused here, before it has waited in a queue.

    \b
    Examples:
      collbench sbatch -N 16 -o sweep.sbatch -- sweep -b 8 -e 8G -f 2 && sbatch sweep.sbatch
      collbench sbatch -N 2 --per-gpu -p gpu -t 20 -- sweep ib_on_off | sbatch
      collbench sbatch -N 500 -t 30 -- pairwise --min-of-limit 80% | sbatch
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help does not wait for numpy.
    from collbench.cli.on_nodes import check_line

    wanted = command or ("sweep",)
    assert context.parent is not None
    check_line(wanted, context.parent)
    request = SlurmRequest(
        command=wanted,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        time_limit=time_limit,
        partition=partition,
        account=account,
        per_gpu=per_gpu,
        container=container,
        # The interpreter that runs now has collbench; a container brings its own.
        python="python" if container else sys.executable,
    )
    script = slurm_script(request)
    if output is None:
        click.echo(script, nl=False)
    else:
        _write(Path(output), script)


def _write(path: Path, script: str) -> None:
    try:
        path.write_text(script)
    except OSError as problem:
        raise UsageError(
            f"cannot write '{path}': {problem.strerror}; give another file with -o"
        ) from None
