"""How the ranks of a group find each other over TCP: every rank learns its links of a tree.

In the tree a rank has at most ``FAN_OUT`` children; rank 0 is the root. Every other rank connects
to rank 0 once, proves that it knows the group's token (HMAC over a challenge), says where its own
children find it, and is told where its parent listens. Whoever does not prove the token is sent
away and nothing of what it says is decoded.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from collections import defaultdict
from dataclasses import dataclass

FAN_OUT = 16
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


class Meeting:
    """One rank on its way into the group."""

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
                link.sendall(framed(_Address(0, "", 0).pack()))
                children[greeting.rank] = link
            else:
                waiting[parent].append(link)
            for known in (parent, greeting.rank):
                if known in addresses:
                    for child in waiting.pop(known, []):
                        child.sendall(framed(addresses[known].pack()))
                        child.close()
        return children

    def join(
        self, host: str, port: int
    ) -> tuple[tuple[int, socket.socket], dict[int, socket.socket]]:
        """Asks rank 0 for the parent, links to it, then takes in the children; returns both."""
        link = self._connect(0, host, port)
        own_host = str(link.getsockname()[0])
        listener = listen(own_host, FAN_OUT) if self._children else None
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
                    child.sendall(framed(_Address(self._rank, "", 0).pack()))
                    children[greeting.rank] = child
        return (parent.rank, link), children

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
        answer = read_frame(link, _LARGEST_GREETING_BYTES)
        proof, greeting = answer[:_PROOF_BYTES], answer[_PROOF_BYTES:]
        if not hmac.compare_digest(proof, self._proof(challenge, greeting)):
            raise ConnectionError("wrong token")
        return _Address.unpack(greeting)

    def _greet(self, rank: int, link: socket.socket, own: _Address) -> _Address:
        """Proves the token to ``rank``, says who and where this rank is; returns the answer."""
        try:
            challenge = _read(link, _CHALLENGE_BYTES)
            greeting = own.pack()
            link.sendall(framed(self._proof(challenge, greeting) + greeting))
            return _Address.unpack(read_frame(link, _LARGEST_GREETING_BYTES))
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


def listen(host: str, backlog: int) -> socket.socket:
    """Returns a socket that listens on one interface, on a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=backlog)


def framed(data: bytes) -> bytes:
    """Returns ``data`` with its length in front."""
    return _LENGTH.pack(len(data)) + data


def read_frame(link: socket.socket, most_bytes: int) -> bytes:
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
