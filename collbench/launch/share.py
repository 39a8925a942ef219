"""What of a node belongs to one of several processes on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from collbench.launch.detect import Launch
from collbench.launch.launchers import Launcher

T = TypeVar("T")

LEAST_CORES = 2
"""A rank has a thread that calls the library, and the library has one that drives the network."""
_MORE_CORES = {
    Launcher.SRUN: "srun --cpus-per-task=N gives a task more (--cpu-bind=none: all)",
    Launcher.MPIRUN: "mpirun --map-by slot:PE=N gives a process more (--bind-to none: all)",
    Launcher.KUBERNETES: "ask for more in the pod's resources (cpu)",
    Launcher.KUBEFLOW: "ask for more in the pod's resources (cpu)",
}


def own_gpus(launch: Launch, visible: Sequence[T]) -> tuple[T, ...]:
    """Returns this process's GPUs among those that it sees.

    All of them where the launcher has divided them, or has started one process on the node; else
    an equal share, the local processes one behind the other. What is left over nobody has.
    """
    if launch.gpus_bound or launch.local_processes == 1:
        return tuple(visible)
    share = len(visible) // launch.local_processes
    return tuple(visible[launch.local_process * share : (launch.local_process + 1) * share])


def own_core_count(launch: Launch, usable: int, of_machine: int) -> int:
    """Returns how many cores this process may count as its own.

    Args:
        launch: who it is.
        usable: cores that it may run on.
        of_machine: cores that there are; who may use them all shares them with the node's others.
    """
    if usable < of_machine:
        return usable
    return usable // launch.local_processes


def core_warning(launch: Launch, cores: int, ranks: int) -> str | None:
    """Returns what to say where ranks have too few cores, with the launcher's option."""
    if cores >= LEAST_CORES * ranks:
        return None
    remedy = _MORE_CORES.get(launch.launcher, "no option gives more")
    return (
        f"fewer than {LEAST_CORES} cores a rank: {cores} for {ranks}; times of small messages will"
        f" be worse than they need to be; {remedy}"
    )


def own_cores(launch: Launch, usable: frozenset[int], of_machine: int) -> frozenset[int]:
    """Returns the cores of this process: an equal share where the launcher has not divided them."""
    if len(usable) < of_machine or launch.local_processes == 1:
        return usable
    share = own_core_count(launch, len(usable), of_machine)
    first = launch.local_process * share
    return frozenset(sorted(usable)[first : first + share]) or usable
