"""The timers of enqueued calls on a stand-in device: what stands in which window, and where."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from collbench.measure import cuda_timers
from collbench.measure.calls import Calls
from collbench.measure.cuda_timers import EagerTimer, GraphTimer, QueuedTimer
from collbench.measure.fake import NoProgress
from collbench.model import Pattern


class Device:
    """Writes down what happens; a call takes 2 us, a spin 1000 cycles a us, on its own clock.

    The host's clock moves by ``host_us`` with each call.
    """

    def __init__(self, host_us: float = 0.0) -> None:
        self.log: list[str] = []
        self.now_us = 0.0
        self.host_us = host_us
        self.host_now_us = 0.0
        self.device_done_us = 0.0
        self.capturing = False
        self.open_captures = 0

    def event(self):
        return Event(self)

    def synchronize(self):
        self.log.append("sync")
        self.device_done_us = self.now_us

    def spin(self, cycles):
        self.log.append(f"spin {cycles}")
        self.now_us += cycles / 1000

    def capture(self, issue):
        self.capturing = True
        before = self.now_us
        issue()
        self.capturing = False
        took_us = self.now_us - before
        self.now_us = before
        self.log.append("captured")
        return Capture(self, took_us)

    def call(self):
        self.log.append("captured call" if self.capturing else "call")
        self.now_us += 2.0
        self.host_now_us += self.host_us


class Capture:
    def __init__(self, device, took_us):
        self.device, self.took_us = device, took_us
        device.open_captures += 1

    @contextmanager
    def on_stream(self):
        self.device.log.append("on")
        yield
        self.device.log.append("off")

    def replay(self):
        self.device.log.append("replay")
        self.device.now_us += self.took_us

    def close(self):
        self.device.open_captures -= 1


class Event:
    def __init__(self, device):
        self.device = device

    def record(self):
        self.device.log.append("event")
        self.at_us = self.device.now_us

    def query(self):
        return self.device.host_now_us >= self.at_us

    def elapsed_time(self, end):
        return (end.at_us - self.at_us) / 1e3


class Control:
    def __init__(self, device):
        self.device = device

    def barrier(self):
        self.device.log.append("barrier")

    def max(self, values):
        return np.array(values)


class Buffers:
    def __init__(self, device):
        self.device = device
        self.slots: list[int] = []

    def enter(self):
        self.device.log.append("enter")

    def call(self, slot):
        self.slots.append(slot)
        self.device.call()


def calls_on(device: Device, slots: int = 3, pattern: Pattern = Pattern.BACK_TO_BACK) -> Calls:
    return Calls(
        buffers=Buffers(device),
        slots=slots,
        pattern=pattern,
        control=Control(device),
        progress=NoProgress(),
    )


WINDOW = ["enter", "event", "call", "call", "event"]


def test_eager_samples_follow_each_other_behind_one_barrier():
    device = Device()
    timer = EagerTimer(calls_on(device), device)

    assert timer.sample(2, 2).tolist() == [2.0, 2.0]
    assert device.log == ["barrier", *WINDOW, *WINDOW, "sync"]
    assert timer.checkable == (0,)
    timer.once()
    assert device.log[-2:] == ["call", "sync"]
    assert timer.checkable == (1,)


def test_isolated_samples_have_a_barrier_each():
    device = Device()
    timer = EagerTimer(calls_on(device, pattern=Pattern.ISOLATED), device)
    window = ["enter", "event", "call", "event"]

    timer.sample(2, 1)
    assert device.log == ["barrier", *window, "sync", "barrier", *window, "sync"]


def test_a_graph_holds_a_call_a_slot_and_one_replay_runs_ahead():
    device = Device()
    timer = GraphTimer(calls_on(device), device)
    assert device.log == ["captured call"] * 3 + ["captured"]
    assert (timer.fixed_ops, timer.checkable) == (3, (0, 2))

    device.log.clear()
    window = ["enter", "event", "replay", "event"]
    assert timer.sample(2, 3).tolist() == [2.0, 2.0]
    assert device.log == ["barrier", "on", "replay", *window, *window, "sync", "off"]


def test_an_isolated_graph_is_one_call_and_none_runs_ahead():
    device = Device()
    timer = GraphTimer(calls_on(device, pattern=Pattern.ISOLATED), device)
    assert (timer.fixed_ops, timer.checkable) == (1, (0,))

    device.log.clear()
    timer.sample(1, 1)
    assert device.log == ["barrier", "on", "enter", "event", "replay", "event", "sync", "off"]


def test_a_closed_timer_holds_no_graph():
    device = Device()
    timer = GraphTimer(calls_on(device), device)
    assert device.open_captures == 1
    timer.close()
    timer.close()
    assert device.open_captures == 0


def test_queued_calls_stand_behind_a_spin():
    device = Device()
    timer = QueuedTimer(calls_on(device), device)

    assert timer.sample(2, 2).tolist() == [2.0, 2.0]
    assert device.log == ["barrier", "spin 2000000", "event", *WINDOW, *WINDOW, "sync"]
    assert timer.notes == []


def test_a_spin_that_ends_too_early_grows_and_is_noted_when_it_never_lasts():
    device = Device(host_us=1e9)
    timer = QueuedTimer(calls_on(device), device)

    timer.sample(1, 1)
    spins = [line for line in device.log if line.startswith("spin")]
    assert spins == ["spin 2000000", "spin 8000000", "spin 32000000", "spin 128000000"]
    assert timer.notes == ["queue_not_filled"]


@pytest.fixture
def host_clock(monkeypatch):
    """A host clock that only calls move."""
    device = Device()
    monkeypatch.setattr(cuda_timers, "perf_counter_ns", lambda: int(device.host_now_us * 1e3))
    return device


@pytest.mark.parametrize("timer_kind", [EagerTimer, QueuedTimer])
def test_the_hosts_cost_is_the_median_over_samples(host_clock, timer_kind):
    timer = timer_kind(calls_on(host_clock), host_clock)
    assert timer.host_us_per_call is None
    for host_us in (11.0, 12.0, 500.0):
        host_clock.host_us = host_us
        timer.sample(1, 4)
    assert timer.host_us_per_call == 12.0


def test_a_graph_has_no_cost_a_call(host_clock):
    host_clock.host_us = 11.0
    timer = GraphTimer(calls_on(host_clock), host_clock)
    timer.sample(3, 3)
    assert timer.host_us_per_call is None
