"""``collbench placement``: who this process is among those started with it, and where they meet."""

from __future__ import annotations

import os
import socket
from typing import Any

import click
import msgspec

from collbench.cli.context import CONTEXT
from collbench.cli.launch_options import launch_options, read_launch_options
from collbench.errors import ExitCode, UsageError
from collbench.launch.detect import Launch, detect
from collbench.launch.interface import address_of, interface_of
from collbench.launch.launchers import Launcher
from collbench.launch.meeting import Meeting, MeetingKind, where_to_meet
from collbench.launch.options import LaunchOptions
from collbench.launch.share import core_warning, own_core_count, own_gpus
from collbench.model import Record
from collbench.probe.cores import format_cores
from collbench.probe.gpu import survey_gpus, visible_gpus
from collbench.probe.host import usable_cores
from collbench.store import results_root


class Placement(Record, frozen=True, kw_only=True):
    """What ``placement`` shows of one process."""

    launch: Launch
    meeting: Meeting | None
    problem: str | None
    """Why the processes cannot meet."""
    interface: str | None
    address: str
    cores: str
    """Those that this process may run on."""
    own_cores: int
    """How many it need not share with the node's other processes."""
    gpus: list[str]
    """Index and model of its GPUs."""
    gpu_problem: str | None
    ranks: int
    """One a GPU; 1 on a machine without."""
    warnings: list[str]


@click.command(context_settings=dict(CONTEXT))
@launch_options
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def placement(results: str | None, as_json: bool, **given: Any) -> int:
    """Show what started this process, who else was started, and where they would meet.

    Nothing is measured and nobody is contacted. Start it as the run will be started, and each
    process says what it sees.

    \b
    Examples:
      srun -N 4 --ntasks-per-node=1 python -m collbench placement
      collbench placement --nodes 2 --node-rank 1 --rendezvous node0:29400
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help does not wait for numpy.
    from collbench.cli.output import say

    found = _find(read_launch_options(given), results)
    if as_json:
        say(msgspec.json.encode(found).decode())
    else:
        say(placement_text(found))
    if found.problem is not None:
        raise UsageError(found.problem)
    return ExitCode.FINE


def _find(options: LaunchOptions, results: str | None) -> Placement:
    launch = detect(os.environ, options, socket.gethostname())
    meeting, problem = None, None
    try:
        meeting = where_to_meet(launch, os.environ, options, results_root(results, os.environ))
    except UsageError as refused:
        problem = str(refused)
    address = address_of(options.interface, meeting.host if meeting is not None else None)
    survey = survey_gpus()
    gpus = own_gpus(launch, visible_gpus(survey.gpus, os.environ))
    cores = usable_cores()
    own_cores = own_core_count(launch, len(cores), os.cpu_count() or len(cores))
    ranks = 1 if not (survey.on_pci or survey.gpus) else len(gpus)
    warning = core_warning(launch, own_cores, ranks)
    return Placement(
        launch=launch,
        meeting=meeting,
        problem=problem,
        interface=interface_of(address),
        address=address,
        cores=format_cores(cores),
        own_cores=own_cores,
        gpus=[f"{gpu.index} {gpu.name}" for gpu in gpus],
        gpu_problem=survey.error if survey.on_pci else None,
        ranks=ranks,
        warnings=[warning] if warning is not None else [],
    )


def placement_text(found: Placement) -> str:
    """Returns a placement as lines: what, then from what."""
    launch = found.launch
    nodes = "nodes not known" if launch.nodes is None else f"{launch.nodes} node"
    nodes += "s" * (launch.nodes is not None and launch.nodes > 1)
    variables = " ".join(f"{name}={value}" for name, value in launch.variables.items())
    at = f" ({found.interface})" if found.interface is not None else ""
    gpus = ", ".join(found.gpus) or found.gpu_problem or "none"
    rows = [
        ("launcher", str(launch.launcher)),
        ("process", f"{launch.process} of {launch.processes}, {nodes}"),
        (
            "node",
            f"{launch.node_name}, process {launch.local_process} of {launch.local_processes} on it",
        ),
        ("job", launch.job or "-"),
        ("from", variables or _source_without_variables(launch)),
        ("meets", _meeting_text(found)),
        ("address", f"{found.address}{at}"),
        ("cores", f"{found.cores}, {found.own_cores} for this process"),
        ("GPUs", gpus + (", bound by the launcher" if launch.gpus_bound else "")),
        ("ranks", str(found.ranks)),
        *(("warning", warning) for warning in found.warnings),
    ]
    return "\n".join(f"{what:<9} {text}" for what, text in rows)


def _source_without_variables(launch: Launch) -> str:
    if launch.launcher is Launcher.PLAIN:
        return "--nodes and --node-rank"
    return "no variable of a launcher"


def _meeting_text(found: Placement) -> str:
    meeting = found.meeting
    if meeting is None:
        return "nowhere: see the error"
    if meeting.kind is MeetingKind.NONE:
        return f"nobody: {meeting.why}"
    place = meeting.path or ""
    if meeting.host is not None:
        ports = ", ".join(map(str, meeting.ports))
        place = f"{meeting.host}, port{'s' * (len(meeting.ports) > 1)} {ports}"
    return f"{place}: {meeting.why}" if place else meeting.why
