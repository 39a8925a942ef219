"""Faults planted on purpose: what can be written, and what each does to a case."""

from __future__ import annotations

import os
import signal
import time

import pytest

from collbench.errors import UsageError
from collbench.measure.plant import Plant, PlantedError, parse_plant, plant_in, refuse_missing_rank
from collbench.measure.protocols import Verified
from collbench.model import Case

NOTHING_WRONG = Verified(checked_elements=3, wrong_elements=0)


def a_case(collective: str = "all_reduce", requested_bytes: int = 65536) -> Case:
    return Case(
        collective=collective,
        backend="gloo",
        dtype="float32",
        size_bytes=requested_bytes,
        requested_bytes=requested_bytes,
        count=requested_bytes // 4,
        world_size=2,
        in_place=False,
    )


class Recorder:
    """Buffers that keep what is done with them."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def fill(self) -> None:
        self.done.append("fill")

    def poison(self) -> None:
        self.done.append("poison")

    def enter(self) -> None:
        self.done.append("enter")

    def call(self, slot: int) -> None:
        self.done.append(("call", slot))

    def spoil(self, slot: int, index: int) -> None:
        self.done.append(("spoil", slot, index))

    def verify(self, slot: int, when: str) -> Verified:
        self.done.append(("verify", slot, when))
        return NOTHING_WRONG

    def close(self) -> None:
        self.done.append("close")


@pytest.mark.parametrize(
    ("text", "plant"),
    [
        ("late:rank=1,ms=20", Plant(kind="late", rank=1, late_s=0.02)),
        ("late:ms=0.5,rank=0", Plant(kind="late", rank=0, late_s=0.0005)),
        ("wrong:rank=1,call=first", Plant(kind="wrong", rank=1, call=1)),
        ("wrong:rank=1,call=last,index=5", Plant(kind="wrong", rank=1, call=2, index=5)),
        ("raise:rank=1,call=12", Plant(kind="raise", rank=1, call=12)),
        ("stop:rank=2,call=3", Plant(kind="stop", rank=2, call=3)),
        ("kill:rank=0", Plant(kind="kill", rank=0, call=1)),
        (
            "kill:rank=0,collective=allreduce,size=64K",
            Plant(kind="kill", rank=0, collective="all_reduce", size_bytes=65536),
        ),
    ],
)
def test_each_form_is_read(text, plant):
    assert parse_plant(text) == plant


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unknown fault ''; allowed: late, wrong, raise, stop, kill"),
        ("explode:rank=1", "unknown fault 'explode'"),
        ("lat:rank=1", "unknown fault 'lat'; did you mean 'late'? allowed"),
        ("late", "'' is not one of rank, collective, size, ms=VALUE"),
        ("late:rank=1,ms", "'ms' is not one of"),
        ("late:rank=1,ms=", "'ms=' is not one of"),
        ("late:rank=1,call=3", "'call=3' is not one of rank, collective, size, ms=VALUE"),
        ("raise:rank=1,index=3", "'index=3' is not one of rank, collective, size, call=VALUE"),
        ("raise:call=3", "'rank'; rank=R is needed"),
        ("raise:rank=one", "'one'; rank=R is needed, numbers whole"),
        ("raise:rank=1,call=1.5", "'1.5'; rank=R is needed, numbers whole"),
        ("raise:rank=-1", "rank and index count from 0, calls from 1"),
        ("raise:rank=1,call=0", "rank and index count from 0, calls from 1"),
        ("wrong:rank=1,index=-3", "rank and index count from 0, calls from 1"),
        ("late:rank=1", "ms must be above 0 and below 3600000; write ms=20"),
        ("late:rank=1,ms=-20", "ms must be above 0"),
        ("late:rank=1,ms=nan", "ms must be above 0"),
        ("late:rank=1,ms=inf", "ms must be above 0"),
        ("kill:rank=1,collective=all_redduce", "did you mean 'all_reduce'?"),
        ("kill:rank=1,size=1MB", "size '1MB' has two meanings"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(text, problem):
    with pytest.raises(UsageError) as refused:
        parse_plant(text)

    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_fault_hits_its_rank_and_its_cases_only():
    plant = Plant(kind="kill", rank=1, collective="all_reduce", size_bytes=65536)

    assert plant.hits(a_case(), 1)
    assert not plant.hits(a_case(), 0)
    assert not plant.hits(a_case("all_gather"), 1)
    assert not plant.hits(a_case(requested_bytes=4), 1)
    assert Plant(kind="kill", rank=1).hits(a_case("all_gather", 4), 1)


def test_without_a_fault_the_buffers_stay_what_they_are():
    inner = Recorder()

    assert plant_in(inner, a_case(), 1, None) is inner
    assert plant_in(inner, a_case(), 0, Plant(kind="kill", rank=1)) is inner


def planted(text: str) -> tuple[Recorder, object]:
    inner = Recorder()
    plant = parse_plant(text)
    return inner, plant_in(inner, a_case(), plant.rank, plant)


@pytest.mark.parametrize(
    ("call", "done"),
    [
        ("first", [("call", 4), ("spoil", 4, 7), ("call", 5), ("call", 6)]),
        ("last", [("call", 4), ("call", 5), ("spoil", 5, 7), ("call", 6), ("spoil", 6, 7)]),
    ],
)
def test_wrong_spoils_the_slot_that_was_called(call, done):
    inner, buffers = planted(f"wrong:rank=1,call={call},index=7")
    for slot in (4, 5, 6):
        buffers.call(slot)

    assert inner.done == done


def test_raise_raises_at_its_call_and_issues_nothing():
    inner, buffers = planted("raise:rank=1,call=2")
    buffers.call(0)
    with pytest.raises(PlantedError, match="planted at call 2"):
        buffers.call(1)

    assert inner.done == [("call", 0)]


@pytest.mark.parametrize(("kind", "number"), [("stop", signal.SIGSTOP), ("kill", signal.SIGKILL)])
def test_stop_and_kill_signal_their_own_process_once(monkeypatch, kind, number):
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append((pid, sig)))
    inner, buffers = planted(f"{kind}:rank=1,call=2")
    for slot in range(3):
        buffers.call(slot)

    assert sent == [(os.getpid(), number)]
    assert inner.done == [("call", 0), ("call", 1), ("call", 2)]


def test_late_waits_before_every_sample_only(monkeypatch):
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    inner, buffers = planted("late:rank=1,ms=20")
    buffers.enter()
    buffers.call(0)
    buffers.enter()

    assert waited == [0.02, 0.02]
    assert inner.done == ["enter", ("call", 0), "enter"]


def test_everything_else_passes_on():
    inner, buffers = planted("raise:rank=1,call=9")
    buffers.fill()
    buffers.poison()
    buffers.enter()
    buffers.spoil(1, 2)
    assert buffers.verify(3, "last") is NOTHING_WRONG
    buffers.close()

    assert inner.done == [
        "fill",
        "poison",
        "enter",
        ("spoil", 1, 2),
        ("verify", 3, "last"),
        "close",
    ]


@pytest.mark.parametrize(("rank", "fine"), [(0, True), (3, True), (4, False)])
def test_a_rank_that_the_run_has_not_is_refused(rank, fine):
    plant = Plant(kind="stop", rank=rank)
    refuse_missing_rank(None, 4)
    if fine:
        refuse_missing_rank(plant, 4)
        return
    with pytest.raises(UsageError, match="--plant rank=4: the run has ranks 0 to 3; give one"):
        refuse_missing_rank(plant, 4)
