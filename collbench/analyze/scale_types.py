"""What `scale` asks of a fabric and what came out: steps and observations."""

from __future__ import annotations

from enum import StrEnum

from collbench.model import Record, Status


class ScalePattern(StrEnum):
    """Who sends to whom."""

    PAIRS = "pairs"
    """Disjoint pairs across leaves at once, both directions."""
    INSIDE = "inside"
    """As many pairs inside leaves: the control."""
    HALF = "half"
    """Node i of n exchanges with node i + n/2 in the order given (n odd: the last one rests)."""
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"


PAIRED = (ScalePattern.PAIRS, ScalePattern.INSIDE)
RINGS = (ScalePattern.ALL_REDUCE, ScalePattern.ALL_GATHER, ScalePattern.REDUCE_SCATTER)


class NodeOrder(StrEnum):
    """How the nodes of a step stand one after the other."""

    CONTIGUOUS = "contiguous"
    """Leaf by leaf: what users get, and what hides oversubscription."""
    ROUND_ROBIN = "round_robin"
    """One of each leaf in turn: the most flows over the uplinks."""
    RANDOM = "random"


class Step(Record, frozen=True, kw_only=True):
    """One thing to run: a pattern over nodes in an order."""

    pattern: ScalePattern
    order: NodeOrder = NodeOrder.CONTIGUOUS
    seed: int = 0
    """Of the random order, or of the pairing that was drawn: each has connections of its own."""
    growth: int = 0
    """In which sequence nodes are added; 0: as given. Two tell a node's effect from n's."""
    asked: int = 0
    """The ladder's number: nodes, or of pairs across so many a leaf."""
    nodes: tuple[int, ...]
    """Node numbers in order; of pairs nodes 2 j and 2 j + 1 are pair j."""
    size_bytes: int
    repeat: int = 0

    @property
    def n(self) -> int:
        """Nodes that take part."""
        return len(self.nodes)

    @property
    def m(self) -> int:
        """Pairs that run at once; 0 where it is not a pattern of pairs."""
        return self.n // 2 if self.pattern in PAIRED else 0

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs, of a pattern of pairs and of halves."""
        if self.pattern is ScalePattern.HALF:
            half = self.n // 2
            return tuple(zip(self.nodes[:half], self.nodes[half : 2 * half], strict=True))
        if self.pattern not in PAIRED:
            return ()
        return tuple(zip(self.nodes[::2], self.nodes[1::2], strict=True))


class Observation(Record, frozen=True, kw_only=True):
    """What a step gave, of one rail."""

    step: Step
    status: Status = Status.OK
    rate_gb_per_s: float | None = None
    """The slowest pair's rate one way, of halves too, or the collective's bus bandwidth; None
    where it was not measured."""
    pair_rates_gb_per_s: tuple[float, ...] = ()
    """Of each pair, of halves too, in the step's order."""
    time_us: float | None = None
    """Of one call, the slowest rank's median."""
    p95_us: float | None = None
    algorithm: str | None = None
    """What ran, as proved: ``Ring/Simple``."""
    rail: int | None = None

    @property
    def usable(self) -> bool:
        """Whether it has a rate."""
        return self.status is Status.OK and bool(self.rate_gb_per_s)
