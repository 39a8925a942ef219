"""Agreement between the ranks of a group over TCP, without torch and without CUDA.

The links form a tree: values go up to rank 0, which answers down the same way. Only byte strings
of a known length travel, read as float64 (little-endian); nothing else is ever decoded.

No time-outs once the group stands: hanging is the supervisor's to judge. A rank that meets a
closed link closes its own, so that the news reaches every rank.
"""

from __future__ import annotations

import socket
import time

import numpy as np

from collbench.measure.socket_meeting import Meeting, framed, listen, read_frame
from collbench.stats import FloatArray

LARGEST_BROADCAST_BYTES = 64 * 1024
_BACKLOG = 4096


class SocketControl:
    """A ``Control`` over TCP. Collective: every rank calls each method alike.

    Every method raises ConnectionError, naming the neighbour, once a link is closed.
    """

    def __init__(
        self, parent: tuple[int, socket.socket] | None, children: dict[int, socket.socket]
    ) -> None:
        self._children = dict(sorted(children.items()))
        self._parent: socket.socket | None = None
        self._parent_rank = 0
        if parent is not None:
            self._parent_rank, self._parent = parent
        for link in self._links():
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def max(self, values: FloatArray) -> FloatArray:
        """Returns the element-wise largest over ranks, float64[k]. Synchronises."""
        largest = np.array(values, dtype="<f8")
        for rank, link in self._children.items():
            np.maximum(largest, self._take_values(rank, link, largest.size), out=largest)
        if self._parent is not None:
            self._give(self._parent_rank, self._parent, largest.tobytes())
            largest = self._take_values(self._parent_rank, self._parent, largest.size)
        for rank, link in self._children.items():
            self._give(rank, link, largest.tobytes())
        return largest

    def barrier(self) -> None:
        """Returns when every rank has called it. Synchronises."""
        self.max(np.empty(0))

    def broadcast(self, data: bytes) -> bytes:
        """Returns rank 0's ``data``, at most 64 KiB; what other ranks give is not looked at."""
        if self._parent is not None:
            data = self._take(self._parent_rank, self._parent, LARGEST_BROADCAST_BYTES)
        for rank, link in self._children.items():
            self._give(rank, link, data)
        return data

    def close(self) -> None:
        """Closes the links; the neighbours' next call fails."""
        for link in self._links():
            link.close()

    def _links(self) -> list[socket.socket]:
        return [*self._children.values(), *([self._parent] if self._parent is not None else [])]

    def _give(self, rank: int, link: socket.socket, data: bytes) -> None:
        try:
            link.sendall(framed(data))
        except OSError as problem:
            self.close()
            raise ConnectionError(f"rank {rank} is gone from the control tree") from problem

    def _take(self, rank: int, link: socket.socket, most_bytes: int) -> bytes:
        try:
            return read_frame(link, most_bytes)
        except OSError as problem:
            self.close()
            raise ConnectionError(f"rank {rank} is gone from the control tree") from problem

    def _take_values(self, rank: int, link: socket.socket, count: int) -> FloatArray:
        data = self._take(rank, link, 8 * count)
        if len(data) != 8 * count:
            self.close()
            raise ConnectionError(f"rank {rank} sent {len(data)} bytes instead of {8 * count}")
        return np.frombuffer(data, "<f8").astype(np.float64)


def host_control(host: str) -> tuple[socket.socket, int]:
    """Returns rank 0's listening socket, bound to one interface, and its free port."""
    listener = listen(host, _BACKLOG)
    return listener, int(listener.getsockname()[1])


def join_control(
    rank: int,
    world_size: int,
    host: str,
    port: int,
    listener: socket.socket | None,
    token: str,
    deadline_s: float,
) -> SocketControl:
    """Returns this rank's end of the group's control. Collective: every rank of the group.

    Args:
        rank: this rank.
        world_size: ranks of the group.
        host: where rank 0 listens.
        port: where rank 0 listens.
        listener: what ``host_control`` gave, on rank 0; closed here. None on the others.
        token: the group's secret, equal on all ranks.
        deadline_s: how long joining may take, in seconds.

    Raises:
        TimeoutError: a rank did not come in time.
        ConnectionError: refused, or a neighbour went away.
    """
    meeting = Meeting(rank, world_size, token.encode(), time.monotonic() + deadline_s)
    try:
        if listener is None:
            return SocketControl(*meeting.join(host, port))
        with listener:
            return SocketControl(None, meeting.host(listener))
    except OSError:
        meeting.abandon()
        raise
