"""The collectives: what they are called, how their bytes are counted, how fast the wire must be.

Sizes and the busbw factor follow nccl-tests (doc/PERFORMANCE.md and the GetBw functions of
src/*.cu): the size of a case is the whole message S, which for all_gather, reduce_scatter,
all_to_all, gather and scatter is n times the bytes of one rank's share; algbw = S / time;
busbw = algbw x factor(n). The factor makes a figure comparable with the speed of one link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from collbench.errors import UsageError, nearest

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
}
"""Bytes of one element, by torch's name of the type."""

DTYPE_ALIASES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn",
}
"""nccl-tests' and everyday spellings of the types."""

REDOPS = ("sum", "prod", "min", "max", "avg")


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One row of the table."""

    name: str
    """torch.distributed's word."""
    aliases: tuple[str, ...] = ()
    """nccl-tests' program and other spellings."""
    shares: bool
    """True: a rank holds 1/n of the message on one side, and S counts n shares."""
    busbw_factor: Callable[[int], float]
    """busbw / algbw as a function of the ranks."""
    has_redop: bool = False
    has_root: bool = False
    natural_in_place: bool
    """Whether torch programs call it in place."""
    in_place_defined: bool = True
    """False where nccl-tests too calls the in-place form invalid."""
    synchronising: bool = False
    """True where no rank finishes before all have entered: a late rank shows the shortest time."""

    def count(self, requested_bytes: int, dtype: str, world_size: int) -> int:
        """Returns the elements of a share closest to the bytes asked for, at least 1."""
        divisor = ITEM_BYTES[dtype] * (world_size if self.shares else 1)
        return max(1, requested_bytes // divisor)

    def size_bytes(self, count: int, dtype: str, world_size: int) -> int:
        """Returns the whole message S in bytes for ``count`` elements a share."""
        return count * ITEM_BYTES[dtype] * (world_size if self.shares else 1)

    def busbw(self, algbw_gb_per_s: float, world_size: int) -> float:
        """Returns bus bandwidth in GB/s for an algorithm bandwidth in GB/s."""
        return algbw_gb_per_s * self.busbw_factor(world_size)


def _all_but_one(world_size: int) -> float:
    return (world_size - 1) / world_size


def _there_and_back(world_size: int) -> float:
    return 2 * (world_size - 1) / world_size


def _one(_world_size: int) -> float:
    return 1.0


_TABLE = (
    Collective(
        name="all_reduce",
        aliases=("allreduce", "all_reduce_perf"),
        shares=False,
        busbw_factor=_there_and_back,
        has_redop=True,
        natural_in_place=True,
        synchronising=True,
    ),
    Collective(
        name="all_gather",
        aliases=("allgather", "all_gather_perf"),
        shares=True,
        busbw_factor=_all_but_one,
        natural_in_place=False,
        synchronising=True,
    ),
    Collective(
        name="reduce_scatter",
        aliases=("reducescatter", "reduce_scatter_perf"),
        shares=True,
        busbw_factor=_all_but_one,
        has_redop=True,
        natural_in_place=False,
        synchronising=True,
    ),
    Collective(
        name="broadcast",
        aliases=("broadcast_perf",),
        shares=False,
        busbw_factor=_one,
        has_root=True,
        natural_in_place=True,
    ),
    Collective(
        name="reduce",
        aliases=("reduce_perf",),
        shares=False,
        busbw_factor=_one,
        has_redop=True,
        has_root=True,
        natural_in_place=True,
    ),
    Collective(
        name="all_to_all",
        aliases=("alltoall", "alltoall_perf"),
        shares=True,
        busbw_factor=_all_but_one,
        natural_in_place=False,
        in_place_defined=False,
        synchronising=True,
    ),
    Collective(
        name="gather",
        aliases=("gather_perf",),
        shares=True,
        busbw_factor=_all_but_one,
        has_root=True,
        natural_in_place=False,
    ),
    Collective(
        name="scatter",
        aliases=("scatter_perf",),
        shares=True,
        busbw_factor=_all_but_one,
        has_root=True,
        natural_in_place=False,
    ),
    Collective(
        name="send_recv",
        aliases=("sendrecv", "sendrecv_perf"),
        shares=False,
        busbw_factor=_one,
        natural_in_place=False,
        in_place_defined=False,
    ),
)

COLLECTIVES = {row.name: row for row in _TABLE}
"""The table, by torch.distributed's name."""

_SPELLINGS = {alias: row.name for row in _TABLE for alias in (row.name, *row.aliases)}


def collective_named(word: str) -> Collective:
    """Returns the collective that torch or nccl-tests calls ``word``.

    Raises:
        UsageError: no such collective; the text has the nearest name and all of them.
    """
    return COLLECTIVES[_lookup(word, "collective", _SPELLINGS, COLLECTIVES)]


def dtype_named(word: str) -> str:
    """Returns torch's name of an element type.

    Raises:
        UsageError: no such type.
    """
    spellings = {name: name for name in ITEM_BYTES} | DTYPE_ALIASES
    return _lookup(word, "type", spellings, ITEM_BYTES)


def redop_named(word: str) -> str:
    """Returns the name of a reduction operator.

    Raises:
        UsageError: no such operator.
    """
    return _lookup(word, "operator", {name: name for name in REDOPS}, REDOPS)


def _lookup(word: str, what: str, spellings: dict[str, str], shown: Iterable[str]) -> str:
    found = spellings.get(word.strip().lower())
    if found is None:
        raise UsageError(
            f"unknown {what} '{word}'{nearest(word, spellings) or ';'} allowed: {', '.join(shown)}"
        )
    return found
