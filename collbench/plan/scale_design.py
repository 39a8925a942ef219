"""What `scale` is asked, whether it can be, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collbench.analyze.flows import leaf_of_nodes
from collbench.analyze.scale_types import ScalePattern, Step
from collbench.errors import UsageError, nearest
from collbench.model import Record
from collbench.plan.scale_draw import contiguous, without

ASK_ABOVE_S = 1800.0
"""A longer plan wants the user's word."""

FEWEST_NODES = 2


class ScaleDesign(Record, frozen=True, kw_only=True):
    """What is asked."""

    leaves: tuple[tuple[int, ...], ...] = ()
    """Node numbers by leaf, in the order in which nodes are added."""
    nodes: tuple[int, ...] = ()
    """Instead of leaves, where these are unknown: random orders only."""
    patterns: tuple[ScalePattern, ...] = (
        ScalePattern.PAIRS,
        ScalePattern.INSIDE,
        ScalePattern.HALF,
        ScalePattern.ALL_REDUCE,
        ScalePattern.ALL_TO_ALL,
    )
    repeats: int = 3
    redraws: int = 8
    """Pairings across at each step: 8 or more where flows are hashed over uplinks."""
    random_orders: int = 3
    growths: int = 2
    """Sequences in which nodes are added; two tell a slow node from n."""
    size_bytes: int
    small_bytes: int | None = None
    """A second size, run once a step, from which latency is known."""
    step: int | None = None
    """Distance between numbers of nodes; None: every one to 16, then times 1.25."""
    one_node: bool = False
    """Also one node alone, where it has several GPUs: what efficiency is held against."""
    seed: int = 0

    @property
    def all_nodes(self) -> tuple[int, ...]:
        """Every node that can take part."""
        return contiguous(self.leaves) if self.leaves else self.nodes


class Estimate(Record, frozen=True, kw_only=True):
    """What a plan costs."""

    steps: int
    seconds: float
    node_hours: float
    """Of all nodes, those that rest included: they are held."""

    @property
    def asks(self) -> bool:
        """Whether it wants the user's word."""
        return self.seconds > ASK_ABOVE_S


def check_design(design: ScaleDesign) -> None:
    """Refuses what cannot be.

    Raises:
        UsageError: leaves and nodes both given or neither, a node twice, fewer than two nodes,
            no pattern, a number below one.
    """
    if bool(design.leaves) == bool(design.nodes):
        raise UsageError("scale needs either leaves or nodes; give nodes where leaves are unknown")
    leaf_of_nodes(design.leaves or (design.nodes,))
    count = len(design.all_nodes)
    if count < FEWEST_NODES or len(set(design.all_nodes)) < count:
        raise UsageError(
            f"scale has {count} nodes, {len(set(design.all_nodes))} of them different; at least"
            f" {FEWEST_NODES} different ones are needed; correct the list"
        )
    numbers = {
        "repeats": design.repeats,
        "redraws": design.redraws,
        "random_orders": design.random_orders,
        "growths": design.growths,
        "size_bytes": design.size_bytes,
        "step": 1 if design.step is None else design.step,
    }
    for name, value in numbers.items():
        if value < 1:
            raise UsageError(f"{name} is {value}; 1 or more is allowed")
    if not design.patterns:
        raise UsageError(f"scale has no pattern; allowed: {', '.join(ScalePattern)}")


def pattern_of(word: str) -> ScalePattern:
    """Returns the pattern of a name.

    Raises:
        UsageError: no such pattern.
    """
    try:
        return ScalePattern(word)
    except ValueError:
        raise UsageError(
            f"there is no pattern {word!r}{nearest(word, ScalePattern)}; allowed:"
            f" {', '.join(ScalePattern)}"
        ) from None


def estimate(steps: Sequence[Step], *, nodes: int, step_s: float, start_s: float = 0.0) -> Estimate:
    """Returns what steps cost.

    Args:
        steps: to run.
        nodes: held meanwhile.
        step_s: of one step: new connections, warm-up, samples.
        start_s: of a repeat's fresh processes.
    """
    seconds = len(steps) * step_s + len({step.repeat for step in steps}) * start_s
    return Estimate(steps=len(steps), seconds=seconds, node_hours=nodes * seconds / 3600)


def without_nodes(design: ScaleDesign, lost: frozenset[int]) -> ScaleDesign:
    """Returns the design without lost nodes, and without leaves that are empty then."""
    return msgspec.structs.replace(
        design,
        leaves=tuple(without(design.leaves, lost)),
        nodes=tuple(node for node in design.nodes if node not in lost),
    )
