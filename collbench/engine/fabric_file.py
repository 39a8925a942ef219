"""The large model's file: a fabric of nodes as TOML tables (docs/simulated_fabric.md).

Only the file's words are here: what each table may say, and which values cannot be.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from collbench.errors import UsageError, nearest

NodeRef = int | str
"""A node by its number, from 0, or by its name."""
Direction = Literal["both", "send", "receive"]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table."""


class Alpha(_Table, frozen=True, kw_only=True):
    """Latencies in us."""

    call: float = 5.0
    """Of every call, whatever it sends."""
    nvlink: float = 1.0
    """Of a hop inside a node."""
    leaf: float = 3.0
    """Of a hop between nodes of one leaf."""
    spine: float = 5.0
    """Of a hop between leaves."""


class Noise(_Table, frozen=True, kw_only=True):
    """How times differ from what the rates say; see ``fabric_noise``."""

    kind: Literal["normal", "skewed", "bimodal", "drift"] = "normal"
    size: float = 0.0
    """Of a trial, as a share of its time (bimodal, of its rate)."""
    share: float = 0.1
    """Bimodal only: the share of trials that are slow."""
    jitter: float = 0.0
    """Relative standard deviation of a call within its trial."""


class FabricTable(_Table, frozen=True, kw_only=True):
    """``[fabric]``: nodes, links, switches. All rates are of one direction."""

    nodes: int | None = None
    names: list[str] | None = None
    gpus_per_node: int = 8
    rails: int = 8
    nvlink_gb_per_s: float = 450.0
    """Of a GPU."""
    rail_gb_per_s: float = 50.0
    """Of a node's NIC on one rail."""
    leaves: int | list[int] | None = None
    """How many, of sizes as equal as can be; or the nodes of each."""
    nodes_a_leaf: int | None = None
    oversubscription: float | None = None
    """What a leaf's nodes can send, over what its uplinks carry; 1 where nothing is said."""
    uplinks: int | None = None
    """Of a leaf, on each rail; as many as the ratio asks for where nothing is said."""
    uplink_gb_per_s: float | None = None
    routing: Literal["none", "static", "hashed", "adaptive"] = "adaptive"
    alpha_us: Alpha = Alpha()
    noise: Noise = Noise()
    loss_timeout_us: float = 200_000.0
    """What a call waits whose last packet is lost."""
    seed: int = 1


class SlowNode(_Table, frozen=True, kw_only=True):
    """All NICs of a node run at ``factor`` of their rate."""

    node: NodeRef
    factor: float
    direction: Direction = "both"


class SlowRail(_Table, frozen=True, kw_only=True):
    """One NIC of a node runs at ``factor`` of its rate."""

    node: NodeRef
    rail: int
    factor: float
    direction: Direction = "both"


class SlowPath(_Table, frozen=True, kw_only=True):
    """Two nodes reach each other at ``factor`` of a rail's rate, on each rail and either way."""

    a: NodeRef
    b: NodeRef
    factor: float


class SlowUplink(_Table, frozen=True, kw_only=True):
    """All uplinks of a leaf run at ``factor`` of their rate."""

    leaf: int
    factor: float
    direction: Direction = "both"


class Loss(_Table, frozen=True, kw_only=True):
    """A node's links, or the path between two nodes, lose a share of all packets."""

    share: float
    node: NodeRef | None = None
    a: NodeRef | None = None
    b: NodeRef | None = None


class Hang(_Table, frozen=True, kw_only=True):
    """Every call of a node, or between two nodes, hangs."""

    node: NodeRef | None = None
    a: NodeRef | None = None
    b: NodeRef | None = None


class Split(_Table, frozen=True, kw_only=True):
    """Parts that cannot reach each other; a node in none of them reaches all."""

    groups: list[list[NodeRef]]


class Differs(_Table, frozen=True, kw_only=True):
    """A node with other software or hardware than most: it is left out, as real ones are."""

    node: NodeRef
    what: str


class Foreign(_Table, frozen=True, kw_only=True):
    """Somebody else's traffic takes a share of a leaf's uplinks, both ways, in some rounds."""

    leaf: int
    share: float
    first_round: int = 0
    last_round: int | None = None
    """Of the engine's rounds, counted from 0; None: to the end."""


class FabricFile(_Table, frozen=True, kw_only=True):
    """The whole file."""

    fabric: FabricTable
    slow_node: list[SlowNode] = []
    slow_rail: list[SlowRail] = []
    slow_path: list[SlowPath] = []
    slow_uplink: list[SlowUplink] = []
    loss: list[Loss] = []
    hang: list[Hang] = []
    split: list[Split] = []
    differs: list[Differs] = []
    foreign: list[Foreign] = []


_TABLES: dict[str, type[_Table]] = {
    "": FabricFile,
    "fabric": FabricTable,
    "fabric.alpha_us": Alpha,
    "fabric.noise": Noise,
    "slow_node": SlowNode,
    "slow_rail": SlowRail,
    "slow_path": SlowPath,
    "slow_uplink": SlowUplink,
    "loss": Loss,
    "hang": Hang,
    "split": Split,
    "differs": Differs,
    "foreign": Foreign,
}


def parse_fabric_file(path: Path, raw: dict[str, object]) -> FabricFile:
    """Returns the content of a file that has a table ``[fabric]``.

    Args:
        path: where it was read, for messages.
        raw: its tables.

    Raises:
        UsageError: an unknown key, a value of the wrong kind or one that cannot be.
    """
    try:
        _refuse_unknown_keys(raw, "")
        file = msgspec.convert(raw, FabricFile)
        _check_figures(file.fabric)
        _check_faults(file)
    except (msgspec.ValidationError, UsageError) as problem:
        raise UsageError(f"--simulate {path}: {problem}") from None
    return file


def _refuse_unknown_keys(table: dict[str, object], place: str) -> None:
    known = _TABLES[place].__struct_fields__
    for key, value in table.items():
        inner = f"{place}.{key}" if place else key
        if key not in known:
            hint = nearest(key, known) or ";"
            raise UsageError(f"unknown key {inner}{hint} allowed: {', '.join(known)}")
        if inner in _TABLES:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict):
                    _refuse_unknown_keys(part, inner)


def _check_figures(table: FabricTable) -> None:
    counts = {
        "nodes": table.nodes,
        "gpus_per_node": table.gpus_per_node,
        "rails": table.rails,
        "nodes_a_leaf": table.nodes_a_leaf,
        "uplinks": table.uplinks,
    }
    for name, count in counts.items():
        if count is not None and count < 1:
            raise UsageError(f"fabric.{name} is {count}; it must be 1 or more")
    above_zero = {
        "nvlink_gb_per_s": table.nvlink_gb_per_s,
        "rail_gb_per_s": table.rail_gb_per_s,
        "oversubscription": table.oversubscription,
        "uplink_gb_per_s": table.uplink_gb_per_s,
        "alpha_us.call": table.alpha_us.call,
    }
    for name, figure in above_zero.items():
        if figure is not None and not (figure > 0 and math.isfinite(figure)):
            raise UsageError(f"fabric.{name} is {figure}; it must be above 0 and finite")
    others = {
        "alpha_us.nvlink": table.alpha_us.nvlink,
        "alpha_us.leaf": table.alpha_us.leaf,
        "alpha_us.spine": table.alpha_us.spine,
        "noise.size": table.noise.size,
        "noise.jitter": table.noise.jitter,
        "loss_timeout_us": table.loss_timeout_us,
        "seed": table.seed,
    }
    for name, figure in others.items():
        if not (figure >= 0 and math.isfinite(figure)):
            raise UsageError(f"fabric.{name} is {figure}; it must be 0 or more and finite")
    if table.noise.kind in ("bimodal", "drift") and table.noise.size >= 1:
        raise UsageError(f"fabric.noise.size is {table.noise.size}; it must be below 1")


def _check_faults(file: FabricFile) -> None:
    factors = [fault.factor for fault in file.slow_node]
    factors += [fault.factor for fault in file.slow_rail]
    factors += [fault.factor for fault in file.slow_path]
    factors += [fault.factor for fault in file.slow_uplink]
    for factor in factors:
        if not 0 < factor <= 1:
            raise UsageError(
                f"factor {factor} must be above 0 and at most 1; 0.9 leaves nine tenths of the rate"
            )
    shares = [file.fabric.noise.share, *(fault.share for fault in file.loss)]
    shares += [fault.share for fault in file.foreign]
    for share in shares:
        if not 0 <= share < 1:
            raise UsageError(f"share {share} must be 0 or more and below 1")
    places: list[Loss | Hang] = [*file.loss, *file.hang]
    for place in places:
        ends = (place.a is not None, place.b is not None)
        if any(ends) != all(ends) or (place.node is None) != all(ends):
            raise UsageError("a table of loss or hang names node, or a and b: one of the two")
