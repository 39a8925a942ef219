"""What pairs of nodes gave: one value a pair, kind, rail and round, as records and as a table.

Nodes are numbers here: places in the list of nodes that were asked. The table (a structured array)
is what verdicts are made of, so that a full matrix of a thousand nodes stays a matter of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from collbench.model import Status

PairTable = NDArray[np.void]
"""Structured array of ``PAIR_DTYPE``, one row a value."""

NO_RAIL = -1
UNREADABLE = -1
"""Of a counter."""


class PairKind(StrEnum):
    """What a pair ran."""

    SEND_RECV = "send_recv"
    """Both directions at once."""
    ALL_REDUCE = "all_reduce"
    SEND = "send"
    """One way, from a to b."""
    LATENCY = "latency"
    """Many small round trips."""


KINDS = tuple(PairKind)
STATUSES = tuple(Status)
"""In the table kinds and statuses are places in these."""

PAIR_DTYPE = np.dtype(
    [
        ("a", np.int32),
        ("b", np.int32),
        ("kind", np.int8),
        ("rail", np.int16),
        ("round", np.int32),
        ("value", np.float64),
        ("status", np.int8),
        ("alone", np.bool_),
        ("round_trips", np.int32),
        ("slow_round_trips", np.int32),
        ("retransmits", np.int64),
        ("median_us", np.float64),
        ("p99_us", np.float64),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairValue:
    """What one pair gave in one round."""

    a: int
    """Node number; of a one-way send, the sender."""
    b: int
    kind: PairKind
    rail: int | None = None
    """None: over all rails at once."""
    round: int
    value: float | None = None
    """GB/s, of a direction; None where the status is not ``ok``, and for latency."""
    status: Status = Status.OK
    alone: bool = False
    """No other pair ran at the same time."""
    round_trips: int = 0
    slow_round_trips: int = 0
    """Longer than 100 ms."""
    retransmits: int | None = None
    """Both ends' retransmissions around it; None: unreadable."""
    median_us: float | None = None
    p99_us: float | None = None


def empty_table(rows: int) -> PairTable:
    """Returns a table of so many ``ok`` rows without rail, counters or figures, to be filled."""
    table = np.zeros(rows, PAIR_DTYPE)
    table["rail"] = NO_RAIL
    table["status"] = STATUSES.index(Status.OK)
    table["retransmits"] = UNREADABLE
    for name in ("value", "median_us", "p99_us"):
        table[name] = np.nan
    return table


def pair_table(values: Iterable[PairValue]) -> PairTable:
    """Returns the values as a table, in their order."""
    return np.array([_row(value) for value in values], PAIR_DTYPE)


def _row(value: PairValue) -> tuple[object, ...]:
    return (
        value.a,
        value.b,
        KINDS.index(value.kind),
        NO_RAIL if value.rail is None else value.rail,
        value.round,
        _number(value.value),
        STATUSES.index(value.status),
        value.alone,
        value.round_trips,
        value.slow_round_trips,
        UNREADABLE if value.retransmits is None else value.retransmits,
        _number(value.median_us),
        _number(value.p99_us),
    )


def _number(value: float | None) -> float:
    return np.nan if value is None else value
