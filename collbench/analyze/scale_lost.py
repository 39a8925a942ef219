"""Steps of ``scale`` that have no rate: which, how they ended, and whether one node is in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analyze.scale_types import Observation
from collbench.model import Status

_FEWEST = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LostSteps:
    """What has no rate."""

    steps: tuple[str, ...]
    """Each in words."""
    node: int | None
    """That is in all of them and in none that has a rate; None where there is no such one."""
    summary: str
    """``12 of 60 steps have no rate (pairs: 8 hung, all_reduce: 4 hung), all of them with node 6``;
    empty where all have."""


def lost_steps(observations: Sequence[Observation]) -> LostSteps:
    """Returns the steps without a rate, on whatever rail."""
    lost = list({one.step: one for one in observations if one.status is not Status.OK}.values())
    node = _node_in_all(lost, observations)
    kinds = Counter((str(one.step.pattern), str(one.status)) for one in lost)
    named = ", ".join(f"{pattern}: {n} {how}" for (pattern, how), n in kinds.most_common())
    count = len({one.step for one in observations})
    summary = f"{len(lost)} of {count} steps have no rate ({named})" if lost else ""
    if node is not None:
        summary += f", all of them with node {node}"
    return LostSteps(
        steps=tuple(
            f"{one.step.pattern} {one.step.order} n={one.step.n}: {one.status}" for one in lost
        ),
        node=node,
        summary=summary,
    )


def _node_in_all(lost: Sequence[Observation], observations: Sequence[Observation]) -> int | None:
    if len(lost) < _FEWEST:
        return None
    well = {node for one in observations if one.usable for node in one.step.nodes}
    common = set.intersection(*(set(one.step.nodes) for one in lost)) - well
    return common.pop() if len(common) == 1 else None
