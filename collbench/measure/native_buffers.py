"""One case's memory as plain addresses: slots, known input, poison, comparison."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from collbench.collectives import ITEM_BYTES
from collbench.measure.encode import decode, encode, encode_nearest
from collbench.measure.native_calls import Call, Communicator, bind_call
from collbench.measure.native_device import NativeDevice
from collbench.measure.pattern import (
    Segment,
    Table,
    expected_segments,
    input_segment,
    tolerance,
)
from collbench.measure.protocols import Verified
from collbench.measure.walk import (
    ALIGNMENT_BYTES,
    CHECK_CHUNK_ELEMENTS,
    Walk,
    side_counts,
    slot_offsets,
)
from collbench.model import Case, WrongElement

POISON_BYTE = 0xFF
"""Repeated, it is NaN in every floating type, -1 and 255 in the others: never a right answer."""


class Arena:
    """A block of NCCL's own device memory that cases use in turn; grows, never shrinks.

    NCCL registers such memory when a call on it is captured in a graph. A block is kept so that a
    case pays for no allocation, and NCCL for no new registration, that the case before has paid
    for already.
    """

    def __init__(self, bindings: ModuleType) -> None:
        self._bindings = bindings
        self._address = 0
        self.capacity_bytes = 0

    def take(self, size_bytes: int) -> int:
        """Returns the address of ``size_bytes``; what was taken before is void."""
        if size_bytes > self.capacity_bytes:
            self.close()
            self._address = int(self._bindings.mem_alloc(size_bytes))
            self.capacity_bytes = size_bytes
        return self._address

    def close(self) -> None:
        """Frees the block."""
        if self.capacity_bytes:
            self._bindings.mem_free(self._address)
            self._address = self.capacity_bytes = 0


class NativeBuffers:
    """The slots of one case on one rank.

    Args:
        case: the case.
        walk: how it lies in memory.
        rank: this rank.
        communicator: where the calls run.
        device: the GPU.
        arena: where the slots lie.
        tables: where the known data lie, one period of each.
    """

    def __init__(
        self,
        case: Case,
        walk: Walk,
        rank: int,
        communicator: Communicator,
        device: NativeDevice,
        arena: Arena,
        tables: Arena,
    ) -> None:
        self._case, self._walk, self._rank, self._device = case, walk, rank, device
        self._item_bytes = ITEM_BYTES[case.dtype]
        self._allowed = tolerance(case)
        self._block = arena.take(walk.total_bytes)
        self._sides = [self._slot_addresses(slot) for slot in range(walk.slots)]
        self._calls: list[Call] = [
            bind_call(case, rank, given, taken, communicator) for given, taken in self._sides
        ]
        self._expected = self._place_tables(tables)

    def _slot_addresses(self, slot: int) -> tuple[int, int]:
        """Returns where a slot's input and output begin."""
        given, taken = slot_offsets(self._case, self._walk, self._rank, slot)
        return self._block + given, self._block + taken

    def _place_tables(self, tables: Arena) -> list[tuple[Segment, int]]:
        """Copies the expected tables to the device; returns each segment with its address."""
        segments = expected_segments(self._case, self._rank)
        encoded = [self._encode(segment.table) for segment in segments]
        starts = [0]
        for data in encoded:
            starts.append(starts[-1] + -(-len(data) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        block = tables.take(max(starts[-1], ALIGNMENT_BYTES))
        for start, data in zip(starts, encoded, strict=False):
            self._device.upload(block + start, data)
        return [(segment, block + start) for segment, start in zip(segments, starts, strict=False)]

    def _encode(self, table: Table) -> bytes:
        """Averages that may differ a little need not be exact in the type; all else must be."""
        return (encode_nearest if self._allowed else encode)(table, self._case.dtype)

    def fill(self) -> None:
        """Writes the known input into every slot and poison into every separate output."""
        if self._case.in_place:
            self._device.set_bytes(self._block, POISON_BYTE, self._walk.total_bytes)
        else:
            self._poison()
        count = side_counts(self._case)[0]
        table = encode(input_segment(self._case, self._rank, count).table, self._case.dtype)
        first = self._sides[0][0]
        total = count * self._item_bytes
        self._device.upload(first, table)
        self._double(first, len(table), total)
        for given, _ in self._sides[1:]:
            self._device.copy(given, first, total)
        self._device.synchronize()

    def _double(self, address: int, done: int, total: int) -> None:
        """Repeats the first ``done`` bytes up to ``total``."""
        while done < total:
            size = min(done, total - done)
            self._device.copy(address + done, address, size)
            done += size

    def poison(self) -> None:
        """Overwrites separate outputs, so that an output that nobody writes is seen."""
        if not self._case.in_place:
            self._poison()
        self._device.synchronize()

    def _poison(self) -> None:
        size = side_counts(self._case)[1] * self._item_bytes
        for _, taken in self._sides:
            self._device.set_bytes(taken, POISON_BYTE, size)

    def enter(self) -> None:
        """Does nothing."""

    def call(self, slot: int) -> None:
        """Issues one collective call on a slot. Collective: every rank of the group."""
        self._calls[slot]()

    def spoil(self, slot: int, index: int) -> None:
        """Makes one element of a slot's output wrong, in stream order; may be captured.

        Writes a byte that the right answer does not have there.
        """
        place = self._sides[slot][1] + index * self._item_bytes
        self._device.set_bytes(place, self._right_byte(index) ^ 0x80, 1)

    def _right_byte(self, index: int) -> int:
        """Returns the first byte of the known answer at ``index``; 0 where it is undefined."""
        for segment, _ in self._expected:
            if segment.start <= index < segment.start + segment.count:
                place = (index - segment.start) % segment.table.size
                return self._encode(segment.table[place : place + 1])[0]
        return 0

    def verify(self, slot: int, when: str) -> Verified:
        """Compares a slot's output with the known answer, element by element."""
        self._device.synchronize()
        checked = wrong = 0
        first: WrongElement | None = None
        for segment, table in self._expected:
            found = self._sides[slot][1] + segment.start * self._item_bytes
            count, position = self._compare(found, segment, table)
            checked += segment.count
            wrong += count
            if count and first is None:
                expected = float(segment.table[position % segment.table.size])
                first = WrongElement(
                    rank=self._rank,
                    index=segment.start + position,
                    expected=f"{expected:.10g}",
                    got=f"{self._value(found, position):.10g}",
                    when=when,
                )
        return Verified(checked_elements=checked, wrong_elements=wrong, first_wrong=first)

    def _value(self, found: int, position: int) -> float:
        data = self._device.download(found + position * self._item_bytes, self._item_bytes)
        return float(decode(data, self._case.dtype)[0])

    def _compare(self, found: int, segment: Segment, table: int) -> tuple[int, int]:
        """Returns how many elements are wrong, and the place of the first."""
        period = segment.table.size
        if not self._allowed:
            return self._device.compare(found, table, self._item_bytes, segment.count, period)
        chunk = max(1, CHECK_CHUNK_ELEMENTS // period) * period
        wrong, first = 0, -1
        for start in range(0, segment.count, chunk):
            count, place = self._compare_within(
                found + start * self._item_bytes,
                min(chunk, segment.count - start),
                segment.table,
                table,
            )
            if count and first < 0:
                first = start + place
            wrong += count
        return wrong, first

    def _compare_within(self, found: int, count: int, values: Table, table: int) -> tuple[int, int]:
        """Compares a chunk within the tolerance: on the host, if the device sees a difference.

        NaN always differs.
        """
        if not self._device.compare(found, table, self._item_bytes, count, values.size)[0]:
            return 0, -1
        wide = decode(self._device.download(found, count * self._item_bytes), self._case.dtype)
        expected = np.resize(values, count)
        bad = ~(np.abs(wide - expected) <= self._allowed * np.abs(expected))
        return int(np.count_nonzero(bad)), int(np.argmax(bad))

    def close(self) -> None:
        """Lets go of the calls; the arenas keep their blocks for the next case."""
        self._calls.clear()
        self._sides.clear()
