"""A worker: one rank. Joins a group, measures cases as told, ends. The only importer of torch."""

from __future__ import annotations

import re
import socket
import sys
import traceback

import torch
import torch.distributed as dist

from collbench.engine.progress import SharedProgress
from collbench.engine.wire import (
    Channel,
    Closed,
    Done,
    Hosting,
    Join,
    Joined,
    Measure,
    Quit,
    Raised,
    ToWorker,
)
from collbench.measure.loop import measure_case
from collbench.measure.protocols import Phase
from collbench.measure.torch_backend import NEVER, TorchBackend, TorchControl, form_groups
from collbench.model import LibraryVersion
from collbench.probe.host import free_memory_bytes, last_level_cache_bytes
from collbench.probe.nccl import loaded_nccl

_REFUSALS = re.compile(
    r"not support|unsupported|not implemented|unhandled|invalid (scalar|data|tensor|reduce)"
    r"|no algorithm/protocol|not available|expected .*type|ncclInvalid(Argument|Usage)",
    re.IGNORECASE,
)
"""How torch, Gloo and NCCL word that they cannot do a call."""


def work(sock: socket.socket, progress_fd: int) -> int:
    """Obeys the supervisor until told to quit; returns the exit status."""
    channel: Channel[ToWorker] = Channel(sock, ToWorker)
    progress = SharedProgress(progress_fd)
    torch.set_num_threads(1)
    backend: TorchBackend | None = None
    control: TorchControl | None = None
    while True:
        try:
            message = channel.receive()
        except Closed:
            return 0
        try:
            match message:
                case Quit():
                    return 0
                case Join():
                    backend, control = _join(message, channel, progress)
                    channel.send(_joined(message))
                case Measure():
                    assert backend is not None
                    assert control is not None
                    result = measure_case(message.case, message.policy, backend, control, progress)
                    progress.phase(Phase.IDLE)
                    channel.send(Done(result=result))
        except Closed:
            return 0
        except Exception as problem:  # noqa: BLE001  the boundary of a case: it becomes a record
            traceback.print_exc()
            sys.stderr.flush()
            refused = (
                isinstance(message, Measure)
                and progress.calls <= 1
                and bool(_REFUSALS.search(str(problem)))
            )
            channel.send(Raised(text=_one_line(problem), refused=refused))


def _one_line(problem: Exception) -> str:
    """Returns type and message without the C++ stack that torch appends."""
    text = str(problem).split("Exception raised from", maxsplit=1)[0]
    words = " ".join(text.split())
    return f"{type(problem).__name__}: {words[:500]}"


def _join(
    order: Join, channel: Channel[ToWorker], progress: SharedProgress
) -> tuple[TorchBackend, TorchControl]:
    progress.phase(Phase.JOINING)
    device = torch.device("cpu")
    if order.gpu is not None:
        device = torch.device("cuda", order.gpu)
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    store = _store(order, channel)
    progress.phase(Phase.JOINING)
    group, world = form_groups(
        dist.PrefixStore(order.prefix, store), order.rank, order.world_size, order.backend
    )
    control = TorchControl(world)
    backend = TorchBackend(
        name=order.backend,
        rank=order.rank,
        group=group,
        control=control,
        progress=progress,
        device=device,
        ranks_on_device=order.ranks_on_device,
        host_free_bytes=free_memory_bytes,
        host_cache_bytes=last_level_cache_bytes(),
        plant=order.plant,
    )
    return backend, control


def _store(order: Join, channel: Channel[ToWorker]) -> dist.TCPStore:
    """Returns the group's store; the first rank hosts it on the interface given, on a free port."""
    if order.store_port is not None:
        return dist.TCPStore(order.store_host, order.store_port, is_master=False, timeout=NEVER)
    # TCPStore itself would listen on every interface: hand it a socket that is bound to one.
    listener = socket.create_server((order.store_host, 0), backlog=4096)
    port = int(listener.getsockname()[1])
    store = dist.TCPStore(
        order.store_host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=NEVER,
        master_listen_fd=listener.detach(),
    )
    channel.send(Hosting(port=port))
    return store


def _joined(order: Join) -> Joined:
    nccl = loaded_nccl() if order.backend == "nccl" else None
    if nccl is not None:
        compiled = ".".join(str(part) for part in torch.cuda.nccl.version())
        nccl = LibraryVersion(version=nccl.version, path=nccl.path, compiled=compiled)
    return Joined(torch=str(torch.__version__), cuda=torch.version.cuda, nccl=nccl)
