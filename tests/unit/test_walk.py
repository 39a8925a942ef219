"""How a case lies in memory, and the bytes it is said to need."""

from __future__ import annotations

import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES
from collbench.measure.walk import needed_bytes, plan_walk, side_counts
from collbench.model import Case

MIB = 2**20
CACHE_BYTES = 50 * MIB


def a_case(
    collective: str = "all_reduce",
    size_bytes: int = MIB,
    *,
    dtype: str = "float32",
    world_size: int = 4,
    in_place: bool = False,
) -> Case:
    row = COLLECTIVES[collective]
    count = row.count(size_bytes, dtype, world_size)
    return Case(
        collective=collective,
        backend="gloo",
        dtype=dtype,
        redop="sum" if row.has_redop else None,
        root=0 if row.has_root else None,
        size_bytes=row.size_bytes(count, dtype, world_size),
        requested_bytes=size_bytes,
        count=count,
        world_size=world_size,
        in_place=in_place,
    )


@pytest.mark.parametrize(
    ("collective", "sides"),
    [
        ("all_reduce", (100, 100)),
        ("broadcast", (100, 100)),
        ("reduce", (100, 100)),
        ("send_recv", (100, 100)),
        ("all_gather", (100, 400)),
        ("gather", (100, 400)),
        ("reduce_scatter", (400, 100)),
        ("scatter", (400, 100)),
        ("all_to_all", (400, 400)),
    ],
)
def test_the_sides_of_each_collective(collective, sides):
    size_bytes = 4 * 100 * (4 if COLLECTIVES[collective].shares else 1)

    assert side_counts(a_case(collective, size_bytes)) == sides


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size_bytes", [4, 1000, 64 * 1024, 3 * MIB, 128 * MIB, 1024 * MIB])
def test_the_walk_leaves_the_cache_and_slots_never_overlap(collective, size_bytes, in_place):
    case = a_case(collective, size_bytes, in_place=in_place)
    walk = plan_walk(case, CACHE_BYTES)
    item = ITEM_BYTES[case.dtype]
    given, taken = (count * item for count in side_counts(case))

    assert (walk.input_bytes, walk.output_bytes) == (given, taken)
    assert 1 <= walk.slots <= 64
    larger_stride = max(walk.input_stride_bytes, walk.output_stride_bytes)
    assert walk.slots * larger_stride >= 2 * CACHE_BYTES or walk.slots == 64
    assert walk.slots * larger_stride > 2 * CACHE_BYTES - 512 * walk.slots
    assert walk.input_stride_bytes % 512 == walk.output_stride_bytes % 512 == 0
    if in_place:
        assert walk.output_stride_bytes == 0
        assert walk.input_stride_bytes >= max(given, taken)
    else:
        assert walk.input_stride_bytes >= given
        assert walk.output_stride_bytes >= taken


def test_small_messages_are_spread_over_twice_the_cache():
    walk = plan_walk(a_case(size_bytes=8), 32 * MIB)

    # 64 MiB / 64 slots = 1 MiB from one to the next.
    assert (walk.slots, walk.input_stride_bytes, walk.output_stride_bytes) == (64, MIB, MIB)
    assert walk.total_bytes == 128 * MIB


def test_middle_messages_take_as_many_slots_as_twice_the_cache_holds():
    assert plan_walk(a_case(size_bytes=4 * MIB), 32 * MIB).slots == 16
    assert plan_walk(a_case(size_bytes=3 * MIB), 32 * MIB).slots == 22  # 64 / 3, rounded up


def test_a_message_larger_than_twice_the_cache_has_one_slot():
    walk = plan_walk(a_case(size_bytes=128 * MIB, in_place=True), 32 * MIB)

    assert (walk.slots, walk.total_bytes) == (1, 128 * MIB)


def test_without_a_cache_there_is_one_slot():
    assert plan_walk(a_case(size_bytes=8), 0).slots == 1


def test_strides_are_rounded_up_to_512_bytes():
    walk = plan_walk(a_case(size_bytes=1000), 0)

    assert (walk.input_stride_bytes, walk.output_stride_bytes) == (1024, 1024)


def test_needed_bytes_are_walk_and_check_and_reserve():
    case = a_case("all_gather", MIB, world_size=4)  # 64 Ki elements a rank, 256 Ki received
    walk = plan_walk(case, 32 * MIB)

    assert walk.total_bytes == 64 * (MIB + MIB)
    assert needed_bytes(case, walk, check=False) == 128 * MIB + 256 * MIB
    assert needed_bytes(case, walk, check=True) == 128 * MIB + 256 * MIB + 32 * 256 * 1024


def test_the_check_of_a_large_message_is_counted_by_its_chunk():
    case = a_case(size_bytes=1024 * MIB, in_place=True)  # 256 Mi elements, 4 Mi at a time
    walk = plan_walk(case, 32 * MIB)

    assert needed_bytes(case, walk, check=True) == (1024 + 256 + 32 * 4) * MIB
