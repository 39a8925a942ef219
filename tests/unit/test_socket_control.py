"""Agreement over TCP: ranks are threads; every failure names who is missing."""

from __future__ import annotations

import hmac
import socket
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from collbench.measure.socket_control import SocketControl, host_control, join_control

HOST = "127.0.0.1"
TOKEN = "one token for all"


class Group:
    """Every rank in a thread of its own."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.threads = ThreadPoolExecutor(world_size)
        listener, port = host_control(HOST)

        def join(rank: int) -> SocketControl:
            own = listener if rank == 0 else None
            return join_control(rank, world_size, HOST, port, own, TOKEN, 60.0)

        self.controls: list[SocketControl] = self.everywhere(join)

    def started(self, work, ranks=None) -> list[Future]:
        ranks = range(self.world_size) if ranks is None else ranks
        return [self.threads.submit(work, rank) for rank in ranks]

    def everywhere(self, work) -> list:
        return [future.result(60) for future in self.started(work)]

    def close(self) -> None:
        for control in self.controls:
            control.close()
        self.threads.shutdown()


@pytest.fixture
def group(request):
    made = Group(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("group", [1, 2, 17, 40, 290], indirect=True)
def test_max_is_the_largest_of_each_element_on_every_rank(group):
    n = group.world_size

    def work(rank):
        values = np.array([rank, -rank, 0.1 * ((rank * 7) % n), 5.0])
        return group.controls[rank].max(values).tolist()

    largest = [n - 1, 0.0, max(0.1 * ((rank * 7) % n) for rank in range(n)), 5.0]
    assert group.everywhere(work) == [largest] * n


@pytest.mark.parametrize("group", [17], indirect=True)
def test_calls_follow_each_other_and_keep_the_callers_values(group):
    def work(rank):
        given = np.array([float(rank)])
        results = [group.controls[rank].max(given * i)[0] for i in range(50)]
        return results, given.tolist()

    expected = [16.0 * i for i in range(50)]
    assert group.everywhere(work) == [(expected, [float(rank)]) for rank in range(17)]


@pytest.mark.parametrize("group", [1, 2, 17, 40], indirect=True)
def test_a_broadcast_brings_rank_0s_bytes(group):
    def work(rank):
        return group.controls[rank].broadcast(b"\x00\xffid" * 32 if rank == 0 else b"")

    assert group.everywhere(work) == [b"\x00\xffid" * 32] * group.world_size


@pytest.mark.parametrize("group", [2, 17, 40], indirect=True)
@pytest.mark.parametrize("last", ["first", "last"])
def test_nobody_leaves_a_barrier_before_the_last_has_come(group, last):
    late = 0 if last == "first" else group.world_size - 1
    early = [rank for rank in range(group.world_size) if rank != late]
    waiting = group.started(lambda rank: group.controls[rank].barrier(), early)

    assert not any(future.done() for future in waiting)
    group.controls[late].barrier()
    assert [future.result(60) for future in waiting] == [None] * len(early)


@pytest.mark.parametrize(
    ("group", "gone", "neighbour"), [(2, 1, 0), (17, 0, 5), (40, 39, 2), (40, 2, 0)],
    indirect=["group"],
)  # fmt: skip
def test_a_rank_that_goes_is_felt_by_all_and_named_by_its_neighbour(group, gone, neighbour):
    others = [rank for rank in range(group.world_size) if rank != gone]
    waiting = group.started(lambda rank: group.controls[rank].barrier(), others)
    group.controls[gone].close()

    problems = {rank: f.exception(60) for rank, f in zip(others, waiting, strict=True)}
    assert {type(problem) for problem in problems.values()} == {ConnectionError}
    assert str(problems[neighbour]) == f"rank {gone} is gone from the control tree"


@pytest.mark.parametrize("group", [2], indirect=True)
def test_ranks_that_disagree_on_the_length_do_not_go_on(group):
    waiting = group.started(lambda rank: group.controls[rank].max(np.zeros(1 + rank)))

    assert [type(future.exception(60)) for future in waiting] == [ConnectionError] * 2


@pytest.fixture
def meeting():
    """Rank 0 of two ranks waiting in a thread, and the port that it listens on."""
    listener, port = host_control(HOST)
    with ExitStack() as controls, ThreadPoolExecutor(1) as threads:

        def host():
            control = join_control(0, 2, HOST, port, listener, TOKEN, 60.0)
            controls.callback(control.close)
            return control

        yield threads.submit(host), port


def join(port: int, rank: int = 1, token: str = TOKEN) -> SocketControl:
    return join_control(rank, 2, HOST, port, None, token, 60.0)


@pytest.mark.parametrize(
    ("rank", "token"), [(1, "another token"), (1, ""), (2, TOKEN), (0, TOKEN), (7, TOKEN)]
)
def test_a_stranger_is_sent_away_and_the_group_still_forms(meeting, rank, token):
    hosting, port = meeting
    with pytest.raises(ConnectionError, match=f"rank 0 sent rank {rank} away"):
        join(port, rank, token)
    assert not hosting.done()

    control = join(port)
    answer = hosting.result(60)
    assert answer.broadcast(b"id") == b"id"
    assert control.broadcast(b"") == b"id"
    control.close()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 3) + b"abc",
        struct.pack("<I", 38) + bytes(38),
    ],
)
def test_noise_on_the_port_does_not_hold_the_group_up(meeting, said):
    hosting, port = meeting
    with socket.create_connection((HOST, port)) as stranger:
        stranger.sendall(said)
        with suppress(OSError):  # sent away already
            stranger.shutdown(socket.SHUT_WR)
        control = join(port)
        hosting.result(60)
        control.close()


def test_a_proof_that_was_overheard_is_of_no_use(meeting):
    hosting, port = meeting
    greeting = struct.pack("<IH", 1, 0) + HOST.encode()
    with socket.create_connection((HOST, port)) as overheard:
        challenge = overheard.recv(32, socket.MSG_WAITALL)
        proof = hmac.digest(TOKEN.encode(), challenge + greeting, "sha256")
    with socket.create_connection((HOST, port)) as stranger:
        answer = proof + greeting
        stranger.sendall(struct.pack("<I", len(answer)) + answer)
        assert len(stranger.recv(32, socket.MSG_WAITALL)) == 32
        assert stranger.recv(1) == b""
    assert not hosting.done()
    join(port).close()


def test_a_rank_that_never_comes_is_named():
    listener, port = host_control(HOST)
    with pytest.raises(
        TimeoutError, match="rank 0 waited in vain for 3 ranks; the first is rank 1"
    ):
        join_control(0, 4, HOST, port, listener, TOKEN, 0.05)


def test_a_missing_rank_0_is_named():
    listener, port = host_control(HOST)
    listener.close()
    with pytest.raises(ConnectionError, match=f"rank 1 cannot reach rank 0 at {HOST}:{port}: "):
        join(port)


def test_the_listener_is_bound_to_the_interface_given():
    listener, port = host_control(HOST)
    with listener:
        assert listener.getsockname() == (HOST, port)
