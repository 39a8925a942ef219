"""What is said of nodes and of the fabric between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from collbench.errors import ExitCode


class NodeState(StrEnum):
    """The verdict on a node."""

    PASS = "pass"  # noqa: S105
    SUSPECT = "suspect"
    """It looked bad once, and not when it was run again; or it was not yet run again."""
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not_tested"


class NodeCode(StrEnum):
    """What is wrong with a node."""

    NODE_SLOW = "node_slow"
    RAIL_SLOW = "rail_slow"
    SLOW_SEND = "slow_send"
    SLOW_RECEIVE = "slow_receive"
    LOSSY = "lossy"
    CONFIG_DIFFERS = "config_differs"
    HANGS = "hangs"
    FAILS = "fails"
    """Its pairs crash or raise."""
    DATA_WRONG = "data_wrong"


class FabricCode(StrEnum):
    """What is wrong between nodes."""

    SLOW_PATH = "slow_path"
    LEAF_UPLINK_SLOW = "leaf_uplink_slow"
    SPLIT_FABRIC = "split_fabric"


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """How much slower than expected: shares, negative is slower; -0.1 is 10 % slower."""

    share: float
    low: float
    high: float
    """The 95 % interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeVerdict:
    """One node's verdict with what it rests on."""

    node: int
    verdict: NodeState
    code: NodeCode | None = None
    measured: float | None = None
    expected: float | None = None
    bar: str | None = None
    """The bar that ``expected`` is, in its words; None: what the other nodes give."""
    unit: str = "GB/s"
    effect: Effect | None = None
    partners: int = 0
    """Different nodes that it was paired with."""
    rounds: int = 0
    """Rounds that it was in."""
    confirmed: bool = False
    """Found again with known-good partners, so that its name is not chance."""
    cleared: bool = False
    """A suspect that was fine when it was run again."""
    evidence: tuple[str, ...] = ()
    rail: int | None = None
    """The slowest of the rails at fault."""
    rails: tuple[int, ...] = ()
    """All rails at fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricVerdict:
    """One fault between nodes."""

    code: FabricCode
    nodes: tuple[int, ...] = ()
    """slow_path: the two ends; split_fabric: the smaller part."""
    leaves: tuple[str, ...] = ()
    """leaf_uplink_slow: one leaf, or two where one pair of leaves cannot tell which."""
    rail: int | None = None
    measured: float | None = None
    expected: float | None = None
    unit: str = "GB/s"
    effect: Effect | None = None
    pairs: int = 0
    """Values that it rests on."""
    confirmed: bool = False
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseResult:
    """The answer: every node's verdict, in the order of their numbers, and the fabric's."""

    nodes: tuple[NodeVerdict, ...]
    fabric: tuple[FabricVerdict, ...]
    reference: str | None
    """What values were held against; None: no absolute reference, equal is not fast."""
    smallest_fault: float | None
    """Slower by less than this share goes unseen at the first look; the worst series'."""
    smallest_loss: float | None
    """The smallest share of lost messages that could have been seen: 3 / round trips."""
    across_share: float | None
    """What pairs across leaves got of what pairs inside leaves got, all at once: medians."""
    throttled_share: float | None
    """The same, no more at once than the uplinks carry; None where they did not run so."""
    collisions: float | None
    """Share of pairs across leaves that fell behind the others of their round."""
    broken_pairs: int = 0
    """Pairs that hung, crashed, failed or returned wrong data at least once."""

    @property
    def counts(self) -> dict[NodeState, int]:
        """How many nodes have each verdict."""
        found = Counter(node.verdict for node in self.nodes)
        return {state: found[state] for state in NodeState}

    @property
    def words_on_reference(self) -> str:
        """The reference in words."""
        return self.reference or "no absolute reference: equal is not fast"

    def of(self, verdict: NodeState) -> tuple[NodeVerdict, ...]:
        """Returns the nodes of a verdict."""
        return tuple(node for node in self.nodes if node.verdict == verdict)

    @property
    def exit_code(self) -> ExitCode:
        """1: a fault is confirmed; 4: something is open, broke or was not tested; else 0."""
        confirmed = any(fault.confirmed for fault in self.fabric)
        if confirmed or self.of(NodeState.FAIL):
            return ExitCode.CONFIRMED_BAD
        cleared = all(node.cleared for node in self.of(NodeState.SUSPECT))
        open_ = self.of(NodeState.INCONCLUSIVE) or self.of(NodeState.NOT_TESTED) or self.fabric
        if open_ or self.broken_pairs or not cleared:
            return ExitCode.INCOMPLETE
        return ExitCode.FINE
