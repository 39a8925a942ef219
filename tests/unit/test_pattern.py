"""The known data: exact in every type, and what a plain computation makes of all ranks' inputs."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES, REDOPS
from collbench.measure.pattern import (
    PERIOD,
    Segment,
    expected_segments,
    input_segment,
    tolerance,
)
from collbench.measure.walk import side_counts
from collbench.model import Case

WORLD_SIZES = (1, 2, 3, 5, 8)
REDUCING = [name for name, row in COLLECTIVES.items() if row.has_redop]
COPYING = [name for name, row in COLLECTIVES.items() if not row.has_redop]

# Bits of a type's significand: every whole number up to 2**bits is exact.
SIGNIFICAND_BITS = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e5m2": 3,
}
LARGEST_FLOAT = {
    "float64": 2**1000,
    "float32": 2**127,
    "float16": 65504,
    "bfloat16": 2**127,
    "float8_e4m3fn": 448,
    "float8_e5m2": 57344,
}


def a_case(collective: str, dtype: str, world_size: int, count: int, redop: str = "sum") -> Case:
    row = COLLECTIVES[collective]
    size_bytes = row.size_bytes(count, dtype, world_size)
    return Case(
        collective=collective,
        backend="nccl",
        dtype=dtype,
        redop=redop if row.has_redop else None,
        root=world_size // 2 if row.has_root else None,
        size_bytes=size_bytes,
        requested_bytes=size_bytes,
        count=count,
        world_size=world_size,
        in_place=False,
    )


def tiled(segment: Segment) -> np.ndarray:
    """The segment's elements, written out."""
    times = -(-segment.count // segment.table.size)
    return np.tile(segment.table, times)[: segment.count]


def all_inputs(case: Case) -> np.ndarray:
    given, _ = side_counts(case)
    return np.stack([tiled(input_segment(case, rank, given)) for rank in range(case.world_size)])


def put_together(case: Case, rank: int) -> np.ndarray:
    """The expected output in one piece; its segments follow each other without a gap."""
    segments = expected_segments(case, rank)
    starts = np.cumsum([0, *(segment.count for segment in segments)])
    assert [segment.start for segment in segments] == list(starts[:-1])
    return np.concatenate([tiled(segment) for segment in segments])


def reduced(inputs: np.ndarray, redop: str, dtype: str) -> np.ndarray:
    """The reduction over ranks in whole numbers (averages of floats in float64)."""
    whole = inputs.astype(np.int64)
    assert np.array_equal(whole, inputs), "inputs are whole numbers"
    n = inputs.shape[0]
    match redop:
        case "sum":
            return whole.sum(axis=0)
        case "prod":
            return functools.reduce(np.multiply, whole)
        case "min":
            return whole.min(axis=0)
        case "max":
            return whole.max(axis=0)
        case _:
            total = whole.sum(axis=0)
            return total / n if dtype in SIGNIFICAND_BITS else total // n


def computed(case: Case, rank: int) -> np.ndarray | None:
    """What a collective must give this rank, by its definition; None where it gives nothing."""
    inputs, n, count = all_inputs(case), case.world_size, case.count
    mine = slice(rank * count, (rank + 1) * count)
    match case.collective:
        case "all_reduce":
            return reduced(inputs, case.redop, case.dtype)
        case "reduce":
            return reduced(inputs, case.redop, case.dtype) if rank == case.root else None
        case "reduce_scatter":
            return reduced(inputs, case.redop, case.dtype)[mine]
        case "all_gather":
            return inputs.reshape(-1)
        case "gather":
            return inputs.reshape(-1) if rank == case.root else None
        case "broadcast":
            return inputs[case.root]
        case "scatter":
            return inputs[case.root][mine]
        case "all_to_all":
            return inputs[:, mine].reshape(-1)
        case _:
            return inputs[(rank - 1) % n]


def assert_exact(values: np.ndarray, dtype: str) -> None:
    """Every value survives a conversion to the type."""
    bits = SIGNIFICAND_BITS.get(dtype)
    if bits is None:
        limits = np.iinfo(dtype)
        assert np.array_equal(values, np.floor(values))
        assert limits.min <= values.min()
        assert values.max() <= limits.max
    else:
        fraction, _ = np.frexp(values)
        assert np.array_equal(fraction * 2**bits, np.floor(fraction * 2**bits))
        assert values.max() <= LARGEST_FLOAT[dtype]


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("redop", REDOPS)
@pytest.mark.parametrize("collective", REDUCING)
def test_reductions_expect_what_the_inputs_give(collective, redop, world_size):
    for dtype in ITEM_BYTES:
        for count in (1, 700, PERIOD * world_size + 3):
            case = a_case(collective, dtype, world_size, count, redop)
            for rank in range(world_size):
                right = computed(case, rank)
                if right is None:
                    assert expected_segments(case, rank) == []
                    continue
                assert np.array_equal(put_together(case, rank), right)
                if redop != "avg" or dtype not in SIGNIFICAND_BITS:
                    assert_exact(right, dtype)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("collective", COPYING)
def test_copies_expect_what_the_inputs_give(collective, world_size):
    for dtype in ITEM_BYTES:
        for count in (1, 37, PERIOD, 2 * PERIOD + 11):
            case = a_case(collective, dtype, world_size, count)
            for rank in range(world_size):
                right = computed(case, rank)
                if right is None:
                    assert expected_segments(case, rank) == []
                    continue
                assert np.array_equal(put_together(case, rank), right)
                assert np.all(right >= 1), "no element is zero"
                assert_exact(right, dtype)


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("redop", ["sum", "prod", "avg"])
def test_every_partial_result_is_exact_in_any_order(dtype, redop):
    # All values are whole and positive (or neutral): the largest partial result is the whole one.
    case = a_case("all_reduce", dtype, 8, PERIOD * 8, redop)
    inputs = all_inputs(case)
    assert_exact(inputs, dtype)
    whole = functools.reduce(np.multiply if redop == "prod" else np.add, inputs)
    assert_exact(whole, dtype)
    if redop != "prod" and dtype in SIGNIFICAND_BITS:
        assert whole.max() <= 2 ** SIGNIFICAND_BITS[dtype]


@pytest.mark.parametrize(
    ("redop", "neutral"), [("sum", 0), ("avg", 0), ("prod", 1), ("max", 0), ("min", 2**22)]
)
def test_at_most_four_ranks_contribute_and_each_has_its_turn(redop, neutral):
    case = a_case("all_reduce", "float32", 8, 8 * PERIOD, redop)
    inputs = all_inputs(case)
    contributes = (np.arange(8)[:, None] - np.arange(8 * PERIOD)) % 8 < 4

    assert np.all(inputs[~contributes] == neutral)
    assert np.all(inputs[contributes] >= 1)
    assert np.array_equal(contributes.sum(axis=1), np.full(8, 4 * PERIOD))


@pytest.mark.parametrize("redop", ["sum", "prod", "min", "max"])
def test_a_rank_left_out_of_a_reduction_is_noticed(redop):
    for dtype in ITEM_BYTES:
        case = a_case("all_reduce", dtype, 8, PERIOD * 8, redop)
        inputs, right = all_inputs(case), put_together(case, 0)
        for missing in range(8):
            without = reduced(np.delete(inputs, missing, axis=0), redop, dtype)
            # A quarter of 1/2 of the elements or so: even with two values a rank has its part.
            assert np.mean(without != right) > 0.02


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_a_block_moved_by_a_power_of_two_is_noticed(dtype):
    copied = tiled(expected_segments(a_case("broadcast", dtype, 8, 4 * PERIOD), 0)[0])
    added = tiled(expected_segments(a_case("all_reduce", dtype, 8, 4 * PERIOD * 8), 0)[0])
    for values in (copied, added):
        for power in range(40):
            moved = np.roll(values, 2**power % values.size)
            assert np.mean(moved != values) > 0.7


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_data_of_another_rank_are_noticed(dtype):
    case = a_case("all_to_all", dtype, 8, PERIOD)
    blocks = all_inputs(case).reshape(64, PERIOD)  # [sender x receiver, element]
    senders = blocks[::8]
    for rank in range(8):
        others = np.delete(senders, rank, axis=0)
        assert np.mean(others != senders[rank], axis=1).min() > 0.75


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_what_unwritten_outputs_hold_is_never_a_right_answer(dtype):
    poison = np.full(8, 0xFF, np.uint8).view(dtype)[0]
    for collective in COPYING:
        case = a_case(collective, dtype, 8, PERIOD)
        for segment in expected_segments(case, case.root or 0):
            assert poison not in segment.table


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_only_averages_of_floats_have_a_tolerance(dtype):
    for redop in REDOPS:
        allowed = tolerance(a_case("all_reduce", dtype, 8, 64, redop))
        if redop == "avg" and dtype in SIGNIFICAND_BITS:
            epsilon = 2.0 ** (1 - SIGNIFICAND_BITS[dtype])
            assert 2.5 * epsilon <= allowed < min(1.0, 3.3 * epsilon), "zero never passes"
        else:
            assert allowed == 0


def test_averages_of_whole_types_are_rounded_down():
    case = a_case("all_reduce", "int32", 3, 50, "avg")
    total = all_inputs(case).sum(axis=0)

    assert np.any(total % 3)
    assert np.array_equal(put_together(case, 0), total // 3)


def test_a_table_is_one_period_however_large_the_message():
    copied = expected_segments(a_case("broadcast", "float32", 8, 10**9), 0)[0]
    added = expected_segments(a_case("all_reduce", "float32", 8, 10**9), 0)[0]

    assert (copied.count, copied.table.size) == (10**9, PERIOD)
    assert (added.count, added.table.size) == (10**9, PERIOD * 8)
