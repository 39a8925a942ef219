"""The native back end's memory on a stand-in GPU: what is filled in, and that errors are found."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES, REDOPS
from collbench.measure import native_buffers
from collbench.measure.encode import decode, encode_nearest
from collbench.measure.native_buffers import Arena, NativeBuffers
from collbench.measure.pattern import Segment, expected_segments, input_segment
from collbench.measure.walk import plan_walk, side_counts
from collbench.model import Case

WORLD_SIZE = 2
RANK = 1


class HostMemory:
    """NCCL's allocator on the host; counts what is taken and given back."""

    def __init__(self) -> None:
        self.blocks: dict[int, np.ndarray] = {}
        self.taken: list[int] = []

    def mem_alloc(self, size: int) -> int:
        block = np.zeros(size, np.uint8)
        self.blocks[block.ctypes.data] = block
        self.taken.append(size)
        return block.ctypes.data

    def mem_free(self, address: int) -> None:
        del self.blocks[address]


class HostDevice:
    """The operations of a GPU on the host's memory."""

    def __init__(self) -> None:
        self.downloaded_bytes = 0

    def synchronize(self) -> None: ...

    def set_bytes(self, address, value, size_bytes):
        ctypes.memset(address, value, size_bytes)

    def copy(self, target, source, size_bytes):
        assert target + size_bytes <= source or source + size_bytes <= target
        ctypes.memmove(target, source, size_bytes)

    def upload(self, address, data):
        ctypes.memmove(address, data, len(data))

    def download(self, address, size_bytes):
        self.downloaded_bytes += size_bytes
        return np.frombuffer(ctypes.string_at(address, size_bytes), np.uint8)

    def compare(self, found, table, item_bytes, count, period):
        kind = f"<u{item_bytes}"
        mine = np.frombuffer(ctypes.string_at(found, count * item_bytes), kind)
        known = np.frombuffer(ctypes.string_at(table, period * item_bytes), kind)
        bad = np.flatnonzero(mine != np.resize(known, count))
        return bad.size, int(bad[0]) if bad.size else 2**64 - 1


@pytest.fixture(autouse=True)
def without_calls(monkeypatch):
    monkeypatch.setattr(native_buffers, "bind_call", lambda *arguments: None)


def a_case(collective="all_gather", dtype="float32", count=1500, *, in_place=False, redop="sum"):
    row = COLLECTIVES[collective]
    size_bytes = row.size_bytes(count, dtype, WORLD_SIZE)
    return Case(
        collective=collective,
        backend="nccl",
        dtype=dtype,
        redop=redop if row.has_redop else None,
        root=RANK if row.has_root else None,
        size_bytes=size_bytes,
        requested_bytes=size_bytes,
        count=count,
        world_size=WORLD_SIZE,
        in_place=in_place,
    )


class Opened:
    """The buffers of a case, and its memory seen from outside."""

    def __init__(self, case: Case, rank: int = RANK, cache_bytes: int = 16384) -> None:
        self.case, self.rank = case, rank
        self.walk = plan_walk(case, cache_bytes)
        memory, self.device = HostMemory(), HostDevice()
        self.arena, self.tables = Arena(memory), Arena(memory)
        self.buffers = NativeBuffers(
            case, self.walk, rank, SimpleNamespace(), self.device, self.arena, self.tables
        )
        self.block = memory.blocks[self.arena.take(self.walk.total_bytes)]

    def side(self, slot: int, *, output: bool) -> np.ndarray:
        """The bytes of a slot's input or output; in place the smaller is this rank's share."""
        walk, item = self.walk, ITEM_BYTES[self.case.dtype]
        counts = side_counts(self.case)
        if self.case.in_place:
            start = slot * walk.input_stride_bytes
            if counts[output] < max(counts):
                start += self.rank * self.case.count * item
        elif output:
            start = walk.slots * walk.input_stride_bytes + slot * walk.output_stride_bytes
        else:
            start = slot * walk.input_stride_bytes
        return self.block[start : start + counts[output] * item]

    def numbers(self, slot: int, *, output: bool) -> list[float]:
        return decode(self.side(slot, output=output).tobytes(), self.case.dtype).tolist()

    def answer(self, slot: int) -> np.ndarray:
        """Writes the known answer into a slot's output, as a right call would; returns it."""
        output, item = self.side(slot, output=True), ITEM_BYTES[self.case.dtype]
        for segment in expected_segments(self.case, self.rank):
            part = np.frombuffer(encode_nearest(tiled(segment), self.case.dtype), np.uint8)
            output[segment.start * item : (segment.start + segment.count) * item] = part
        return output


def tiled(segment: Segment) -> np.ndarray:
    return np.resize(segment.table, segment.count)


PLACEMENTS = [(name, False) for name in COLLECTIVES] + [
    (name, True) for name, row in COLLECTIVES.items() if row.in_place_defined
]


@pytest.mark.parametrize(("collective", "in_place"), PLACEMENTS)
@pytest.mark.parametrize("rank", [0, 1])
def test_the_right_answer_is_right_in_every_slot(collective, in_place, rank):
    opened = Opened(a_case(collective, in_place=in_place), rank)
    opened.buffers.fill()

    assert opened.walk.slots > 1
    expected = sum(segment.count for segment in expected_segments(opened.case, rank))
    for slot in range(opened.walk.slots):
        opened.answer(slot)
        found = opened.buffers.verify(slot, "first")
        assert (found.checked_elements, found.wrong_elements) == (expected, 0)
        assert found.first_wrong is None


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("redop", REDOPS)
def test_one_wrong_element_is_found_in_every_type_and_operator(dtype, redop):
    opened = Opened(a_case("reduce_scatter", dtype, redop=redop))
    opened.buffers.fill()
    output = opened.answer(1)

    assert opened.buffers.verify(1, "first").wrong_elements == 0
    for index in (0, 700, 1499):
        before = output.copy()
        opened.buffers.spoil(1, index)
        found = opened.buffers.verify(1, "last")
        assert (found.wrong_elements, found.first_wrong.index) == (1, index)
        output[:] = before
    assert opened.buffers.verify(1, "last").wrong_elements == 0


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("count", [1, 508, 509, 510, 1500])
def test_inputs_hold_the_known_data_in_every_slot(dtype, in_place, count):
    opened = Opened(a_case("all_gather", dtype, count, in_place=in_place))
    opened.buffers.fill()
    known = tiled(input_segment(opened.case, RANK, count)).tolist()

    for slot in range(opened.walk.slots):
        assert opened.numbers(slot, output=False) == known


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_an_output_that_nobody_writes_is_wrong_in_every_element(dtype):
    opened = Opened(a_case("all_gather", dtype))
    opened.buffers.fill()
    found = opened.buffers.verify(0, "first")

    assert found.wrong_elements == found.checked_elements == 3000
    assert found.first_wrong.index == 0


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_in_place_only_the_own_share_is_right_before_the_call(dtype):
    opened = Opened(a_case("all_gather", dtype, in_place=True))
    opened.buffers.fill()
    found = opened.buffers.verify(0, "first")

    assert (found.wrong_elements, found.first_wrong.index) == (1500, 0)


def test_poison_overwrites_outputs_and_leaves_inputs():
    opened = Opened(a_case("all_gather"))
    opened.buffers.fill()
    before = opened.numbers(0, output=False)
    opened.answer(0)
    opened.buffers.poison()

    assert opened.numbers(0, output=False) == before
    assert set(opened.side(0, output=True).tolist()) == {0xFF}


def test_poison_leaves_a_case_in_place_alone():
    opened = Opened(a_case("all_reduce", in_place=True))
    opened.buffers.fill()
    before = opened.block.copy()
    opened.buffers.poison()

    np.testing.assert_array_equal(opened.block, before)


def test_a_wrong_element_is_told_with_both_values():
    opened = Opened(a_case("all_gather"))
    opened.buffers.fill()
    output = opened.answer(0).view(np.float32)
    expected = output[2000]
    output[2000] = 0.1

    wrong = opened.buffers.verify(0, "last").first_wrong
    assert (wrong.rank, wrong.index, wrong.when) == (RANK, 2000, "last")
    assert (wrong.expected, wrong.got) == (f"{expected:.10g}", "0.1000000015")


@pytest.mark.parametrize(
    ("change", "wrong"), [(0.0, 0), (1.0, 0), (2.0, 0), (4.0, 1), (np.nan, 1), (-np.inf, 1)]
)
def test_an_average_may_differ_by_two_units_and_no_more(monkeypatch, change, wrong):
    monkeypatch.setattr(native_buffers, "CHECK_CHUNK_ELEMENTS", 2500)
    opened = Opened(a_case("all_reduce", count=5000, redop="avg"))
    opened.buffers.fill()
    output = opened.answer(0).view(np.float32)
    output[4321] += np.float32(change) * np.spacing(output[4321])

    found = opened.buffers.verify(0, "first")
    assert (found.checked_elements, found.wrong_elements) == (5000, wrong)
    assert (found.first_wrong.index if wrong else None) == (4321 if wrong else None)


def test_an_average_comes_to_the_host_only_where_the_device_sees_a_difference(monkeypatch):
    monkeypatch.setattr(native_buffers, "CHECK_CHUNK_ELEMENTS", 1018)
    opened = Opened(a_case("all_reduce", count=5000, redop="avg"))
    opened.buffers.fill()
    output = opened.answer(0).view(np.float32)
    opened.buffers.verify(0, "first")
    assert opened.device.downloaded_bytes == 0

    output[1500] = np.nextafter(output[1500], np.float32(1e9))
    assert opened.buffers.verify(0, "first").wrong_elements == 0
    assert opened.device.downloaded_bytes == 1018 * 4


def test_an_arena_grows_and_never_shrinks():
    memory = HostMemory()
    arena = Arena(memory)
    first = arena.take(100)
    assert arena.take(50) == first
    second = arena.take(200)

    assert (memory.taken, list(memory.blocks), arena.capacity_bytes) == ([100, 200], [second], 200)
    arena.close()
    arena.close()
    assert (memory.blocks, arena.capacity_bytes) == ({}, 0)
