"""What a step of ``scale`` runs: the engine's round that it makes, and its name in the records.

Pairs are groups of two ranks, on every rail at once; halves are such pairs as well, node i with
node i + n/2. A ring, or an all_to_all, is one group whose ranks stand in the order of the nodes.
"""

from __future__ import annotations

import msgspec

from collbench.analyze.scale_rows import group_name
from collbench.analyze.scale_types import Step
from collbench.engine.protocol import Group, Round
from collbench.model import Policy
from collbench.plan.message_size import window
from collbench.plan.pair_cases import PairPlace, case_between

MESSAGES = 25
"""Of a step: enough for a p95, by which jitter is known."""


class ScaleRounds:
    """Makes the engine's rounds.

    Args:
        place: where, and how.
    """

    def __init__(self, place: PairPlace) -> None:
        self._place = place

    def of(self, step: Step, number: int, message_s: float = 0.0) -> Round:
        """Returns a step's round, with a number of its own in the run.

        Args:
            step: what is to run.
            number: of the round.
            message_s: the shortest time that a message of that size took, as far as is known.
        """
        groups = self._pairs(step) if step.pairs else (self._whole(step),)
        policy = self._policy_of(step, message_s)
        return Round(repeat=step.repeat, groups=groups, number=number, policy=policy)

    def _policy_of(self, step: Step, message_s: float) -> Policy:
        """The data are checked in the first draw alone: in all others the same code runs.

        The algorithm is forced; to prove it would take each process and communicator twice.
        """
        place = self._place
        first = step.repeat == 0 and step.seed == 0
        return msgspec.structs.replace(
            place.policy,
            window=window(place.backend, MESSAGES, message_s),
            check=first and place.policy.check,
            proof=False,
        )

    def _pairs(self, step: Step) -> tuple[Group, ...]:
        ends = [
            (place, rail, ranks)
            for place, (a, b) in enumerate(step.pairs)
            # Nodes with unlike numbers of GPUs exchange on the rails that both have.
            for rail, ranks in enumerate(
                zip(self._place.ranks[a], self._place.ranks[b], strict=False)
            )
        ]
        case = case_between(self._place, "send_recv", 2, step.size_bytes)
        return tuple(
            Group(ranks=ranks, cases=(case,), name=group_name(step, place, rail, len(ends)))
            for place, rail, ranks in ends
        )

    def _whole(self, step: Step) -> Group:
        ranks = tuple(rank for node in step.nodes for rank in self._place.ranks[node])
        case = case_between(
            self._place, str(step.pattern), len(ranks), step.size_bytes, nodes=len(step.nodes)
        )
        return Group(ranks=ranks, cases=(case,), name=group_name(step, 0, 0, 1))
