"""Messages arrive whole and as they were sent, however the stream is cut."""

from __future__ import annotations

import socket
import struct

import msgspec
import pytest

from collbench.engine.wire import (
    Channel,
    Closed,
    Connect,
    Connected,
    Done,
    ForkWorker,
    FromWorker,
    FromZygote,
    Hosting,
    Join,
    Joined,
    Measure,
    Prove,
    Proved,
    Quit,
    Raised,
    Ready,
    Reaped,
    Renew,
    ToWorker,
    WorkerForked,
)
from collbench.errors import EngineError
from collbench.measure.loop import RankResult
from collbench.measure.plant import Plant
from collbench.model import (
    Case,
    LibraryVersion,
    Policy,
    RankProof,
    Reason,
    ReasonCode,
    Status,
    StopReason,
    WrongElement,
)

CASE = Case(
    collective="all_reduce",
    backend="gloo",
    dtype="float32",
    redop="sum",
    size_bytes=64,
    requested_bytes=64,
    count=16,
    world_size=2,
    in_place=True,
    setting={"NCCL_ALGO": "Ring"},
)
JOIN = Join(
    rank=1,
    world_size=2,
    backend="gloo",
    gpu=None,
    ranks_on_device=2,
    store_host="127.0.0.1",
    store_port=4711,
    prefix="group1",
    token="0123456789abcdef",
    library="/opt/nccl/libnccl.so.2",
    logged=True,
    plant=Plant(kind="late", rank=1, late_s=0.02),
)
DONE = Done(
    result=RankResult(
        status=Status.DATA_WRONG,
        reason=Reason(code=ReasonCode.WRONG_ELEMENT, text="differs"),
        stop_reason=StopReason.PRECISE,
        times_us=bytes(range(256)),
        first_wrong=WrongElement(rank=1, index=5, expected="3", got="nan", when="last"),
        host_us_per_call=3.5,
        proof=RankProof(algorithm="Ring", transports=["P2P/CUMEM"], gpu_direct=False),
        notes=["few_samples"],
    )
)
MESSAGES = [
    (FromZygote, Ready()),
    (FromZygote, WorkerForked(rank=0, pid=123)),
    (FromZygote, Reaped(pid=123, exit_status=-9)),
    (
        ForkWorker,
        ForkWorker(rank=0, variables={"NCCL_BUFFSIZE": "1", "NCCL_NET": None}, cpuset="0-3"),
    ),
    (ToWorker, JOIN),
    (ToWorker, Measure(case=CASE, policy=Policy(samples=5))),
    (ToWorker, Renew(variables={"NCCL_ALGO": "Tree", "NCCL_PROTO": None})),
    (ToWorker, Connect(case=CASE)),
    (ToWorker, Prove(case=CASE)),
    (ToWorker, Quit()),
    (FromWorker, Hosting(port=4711)),
    (
        FromWorker,
        Joined(torch="2.13.0", cuda="13.0", nccl=LibraryVersion(version="2.28.9", path="/x")),
    ),
    (FromWorker, Connected()),
    (FromWorker, DONE),
    (FromWorker, Proved(proof=RankProof(network="Socket", nodes=2, warning="no route"))),
    (FromWorker, Raised(text="RuntimeError: no", refused=True)),
]


@pytest.fixture
def ends():
    """A raw end to write to, and the channel that reads from it."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        yield mine, Channel(theirs, FromWorker)


def frame(message: msgspec.Struct) -> bytes:
    data = msgspec.json.encode(message)
    return struct.pack("!I", len(data)) + data


@pytest.mark.parametrize(
    ("union", "message"), MESSAGES, ids=[type(message).__name__ for _, message in MESSAGES]
)
def test_every_message_arrives_as_it_was_sent(union, message):
    mine, theirs = socket.socketpair()
    with mine, theirs:
        Channel(mine, union).send(message)
        received = Channel(theirs, union).receive()

    assert received == message
    assert type(received) is type(message)


def test_a_message_cut_into_bytes_arrives_once_it_is_whole(ends):
    raw, channel = ends
    data = frame(DONE)
    for position in range(len(data) - 1):
        raw.sendall(data[position : position + 1])
        assert channel.arrived() == []
    raw.sendall(data[-1:])

    assert channel.arrived() == [DONE]
    assert channel.arrived() == []


def test_messages_that_arrive_together_are_told_apart(ends):
    raw, channel = ends
    first, second = Hosting(port=1), Raised(text="RuntimeError", refused=False)
    third = frame(DONE)
    raw.sendall(frame(first) + frame(second) + third[:9])

    assert channel.arrived() == [first, second]
    raw.sendall(third[9:])
    assert channel.receive() == DONE


def test_receive_takes_one_message_and_keeps_the_next(ends):
    raw, channel = ends
    raw.sendall(frame(Hosting(port=1)) + frame(Hosting(port=2)))

    assert channel.receive() == Hosting(port=1)
    assert channel.receive() == Hosting(port=2)


def test_a_message_larger_than_any_socket_buffer_arrives(ends):
    raw, channel = ends
    large = Raised(text="x" * 300_000, refused=False)
    data = frame(large)
    got = []
    for start in range(0, len(data), 50_000):
        raw.sendall(data[start : start + 50_000])
        got += channel.arrived()

    assert got == [large]


def test_an_oversized_frame_is_refused_by_its_length_alone(ends):
    raw, channel = ends
    raw.sendall(struct.pack("!I", 256 * 2**20 + 1))

    with pytest.raises(EngineError, match="a message of 268435457 bytes; at most 268435456"):
        channel.receive()


def test_the_end_of_the_stream_is_closed(ends):
    raw, channel = ends
    raw.close()

    with pytest.raises(Closed, match="end of stream"):
        channel.receive()
    with pytest.raises(Closed, match="end of stream"):
        channel.arrived()


def test_what_was_said_before_the_end_is_still_heard(ends):
    raw, channel = ends
    raw.sendall(frame(Hosting(port=1)) + frame(Hosting(port=2))[:-1])
    raw.close()

    assert channel.arrived() == [Hosting(port=1)]
    with pytest.raises(Closed):
        channel.arrived()


def test_a_message_to_an_end_that_has_gone_is_closed(ends):
    raw, channel = ends
    raw.close()

    with pytest.raises(Closed):
        channel.send(Quit())


def test_a_message_of_another_conversation_is_not_taken(ends):
    raw, channel = ends
    raw.sendall(frame(Quit()))

    with pytest.raises(msgspec.ValidationError, match="Quit"):
        channel.receive()
