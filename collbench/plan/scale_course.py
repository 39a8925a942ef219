"""The course of a ``scale`` run: the ladder, what was lost again, a bisection round the drop.

No step is begun twice, so that it ends whatever becomes of the steps: what failed stays failed, but
for what a node that is gone took with it, which is planned again without that node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from collbench.analyze.pair_rows import PROBES
from collbench.analyze.scale_rows import breaking_nodes, observations_of, unfinished_rounds
from collbench.analyze.scale_types import Observation, Step
from collbench.engine.protocol import Round
from collbench.model import NodeState, Status, Topology, Trial
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
    _begun: set[Step] = field(default_factory=set)
    _faulty: list[Trial] = field(default_factory=list)
    """Those that are laid to nodes."""
    _fastest_s: dict[int, float] = field(default_factory=dict)
    """By the size asked for, the shortest time of a trial."""

    def hear(self, trial: Trial) -> None:
        """Takes in a trial that is stored."""
        self.trials[trial.trial_id] = trial
        if trial.culprits:
            self._faulty.append(trial)
        if trial.status is Status.OK and trial.summary is not None:
            size, time_s = trial.case.requested_bytes, trial.summary.median_us / 1e6
            self._fastest_s[size] = min(time_s, self._fastest_s.get(size, time_s))

    def observations(self) -> list[Observation]:
        """Returns what every step gave so far."""
        return observations_of(self.topology(), self.trials.values())

    def rounds(self) -> Iterator[Round]:
        """Yields the rounds of the run, one by one; a run that goes on begins here as well.

        What an interruption or a lost node left out comes again, as a round of its own; what hung
        does not, since it tells something.
        """
        numbers = count(
            1 + max((t.group.round for t in self.trials.values() if t.group), default=-1)
        )
        self._forget_unfinished()
        if self.probe:
            yield from self._probed(numbers)
        rounds = ScaleRounds(self.place)
        while steps := self._next():
            for step in steps:
                if not set(step.nodes) & self._left_out():
                    self._begun.add(step)
                    yield rounds.of(step, next(numbers), self._message_s(step))

    def _message_s(self, step: Step) -> float:
        """Returns the shortest time that a message of a step's size took; 0 where none is known.

        A model's messages take what it says from the first one on.
        """
        return (
            0.0 if self.place.backend == "simulated" else self._fastest_s.get(step.size_bytes, 0.0)
        )

    def _forget_unfinished(self) -> None:
        numbers = unfinished_rounds(self.trials.values())
        self.trials = {
            name: trial
            for name, trial in self.trials.items()
            if trial.group is None or trial.group.round not in numbers
        }

    def _next(self) -> list[Step]:
        steps = next_steps(self.design, self.observations(), self._left_out())
        return [step for step in steps if step not in self._begun]

    def _left_out(self) -> frozenset[int]:
        """Returns the nodes that are gone, and those that break what they take part in."""
        breaking = breaking_nodes(self._faulty)
        return frozenset(
            number
            for number, node in enumerate(self.topology().nodes)
            if node.state is not NodeState.PRESENT or node.name in breaking
        )

    def _probed(self, numbers: Iterator[int]) -> Iterator[Round]:
        """Finds the size by a few pairs of neighbours; a run that goes on has it from before."""
        if not self._probes():
            size_bytes = PROBE_BYTES.get(self.place.backend, PROBE_BYTES_ELSE)
            nodes = self.design.all_nodes
            pairs = list(zip(nodes[::2], nodes[1::2], strict=False))[:_PROBE_PAIRS]
            yield PairRounds(self.place, size_bytes, next(numbers)).probe(pairs, size_bytes)
        size = fitting_size_bytes(self._probes(), self.place.backend)
        self.design = msgspec.structs.replace(
            self.design, size_bytes=size, small_bytes=size // SMALLER
        )

    def _probes(self) -> list[Trial]:
        """Returns what the probe gave, without what an interruption left out."""
        return [
            trial
            for trial in self.trials.values()
            if trial.group is not None
            and trial.group.name.startswith(PROBES)
            and trial.status is not Status.SKIPPED
        ]


def planned_trials(steps: Sequence[Step], rails: int) -> int:
    """Returns how many trials steps make."""
    return sum(len(step.pairs) * rails if step.pairs else 1 for step in steps)
