"""Where the processes of a run meet: decided by every process alike, without asking the others."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from collbench.errors import UsageError
from collbench.launch.detect import Launch
from collbench.launch.hostlist import expand_hostlist
from collbench.launch.interface import is_loopback
from collbench.launch.launchers import Launcher
from collbench.launch.options import LaunchOptions, parse_rendezvous
from collbench.launch.private_files import MEETING_FOLDER
from collbench.model import Record

Resolve = Callable[..., Sequence[tuple[Any, ...]]]

POD_PORTS = tuple(range(29400, 29408))
"""A pod has all ports to itself, so these are as good as any."""
_SLURM_PORTS = range(20_000, 60_000)
_SLURM_TRIES = 8


class MeetingKind(StrEnum):
    """How the other processes learn where process 0 listens."""

    NONE = "none"
    """There is only one process."""
    ADDRESS = "address"
    """They know already."""
    TORCHRUN_STORE = "torchrun_store"
    """From the store that torchrun's agents share."""
    FILE = "file"
    """From a file on a shared folder."""
    MPI = "mpi"
    """By a broadcast over MPI."""


class Meeting(Record, frozen=True, kw_only=True):
    """Where process 0 is found."""

    kind: MeetingKind
    host: str | None = None
    """Of process 0, or of torchrun's store."""
    ports: tuple[int, ...] = ()
    """The first that is free there, in this order; of torchrun's store: the only one."""
    path: str | None = None
    """The file's."""
    key: str = ""
    """What the announcement is called: the file's content and the store's entry carry it, so that
    what an ended run has left is not taken for this one's."""
    why: str
    """In words."""


def where_to_meet(
    launch: Launch,
    environ: Mapping[str, str],
    options: LaunchOptions,
    results: Path,
    *,
    resolve: Resolve = socket.getaddrinfo,
    find_module: Callable[[str], object | None] = importlib.util.find_spec,
) -> Meeting:
    """Returns where the processes of this run meet.

    In this order: ``--rendezvous``, torchrun's store, the first host of Slurm's step, the address
    that Kubernetes gives, MPI, the folder of all runs.

    Args:
        launch: who this process is.
        environ: its variables.
        options: by the user.
        results: the folder of all runs; shared by the nodes, if the last way is to work.
        resolve: like ``socket.getaddrinfo``, for tests.
        find_module: like ``importlib.util.find_spec``, for tests.

    Raises:
        UsageError: there is no such place, or it cannot be one: loopback for several nodes, a name
            that does not resolve, a folder that is not there.
    """
    if launch.processes == 1:
        return Meeting(kind=MeetingKind.NONE, why="there is one process")
    meeting = (
        _at_rendezvous(launch, options)
        or _at_torchrun(launch)
        or _at_slurm(launch)
        or _at_kubernetes(launch, environ)
        or _at_master(launch)
        or _at_mpi(launch, find_module)
        or _at_results(launch, results)
    )
    if meeting is None:
        raise UsageError(
            f"{launch.processes} processes started by {launch.launcher} have no place to meet (no"
            " store of torchrun, step of Slurm, COLLBENCH_SERVICE, MASTER_ADDR or mpi4py, and no"
            " job id to name a file by); give --rendezvous HOST:PORT with node 0's host, or"
            " file:PATH on a shared folder"
        )
    if meeting.host is not None:
        _refuse_unreachable(meeting.host, launch, resolve)
    return meeting


def _at_rendezvous(launch: Launch, options: LaunchOptions) -> Meeting | None:
    if options.rendezvous is None:
        return None
    place = parse_rendezvous(options.rendezvous)
    why = f"--rendezvous {options.rendezvous}"
    if isinstance(place, Path):
        if not place.parent.is_dir():
            raise UsageError(
                f"{why}: there is no folder '{place.parent}' on {launch.node_name}; name a file in"
                " a folder that all nodes share"
            )
        return Meeting(kind=MeetingKind.FILE, path=str(place), key=launch.job or "", why=why)
    host, port = place
    return Meeting(kind=MeetingKind.ADDRESS, host=host, ports=(port,), why=why)


def _at_torchrun(launch: Launch) -> Meeting | None:
    if launch.launcher is not Launcher.TORCHRUN:
        return None
    host, port = _master(launch)
    if host is None:
        return None
    if launch.variables.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        why = "MASTER_ADDR and MASTER_PORT of torchrun"
        return Meeting(kind=MeetingKind.ADDRESS, host=host, ports=(port,), why=why)
    attempt = launch.variables.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Meeting(
        kind=MeetingKind.TORCHRUN_STORE,
        host=host,
        ports=(port,),
        key=f"collbench/{attempt}",
        why="the store of torchrun's agents",
    )


def _at_slurm(launch: Launch) -> Meeting | None:
    nodes = launch.variables.get("SLURM_STEP_NODELIST")
    if launch.launcher is not Launcher.SRUN or nodes is None or launch.job is None:
        return None
    return Meeting(
        kind=MeetingKind.ADDRESS,
        host=expand_hostlist(nodes)[0],
        ports=ports_of(launch.job),
        why=f"the first host of Slurm's step {launch.job}",
    )


def ports_of(job: str) -> tuple[int, ...]:
    """Returns 8 ports from 20000 to 59999 that follow from the job's id: others for another job."""
    digest = hashlib.blake2b(job.encode(), digest_size=4 * _SLURM_TRIES).digest()
    ports: list[int] = []
    for start in range(0, len(digest), 4):
        number = int.from_bytes(digest[start : start + 4], "big") % len(_SLURM_PORTS)
        while _SLURM_PORTS[number] in ports:
            number = (number + 1) % len(_SLURM_PORTS)
        ports.append(_SLURM_PORTS[number])
    return tuple(ports)


def _at_kubernetes(launch: Launch, environ: Mapping[str, str]) -> Meeting | None:
    """The first pod of an indexed Job, as its headless Service calls it."""
    service = environ.get("COLLBENCH_SERVICE")
    if launch.launcher is not Launcher.KUBERNETES or not service:
        return None
    first_pod = f"{launch.job}-0"
    if service.partition(".")[0] == first_pod:
        host = service
    elif launch.job is not None:
        host = f"{first_pod}.{service}"
    else:
        raise UsageError(
            f"COLLBENCH_SERVICE={service}, but the Job's name is not known (the host name does not"
            " end in the pod's index); set JOB_NAME in the pods"
        )
    return Meeting(
        kind=MeetingKind.ADDRESS,
        host=host,
        ports=POD_PORTS,
        why="the Job's first pod in the Service COLLBENCH_SERVICE",
    )


def _at_master(launch: Launch) -> Meeting | None:
    """MASTER_ADDR of Kubeflow, or set by hand."""
    if launch.launcher not in (Launcher.KUBEFLOW, Launcher.PLAIN):
        return None
    host, port = _master(launch)
    if host is None:
        return None
    if launch.launcher is Launcher.KUBEFLOW and launch.process == 0 and is_loopback(host):
        # Kubeflow may call the first pod localhost in its own variables, by name in the others'.
        host = launch.node_name
    why = f"MASTER_ADDR and MASTER_PORT ({launch.launcher})"
    return Meeting(kind=MeetingKind.ADDRESS, host=host, ports=(port,), why=why)


def _at_mpi(launch: Launch, find_module: Callable[[str], object | None]) -> Meeting | None:
    if launch.launcher is not Launcher.MPIRUN or find_module("mpi4py") is None:
        return None
    return Meeting(kind=MeetingKind.MPI, why="a broadcast over MPI (mpi4py)")


def _at_results(launch: Launch, results: Path) -> Meeting | None:
    if launch.job is None:
        return None
    path = results.absolute() / MEETING_FOLDER / f"{file_name(launch.job)}.json"
    return Meeting(
        kind=MeetingKind.FILE,
        path=str(path),
        key=launch.job,
        why=f"the results folder {results}, which all nodes must share",
    )


def file_name(job: str) -> str:
    """Returns a job's id as a file's name; different ids have different names."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", job)[:100]
    digest = hashlib.blake2b(job.encode(), digest_size=4).hexdigest()
    return safe if safe == job and not safe.startswith(".") else f"job-{safe}-{digest}"


def _master(launch: Launch) -> tuple[str | None, int]:
    """Returns MASTER_ADDR and MASTER_PORT, as torch.distributed or as torchrun's options."""
    for prefix in ("PET_", ""):
        host = launch.variables.get(f"{prefix}MASTER_ADDR")
        port = launch.variables.get(f"{prefix}MASTER_PORT", "")
        if host is None:
            continue
        if not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise UsageError(
                f"{prefix}MASTER_PORT='{port}' beside {prefix}MASTER_ADDR={host} is no port;"
                " allowed: 1 to 65535"
            )
        return host, int(port)
    return None, 0


def _refuse_unreachable(host: str, launch: Launch, resolve: Resolve) -> None:
    """Refuses a host that the other nodes cannot mean, or cannot find.

    The name of a pod resolves only once the pod runs: nothing is said of it here. On node 0 its
    own name may well stand for loopback (in /etc/hosts), which the others do not see.
    """
    if launch.on_many_nodes and is_loopback(host):
        raise _loopback(host, launch)
    if launch.launcher in (Launcher.KUBERNETES, Launcher.KUBEFLOW):
        return
    try:
        found = resolve(host, None, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise UsageError(
            f"the host '{host}' to meet at does not resolve on {launch.node_name}:"
            f" {problem.strerror or problem}; give --rendezvous HOST:PORT with a name or address of"
            " node 0 that every node knows"
        ) from None
    addresses = [str(entry[4][0]) for entry in found]
    others_see_it = launch.process != 0 and launch.local_process == 0
    if launch.on_many_nodes and others_see_it and all(map(is_loopback, addresses)):
        raise _loopback(f"{host} ({addresses[0]})", launch)


def _loopback(host: str, launch: Launch) -> UsageError:
    nodes = f"{launch.nodes} nodes" if launch.nodes is not None else "several nodes"
    return UsageError(
        f"{host} is each node's own loopback address and cannot be the place where {nodes} meet;"
        " give --rendezvous HOST:PORT with a name or address of node 0 that every node knows"
    )
