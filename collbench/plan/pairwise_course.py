"""The course of a ``pairwise`` run: the schedule, then whoever looks bad again.

A plan that looks at verdicts. The next round is made from the trials so far: nodes that were lost
are left out, suspects meet other partners, nodes that are slow send one way and then the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from collbench.analyze.pair_fabric import uplink_share
from collbench.analyze.pair_rows import state_of
from collbench.analyze.pair_state import AT_SCALE, PairwiseState, Reference
from collbench.analyze.pair_suspects import control_pairs, next_suspects, one_way_pairs
from collbench.engine.protocol import Round
from collbench.model import NodeState, Status, Topology, Trial
from collbench.plan.message_size import PROBE_BYTES, PROBE_BYTES_ELSE, fitting_size_bytes
from collbench.plan.pair_cases import Pair, PairPlace, PairRounds
from collbench.plan.pair_matchings import throttled
from collbench.plan.pairwise import RoundKind, Schedule, confirmation_rounds
from collbench.store import StoredRun

MOST_TURNS = 16
"""Of running suspects again; each suspect runs at most half as often."""
FEW_NODES = 16
"""Up to so many suspects run by themselves: it costs little and nothing else can be to blame."""
_PROBE_PAIRS = 8
_FULL_SHARE = 0.9
"""Of the rate inside leaves: uplinks that carry so much are not short."""


@dataclass
class PairwiseCourse:
    """Yields rounds; has to be told each trial before the next is asked for.

    Args:
        place: what runs where.
        schedule: of the members, by their places.
        members: node numbers that take part, in the topology's order.
        topology: as it is now: nodes get lost.
        stored: the run as far as it is stored, for the samples of latency passes.
        serial: one pair at a time also where suspects run again.
        size_bytes: of a message; None: chosen by a short probe.
        reference: an absolute bar, if there is one.
    """

    place: PairPlace
    schedule: Schedule
    members: Sequence[int]
    topology: Callable[[], Topology]
    stored: Callable[[], StoredRun]
    serial: bool
    size_bytes: int | None
    reference: Reference | None = None
    trials: dict[str, Trial] = field(default_factory=dict)

    def hear(self, trial: Trial) -> None:
        """Takes in a trial that is stored."""
        self.trials[trial.trial_id] = trial

    def state(self) -> PairwiseState:
        """Returns what is known so far."""
        return state_of(self.topology(), list(self.trials.values()), self.stored(), self.reference)

    def rounds(self) -> Iterator[Round]:
        """Yields the rounds of the whole run, one by one; those that are there already do not come.

        A run that goes on begins here as well: it has heard of its earlier trials. What an
        interruption or a lost node left out comes again; what hung does not, since it tells
        something.
        """
        for round_ in self._all_rounds():
            left = tuple(
                group
                for group in round_.groups
                if not all(self._is_there(round_.trial_id(group, case)) for case in group.cases)
            )
            if left:
                yield Round(repeat=0, groups=left, number=round_.number, policy=round_.policy)

    def _all_rounds(self) -> Iterator[Round]:
        probe_bytes = PROBE_BYTES.get(self.place.backend, PROBE_BYTES_ELSE)
        rounds = PairRounds(self.place, self.size_bytes or probe_bytes)
        if self.size_bytes is None:
            first = self._usable(self.schedule.rounds[0].tuples())[:_PROBE_PAIRS]
            probe = rounds.probe(first, probe_bytes)
            yield probe
            rounds = PairRounds(self.place, self._fitting_size(probe), first_number=1)
        for planned in self.schedule.rounds:
            pairs = self._usable(planned.tuples())
            if pairs:
                yield from rounds.of(pairs)
        yield from self._throttled(rounds)
        later = 1 + max((t.group.round for t in self.trials.values() if t.group), default=0)
        yield from self._again(PairRounds(self.place, rounds.size_bytes, first_number=later))

    def _throttled(self, rounds: PairRounds) -> Iterator[Round]:
        """Runs what crossed leaves once more, with no more pairs at once than the uplinks carry.

        Up to ``AT_SCALE`` nodes all pairs meet and suspects run alone, which tells as much.
        """
        leaf_of = [self.topology().nodes[number].leaf for number in self.members]
        planned = [one for one in self.schedule.rounds if one.kind is RoundKind.ACROSS]
        if self.serial or len(self.members) <= AT_SCALE or not planned:
            return
        share = uplink_share(self.state())
        if share is None or share >= _FULL_SHARE:
            return
        _, leaf_numbers = np.unique(np.array(leaf_of, dtype=str), return_inverse=True)
        for one in planned:
            at_once = int(np.bincount(leaf_numbers[one.pairs].ravel()).max())
            fitting = max(1, math.floor(share * at_once))
            for part in throttled(one.pairs, leaf_numbers.astype(np.int32), fitting):
                pairs = self._usable([(int(a), int(b)) for a, b in part])
                if pairs:
                    yield from rounds.throttled(pairs)

    def _is_there(self, trial_id: str) -> bool:
        trial = self.trials.get(trial_id)
        return trial is not None and trial.status not in (Status.SKIPPED, Status.NODE_LOST)

    def _usable(self, places: Sequence[Pair]) -> list[Pair]:
        """Returns pairs by node numbers, without nodes that are not there any more."""
        nodes = self.topology().nodes
        pairs = [(self.members[a], self.members[b]) for a, b in places]
        return [pair for pair in pairs if all(nodes[n].state is NodeState.PRESENT for n in pair)]

    def _fitting_size(self, probe: Round) -> int:
        ids = [probe.trial_id(group, case) for group in probe.groups for case in group.cases]
        return fitting_size_bytes(
            [self.trials[name] for name in ids if name in self.trials], self.place.backend
        )

    def _again(self, rounds: PairRounds) -> Iterator[Round]:
        """Runs suspects with known-good partners until nothing is open."""
        serial = self.serial or len(self.members) <= FEW_NODES
        for _ in range(MOST_TURNS):
            state = self.state()
            suspects = next_suspects(state)
            if not suspects:
                break
            alone = [(one.suspect, one.partner) for one in suspects if one.alone]
            together = [(one.suspect, one.partner) for one in suspects if not one.alone]
            together += control_pairs(state, suspects)
            for planned in confirmation_rounds(together, alone, serial=serial):
                yield from rounds.of(planned.tuples(), confirm=True)
        for planned in confirmation_rounds(one_way_pairs(self.state()), serial=serial):
            yield from rounds.one_way(planned.tuples())
