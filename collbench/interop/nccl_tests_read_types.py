"""What stands in a file of nccl-tests or rccl-tests: read, but not yet judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The columns of one placement in one row."""

    in_place: bool
    time_us: float
    time_within_us: float
    """Half a unit of the last printed digit: so far off the time may be by rounding."""
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    busbw_within_gb_per_s: float
    wrong: int | None
    """Wrong elements; None where the data were not checked."""
    calls_us: NDArray[np.float32] | None = None
    """float32[process, call]: the times of single calls (``-I 1``), where the file has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One size of a table."""

    where: str
    """``line 14`` of a text, ``row 3`` of a JSON file."""
    size_bytes: int
    count: int
    type_name: str
    redop: str | None
    root: int | None
    figures: tuple[Figures, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """A line of ``Using devices``."""

    host: str
    device: int
    bus_id: str
    model: str


@dataclass(kw_only=True, slots=True)
class Table:
    """One start of a program: what its first lines say, and its rows."""

    where: str
    """The line that the table begins in; empty in JSON, which holds one table."""
    program: str | None = None
    """``all_reduce_perf``; None where the file does not say."""
    nccl_version: str | None = None
    iterations: int = 1
    aggregated: int = 1
    warmup: int | None = None
    validation: bool = True
    graph: bool = False
    blocking: bool = False
    average: int | None = None
    """``-a``: 0 rank 0, 1 mean, 2 least, 3 most; None where the file does not say."""
    variables: Mapping[str, str] | None = None
    """NCCL's variables; None where the file does not say."""
    arguments: list[str] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    """The first lines as printed, without those that name hosts."""
    started: str | None = None
    """As printed: local time without a zone."""
    ranks: list[Rank] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadFile:
    """All of a file."""

    name: str
    tables: tuple[Table, ...]
    """Those that have rows."""
    odd: tuple[str, ...]
    """What could not be taken as it stands, a line each: ``line 14: ...``."""


def version_text(code: int) -> str:
    """Returns ``2.28.9`` for NCCL's number 22809; before 2.9 it had a digit less (2804: 2.8.4)."""
    factor = 1_000 if code < 10_000 else 10_000
    return f"{code // factor}.{code % factor // 100}.{code % 100}"
