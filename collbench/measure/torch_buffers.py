"""One case's memory as torch tensors: slots, known input, poison, comparison."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collbench.collectives import ITEM_BYTES
from collbench.measure.pattern import Segment, expected_segments, input_segment, tolerance
from collbench.measure.protocols import Verified
from collbench.measure.torch_calls import Call, bind_call
from collbench.measure.walk import CHECK_CHUNK_ELEMENTS, Walk, side_counts, slot_offsets
from collbench.model import Case, WrongElement

POISON_BYTE = 0xFF
"""Repeated, it is NaN in every floating type, -1 and 255 in the others: never a right answer."""


class Arena:
    """A block of device memory that cases use in turn; grows, never shrinks.

    So that a case pays for no allocation, and NCCL for no new registration, that the case before
    has paid for already.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._block = torch.empty(0, dtype=torch.uint8, device=device)

    @property
    def capacity_bytes(self) -> int:
        """Bytes it holds now."""
        return self._block.numel()

    def take(self, size_bytes: int) -> torch.Tensor:
        """Returns uint8[size_bytes]; what was taken before is void."""
        if size_bytes > self.capacity_bytes:
            self._block = torch.empty(0, dtype=torch.uint8, device=self.device)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self._block = torch.empty(size_bytes, dtype=torch.uint8, device=self.device)
        return self._block[:size_bytes]


class TorchBuffers:
    """The slots of one case on one rank."""

    def __init__(
        self, case: Case, walk: Walk, rank: int, group: dist.ProcessGroup, arena: Arena
    ) -> None:
        self._case, self._rank, self._walk = case, rank, walk
        self._dtype: torch.dtype = getattr(torch, case.dtype)
        block = arena.take(walk.total_bytes)
        self._block = block
        self._sides = [self._slot_views(block, slot) for slot in range(walk.slots)]
        self._calls: list[Call] = [
            bind_call(case, rank, given, taken, group) for given, taken in self._sides
        ]
        self._expected = [
            (segment, self._table(segment)) for segment in expected_segments(case, rank)
        ]

    def _slot_views(self, block: torch.Tensor, slot: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the input and output of a slot."""
        item = ITEM_BYTES[self._case.dtype]

        def view(start: int, count: int) -> torch.Tensor:
            return block[start : start + count * item].view(self._dtype)

        given, taken = slot_offsets(self._case, self._walk, self._rank, slot)
        given_count, taken_count = side_counts(self._case)
        return view(given, given_count), view(taken, taken_count)

    def _table(self, segment: Segment) -> torch.Tensor:
        return torch.from_numpy(segment.table).to(self._block.device)

    def fill(self) -> None:
        """Writes the known input into every slot and poison into every separate output."""
        if self._case.in_place:
            self._block.fill_(POISON_BYTE)
        else:
            self.poison()
        segment = input_segment(self._case, self._rank, side_counts(self._case)[0])
        table = self._table(segment).to(self._dtype)
        period = table.numel()
        for given, _ in self._sides:
            whole = given.numel() // period * period
            _bytes(given[:whole]).view(-1, _bytes(table).numel()).copy_(_bytes(table))
            _bytes(given[whole:]).copy_(_bytes(table[: given.numel() - whole]))
        self._settle()

    def poison(self) -> None:
        """Overwrites separate outputs, so that an output that nobody writes is seen."""
        if not self._case.in_place:
            for _, taken in self._sides:
                _bytes(taken).fill_(POISON_BYTE)
        self._settle()

    def _settle(self) -> None:
        """Waits for the device: a graph's own stream is not in order with the one that writes."""
        if self._block.device.type == "cuda":
            torch.cuda.synchronize()

    def enter(self) -> None:
        """Does nothing."""

    def call(self, slot: int) -> None:
        """Issues one collective call on a slot. Collective: every rank of the group."""
        self._calls[slot]()

    def spoil(self, slot: int, index: int) -> None:
        """Makes one element of a slot's output wrong, in stream order.

        Writes a byte that the right answer does not have there; no copy to the host, which a
        capture would forbid.
        """
        place = index * ITEM_BYTES[self._case.dtype]
        _bytes(self._sides[slot][1])[place].fill_(self._right_byte(index) ^ 0x80)

    def _right_byte(self, index: int) -> int:
        """Returns the first byte of the known answer at ``index``; 0 where it is undefined."""
        for segment, _ in self._expected:
            if segment.start <= index < segment.start + segment.count:
                value = segment.table[(index - segment.start) % segment.table.size]
                right = torch.tensor([value], dtype=torch.float64).to(self._dtype)
                return int(_bytes(right)[0])
        return 0

    def verify(self, slot: int, when: str) -> Verified:
        """Compares a slot's output with the known answer, element by element."""
        output = self._sides[slot][1]
        checked = wrong = 0
        first: WrongElement | None = None
        for segment, table in self._expected:
            found = output[segment.start : segment.start + segment.count]
            count, position = self._compare(found, table)
            checked += segment.count
            wrong += count
            if count and first is None:
                first = WrongElement(
                    rank=self._rank,
                    index=segment.start + position,
                    expected=f"{float(table[position % table.numel()]):.10g}",
                    got=f"{float(found[position].to(torch.float64)):.10g}",
                    when=when,
                )
        return Verified(checked_elements=checked, wrong_elements=wrong, first_wrong=first)

    def _compare(self, found: torch.Tensor, table: torch.Tensor) -> tuple[int, int]:
        """Returns how many elements differ, and the place of the first. NaN always differs."""
        allowed = tolerance(self._case)
        period = table.numel()
        chunk = max(1, CHECK_CHUNK_ELEMENTS // period) * period
        wrong, first = 0, -1
        for start in range(0, found.numel(), chunk):
            piece = found[start : start + chunk]
            bad = torch.empty(piece.numel(), dtype=torch.bool, device=piece.device)
            whole = piece.numel() // period * period
            _differs(piece[:whole].view(-1, period), table, allowed, bad[:whole].view(-1, period))
            _differs(piece[whole:], table[: piece.numel() - whole], allowed, bad[whole:])
            count = int(torch.count_nonzero(bad))
            if count and first < 0:
                first = start + int(torch.nonzero(bad)[0])
            wrong += count
        return wrong, first

    def close(self) -> None:
        """Lets go of the views; the arena keeps its block for the next case."""
        self._calls.clear()
        self._sides.clear()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes: copies and fills then work for every type, float8 too."""
    return tensor.view(torch.uint8)


def _differs(piece: torch.Tensor, table: torch.Tensor, allowed: float, bad: torch.Tensor) -> None:
    """Writes into ``bad`` where ``piece`` is not ``table`` (repeated) within the tolerance."""
    if piece.numel() == 0:
        return
    if piece.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        piece = piece.to(torch.float32)
    if allowed == 0:
        torch.ne(piece, table.to(piece.dtype), out=bad)
    else:
        wide = piece.to(torch.float64)
        near = (wide - table).abs() <= allowed * table.abs()
        torch.logical_not(near, out=bad)
