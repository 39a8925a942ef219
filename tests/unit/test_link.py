"""The authenticated connection: who is let in, and what cannot be done to what is sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct

import msgspec
import pytest
from fake_engine import played

from collbench.engine.link import Link, LinkLost, Refused, accept, connect
from collbench.engine.orders import Alive, Tell
from collbench.engine.wire import Quit

SECRET = b"the secret of this run"
HEAD = struct.Struct(">I")
MAC_BYTES = 32


class Wire:
    """Two ends on loopback and, between them, somebody who can do anything to the bytes."""

    def __init__(self) -> None:
        self.came: asyncio.Queue = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Wire:
        async def put(reader, writer):
            self._writers.append(writer)
            await self.came.put((reader, writer))

        self._server = await asyncio.start_server(put, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def pair(self):
        """Returns both ends of a connection: (reader, writer) of who was called, who called."""
        port = self._server.sockets[0].getsockname()[1]
        calling = await asyncio.open_connection("127.0.0.1", port)
        self._writers.append(calling[1])
        return await self.came.get(), calling


async def linked(wire: Wire) -> tuple[Link, Link]:
    """Returns node 0's end and a station's."""
    called, calling = await wire.pair()
    controller, station = await asyncio.gather(accept(*called, SECRET), connect(*calling, SECRET))
    return controller, station


async def tapped(wire: Wire):
    """Returns node 0's link and the raw end of a station whose messages can be altered.

    The station's frames are made by its own link over another connection, and passed on by hand.
    """
    called, calling = await wire.pair()
    theirs, station_side = await wire.pair()
    passing = [
        asyncio.ensure_future(_pass_on(calling[0], theirs[1])),
        asyncio.ensure_future(_pass_on(theirs[0], calling[1], greetings=1)),
    ]
    controller, station = await asyncio.gather(
        accept(*called, SECRET), connect(*station_side, SECRET)
    )
    await passing[1]
    passing[0].cancel()
    await asyncio.gather(*passing, return_exceptions=True)
    return controller, station, theirs[0], calling


async def _pass_on(reader, writer, greetings: int | None = None) -> None:
    while greetings is None or greetings > 0:
        head = await reader.readexactly(HEAD.size)
        writer.write(head + await reader.readexactly(HEAD.unpack(head)[0]))
        greetings = None if greetings is None else greetings - 1


async def frame_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(HEAD.size)
    return head + await reader.readexactly(MAC_BYTES + HEAD.unpack(head)[0])


def test_messages_arrive_in_order_both_ways():
    async def work():
        async with Wire() as wire:
            controller, station = await linked(wire)
            for number in range(3):
                controller.send(Tell(seats=[number], message=Quit()))
                station.send(Alive())
            down = [msgspec.json.decode(await station.receive(), type=Tell) for _ in range(3)]
            up = [msgspec.json.decode(await controller.receive(), type=Alive) for _ in range(3)]
            return down, up, controller.peer

    down, up, peer = played(work())
    assert [tell.seats for tell in down] == [[0], [1], [2]]
    assert up == [Alive()] * 3
    assert peer == "127.0.0.1"


@pytest.mark.parametrize(
    ("controllers", "stations", "words"),
    [
        (SECRET, b"another", "it does not know the run's secret"),
        (b"another", SECRET, "it does not know the run's secret"),
    ],
)
def test_ends_with_different_secrets_do_not_come_together(controllers, stations, words):
    async def work():
        async with Wire() as wire:
            called, calling = await wire.pair()

            async def node_0():
                try:
                    return await accept(*called, controllers)
                except Refused:
                    called[1].close()  # as the reception does
                    raise

            return await asyncio.gather(
                node_0(), connect(*calling, stations), return_exceptions=True
            )

    controller, station = played(work())
    assert isinstance(controller, Refused)
    assert str(controller) == words
    assert isinstance(station, LinkLost)


def test_a_node_0_that_does_not_know_the_secret_is_refused():
    async def work():
        async with Wire() as wire:
            (reader, writer), calling = await wire.pair()

            async def impostor():
                await _say(writer, {"nonce": "00" * 32})
                await _heard(reader)
                await _say(writer, {"code": "00" * 32})

            return await asyncio.gather(
                impostor(), connect(*calling, SECRET), return_exceptions=True
            )

    _, station = played(work())
    assert isinstance(station, Refused)
    assert str(station) == "node 0 does not know the run's secret"


def test_a_station_s_own_proof_sent_back_to_it_is_no_proof():
    async def work():
        async with Wire() as wire:
            (reader, writer), calling = await wire.pair()

            async def mirror():
                await _say(writer, {"nonce": "00" * 32})
                await _say(writer, {"code": (await _heard(reader))["code"]})

            return await asyncio.gather(mirror(), connect(*calling, SECRET), return_exceptions=True)

    assert isinstance(played(work())[1], Refused)


async def _say(writer, words) -> None:
    data = json.dumps(words).encode()
    writer.write(HEAD.pack(len(data)) + data)
    await writer.drain()


async def _heard(reader) -> dict[str, str]:
    (length,) = HEAD.unpack(await reader.readexactly(HEAD.size))
    return json.loads(await reader.readexactly(length))


def _altered(frames):
    first = bytearray(frames[0])
    first[-1] ^= 1
    return [bytes(first)]


def _with_another_code(frames):
    first = bytearray(frames[0])
    first[HEAD.size] ^= 1
    return [bytes(first)]


@pytest.mark.parametrize(
    ("done_to", "arrive"),
    [
        (lambda frames: frames, 2),
        (_altered, 0),
        (_with_another_code, 0),
        (lambda frames: [frames[0], frames[0]], 1),
        (lambda frames: [frames[1], frames[0]], 0),
        (lambda frames: frames[1:], 0),
    ],
    ids=["nothing", "altered", "its code altered", "replayed", "reordered", "the first left out"],
)
def test_frames_that_are_not_as_they_were_sent_are_refused(done_to, arrive):
    async def work():
        async with Wire() as wire:
            controller, station, reader, (_, writer) = await tapped(wire)
            station.send(Tell(seats=[1], message=Quit()))
            station.send(Tell(seats=[2], message=Quit()))
            frames = [await frame_of(reader) for _ in range(2)]
            for frame in done_to(frames):
                writer.write(frame)
            writer.write_eof()
            got = 0
            try:
                while True:
                    await controller.receive()
                    got += 1
            except (Refused, LinkLost) as end:
                return got, end

    got, end = played(work())
    assert got == arrive
    assert isinstance(end, LinkLost if arrive == 2 else Refused)


def test_a_frame_sent_back_to_its_sender_is_refused():
    async def work():
        async with Wire() as wire:
            controller, _, _, (reader, writer) = await tapped(wire)
            controller.send(Alive())
            writer.write(await frame_of(reader))
            await controller.receive()

    with pytest.raises(Refused, match="a frame with a wrong code"):
        played(work())


def test_a_frame_that_is_too_long_is_refused_by_its_length_alone():
    async def work():
        async with Wire() as wire:
            controller, _, _, (_, writer) = await tapped(wire)
            writer.write(HEAD.pack((1 << 28) + 1))
            await controller.receive()

    with pytest.raises(Refused, match="a frame of 268435457 bytes; at most 268435456 are allowed"):
        played(work())


@pytest.mark.parametrize(
    ("sent", "ends_with"),
    [
        (b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n", Refused),
        (HEAD.pack(100) + b"{", LinkLost),
        (b"\xff" * 64, Refused),
        (HEAD.pack(4) + b"\xff\xfe\x00\x01", Refused),
        (HEAD.pack(2) + b"{}", Refused),
        (HEAD.pack(2) + b"[]", Refused),
        (HEAD.pack(26) + b'{"nonce": "zz", "code": 1}', Refused),
        (HEAD.pack(29) + b'{"nonce": "z\xc3\xa9", "code": "00"}', Refused),
        (HEAD.pack(28) + b'{"nonce": "00", "code": "0"}', Refused),
        (HEAD.pack(29) + b'{"nonce": "00", "code": "00"}', Refused),
        (b"", LinkLost),
        (b"\x00\x00", LinkLost),
    ],
    ids=["http", "half a greeting", "ones", "no text", "no words", "no object", "not hexadecimal",
         "not ASCII", "half a byte", "no code", "nothing", "half a length"],
)  # fmt: skip
def test_a_stranger_s_bytes_are_refused(sent, ends_with):
    async def work():
        async with Wire() as wire:
            called, (_, writer) = await wire.pair()
            writer.write(sent)
            writer.write_eof()
            await accept(*called, SECRET)

    with pytest.raises(ends_with):
        played(work())


def test_the_end_of_the_other_is_the_end_of_the_link():
    async def work():
        async with Wire() as wire:
            controller, station = await linked(wire)
            station.send(Alive())
            station.close()
            assert msgspec.json.decode(await controller.receive(), type=Alive) == Alive()
            with pytest.raises(LinkLost, match=r"bytes read on a total of 4|end of stream"):
                await controller.receive()
            station.send(Alive())  # to nobody: it does not raise
            await station.drain()

    played(work())
