"""TCP between nodes out of one process: a socket belongs to the namespace that it was made in."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Iterator

from pyroute2 import netns

from lab.fabric import Fabric, Node

CHUNK = bytes(256 * 1024)


class Flow:
    """A connection that sends as fast as its path takes it."""

    def __init__(self, sender: socket.socket, receiver: socket.socket) -> None:
        self._sender, self._receiver = sender, receiver
        self.received_bytes = 0

    def register(self, selector: selectors.BaseSelector) -> None:
        """Has a selector call this flow's steps."""
        selector.register(self._sender, selectors.EVENT_WRITE, self._send)
        selector.register(self._receiver, selectors.EVENT_READ, self._receive)

    def _send(self) -> None:
        self._sender.send(CHUNK)

    def _receive(self) -> None:
        self.received_bytes += len(self._receiver.recv(len(CHUNK)))


@contextlib.contextmanager
def flow(fabric: Fabric, sender: Node, receiver: Node) -> Iterator[Flow]:
    """Connects two nodes."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(netns.create_socket(receiver.namespace))
        listener.settimeout(10)
        listener.bind((receiver.address, fabric.fresh_port()))
        listener.listen()
        near = sockets.enter_context(netns.create_socket(sender.namespace))
        near.settimeout(10)
        near.connect(listener.getsockname())
        far = sockets.enter_context(listener.accept()[0])
        near.setblocking(False)
        far.setblocking(False)
        yield Flow(near, far)


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """Lets this process run before all ordinary ones, where allowed: it must keep up with links."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def run_for(flows: list[Flow], duration_s: float) -> list[float]:
    """Lets flows run side by side and returns the megabits per second that each received."""
    with ahead_of_others(), selectors.DefaultSelector() as selector:
        for one in flows:
            one.register(selector)
        before = [one.received_bytes for one in flows]
        start = time.monotonic()
        while (took_s := time.monotonic() - start) < duration_s:
            for key, _ready in selector.select(duration_s - took_s):
                key.data()
    return [
        (one.received_bytes - count) * 8 / 1e6 / took_s
        for one, count in zip(flows, before, strict=True)
    ]


def rates_mbit_per_s(flows: list[Flow], duration_s: float = 1.0) -> list[float]:
    """Returns what flows get side by side once they fill their paths."""
    run_for(flows, 0.3)
    return run_for(flows, duration_s)
