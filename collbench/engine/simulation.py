"""What ``--simulate FILE`` stands for: the small model or a fabric of nodes, by the file.

A file with a table ``[fabric]`` is a fabric (``fabric_file``), any other the small model
(``simulated``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.engine.fabric_engine import FabricEngine
from collbench.engine.fabric_file import parse_fabric_file
from collbench.engine.fabric_layout import Layout, lay_out
from collbench.engine.fabric_place import remarks_of, summary_of, topology_of
from collbench.engine.protocol import Executor
from collbench.engine.simulated import SimulatedEngine, read_fabric
from collbench.errors import UsageError
from collbench.model import Policy, Topology


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A model that answers in the place of hardware."""

    topology: Topology
    make_executor: Callable[[Policy], Executor]
    note: str | None = None
    """The model in a line, for headings; None where it is one node without a name."""
    remarks: tuple[str, ...] = ()
    """Nodes that are left out."""


def read_simulation(path: Path) -> Simulation:
    """Returns the model in a file.

    Raises:
        UsageError: not readable, not TOML, an unknown key or a value that cannot be.
    """
    layout = read_layout(path)
    if layout is None:
        small = read_fabric(path)
        return Simulation(
            topology=SimulatedEngine.topology_of(small),
            make_executor=lambda policy: SimulatedEngine(small, policy),
        )
    return Simulation(
        topology=topology_of(layout),
        make_executor=lambda policy: FabricEngine(layout, policy),
        note=summary_of(layout),
        remarks=tuple(remarks_of(layout)),
    )


def read_layout(path: Path) -> Layout | None:
    """Returns the fabric in a file; None where the file is no fabric's.

    Raises:
        UsageError: a fabric with an unknown key or a value that cannot be.
    """
    try:
        raw = msgspec.toml.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None  # the small model's reader says what is wrong with the file
    if not isinstance(raw, dict) or "fabric" not in raw:
        return None
    file = parse_fabric_file(path, raw)
    try:
        return lay_out(file)
    except UsageError as problem:
        raise UsageError(f"--simulate {path}: {problem}") from None
