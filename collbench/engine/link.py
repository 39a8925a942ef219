"""An authenticated connection between a station and node 0: JSON frames, never pickle.

Both ends prove that they know the run's secret (HMAC-SHA256 over both nonces) before a message is
read; every frame carries an HMAC over its number and its content, with a key of its own for each
direction, so that nothing can be forged, altered, replayed or sent back.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import struct
from dataclasses import dataclass

import msgspec

_NONCE_BYTES = 32
_MAC_BYTES = 32
_HEAD = struct.Struct(">I")
_LONGEST_FRAME = 1 << 28
_LONGEST_GREETING = 1 << 12


class Refused(Exception):
    """The other end does not know the secret, or does not speak this language."""


class LinkLost(Exception):
    """The connection has ended."""


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


@dataclass
class _Direction:
    """One direction: its key, and the number of the next frame."""

    key: bytes
    number: int = 0

    def mac(self, data: bytes) -> bytes:
        """Returns the code of the next frame."""
        found = _mac(self.key, struct.pack(">Q", self.number), data)
        self.number += 1
        return found


class Link:
    """One end of a connection that stands."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        outgoing: _Direction,
        incoming: _Direction,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._outgoing, self._incoming = outgoing, incoming

    @property
    def peer(self) -> str:
        """The other end's address."""
        return str(self._writer.get_extra_info("peername")[0])

    def send(self, message: object) -> None:
        """Sends a message; what the other end does not take yet waits in memory."""
        data = msgspec.json.encode(message)
        frame = _HEAD.pack(len(data)) + self._outgoing.mac(data) + data
        if not self._writer.is_closing():
            self._writer.write(frame)

    async def receive(self) -> bytes:
        """Returns the next message, still encoded.

        Raises:
            LinkLost: the connection has ended.
            Refused: a frame that is not the other end's.
        """
        try:
            (length,) = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            if length > _LONGEST_FRAME:
                raise Refused(f"a frame of {length} bytes; at most {_LONGEST_FRAME} are allowed")
            code = await self._reader.readexactly(_MAC_BYTES)
            data = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as problem:
            raise LinkLost(str(problem) or "end of stream") from problem
        if not hmac.compare_digest(code, self._incoming.mac(data)):
            raise Refused("a frame with a wrong code")
        return data

    async def drain(self) -> None:
        """Waits until what was sent is on its way; gives up where the connection has ended."""
        try:
            await self._writer.drain()
        except OSError:
            return

    def close(self) -> None:
        """Ends the connection."""
        self._writer.close()


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> Link:
    """Returns node 0's end.

    Raises:
        Refused: the other end does not know the secret.
        LinkLost: it went away.
    """
    mine = secrets.token_bytes(_NONCE_BYTES)
    _greet(writer, {"nonce": mine.hex()})
    answer = await _greeting(reader)
    theirs = _bytes(answer, "nonce")
    if not hmac.compare_digest(_bytes(answer, "code"), _mac(secret, b"station", mine, theirs)):
        raise Refused("it does not know the run's secret")
    _greet(writer, {"code": _mac(secret, b"controller", theirs, mine).hex()})
    down, up = _keys(secret, mine, theirs)
    return Link(reader, writer, _Direction(down), _Direction(up))


async def connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes
) -> Link:
    """Returns a station's end.

    Raises:
        Refused: node 0 does not know the secret, or refused ours.
        LinkLost: it went away.
    """
    theirs = _bytes(await _greeting(reader), "nonce")
    mine = secrets.token_bytes(_NONCE_BYTES)
    _greet(writer, {"nonce": mine.hex(), "code": _mac(secret, b"station", theirs, mine).hex()})
    answer = _bytes(await _greeting(reader), "code")
    if not hmac.compare_digest(answer, _mac(secret, b"controller", mine, theirs)):
        raise Refused("node 0 does not know the run's secret")
    down, up = _keys(secret, theirs, mine)
    return Link(reader, writer, _Direction(up), _Direction(down))


def _keys(secret: bytes, controller: bytes, station: bytes) -> tuple[bytes, bytes]:
    """Returns the keys of the two directions: from node 0, to node 0."""
    return (
        _mac(secret, b"down", controller, station),
        _mac(secret, b"up", controller, station),
    )


def _greet(writer: asyncio.StreamWriter, words: dict[str, str]) -> None:
    data = json.dumps(words).encode()
    writer.write(_HEAD.pack(len(data)) + data)


async def _greeting(reader: asyncio.StreamReader) -> dict[str, str]:
    try:
        (length,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if length > _LONGEST_GREETING:
            raise Refused("no greeting of this program")
        data = await reader.readexactly(length)
        return msgspec.json.decode(data, type=dict[str, str])
    except (OSError, asyncio.IncompleteReadError) as problem:
        raise LinkLost(str(problem) or "end of stream") from problem
    except msgspec.DecodeError as problem:
        raise Refused("no greeting of this program") from problem


def _bytes(words: dict[str, str], name: str) -> bytes:
    try:
        return bytes.fromhex(words[name])
    except (KeyError, ValueError) as problem:
        raise Refused("no greeting of this program") from problem
