"""The known data: what each rank puts in, and what must come out, exact in every type.

Reductions. Element g of the message gets values from at most four ranks, (r - g) mod n < 4, the
others give the operator's neutral element; so the sum, and every partial sum in any order, stays
exact in its type, down to float8, whatever the number of ranks. Products use 1 and 2.
Copies. Every element is a non-zero hash of (source rank, index).
Both repeat along the index with a period of 509 (prime: no shift by a power of two maps a pattern
on itself), reductions with 509 n, so a table of one period describes buffers of any size.

The averages of floating types may differ by ``tolerance``: NCCL multiplies by 1/n before it adds
(nccl-tests allows 2 ulp for the same reason).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.collectives import COLLECTIVES
from collbench.model import Case

PERIOD = 509
SOURCES = 4
"""Ranks that contribute to one reduced element, at most."""

_LARGEST_EXACT = {
    "float64": 2**30,
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "float8_e4m3fn": 2**4,
    "float8_e5m2": 2**3,
    "int8": 127,
    "int32": 2**30,
    "int64": 2**30,
    "uint8": 254,
}
"""All whole numbers up to here are exact in the type; without 255, which unwritten outputs hold."""

_EPSILON = {
    "float64": 2**-52,
    "float32": 2**-23,
    "float16": 2**-10,
    "bfloat16": 2**-7,
    "float8_e4m3fn": 2**-3,
    "float8_e5m2": 2**-2,
}

Table = NDArray[np.float64]
"""Values of one period (or of the whole segment, if shorter); every one is exact as float64."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of elements [start, start + count) whose values repeat ``table``."""

    start: int
    count: int
    table: Table


def _value(source: NDArray[np.int64] | int, index: NDArray[np.int64], top: int) -> Table:
    """Returns whole numbers from 1 to ``top``, a hash of source rank and index mod PERIOD.

    The finaliser of SplitMix64 (Steele, Lea & Flood 2014): however small ``top`` is, another
    source or another index gives another value in all but about 1/top of the elements.
    """
    mixed = (index % PERIOD + PERIOD * np.asarray(source, dtype=np.int64)).astype(np.uint64)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (1 + mixed % np.uint64(top)).astype(np.float64)


def _neutral(redop: str, top: int) -> float:
    return {"sum": 0.0, "avg": 0.0, "max": 0.0, "prod": 1.0, "min": float(top)}[redop]


def _top(case: Case) -> int:
    exact = _LARGEST_EXACT[case.dtype]
    if not COLLECTIVES[case.collective].has_redop:
        return exact
    return 2 if case.redop == "prod" else exact // SOURCES


def _given(case: Case, rank: int, index: NDArray[np.int64]) -> Table:
    """Returns what ``rank`` contributes to elements ``index`` of a reduced message."""
    assert case.redop is not None
    n, top = case.world_size, _top(case)
    active = (rank - index) % n < min(SOURCES, n)
    return np.where(active, _value(rank, index, top), _neutral(case.redop, top))


def _reduced(case: Case, index: NDArray[np.int64]) -> Table:
    """Returns the reduction over all ranks of ``_given``, by its at most four sources."""
    assert case.redop is not None
    n, top = case.world_size, _top(case)
    sources = min(SOURCES, n)
    values = np.stack([_value((index + k) % n, index, top) for k in range(sources)])
    if case.redop == "prod":
        return np.asarray(values.prod(axis=0), dtype=np.float64)
    if case.redop == "max":
        return np.asarray(values.max(axis=0), dtype=np.float64)
    if case.redop == "min":
        return np.asarray(values.min(axis=0), dtype=np.float64)
    total = np.asarray(values.sum(axis=0), dtype=np.float64)
    if case.redop == "avg":
        return total / n if case.dtype in _EPSILON else np.floor(total / n)
    return total


def tolerance(case: Case) -> float:
    """Returns the relative difference that is not wrong: 0, but for averages of floats.

    An average may be rounded five times, by half an epsilon each: 1/n, the product with it, three
    additions. About 2.5 epsilon; below 1 even for float8, so that zero never passes.
    """
    if case.redop != "avg" or case.dtype not in _EPSILON:
        return 0.0
    return math.expm1((SOURCES + 1) * math.log1p(_EPSILON[case.dtype] / 2))


def _indices(case: Case, first: int, count: int) -> NDArray[np.int64]:
    period = PERIOD * (case.world_size if COLLECTIVES[case.collective].has_redop else 1)
    return np.arange(first, first + min(count, period), dtype=np.int64)


def input_segment(case: Case, rank: int, count: int) -> Segment:
    """Returns what ``rank`` puts into its input of ``count`` elements."""
    if COLLECTIVES[case.collective].has_redop:
        return Segment(0, count, _given(case, rank, _indices(case, 0, count)))
    first = rank * case.count if case.collective in ("all_gather", "gather") else 0
    return Segment(0, count, _value(rank, _indices(case, first, count), _top(case)))


def expected_segments(case: Case, rank: int) -> list[Segment]:
    """Returns what must stand in ``rank``'s output; empty where its output is undefined."""
    n, count, top = case.world_size, case.count, _top(case)
    copied = _indices(case, 0, count)
    match case.collective:
        case "all_reduce":
            return [Segment(0, count, _reduced(case, copied))]
        case "reduce":
            return [Segment(0, count, _reduced(case, copied))] if rank == case.root else []
        case "reduce_scatter":
            return [Segment(0, count, _reduced(case, _indices(case, rank * count, count)))]
        case "broadcast":
            assert case.root is not None
            return [Segment(0, count, _value(case.root, copied, top))]
        case "scatter":
            assert case.root is not None
            mine = _indices(case, rank * count, count)
            return [Segment(0, count, _value(case.root, mine, top))]
        case "send_recv":
            return [Segment(0, count, _value((rank - 1) % n, copied, top))]
        case "gather" if rank != case.root:
            return []
        case "all_gather" | "gather":
            return [
                Segment(j * count, count, _value(j, _indices(case, j * count, count), top))
                for j in range(n)
            ]
        case "all_to_all":
            mine = _indices(case, rank * count, count)
            return [Segment(j * count, count, _value(j, mine, top)) for j in range(n)]
        case _:
            raise AssertionError(case.collective)
