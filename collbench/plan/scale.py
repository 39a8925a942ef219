"""The plan of `scale`: which steps run next, from what is asked and what came out so far.

Everything that is compared with each other is interleaved in time: patterns, orders, numbers of
nodes and draws of a repeat run in one drawn order, so that drift does not look like a knee.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import msgspec

from collbench.analyze.flows import flows_per_uplink, leaf_of_nodes
from collbench.analyze.knee import KneeAnswer, fit_knee
from collbench.analyze.knee_points import correct_latency, points_of
from collbench.analyze.scale_types import (
    PAIRED,
    RINGS,
    NodeOrder,
    Observation,
    ScalePattern,
    Step,
)
from collbench.model import Status
from collbench.plan import scale_draw as draws
from collbench.plan.scale_design import FEWEST_NODES, ScaleDesign, check_design, without_nodes

_INSIDE_DRAWS = 3
"""Pairings of the control: each node meets other partners, so that a slow one is told from them."""


def next_steps(
    design: ScaleDesign,
    done: Sequence[Observation] = (),
    lost: frozenset[int] = frozenset(),
) -> tuple[Step, ...]:
    """Returns what to run next, in order; nothing when the plan is through.

    First the ladder. What of it did not run for want of a lost node is planned again without that
    node. Then a bisection between the two steps that stand around the knee, until they are
    neighbours.

    Raises:
        UsageError: a design that cannot be (``check_design``).
    """
    check_design(design)
    left = without_nodes(design, lost)
    if len(left.all_nodes) < FEWEST_NODES:
        return ()
    ran = {_identity(one.step) for one in done if _final(one, lost)}
    open_steps = [step for step in _ladder_steps(left) if _identity(step) not in ran]
    if not open_steps and done:
        found = _bisection(left, done)
        open_steps = [step for step in found if _identity(step) not in ran]
    return tuple(_interleaved(open_steps, design.seed))


def _identity(step: Step) -> Hashable:
    """Returns what a step asks; its nodes may change when one is lost."""
    return (
        step.pattern,
        step.order,
        step.seed,
        step.growth,
        step.asked,
        step.size_bytes,
        step.repeat,
    )


def _final(one: Observation, lost: frozenset[int]) -> bool:
    """Whether its step is not to run again: whatever failed without a lost node stays failed."""
    return one.status is Status.OK or not lost & set(one.step.nodes)


def _interleaved(steps: Sequence[Step], seed: int) -> Iterator[Step]:
    """Yields repeat by repeat, each in an order of its own."""
    for repeat in sorted({step.repeat for step in steps}):
        mine = [step for step in steps if step.repeat == repeat]
        draws.generator(seed, "order", repeat).shuffle(mine)
        yield from mine


def _ladder_steps(design: ScaleDesign) -> Iterator[Step]:
    lowest = 1 if design.one_node else 2
    counts = draws.ladder(lowest, len(design.all_nodes), design.step)
    pairs = draws.ladder(1, _most_pairs(design.leaves), design.step)
    for repeat in range(design.repeats):
        for pattern in design.patterns:
            for asked in pairs if pattern in PAIRED else counts:
                yield from _steps_at(design, pattern, asked, repeat)


def _most_pairs(leaves: draws.Leaves) -> int:
    """Returns the most pairs a leaf; of one leaf alone, those inside it."""
    return len(leaves[0]) // 2 if len(leaves) == 1 else draws.most_pairs_a_leaf(leaves)


def _steps_at(
    design: ScaleDesign, pattern: ScalePattern, asked: int, repeat: int
) -> Iterator[Step]:
    """Yields all steps of a pattern at one number: draws, orders, growths and sizes."""
    if pattern in PAIRED:
        found = _pairings(design, pattern, asked, repeat)
    elif design.leaves:
        found = _ordered(design, pattern, asked, repeat)
    else:
        found = _random_alone(design, pattern, asked, repeat)
    for step in found:
        yield step
        if design.small_bytes is not None and repeat == 0 and step.seed == 0:
            yield _resized(step, design.small_bytes)


def _resized(step: Step, size_bytes: int) -> Step:
    return msgspec.structs.replace(step, size_bytes=size_bytes)


def _pairings(
    design: ScaleDesign, pattern: ScalePattern, asked: int, repeat: int
) -> Iterator[Step]:
    across = pattern is ScalePattern.PAIRS
    for seed in range(design.redraws if across else min(design.redraws, _INSIDE_DRAWS)):
        draw = draws.generator(design.seed, pattern, asked, seed, repeat)
        nodes = draws.pairs_across(design.leaves, asked, draw)
        if not across:
            as_many = len(nodes) // 2 if len(design.leaves) > 1 else asked
            nodes = draws.pairs_inside(design.leaves, as_many, draw)
        if nodes:
            yield Step(
                pattern=pattern,
                order=NodeOrder.RANDOM,
                seed=seed,
                asked=asked,
                nodes=nodes,
                size_bytes=design.size_bytes,
                repeat=repeat,
            )


def _ordered(design: ScaleDesign, pattern: ScalePattern, n: int, repeat: int) -> Iterator[Step]:
    """Yields the orders of one set of nodes; rings hide in one what they show in another."""
    # The two halves of one node are none.
    if n == 1 and pattern is ScalePattern.HALF:
        return
    growths = design.growths if pattern in RINGS and repeat == 0 else 1
    for growth in range(growths):
        part = draws.first_nodes(draws.grown(design.leaves, growth, design.seed), n)
        base = draws.contiguous(part)
        orders = [(NodeOrder.CONTIGUOUS, 0, base)]
        if pattern in RINGS and growth == 0 and len(part) > 1:
            orders.append((NodeOrder.ROUND_ROBIN, 0, draws.round_robin(part)))
            for seed in range(design.random_orders):
                draw = draws.generator(design.seed, pattern, n, seed, repeat)
                orders.append((NodeOrder.RANDOM, seed, draws.shuffled(base, draw)))
        for order, seed, nodes in orders:
            yield Step(
                pattern=pattern,
                order=order,
                seed=seed,
                growth=growth,
                asked=n,
                nodes=nodes,
                size_bytes=design.size_bytes,
                repeat=repeat,
            )


def _random_alone(
    design: ScaleDesign, pattern: ScalePattern, n: int, repeat: int
) -> Iterator[Step]:
    """Yields random orders, each seed with a sequence of adding nodes of its own."""
    if n == 1 and pattern is ScalePattern.HALF:
        return
    for seed in range(design.random_orders):
        sequence = draws.shuffled(design.nodes, draws.generator(design.seed, "sequence", seed))
        draw = draws.generator(design.seed, pattern, n, seed, repeat)
        yield Step(
            pattern=pattern,
            order=NodeOrder.RANDOM,
            seed=seed,
            growth=seed,
            asked=n,
            nodes=draws.shuffled(sequence[:n], draw),
            size_bytes=design.size_bytes,
            repeat=repeat,
        )


def _bisection(design: ScaleDesign, done: Sequence[Observation]) -> Iterator[Step]:
    """Yields the steps halfway between those around the knee, for each pattern."""
    leaf_of = leaf_of_nodes(design.leaves) if design.leaves else None
    known = [one for one in done if leaf_of is None or leaf_of.keys() >= set(one.step.nodes)]
    corrected, _ = correct_latency(known)
    pairs = [one for one in corrected if one.step.pattern in PAIRED]
    fit = fit_knee(points_of(pairs or corrected, leaf_of))
    if fit.answer is not KneeAnswer.KNEE or fit.flows is None:
        return
    for pattern in design.patterns:
        asked = {
            one.step.asked: _load(one.step, leaf_of)
            for one in corrected
            if one.step.pattern is pattern and one.step.order is _loading(pattern, leaf_of)
        }
        middle = _halfway(asked, fit.flows)
        for repeat in range(design.repeats) if middle is not None else ():
            yield from _steps_at(design, pattern, middle or 0, repeat)


def _loading(pattern: ScalePattern, leaf_of: dict[int, int] | None) -> NodeOrder:
    """Returns the order in which a pattern loads the uplinks as the knee needs it."""
    if leaf_of is None or pattern in PAIRED:
        return NodeOrder.RANDOM
    return NodeOrder.ROUND_ROBIN if pattern in RINGS else NodeOrder.CONTIGUOUS


def _load(step: Step, leaf_of: dict[int, int] | None) -> float:
    if leaf_of is None:
        return float(step.n)
    # The control crosses nothing; it follows the pairs.
    if step.pattern is ScalePattern.INSIDE:
        return float(step.asked)
    return flows_per_uplink(step, leaf_of)


def _halfway(asked: dict[int, float], knee: float) -> int | None:
    """Returns the number between the last step before the knee and the first after it."""
    before = max((number for number, load in asked.items() if load <= knee), default=None)
    if before is None:
        return None
    after = min(
        (number for number, load in asked.items() if load > knee and number > before),
        default=None,
    )
    if after is None or after - before < 2:
        return None
    return (before + after) // 2
