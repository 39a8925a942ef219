"""When a variable is read: what must be fresh for a new value of it to count.

NCCL reads NCCL_ALGO, NCCL_PROTO and NCCL_NET at every start of a communicator and caches nearly
everything else at its first use (src/misc/param.cc and the ``static`` look-ups in src/graph and
src/transport, NCCL 2.30.7). A variable of the interpreter or the loader must be there before the
process begins.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from collbench.errors import nearest

SECRET_NAME = re.compile(r"(^|_)(TOKEN|KEY|PASSWORD|SECRET)(_|$)", re.IGNORECASE)
"""Names that are never recorded, and never set for a measurement."""

PREFIXES = ("NCCL_", "GLOO_", "UCX_", "FI_", "CUDA_", "TORCH_NCCL_", "OMP_")
"""Of the variables that steer communication: these are recorded, and no others."""

LOG_VARIABLES = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH,TUNING",
}
"""With these NCCL writes down what it uses; the file's name comes on top (NCCL_DEBUG_FILE)."""

_WRITES_AT_CALLS = ("INFO", "ABORT", "TRACE")


def quiet_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns what keeps NCCL from writing at every call, where the environment asks for that.

    A line at a call would be in its time; the proof has a log of its own.
    """
    loud = environ.get("NCCL_DEBUG", "").upper() in _WRITES_AT_CALLS
    return {"NCCL_DEBUG": "WARN"} if loud else {}


MANAGED = {
    **dict.fromkeys(
        ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"),
        "it is set by the proof of what ran; read the log in the run's folder",
    ),
    "NCCL_HOSTID": "say how many hosts to emulate with --fake-hosts",
    "CUDA_VISIBLE_DEVICES": "set it for the whole command, or say how many GPUs with --gpus",
}
"""Variables that cannot be swept, and what to do instead."""


class ReadAt(StrEnum):
    """The longest-lived thing that has to be fresh for a new value."""

    COMMUNICATOR = "communicator"
    WORKER = "worker"
    ZYGOTE = "zygote"


READ_BY_EACH_COMMUNICATOR = frozenset(
    {
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_NET",
        "NCCL_COLLNET_ENABLE",
        "NCCL_CHECK_MODE",
        "NCCL_LAUNCH_MODE",
        "NCCL_TOPO_FILE",
        "NCCL_GRAPH_FILE",
        "NCCL_TOPO_DUMP_FILE",
        "NCCL_GRAPH_DUMP_FILE",
    }
)
"""NCCL reads and prints these for each communicator, the others once in a process."""
# 2.27.0 to 2.27.4 cached NCCL_COLLNET_ENABLE all the same (nccl#1741).
_AT_COMMUNICATOR = READ_BY_EACH_COMMUNICATOR - {"NCCL_COLLNET_ENABLE"}
_AT_WORKER = tuple(prefix for prefix in PREFIXES if prefix != "OMP_")

_OTHERS_NAMES = re.compile(
    r"NCCL_(VERSION|BLOCKING_WAIT|ASYNC_ERROR_HANDLING|DESYNC_DEBUG|ENABLE_TIMING|AVOID_RECORD_STREAMS"
    r"|TUNER_CONFIG_FILE|INSPECTOR_\w+|TESTS_\w+)"
)
"""Variables in NCCL's name that others read or that say something to people: torch, NCCL's example
plug-ins, nccl-tests, container images (NCCL_VERSION)."""


def read_at(name: str) -> ReadAt:
    """Returns when a variable is read. Whatever is not known needs a fresh zygote."""
    if name in _AT_COMMUNICATOR:
        return ReadAt.COMMUNICATOR
    return ReadAt.WORKER if name.startswith(_AT_WORKER) else ReadAt.ZYGOTE


def without_effect(names: Iterable[str], known: Collection[str], release: str) -> list[str]:
    """Returns a line for each NCCL variable that the library in use does not know.

    Args:
        names: of variables that are set.
        known: names that stand in the library.
        release: what to call it: ``2.28.9``.
    """
    return [
        f"{name} has no effect: NCCL {release} does not know it"
        f"{nearest(name, known).rstrip(';') or ''}"
        for name in sorted(set(names))
        if name.startswith("NCCL_") and name not in known and not _OTHERS_NAMES.fullmatch(name)
    ]
