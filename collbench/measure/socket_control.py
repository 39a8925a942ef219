"""Agreement between the ranks of a group over TCP, without torch and without CUDA.

The links form a tree in which every rank has at most ``FAN_OUT`` children: values go up to rank 0,
which answers down the same way. To find its parent every rank connects to rank 0 once, proves that
it knows the group's token, and says where its own children find it. From then on only byte
strings of a known length travel, read as float64 (little-endian); nothing else is ever decoded.

No time-outs once the group stands: hanging is the supervisor's to judge. A rank that meets a
closed link closes its own, so that the news reaches every rank.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from collbench.stats import FloatArray

FAN_OUT = 16
LARGEST_BROADCAST_BYTES = 64 * 1024
_BACKLOG = 4096
_CHALLENGE_BYTES = 32
_PROOF_BYTES = 32
_LARGEST_GREETING_BYTES = 512
_LONGEST_ADMISSION_S = 5.0
"""A stranger who connects and stays silent holds the others up for so long at most."""
_LENGTH = struct.Struct("<I")
_ADDRESS = struct.Struct("<IH")
"""Rank and port; the host follows."""


@dataclass(frozen=True, slots=True)
class _Address:
    """Where a rank listens for its children; port 0 where it has none."""

    rank: int
    host: str
    port: int

    def pack(self) -> bytes:
        return _ADDRESS.pack(self.rank, self.port) + self.host.encode()

    @classmethod
    def unpack(cls, data: bytes) -> _Address:
        rank, port = _ADDRESS.unpack_from(data)
        return cls(rank, data[_ADDRESS.size :].decode(), port)


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
            link.sendall(_framed(data))
        except OSError as problem:
            self.close()
            raise ConnectionError(f"rank {rank} is gone from the control tree") from problem

    def _take(self, rank: int, link: socket.socket, most_bytes: int) -> bytes:
        try:
            return _read_frame(link, most_bytes)
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
    listener = _listen(host, _BACKLOG)
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
    meeting = _Meeting(rank, world_size, token.encode(), time.monotonic() + deadline_s)
    try:
        if listener is None:
            return meeting.join(host, port)
        with listener:
            return SocketControl(None, meeting.host(listener))
    except OSError:
        meeting.abandon()
        raise


class _Meeting:
    """How the ranks of a group find each other."""

    def __init__(self, rank: int, world_size: int, token: bytes, end_s: float) -> None:
        self._rank, self._world_size = rank, world_size
        self._token, self._end_s = token, end_s
        first = FAN_OUT * rank + 1
        self._children = range(first, min(first + FAN_OUT, world_size))
        self._sockets: list[socket.socket] = []

    def abandon(self) -> None:
        """Closes every socket made so far."""
        for made in self._sockets:
            made.close()

    def host(self, listener: socket.socket) -> dict[int, socket.socket]:
        """Takes in every rank and tells each its parent's address; keeps its own children."""
        addresses: dict[int, _Address] = {}
        waiting: defaultdict[int, list[socket.socket]] = defaultdict(list)
        children: dict[int, socket.socket] = {}
        missing = set(range(1, self._world_size))
        while missing:
            greeting, link = self._admit(listener, missing)
            addresses[greeting.rank] = greeting
            parent = _parent(greeting.rank)
            if parent == 0:
                link.sendall(_framed(_Address(0, "", 0).pack()))
                children[greeting.rank] = link
            else:
                waiting[parent].append(link)
            for known in (parent, greeting.rank):
                if known in addresses:
                    for child in waiting.pop(known, []):
                        child.sendall(_framed(addresses[known].pack()))
                        child.close()
        return children

    def join(self, host: str, port: int) -> SocketControl:
        """Asks rank 0 for the parent, links to it, then takes in the children."""
        link = self._connect(0, host, port)
        own_host = str(link.getsockname()[0])
        listener = _listen(own_host, FAN_OUT) if self._children else None
        own_port = 0
        if listener is not None:
            self._sockets.append(listener)
            own_port = int(listener.getsockname()[1])
        parent = self._greet(0, link, _Address(self._rank, own_host, own_port))
        if parent.rank != 0:
            link.close()
            link = self._connect(parent.rank, parent.host, parent.port)
            self._greet(parent.rank, link, _Address(self._rank, own_host, own_port))
        children: dict[int, socket.socket] = {}
        if listener is not None:
            with listener:
                missing = set(self._children)
                while missing:
                    greeting, child = self._admit(listener, missing)
                    child.sendall(_framed(_Address(self._rank, "", 0).pack()))
                    children[greeting.rank] = child
        return SocketControl((parent.rank, link), children)

    def _admit(self, listener: socket.socket, missing: set[int]) -> tuple[_Address, socket.socket]:
        """Returns the next missing rank that proves the token, with its link; not missing then.

        Whoever does not prove it is sent away.
        """
        while True:
            left_s = self._end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(
                    f"rank {self._rank} waited in vain for {len(missing)} ranks;"
                    f" the first is rank {min(missing)}"
                )
            listener.settimeout(left_s)
            try:
                link, _ = listener.accept()
            except TimeoutError:
                continue
            self._sockets.append(link)
            link.settimeout(min(_LONGEST_ADMISSION_S, left_s))
            try:
                greeting = self._challenge(link)
            except (OSError, ValueError, struct.error):
                link.close()
                continue
            if greeting.rank in missing:
                missing.remove(greeting.rank)
                return greeting, link
            link.close()

    def _challenge(self, link: socket.socket) -> _Address:
        """Returns who is at the other end.

        Raises:
            ConnectionError: the proof is wrong.
        """
        challenge = secrets.token_bytes(_CHALLENGE_BYTES)
        link.sendall(challenge)
        answer = _read_frame(link, _LARGEST_GREETING_BYTES)
        proof, greeting = answer[:_PROOF_BYTES], answer[_PROOF_BYTES:]
        if not hmac.compare_digest(proof, self._proof(challenge, greeting)):
            raise ConnectionError("wrong token")
        return _Address.unpack(greeting)

    def _greet(self, rank: int, link: socket.socket, own: _Address) -> _Address:
        """Proves the token to ``rank``, says who and where this rank is; returns the answer."""
        try:
            challenge = _read(link, _CHALLENGE_BYTES)
            greeting = own.pack()
            link.sendall(_framed(self._proof(challenge, greeting) + greeting))
            return _Address.unpack(_read_frame(link, _LARGEST_GREETING_BYTES))
        except TimeoutError as problem:
            raise TimeoutError(f"rank {self._rank} waited in vain for rank {rank}") from problem
        except OSError as problem:
            raise ConnectionError(
                f"rank {rank} sent rank {self._rank} away: another token, or a rank twice"
            ) from problem

    def _proof(self, challenge: bytes, greeting: bytes) -> bytes:
        return hmac.digest(self._token, challenge + greeting, "sha256")

    def _connect(self, rank: int, host: str, port: int) -> socket.socket:
        left_s = max(self._end_s - time.monotonic(), 0.001)
        try:
            link = socket.create_connection((host, port), left_s)
        except TimeoutError as problem:
            raise TimeoutError(f"rank {self._rank} waited in vain for rank {rank}") from problem
        except OSError as problem:
            raise ConnectionError(
                f"rank {self._rank} cannot reach rank {rank} at {host}:{port}: {problem}"
            ) from problem
        self._sockets.append(link)
        return link


def _parent(rank: int) -> int:
    return (rank - 1) // FAN_OUT


def _listen(host: str, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=backlog)


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _read_frame(link: socket.socket, most_bytes: int) -> bytes:
    """Returns what one frame holds.

    Raises:
        ConnectionError: the other end is closed, or the frame is longer than it may be.
    """
    (length,) = _LENGTH.unpack(_read(link, _LENGTH.size))
    if length > most_bytes:
        raise ConnectionError(f"a frame of {length} bytes where {most_bytes} are the most")
    return _read(link, length)


def _read(link: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = link.recv(count)
        if not part:
            raise ConnectionError("closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
