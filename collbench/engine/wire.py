"""Messages between supervisor, zygote and workers: JSON in length-prefixed frames, never pickle."""

from __future__ import annotations

import socket
import struct
from typing import Generic, TypeVar

import msgspec

from collbench.engine.ready import readable
from collbench.errors import EngineError
from collbench.measure.loop import RankResult
from collbench.measure.plant import Plant
from collbench.model import Case, LibraryVersion, Policy, RankProof, Record

_LENGTH = struct.Struct("!I")
_LONGEST_FRAME = 256 * 2**20


class ForkWorker(Record, frozen=True, kw_only=True, tag=True):
    """To the zygote: fork a worker. Comes with three descriptors: channel, progress, log."""

    rank: int
    variables: dict[str, str | None]
    """None: taken away."""
    cpuset: str


class WorkerForked(Record, frozen=True, kw_only=True, tag=True):
    """From the zygote: a worker lives. Comes with its pidfd."""

    rank: int
    pid: int


class Ready(Record, frozen=True, kw_only=True, tag=True):
    """From the zygote: imports are done."""


class Reaped(Record, frozen=True, kw_only=True, tag=True):
    """From the zygote: a worker has ended."""

    pid: int
    exit_status: int
    """As ``os.waitstatus_to_exitcode``: negative is a signal."""


class Join(Record, frozen=True, kw_only=True, tag=True):
    """To a worker: form a group. The first rank hosts the store and answers with ``Hosting``."""

    rank: int
    world_size: int
    backend: str
    gpu: int | None
    ranks_on_device: int
    store_host: str
    store_port: int | None
    prefix: str
    """Of the store's keys; unique for each group."""
    token: str
    """What the group's members prove that they belong together with."""
    library: str | None
    """Path of the NCCL library to load; None: the installed one."""
    logged: bool
    """Whether NCCL writes its log, into the file that NCCL_DEBUG_FILE names."""
    plant: Plant | None


class Hosting(Record, frozen=True, kw_only=True, tag=True):
    """From the first rank: where its store listens."""

    port: int


class Joined(Record, frozen=True, kw_only=True, tag=True):
    """From a worker: the group stands, or stands anew."""

    torch: str | None
    cuda: str | None
    nccl: LibraryVersion | None


class Measure(Record, frozen=True, kw_only=True, tag=True):
    """To a worker: measure a case."""

    case: Case
    policy: Policy


class Renew(Record, frozen=True, kw_only=True, tag=True):
    """To a worker: form the communicator anew, with other variables. Answered by ``Joined``."""

    variables: dict[str, str | None]


class Connect(Record, frozen=True, kw_only=True, tag=True):
    """To a worker: run a case once, untimed, so that building connections is no part of it."""

    case: Case


class Connected(Record, frozen=True, kw_only=True, tag=True):
    """From a worker: the case has run once."""


class Prove(Record, frozen=True, kw_only=True, tag=True):
    """To a worker with a log: run a case once, untimed, and say what NCCL wrote about it."""

    case: Case


class Proved(Record, frozen=True, kw_only=True, tag=True):
    """From a worker: what its log shows."""

    proof: RankProof


class Done(Record, frozen=True, kw_only=True, tag=True):
    """From a worker: its part of a case."""

    result: RankResult


class Raised(Record, frozen=True, kw_only=True, tag=True):
    """From a worker: an exception ended what it was doing; it will do nothing more."""

    text: str
    refused: bool
    """The library refused the call at once, before anything was exchanged."""


class Quit(Record, frozen=True, kw_only=True, tag=True):
    """To a worker: end."""


FromZygote = Ready | WorkerForked | Reaped
ToWorker = Join | Renew | Connect | Measure | Prove | Quit
FromWorker = Hosting | Joined | Connected | Done | Proved | Raised

M = TypeVar("M")


class Closed(Exception):
    """The other end has gone."""


class Channel(Generic[M]):
    """One end of a stream socket on which whole messages arrive.

    Args:
        sock: a connected stream socket.
        incoming: the union of the messages that may arrive here.
    """

    def __init__(self, sock: socket.socket, incoming: object) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._decoder: msgspec.json.Decoder[M] = msgspec.json.Decoder(incoming)

    def send(self, message: msgspec.Struct) -> None:
        """Sends a whole message; blocks while the other end is slow.

        Raises:
            Closed: the other end has gone.
        """
        data = msgspec.json.encode(message)
        try:
            self.sock.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as problem:
            raise Closed(str(problem)) from problem

    def receive(self) -> M:
        """Returns the next message; blocks.

        Raises:
            Closed: the other end has gone.
        """
        while True:
            message = self._take()
            if message is not None:
                return message
            self._fill()

    def arrived(self) -> list[M]:
        """Returns the messages that are whole by now; does not block.

        Raises:
            Closed: the other end has gone and nothing whole is left.
        """
        found: list[M] = []
        try:
            while readable([self.sock], 0):
                self._fill()
        except Closed:
            found = self._all()
            if not found:
                raise
            return found
        return self._all()

    def _all(self) -> list[M]:
        found: list[M] = []
        while (message := self._take()) is not None:
            found.append(message)
        return found

    def _fill(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except OSError as problem:
            raise Closed(str(problem)) from problem
        if not data:
            raise Closed("end of stream")
        self._buffer += data

    def _take(self) -> M | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _LONGEST_FRAME:
            raise EngineError(f"a message of {length} bytes; at most {_LONGEST_FRAME} are allowed")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        message = self._decoder.decode(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return message

    def close(self) -> None:
        """Closes this end."""
        self.sock.close()
