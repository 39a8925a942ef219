"""The batch script that starts collbench on the nodes of a Slurm job, as text.

A pure function: the same request gives the same script on every machine.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from collbench.errors import UsageError

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:+@/-]*")
_TIME = re.compile(r"\d+(:\d\d){0,2}|\d+-\d+(:\d\d){0,2}")

_DRAW = """\
# The secret by which the processes of this job know each other. It is drawn anew for each job and
# travels in the environment alone.
COLLBENCH_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')
export COLLBENCH_SECRET
"""

_RESULTS = """\
# Node 0 writes here; the folder keeps its path in the container.
export COLLBENCH_RESULTS="${COLLBENCH_RESULTS:-$PWD/results}"
mkdir -p "$COLLBENCH_RESULTS"
"""

_CPU_BINDING = """\
# No binding to cores: each rank is bound to the cores of its GPU by collbench.
"""

_FAULTS = """\
# One process that fails does not end the others: the fault is named, and what was measured is kept.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmRequest:
    """What to start, and what to ask Slurm for."""

    command: tuple[str, ...]
    """collbench's command and its arguments: ``("sweep", "-b", "8")``."""
    nodes: int
    gpus_per_node: int
    """0: none, for Gloo on the cores."""
    time_limit: str
    """In one of Slurm's forms: ``90`` (minutes), ``1:30:00``, ``1-12``."""
    partition: str | None = None
    account: str | None = None
    per_gpu: bool = False
    """One task a GPU instead of one a node."""
    container: str | None = None
    """An image for the pyxis plug-in: a squashfs file or ``registry#name:tag``."""
    python: str = "python"
    """The interpreter that has collbench, by its path or a name on PATH."""


def slurm_script(request: SlurmRequest) -> str:
    """Returns the whole script, ready for ``sbatch``.

    Raises:
        UsageError: a value that Slurm could not read, or one task a GPU without GPUs.
    """
    _check(request)
    parts = [
        "#!/bin/bash\n"
        + "".join(f"#SBATCH --{option}\n" for option in _directives(request)).rstrip("\n"),
        "set -euo pipefail",
        _DRAW.rstrip("\n"),
        *([_RESULTS.rstrip("\n")] if request.container else []),
        _CPU_BINDING + _FAULTS + _step(request),
    ]
    return "\n\n".join(parts) + "\n"


def _check(request: SlurmRequest) -> None:
    for option, number, least in (
        ("--nodes", request.nodes, 1),
        ("--gpus-per-node", request.gpus_per_node, 0),
    ):
        if number < least:
            raise UsageError(f"{option}: {number} must be at least {least}")
    if request.per_gpu and not request.gpus_per_node:
        raise UsageError(
            "--per-gpu and --gpus-per-node 0 cannot both be given: there is no GPU to start a task"
            " for; leave --per-gpu out"
        )
    if not _TIME.fullmatch(request.time_limit):
        raise UsageError(
            f"--time: '{request.time_limit}' is no time of Slurm; write minutes (90), 1:30:00"
            " or days-hours (1-12)"
        )
    for option, value in (("--partition", request.partition), ("--account", request.account)):
        # A directive is a line of its own: a blank, a quote or a line's end would become another.
        if value is not None and not _WORD.fullmatch(value):
            raise UsageError(
                f"{option}: '{value}' is no name of Slurm; allowed: letters, digits and _.,:+@/-"
            )


def _directives(request: SlurmRequest) -> list[str]:
    options = ["job-name=collbench", f"nodes={request.nodes}", *_tasks(request, total=True)]
    if request.gpus_per_node and not request.per_gpu:
        options.append(f"gpus-per-node={request.gpus_per_node}")
    # Neighbours on the node would disturb the times; a second start would be another run.
    options += ["exclusive", "no-requeue", f"time={request.time_limit}"]
    if request.partition is not None:
        options.append(f"partition={request.partition}")
    if request.account is not None:
        options.append(f"account={request.account}")
    return [*options, "output=collbench-%j.log"]


def _tasks(request: SlurmRequest, *, total: bool) -> list[str]:
    """Returns the options that say how many tasks there are; the total is what sbatch needs."""
    if not request.per_gpu:
        return ["ntasks-per-node=1"]
    per_node = [f"ntasks-per-node={request.gpus_per_node}", "gpus-per-task=1"]
    return [f"ntasks={request.nodes * request.gpus_per_node}", *per_node] if total else per_node


def _step(request: SlurmRequest) -> str:
    """Returns the srun line; its exit status is node 0's verdict."""
    options = [
        f"--nodes={request.nodes}",
        *(f"--{option}" for option in _tasks(request, total=False)),
        "--cpu-bind=none",
        "--kill-on-bad-exit=0",
        # The secret must reach the tasks where sbatch was told to export nothing, too.
        "--export=ALL",
    ]
    lines = [f"exec srun {' '.join(options)}"]
    if request.container is not None:
        lines += [
            f"--container-image={shlex.quote(request.container)}",
            '--container-mounts="$PWD:$PWD,$COLLBENCH_RESULTS:$COLLBENCH_RESULTS"',
            '--container-workdir="$PWD"',
        ]
    lines.append(shlex.join([request.python, "-m", "collbench", *request.command]))
    return " \\\n    ".join(lines)
