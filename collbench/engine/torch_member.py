"""A rank that communicates through torch.distributed. Only zygotes and workers import this."""

from __future__ import annotations

import socket
from collections.abc import Callable

import torch
import torch.distributed as dist

from collbench.engine.progress import SharedProgress
from collbench.engine.wire import Join, Joined
from collbench.measure.protocols import Phase
from collbench.measure.torch_backend import (
    NEVER,
    TorchBackend,
    TorchControl,
    form_control,
    form_measured,
)
from collbench.model import LibraryVersion
from collbench.probe.host import free_memory_bytes, last_level_cache_bytes
from collbench.probe.nccl import loaded_nccl


class TorchMember:
    """A ``Member`` whose groups are torch's."""

    def __init__(self, order: Join, control: TorchControl, backend: TorchBackend) -> None:
        self._order = order
        self.control, self.backend = control, backend

    def facts(self) -> Joined:
        """Returns the versions that are loaded in this process."""
        nccl = loaded_nccl() if self._order.backend == "nccl" else None
        if nccl is not None:
            compiled = ".".join(str(part) for part in torch.cuda.nccl.version())
            nccl = LibraryVersion(version=nccl.version, path=nccl.path, compiled=compiled)
        return Joined(torch=str(torch.__version__), cuda=torch.version.cuda, nccl=nccl)

    def renew(self) -> None:
        """Ends the communicator and forms another. Collective: every rank. Synchronises."""
        dist.destroy_process_group(self.backend.group)
        self.backend.group = form_measured(self._order.backend, self.backend.device)

    def close(self) -> None:
        """Leaves the group. Collective: every rank."""
        dist.destroy_process_group()


def join(order: Join, announce: Callable[[int], None], progress: SharedProgress) -> TorchMember:
    """Forms the group as ordered. Collective: every rank. Synchronises."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if order.gpu is not None:
        device = torch.device("cuda", order.gpu)
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    store = _store(order, announce)
    progress.phase(Phase.JOINING)
    control = form_control(dist.PrefixStore(order.prefix, store), order.rank, order.world_size)
    backend = TorchBackend(
        name=order.backend,
        rank=order.rank,
        group=form_measured(order.backend, device),
        control=control,
        progress=progress,
        device=device,
        ranks_on_device=order.ranks_on_device,
        host_free_bytes=free_memory_bytes,
        host_cache_bytes=last_level_cache_bytes(),
        plant=order.plant,
    )
    return TorchMember(order, control, backend)


def _store(order: Join, announce: Callable[[int], None]) -> dist.TCPStore:
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
    announce(port)
    return store
