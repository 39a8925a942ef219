"""The fields of ``collbench.verdict/1``."""

from __future__ import annotations

import msgspec

from collbench.report.pair_component import Component

VERDICT_SCHEMA = "collbench.verdict/1"


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One node's verdict; what is not known is None."""

    node: str
    """The scheduler's name."""
    verdict: str
    confirmed: bool = False
    code: str | None = None
    component: Component | None = None
    measured: float | None = None
    expected: float | None = None
    expected_from: str | None = None
    unit: str | None = None
    effect_pct: float | None = None
    """Negative: slower."""
    ci95_pct: tuple[float, float] | None = None
    partners: int = 0
    rounds: int = 0
    evidence: list[str]
    action: str
    """``drain``, ``retest`` or ``none``."""
    reason: str
    """One ASCII line of at most 120 characters without quotes."""


class FabricDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A fault between nodes, which is none of theirs; what is not known is None."""

    code: str
    """``slow_path``, ``leaf_uplink_slow`` or ``split_fabric``."""
    nodes: list[str]
    """The ends of a path; the smaller part of a split fabric."""
    leaves: list[str]
    """Whose uplinks are slow: one, or two where it cannot be told which."""
    rail: int | None
    measured: float | None
    expected: float | None
    unit: str | None
    effect_pct: float | None
    """Negative: slower."""
    ci95_pct: tuple[float, float] | None
    pairs: int
    """Values that it rests on."""
    confirmed: bool
    evidence: list[str]


class NotTested(msgspec.Struct, frozen=True, kw_only=True):
    """What was not looked at."""

    what: str
    why: str


class VerdictDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole object."""

    schema: str = VERDICT_SCHEMA
    run_id: str
    simulated: bool
    cluster: str
    job_id: str | None
    user: str | None
    started: str
    """UTC, ISO 8601."""
    ended: str
    """Likewise; of a run that goes on, when this was said."""
    exit: int
    nodes_asked: int
    nodes_answered: int
    nodes: list[NodeDocument]
    fabric: list[FabricDocument]
    not_tested: list[NotTested]
