"""One case's memory: what is filled in, and that every wrong element is found. CPU only."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from collbench.collectives import COLLECTIVES, ITEM_BYTES
from collbench.measure import torch_buffers
from collbench.measure.pattern import Segment, expected_segments, input_segment
from collbench.measure.torch_buffers import Arena, TorchBuffers
from collbench.measure.walk import Walk, plan_walk, side_counts
from collbench.model import Case

WORLD_SIZE = 2
RANK = 1


def a_case(
    collective: str = "all_gather",
    dtype: str = "float32",
    count: int = 1500,
    *,
    in_place: bool = False,
    redop: str = "sum",
) -> Case:
    row = COLLECTIVES[collective]
    size_bytes = row.size_bytes(count, dtype, WORLD_SIZE)
    return Case(
        collective=collective,
        backend="gloo",
        dtype=dtype,
        redop=redop if row.has_redop else None,
        root=RANK if row.has_root else None,
        size_bytes=size_bytes,
        requested_bytes=size_bytes,
        count=count,
        world_size=WORLD_SIZE,
        in_place=in_place,
    )


@pytest.fixture(autouse=True)
def without_calls(monkeypatch):
    """None of these tests makes a call, so none needs a group."""
    monkeypatch.setattr(torch_buffers, "bind_call", lambda *arguments: None)


class Opened:
    """The buffers of a case, and its memory seen from outside."""

    def __init__(self, case: Case, rank: int = RANK, cache_bytes: int = 16384) -> None:
        self.case, self.rank = case, rank
        self.walk: Walk = plan_walk(case, cache_bytes)
        self.arena = Arena(torch.device("cpu"))
        self.buffers = TorchBuffers(case, self.walk, rank, None, self.arena)
        self.block = self.arena.take(self.walk.total_bytes)
        self.dtype = getattr(torch, case.dtype)

    def side(self, slot: int, *, output: bool) -> torch.Tensor:
        """A slot's input or output; in place the smaller one is this rank's share."""
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
        return self.block[start : start + counts[output] * item].view(self.dtype)

    def answer(self, slot: int) -> torch.Tensor:
        """Writes the known answer into a slot's output, as a right call would; returns it."""
        output = self.side(slot, output=True)
        for segment in expected_segments(self.case, self.rank):
            part = torch.from_numpy(tiled(segment)).to(self.dtype)
            place = output[segment.start : segment.start + segment.count]
            place.view(torch.uint8).copy_(part.view(torch.uint8))
        return output


def tiled(segment: Segment) -> np.ndarray:
    times = -(-segment.count // segment.table.size)
    return np.tile(segment.table, times)[: segment.count]


def numbers(tensor: torch.Tensor) -> list[float]:
    return tensor.to(torch.float64).tolist()


@pytest.mark.parametrize(
    ("collective", "in_place"),
    [(name, False) for name in COLLECTIVES]
    + [(name, True) for name, row in COLLECTIVES.items() if row.in_place_defined],
)
def test_the_right_answer_is_right_in_every_slot(collective, in_place):
    opened = Opened(a_case(collective, in_place=in_place))
    opened.buffers.fill()

    assert opened.walk.slots > 1
    for slot in range(opened.walk.slots):
        opened.answer(slot)
        found = opened.buffers.verify(slot, "first")
        assert found.wrong_elements == 0
        assert found.first_wrong is None
        assert found.checked_elements == side_counts(opened.case)[1]


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("redop", ["sum", "prod", "min", "max", "avg"])
def test_every_type_and_operator(dtype, redop):
    opened = Opened(a_case("reduce_scatter", dtype, redop=redop))
    opened.buffers.fill()
    output = opened.answer(1)

    assert opened.buffers.verify(1, "first").wrong_elements == 0
    for index in (0, 700, 1499):
        before = output[index : index + 1].clone()
        opened.buffers.spoil(1, index)
        found = opened.buffers.verify(1, "last")
        assert found.wrong_elements == 1
        assert found.first_wrong.index == index
        output[index : index + 1].view(torch.uint8).copy_(before.view(torch.uint8))
    assert opened.buffers.verify(1, "last").wrong_elements == 0


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("in_place", [False, True])
def test_inputs_hold_the_known_data_in_every_slot(dtype, in_place):
    opened = Opened(a_case("all_gather", dtype, in_place=in_place))
    opened.buffers.fill()
    known = tiled(input_segment(opened.case, RANK, 1500)).tolist()

    for slot in range(opened.walk.slots):
        assert numbers(opened.side(slot, output=False)) == known


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

    assert opened.buffers.verify(0, "first").wrong_elements == 1500


def test_poison_overwrites_an_old_answer_but_no_input():
    opened = Opened(a_case())
    opened.buffers.fill()
    given = numbers(opened.side(0, output=False))
    opened.answer(0)
    opened.buffers.poison()

    assert opened.buffers.verify(0, "last").wrong_elements == 3000
    assert numbers(opened.side(0, output=False)) == given


def test_in_place_there_is_nothing_to_poison():
    opened = Opened(a_case("all_reduce", in_place=True))
    opened.buffers.fill()
    before = opened.block.clone()
    opened.buffers.poison()

    assert torch.equal(opened.block, before)


def test_a_wrong_element_is_told_with_its_place_and_both_values():
    opened = Opened(a_case())
    output = opened.answer(2)
    right = float(output[2017])
    output[2017] = right + 1
    output[2999] = 0
    found = opened.buffers.verify(2, "last")

    assert (found.checked_elements, found.wrong_elements) == (3000, 2)
    wrong = found.first_wrong
    assert (wrong.rank, wrong.index, wrong.when) == (RANK, 2017, "last")
    assert (wrong.expected, wrong.got) == (f"{right:.0f}", f"{right + 1:.0f}")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("redop", ["sum", "avg"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_never_passes(dtype, redop, bad):
    opened = Opened(a_case("reduce_scatter", dtype, redop=redop))
    output = opened.answer(0)
    wrong = torch.tensor([bad], dtype=torch.float64).to(opened.dtype)
    output[5:6].view(torch.uint8).copy_(wrong.view(torch.uint8))
    found = opened.buffers.verify(0, "last")

    assert found.wrong_elements == 1
    assert (found.first_wrong.index, found.first_wrong.got) == (5, str(bad))


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
def test_an_average_may_be_rounded_but_not_be_zero_or_double(dtype):
    opened = Opened(a_case("reduce_scatter", dtype, redop="avg"))
    output = opened.answer(0)
    known = torch.from_numpy(tiled(expected_segments(opened.case, RANK)[0]))
    epsilon = torch.finfo(opened.dtype).eps

    # One unit in the last place up is at most an epsilon: what a rounding on the way may do.
    up = output.view(_bits(opened.dtype)) + 1
    assert float(((up.view(opened.dtype).to(torch.float64) - known) / known).max()) <= epsilon
    output.view(torch.uint8).copy_(up.view(torch.uint8))
    assert opened.buffers.verify(0, "last").wrong_elements == 0

    for factor in (0, 2):
        wrong = (known * factor).to(opened.dtype)
        output.view(torch.uint8).copy_(wrong.view(torch.uint8))
        assert opened.buffers.verify(0, "last").wrong_elements == 1500


def _bits(dtype: torch.dtype) -> torch.dtype:
    return {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[dtype.itemsize]


@pytest.mark.parametrize("redop", ["sum", "avg"])
@pytest.mark.parametrize("chunk_elements", [1, 509, 1018, 4000])
def test_the_answer_does_not_hang_on_the_chunks(monkeypatch, chunk_elements, redop):
    opened = Opened(a_case("reduce_scatter", count=5000, redop=redop))
    output = opened.answer(0)
    for index in (1018, 3000, 4999):
        output[index] = -1
    whole = opened.buffers.verify(0, "last")
    monkeypatch.setattr(torch_buffers, "CHECK_CHUNK_ELEMENTS", chunk_elements)

    assert opened.buffers.verify(0, "last") == whole
    assert (whole.checked_elements, whole.wrong_elements) == (5000, 3)
    assert whole.first_wrong.index == 1018


@pytest.mark.parametrize("count", [1, 508, 509, 510, 1018])
def test_counts_around_the_period_of_the_pattern(count):
    opened = Opened(a_case("broadcast", "int8", count))
    opened.buffers.fill()
    opened.answer(0)
    assert opened.buffers.verify(0, "first").wrong_elements == 0
    opened.buffers.spoil(0, count - 1)

    found = opened.buffers.verify(0, "first")
    assert (found.checked_elements, found.wrong_elements) == (count, 1)
    assert found.first_wrong.index == count - 1


@pytest.mark.parametrize("collective", ["reduce", "gather"])
def test_an_undefined_output_is_not_checked(collective):
    opened = Opened(a_case(collective), rank=0)  # rank 1 is the root
    opened.buffers.fill()

    assert opened.buffers.verify(0, "first").checked_elements == 0
    opened.buffers.spoil(0, 0)
    assert opened.buffers.verify(0, "first").wrong_elements == 0


def test_slots_do_not_touch_each_other():
    opened = Opened(a_case())
    opened.buffers.fill()
    for slot in range(opened.walk.slots):
        opened.answer(slot)
    opened.side(1, output=True).zero_()

    wrong = [opened.buffers.verify(s, "last").wrong_elements for s in range(opened.walk.slots)]
    assert wrong == [3000 if slot == 1 else 0 for slot in range(opened.walk.slots)]


def test_the_arena_grows_and_never_shrinks():
    arena = Arena(torch.device("cpu"))
    assert arena.capacity_bytes == 0
    first = arena.take(1000)
    again = arena.take(500)

    assert (first.numel(), again.numel(), arena.capacity_bytes) == (1000, 500, 1000)
    assert again.data_ptr() == first.data_ptr()
    assert arena.take(2000).numel() == arena.capacity_bytes == 2000
