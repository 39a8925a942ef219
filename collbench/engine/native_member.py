"""A rank that communicates straight through the NCCL library; torch is never imported here."""

from __future__ import annotations

from collections.abc import Callable

from collbench.engine.progress import SharedProgress
from collbench.engine.wire import Join, Joined
from collbench.measure.native_backend import NativeBackend, join_native
from collbench.measure.native_library import import_extras
from collbench.measure.protocols import Phase
from collbench.measure.socket_control import SocketControl, host_control, join_control
from collbench.probe.nccl import mapped_nccl

_MEETING_S = 24 * 3600.0
"""Far beyond any ``--init-deadline``: the supervisor judges who does not come."""

import_extras()  # in the zygote, before anything is forked from it


class NativeMember:
    """A ``Member`` without torch."""

    def __init__(self, control: SocketControl, backend: NativeBackend) -> None:
        self.control, self.backend = control, backend

    def facts(self) -> Joined:
        """Returns the versions that are loaded in this process."""
        return Joined(torch=None, cuda=None, nccl=self.backend.library)

    def renew(self) -> None:
        """Ends the communicator and forms another. Collective: every rank. Synchronises."""
        self.backend.new_communicator()

    def close(self) -> None:
        """Leaves the group. Collective: every rank."""
        self.backend.close()
        self.control.close()


def join(order: Join, announce: Callable[[int], None], progress: SharedProgress) -> NativeMember:
    """Forms the group as ordered. Collective: every rank. Synchronises."""
    listener, port = None, order.store_port
    if port is None:
        listener, port = host_control(order.store_host)
        announce(port)
    progress.phase(Phase.JOINING)
    control = join_control(
        order.rank,
        order.world_size,
        order.store_host,
        port,
        listener,
        order.token,
        _MEETING_S,
    )
    assert order.gpu is not None
    backend = join_native(
        rank=order.rank,
        world_size=order.world_size,
        gpu=order.gpu,
        library=order.library,
        mapped=mapped_nccl,
        control=control,
        progress=progress,
        plant=order.plant,
        ranks_on_device=order.ranks_on_device,
    )
    return NativeMember(control, backend)
