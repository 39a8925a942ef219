"""The course of a ``scale`` run: the ladder, what was lost again, a bisection round the drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from collbench.analyze.scale_rows import observations_of
from collbench.analyze.scale_types import Observation, Step
from collbench.engine.protocol import Round
from collbench.model import NodeState, Topology, Trial
from collbench.plan.message_size import PROBE_BYTES, PROBE_BYTES_ELSE, fitting_size_bytes
from collbench.plan.pair_cases import PairPlace, PairRounds
from collbench.plan.scale import next_steps
from collbench.plan.scale_cases import ScaleRounds
from collbench.plan.scale_design import ScaleDesign

SMALLER = 8
"""The second size, from which latency is known, is so many times smaller."""
_PROBE_PAIRS = 8


@dataclass
class ScaleCourse:
    """Yields rounds; has to be told each trial before the next is asked for.

    Args:
        place: what runs where.
        design: what is asked; its sizes count only if one is given.
        probe: whether the size is to be found.
        topology: as it is now: nodes get lost.
    """

    place: PairPlace
    design: ScaleDesign
    probe: bool
    topology: Callable[[], Topology]
    trials: dict[str, Trial] = field(default_factory=dict)

    def hear(self, trial: Trial) -> None:
        """Takes in a trial that is stored."""
        self.trials[trial.trial_id] = trial

    def observations(self) -> list[Observation]:
        """Returns what every step gave so far."""
        return observations_of(self.topology(), self.trials.values())

    def rounds(self) -> Iterator[Round]:
        """Yields the rounds of the run, one by one; a run that goes on begins here as well."""
        numbers = count(
            1 + max((t.group.round for t in self.trials.values() if t.group), default=-1)
        )
        if self.probe:
            yield from self._probed(numbers)
        rounds = ScaleRounds(self.place)
        while steps := self._next():
            for step in steps:
                if not set(step.nodes) & self._lost():
                    yield rounds.of(step, next(numbers))

    def _next(self) -> tuple[Step, ...]:
        lost = self._lost()
        steps = next_steps(self.design, self.observations(), lost)
        # What was asked and did not run for want of a node is planned anew without it, once.
        return tuple(step for step in steps if not set(step.nodes) & lost)

    def _lost(self) -> frozenset[int]:
        return frozenset(
            number
            for number, node in enumerate(self.topology().nodes)
            if node.state is not NodeState.PRESENT
        )

    def _probed(self, numbers: Iterator[int]) -> Iterator[Round]:
        """Finds the size by a few pairs of neighbours; a run that goes on has it from before."""
        size = self._size_of_before()
        if size is None:
            size_bytes = PROBE_BYTES.get(self.place.backend, PROBE_BYTES_ELSE)
            nodes = self.design.all_nodes
            pairs = list(zip(nodes[::2], nodes[1::2], strict=False))[:_PROBE_PAIRS]
            probe = PairRounds(self.place, size_bytes, next(numbers)).probe(pairs, size_bytes)
            yield probe
            ids = [probe.trial_id(group, case) for group in probe.groups for case in group.cases]
            heard = [self.trials[name] for name in ids if name in self.trials]
            size = fitting_size_bytes(heard, self.place.backend)
        self.design = msgspec.structs.replace(
            self.design, size_bytes=size, small_bytes=size // SMALLER
        )

    def _size_of_before(self) -> int | None:
        sizes = [one.step.size_bytes for one in self.observations()]
        return max(sizes, default=None)


def planned_trials(steps: Sequence[Step], rails: int) -> int:
    """Returns how many trials steps make."""
    return sum(max(1, step.m or step.n // 2) * rails if _paired(step) else 1 for step in steps)


def _paired(step: Step) -> bool:
    return bool(step.m) or step.pattern == "half"
