"""How a case lies in memory: sides, slots, strides, and the bytes it needs.

Calls walk over slots at distinct offsets, so that a buffer is not still in the cache when its
turn comes again: the walk spans at least twice the cache (L2 of a GPU, L3 of a CPU), or as much
as ``MOST_SLOTS`` slots allow for small messages, spread over that span. nccl-tests shifts its
buffers for the same reason (src/common.cu, startColl), one message behind the other through a
buffer of the largest size; ``--walk SIZE`` does the same, to compare with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from collbench.collectives import ITEM_BYTES
from collbench.model import Case

MOST_SLOTS = 64
ALIGNMENT_BYTES = 512
CHECK_CHUNK_ELEMENTS = 4 * 2**20
"""Elements compared at a time."""
PACKED_SLOTS = 20
"""Calls of a packed walk: as many as nccl-tests captures by default (-n)."""
_CHECK_BYTES_AN_ELEMENT = 32
_RESERVE_BYTES = 256 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """Slots of one case on one rank. In place: both sides share ``stride_bytes``."""

    slots: int
    input_bytes: int
    output_bytes: int
    input_stride_bytes: int
    output_stride_bytes: int
    """0 in place: the output lies in the input's slot."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all slots, both sides."""
        return self.slots * (self.input_stride_bytes + self.output_stride_bytes)


def side_counts(case: Case) -> tuple[int, int]:
    """Returns the elements of one rank's input and output (the root's, where there is one)."""
    whole = case.count * case.world_size
    return {
        "all_gather": (case.count, whole),
        "gather": (case.count, whole),
        "reduce_scatter": (whole, case.count),
        "scatter": (whole, case.count),
        "all_to_all": (whole, whole),
    }.get(case.collective, (case.count, case.count))


def plan_walk(case: Case, cache_bytes: int, packed_bytes: int | None = None) -> Walk:
    """Returns the walk of a case.

    Args:
        case: to be measured.
        cache_bytes: of the last cache before memory.
        packed_bytes: size of the buffer through which calls go one message behind the other,
            without gaps; None: spread over twice the cache.
    """
    item = ITEM_BYTES[case.dtype]
    input_bytes, output_bytes = (count * item for count in side_counts(case))
    larger = max(input_bytes, output_bytes)
    if packed_bytes is not None:
        return Walk(
            slots=max(1, min(PACKED_SLOTS, packed_bytes // larger)),
            input_bytes=input_bytes,
            output_bytes=output_bytes,
            input_stride_bytes=larger if case.in_place else input_bytes,
            output_stride_bytes=0 if case.in_place else output_bytes,
        )
    span = 2 * cache_bytes
    slots = max(1, min(MOST_SLOTS, -(-span // larger)))
    spread = span // slots

    def stride(side_bytes: int) -> int:
        return -(-max(side_bytes, spread) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    return Walk(
        slots=slots,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        input_stride_bytes=stride(larger if case.in_place else input_bytes),
        output_stride_bytes=0 if case.in_place else stride(output_bytes),
    )


def slot_offsets(case: Case, walk: Walk, rank: int, slot: int) -> tuple[int, int]:
    """Returns at which bytes of the block a slot's input and output begin.

    In place as nccl-tests: the smaller side is this rank's share of the larger one.
    """
    base = slot * walk.input_stride_bytes
    if not case.in_place:
        outputs = walk.slots * walk.input_stride_bytes
        return base, outputs + slot * walk.output_stride_bytes
    given_count, taken_count = side_counts(case)
    share = rank * case.count * ITEM_BYTES[case.dtype]
    return (
        base + (share if given_count < taken_count else 0),
        base + (share if taken_count < given_count else 0),
    )


def needed_bytes(case: Case, walk: Walk, *, check: bool) -> int:
    """Returns the bytes a rank needs for a case: walk + check + reserve.

    walk: slots x (input stride + output stride); check: 32 bytes for each element compared at a
    time (at most 4 Mi elements: the element widened, the expected one, their difference and the
    verdict); reserve: 256 MiB for what the libraries allocate. Compared with the least free
    memory over all ranks, where ranks that share a device share its free memory equally.
    """
    largest = max(side_counts(case))
    checking = min(largest, CHECK_CHUNK_ELEMENTS) * _CHECK_BYTES_AN_ELEMENT if check else 0
    return walk.total_bytes + checking + _RESERVE_BYTES
