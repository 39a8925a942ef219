"""Faults planted on purpose, to show that they are found: ``--plant KIND:KEY=VALUE,...``.

    late:rank=1,ms=20            rank 1 starts every sample 20 ms late
    wrong:rank=1,call=first      one element of rank 1's output is wrong after its first call
    wrong:rank=1,call=last       ... after every later call (index=5 chooses the element)
    raise:rank=1,call=12         rank 1 raises at its 12th call of a case
    stop:rank=1,call=12          rank 1 is stopped (SIGSTOP) there
    kill:rank=1,call=12          rank 1 is killed (SIGKILL) there

``collective=NAME`` and ``size=64K`` limit a fault to some cases. A run with a planted fault says
so in its first line and in its record. Ranks are those of the run, in whatever group they are.
"""

from __future__ import annotations

import os
import signal
import time

from collbench.collectives import collective_named
from collbench.errors import UsageError, nearest
from collbench.measure.protocols import Buffers, Verified
from collbench.model import Case, Record
from collbench.units import parse_size

_KEYS = {
    "late": ("ms",),
    "wrong": ("call", "index"),
    "raise": ("call",),
    "stop": ("call",),
    "kill": ("call",),
}
_COMMON_KEYS = ("rank", "collective", "size")
_LATEST_S = 3600.0


class PlantedError(RuntimeError):
    """What ``raise`` raises."""


class Plant(Record, frozen=True, kw_only=True):
    """One planted fault."""

    kind: str
    rank: int
    call: int = 1
    """Number of the call in its case, from 1; for ``wrong``: 1 the first, 2 all later ones."""
    index: int = 0
    late_s: float = 0.0
    collective: str | None = None
    size_bytes: int | None = None

    def hits(self, case: Case, rank: int) -> bool:
        """Whether this rank has the fault in this case."""
        return (
            rank == self.rank
            and self.collective in (None, case.collective)
            and self.size_bytes in (None, case.requested_bytes)
        )


def parse_plant(text: str) -> Plant:
    """Returns the fault that ``text`` describes.

    Raises:
        UsageError: not of the form; the text says what is allowed.
    """
    kind, _, rest = text.partition(":")
    if kind not in _KEYS:
        raise UsageError(
            f"--plant '{text}': unknown fault '{kind}'{nearest(kind, _KEYS) or ';'}"
            f" allowed: {', '.join(_KEYS)}"
        )
    values: dict[str, str] = {}
    for part in rest.split(","):
        key, _, value = part.partition("=")
        allowed = (*_COMMON_KEYS, *_KEYS[kind])
        if key not in allowed or not value:
            raise UsageError(f"--plant '{text}': '{part}' is not one of {', '.join(allowed)}=VALUE")
        values[key] = value
    try:
        call = values.get("call", "1")
        plant = Plant(
            kind=kind,
            rank=int(values["rank"]),
            call={"first": 1, "last": 2}.get(call) or int(call),
            index=int(values.get("index", "0")),
            late_s=float(values.get("ms", "0")) / 1e3,
            collective=collective_named(values["collective"]).name
            if "collective" in values
            else None,
            size_bytes=parse_size(values["size"]) if "size" in values else None,
        )
    except (KeyError, ValueError) as problem:
        raise UsageError(f"--plant '{text}': {problem}; rank=R is needed, numbers whole") from None
    if plant.rank < 0 or plant.index < 0 or plant.call < 1:
        raise UsageError(f"--plant '{text}': rank and index count from 0, calls from 1")
    if kind == "late" and not 0 < plant.late_s < _LATEST_S:
        raise UsageError(
            f"--plant '{text}': ms must be above 0 and below {_LATEST_S * 1e3:.0f}; write ms=20"
        )
    return plant


class PlantedBuffers:
    """Buffers with a fault in front of them."""

    def __init__(self, inner: Buffers, plant: Plant) -> None:
        self._inner, self._plant = inner, plant
        self._calls = 0
        self.fill, self.poison, self.close = inner.fill, inner.poison, inner.close

    def enter(self) -> None:
        """Waits, where this rank is to be late."""
        if self._plant.kind == "late":
            time.sleep(self._plant.late_s)
        self._inner.enter()

    def call(self, slot: int) -> None:
        """Issues the call, with the fault before or after it."""
        self._calls += 1
        due = self._calls == self._plant.call
        if due and self._plant.kind == "raise":
            raise PlantedError(f"planted at call {self._calls}")
        if due and self._plant.kind in ("stop", "kill"):
            os.kill(os.getpid(), signal.SIGSTOP if self._plant.kind == "stop" else signal.SIGKILL)
        self._inner.call(slot)
        if self._plant.kind == "wrong" and (self._calls == 1) == (self._plant.call == 1):
            self._inner.spoil(slot, self._plant.index)

    def spoil(self, slot: int, index: int) -> None:
        """Passes on."""
        self._inner.spoil(slot, index)

    def verify(self, slot: int, when: str) -> Verified:
        """Passes on."""
        return self._inner.verify(slot, when)


def refuse_missing_rank(plant: Plant | None, world_size: int) -> None:
    """Refuses a fault that nobody would have.

    Args:
        plant: the fault, if there is one.
        world_size: ranks of the run.

    Raises:
        UsageError: the run has no such rank.
    """
    if plant is not None and plant.rank >= world_size:
        raise UsageError(
            f"--plant rank={plant.rank}: the run has ranks 0 to {world_size - 1}; give one of them"
        )


def plant_in(buffers: Buffers, case: Case, rank: int, plant: Plant | None) -> Buffers:
    """Returns the buffers, with the fault in front where it hits this case on this rank."""
    if plant is None or not plant.hits(case, rank):
        return buffers
    return PlantedBuffers(buffers, plant)
