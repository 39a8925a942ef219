"""The nine collectives as calls of NCCL's low-level bindings on the addresses of one slot.

All look-ups happen before timing: a bound call is one function with its arguments, or a group of
them. The low-level functions cost the host a third of what nccl4py's ``Communicator`` does, and
import nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from collbench.collectives import ITEM_BYTES
from collbench.measure.native_library import VersionNumbers
from collbench.model import Case
from collbench.nccl.settings import ALG_SELECTION

Call = Callable[[], object]

FIRST_WITH_ALL_TO_ALL: VersionNumbers = (2, 28, 0)
"""The first NCCL with all_to_all, gather and scatter as calls of their own."""
FIRST_WITH_CALL_CONFIG: VersionNumbers = (2, 31, 0)
"""The first NCCL that takes a configuration with a call."""

DATA_TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "int64": 4,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "float8_e4m3fn": 10,
    "float8_e5m2": 11,
}
"""``ncclDataType_t`` of nccl.h."""
REDOPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
"""``ncclRedOp_t`` of nccl.h."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Communicator:
    """An NCCL communicator and the stream that its calls go to."""

    bindings: ModuleType
    numbers: VersionNumbers
    """NCCL's version."""
    handle: Any
    """``Comm`` of the bindings."""
    stream: int


def bind_call(case: Case, rank: int, given: int, taken: int, communicator: Communicator) -> Call:
    """Returns what issues one call of the case.

    Args:
        case: which collective.
        rank: this rank in the communicator.
        given: address of the input.
        taken: address of the output; in place it lies as nccl-tests has it.
        communicator: where it runs.
    """
    if case.collective == "send_recv":
        return ring_shift(case.dtype, case.count, rank, case.world_size, given, taken, communicator)
    newer = communicator.numbers >= FIRST_WITH_ALL_TO_ALL
    if case.collective in ("all_to_all", "gather", "scatter") and not newer:
        return _by_peers(case, rank, given, taken, communicator)
    name, *details = _named(case)
    nccl = communicator.bindings
    arguments = [given, taken, case.count, DATA_TYPES[case.dtype], *details]
    arguments += [communicator.handle, communicator.stream]
    selection = case.setting.get(ALG_SELECTION)
    if selection is None:
        return partial(getattr(nccl, name), *arguments)
    config = nccl.CollConfig()
    config.alg_selection = selection
    return _configured(getattr(nccl, f"{name}_config"), arguments, config)


def ring_shift(
    dtype: str,
    count: int,
    rank: int,
    world_size: int,
    given: int,
    taken: int,
    communicator: Communicator,
) -> Call:
    """Returns a call in which each rank sends to the next and receives from the one before."""
    peers = _Peers(communicator, dtype, count)
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    return peers.group([peers.receive(taken, before), peers.send(given, after)])


def _named(case: Case) -> list[Any]:
    """Returns the function's name in the bindings and what follows the data type."""
    op, root = REDOPS[case.redop] if case.redop else 0, case.root or 0
    table: dict[str, list[Any]] = {
        "all_reduce": ["all_reduce", op],
        "all_gather": ["all_gather"],
        "reduce_scatter": ["reduce_scatter", op],
        "broadcast": ["broadcast", root],
        "reduce": ["reduce", op, root],
        "all_to_all": ["allto_all"],
        "gather": ["gather", root],
        "scatter": ["scatter", root],
    }
    return table[case.collective]


def _configured(function: Callable[..., object], arguments: list[Any], config: Any) -> Call:
    """Returns the call with a configuration, which must live as long as the call."""
    return lambda: function(*arguments, config.ptr)


def _by_peers(case: Case, rank: int, given: int, taken: int, communicator: Communicator) -> Call:
    """Returns a collective made of sends and receives, as nccl-tests made it before NCCL 2.28."""
    peers = _Peers(communicator, case.dtype, case.count)
    share, everyone, root = peers.share_bytes, range(case.world_size), case.root or 0
    match case.collective:
        case "all_to_all":
            steps = [peers.send(given + share * peer, peer) for peer in everyone]
            steps += [peers.receive(taken + share * peer, peer) for peer in everyone]
        case "gather":
            steps = [peers.send(given, root)]
            if rank == root:
                steps += [peers.receive(taken + share * peer, peer) for peer in everyone]
        case "scatter":
            steps = [peers.receive(taken, root)]
            if rank == root:
                steps += [peers.send(given + share * peer, peer) for peer in everyone]
        case _:
            raise AssertionError(case.collective)
    return peers.group(steps)


class _Peers:
    """Sends and receives of one share."""

    def __init__(self, communicator: Communicator, dtype: str, count: int) -> None:
        self._communicator = communicator
        self._count, self._data_type = count, DATA_TYPES[dtype]
        self.share_bytes = count * ITEM_BYTES[dtype]

    def send(self, address: int, peer: int) -> Call:
        return self._bound("send", address, peer)

    def receive(self, address: int, peer: int) -> Call:
        return self._bound("recv", address, peer)

    def _bound(self, name: str, address: int, peer: int) -> Call:
        to = self._communicator
        function = getattr(to.bindings, name)
        return partial(function, address, self._count, self._data_type, peer, to.handle, to.stream)

    def group(self, steps: list[Call]) -> Call:
        """Returns one call that issues all steps at once."""
        start, end = self._communicator.bindings.group_start, self._communicator.bindings.group_end

        def call() -> None:
            start()
            try:
                for step in steps:
                    step()
            finally:
                end()

        return call
