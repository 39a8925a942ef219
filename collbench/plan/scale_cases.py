"""What a step of ``scale`` runs: the engine's round that it makes, and its name in the records.

Pairs are groups of two ranks, on every rail at once; halves are such pairs as well, node i with
node i + n/2. A ring, or an all_to_all, is one group whose ranks stand in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collbench.analyze.scale_rows import group_name
from collbench.analyze.scale_types import PAIRED, ScalePattern, Step
from collbench.engine.protocol import Group, Round
from collbench.model import Policy
from collbench.plan.pair_cases import Pair, PairPlace, case_between

SAMPLES = 10


class ScaleRounds:
    """Makes the engine's rounds.

    Args:
        place: where, and how.
    """

    def __init__(self, place: PairPlace) -> None:
        self._place = place
        # Proved once a step would double the processes; the first small steps are enough.
        self._policy = msgspec.structs.replace(
            place.policy, samples=SAMPLES, warmup=1, proof=False, check=False
        )

    def of(self, step: Step, number: int) -> Round:
        """Returns a step's round, with a number of its own in the run."""
        if step.pattern in PAIRED or step.pattern is ScalePattern.HALF:
            groups = self._pairs(step, pairs_of(step))
        else:
            groups = (self._whole(step),)
        return Round(repeat=step.repeat, groups=groups, number=number, policy=self._policy_of(step))

    def _policy_of(self, step: Step) -> Policy:
        """The data are checked in the first draw alone: in all others the same code runs."""
        first = step.repeat == 0 and step.seed == 0
        return msgspec.structs.replace(self._policy, check=first and self._place.policy.check)

    def _pairs(self, step: Step, pairs: Sequence[Pair]) -> tuple[Group, ...]:
        found = []
        for place, (a, b) in enumerate(pairs):
            mine, others = self._place.ranks[a], self._place.ranks[b]
            for rail in range(min(len(mine), len(others))):
                case = case_between(self._place, "send_recv", 2, step.size_bytes)
                name = group_name(step, place, rail)
                found.append(Group(ranks=(mine[rail], others[rail]), cases=(case,), name=name))
        return tuple(found)

    def _whole(self, step: Step) -> Group:
        ranks = tuple(rank for node in step.nodes for rank in self._place.ranks[node])
        case = case_between(
            self._place, str(step.pattern), len(ranks), step.size_bytes, nodes=len(step.nodes)
        )
        return Group(ranks=ranks, cases=(case,), name=group_name(step, 0, 0))


def pairs_of(step: Step) -> tuple[Pair, ...]:
    """Returns who exchanges with whom, of pairs and of halves."""
    if step.pattern is ScalePattern.HALF:
        half = step.n // 2
        return tuple((step.nodes[i], step.nodes[i + half]) for i in range(half))
    return step.pairs
