"""The engine: rounds of groups over one station or many, driven from one event loop.

Node 0's process is the controller, and a station like the others. Groups of a round run at the
same time; within a group one case follows the other. Workers live from case to case and from group
to group; after a fault a group's workers are killed and fresh ones forked, so that a fault costs
one case. A new repeat gets new zygotes, and so does a setting that only a fresh interpreter reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from collbench.engine.crew import Crew
from collbench.engine.faults import Fault
from collbench.engine.lineup import Kind, has_twin, timed_in
from collbench.engine.merge import merge_results, trial_without_result
from collbench.engine.protocol import Facts, Group, Outcome, Round
from collbench.engine.seats import Seat
from collbench.engine.wire import Connect, Connected, Done, Joined, Measure, Prove, Proved, Renew
from collbench.errors import NothingMeasured
from collbench.model import (
    Case,
    GroupPlace,
    NodeState,
    Policy,
    RankProof,
    Reason,
    ReasonCode,
    Status,
    Topology,
)
from collbench.nccl.settings import LIBRARY, Changes, Needs, needs_of

_FORMATION_TRIES = 3
_SIGNAL_WAIT_S = 2.0
"""After a node was lost: time for a signal to this process too."""


@dataclass
class _Formed:
    """A group that stands, and what its communicator was formed with."""

    seats: list[Seat]
    communicator: Changes
    group: int | None = None
    """The number that the crew gave it: its workers may stand in another group by now."""


@dataclass
class _GroupState:
    """What is remembered of a group while a round lasts."""

    ranks: tuple[int, ...]
    repeat: int
    policy: Policy
    place: GroupPlace | None = None
    formed: dict[Kind, _Formed] = field(default_factory=dict)
    given_up: dict[tuple[Kind, Needs], Fault] = field(default_factory=dict)
    failed: dict[tuple[Kind, Needs], int] = field(default_factory=dict)
    """Formations that failed in a row."""
    lost: Fault | None = None
    """The node that is missing; nothing can be run any more."""


class Controller:
    """Runs rounds. The body of an ``Executor``; ``loop`` must be running nothing else.

    Args:
        crew: the workers.
        swept: the variables that any setting of the run touches.
        policy: deadlines; the rest is passed on to the workers.
        topology: of all nodes, with the ranks' places.
        logs: where logs are, in words.
    """

    def __init__(
        self,
        *,
        crew: Crew,
        swept: Collection[str],
        policy: Policy,
        topology: Topology,
        logs: str,
    ) -> None:
        self._crew, self._swept, self._policy, self._logs = crew, swept, policy, logs
        self.facts = Facts(topology=topology)
        crew.on_loss = self._lose
        self._states: dict[tuple[int, ...], _GroupState] = {}
        self._ever_formed = False

    async def start(self, round_: Round) -> None:
        """Forms the first group of a round.

        What a group of all ranks cannot do because a node is lost, no later one can. Parts of them
        are another matter: whoever plans those goes on without the node.

        Raises:
            NothingMeasured: it cannot be formed; says which rank and GPU, and why.
        """
        group = round_.groups[0]
        case = group.cases[0]
        state = self._state(group, round_)
        seats = await self._team(state, case, timed_in(case, state.policy))
        if not isinstance(seats, Fault):
            return
        lost = seats.status is Status.NODE_LOST
        if (lost and not group.name) or (not lost and not case.setting):
            raise NothingMeasured(f"the ranks do not come together: {self._explained(seats)}")

    async def drive(
        self,
        group: Group,
        round_: Round,
        outcomes: asyncio.Queue[Outcome | BaseException],
        start: asyncio.Barrier,
    ) -> None:
        """Runs a group's cases, one after the other; puts out one outcome for each.

        Args:
            group: of the round.
            round_: it is in.
            outcomes: where they go.
            start: of all groups of the round: all of them stand before the first is measured, so
                that they load what they share at the same time.
        """
        state = self._state(group, round_)
        try:
            start_s = time.time()
            first, *rest = group.cases
            seats = await self._team(state, first, timed_in(first, state.policy))
            await start.wait()
            outcomes.put_nowait(await self._outcome(state, first, seats, start_s))
            for case in rest:
                start_s = time.time()
                seats = await self._team(state, case, timed_in(case, state.policy))
                outcomes.put_nowait(await self._outcome(state, case, seats, start_s))
        except asyncio.BrokenBarrierError:
            pass  # another group has said why
        except Exception as problem:  # noqa: BLE001  raised again where outcomes are taken
            outcomes.put_nowait(problem)
            await start.abort()

    def _state(self, group: Group, round_: Round) -> _GroupState:
        """Returns what is known of a group; workers that stand in one of the same ranks stay."""
        policy = round_.policy or self._policy
        state = self._states.get(group.ranks)
        if state is None or state.repeat != round_.repeat:
            known = {} if state is None else state.given_up
            refused = {k: fault for k, fault in known.items() if fault.status is Status.UNSUPPORTED}
            state = _GroupState(group.ranks, round_.repeat, policy, given_up=refused)
            self._states[group.ranks] = state
        state.policy, state.place = policy, round_.place_of(group)
        return state

    async def _outcome(
        self, state: _GroupState, case: Case, seats: list[Seat] | Fault, start_s: float
    ) -> Outcome:
        kind = timed_in(case, state.policy)
        if isinstance(seats, Fault):
            return await self._unmeasured(state, case, seats, start_s)
        start_s = time.time()
        answer = await self._measured(seats, case, state.policy)
        if isinstance(answer, Fault):
            await self._end(state, kind)
            return await self._unmeasured(state, case, answer, start_s)
        results = [message.result for message in answer]
        events = [event for seat in seats for event in seat.events]
        end_s = time.time()
        twins: list[RankProof] | str | None = None
        if results[0].status is Status.OK and has_twin(case, state.policy):
            found = await self._proved_by_twin(state, case)
            twins = found.reason.text if isinstance(found, Fault) else found
        return merge_results(
            case,
            state.repeat,
            results,
            (start_s, end_s),
            events,
            self.facts.topology,
            state.ranks,
            twins,
            nccl=self.facts.nccl,
            place=state.place,
            counters=_counters(seats) if state.place is not None else None,
        )

    async def _unmeasured(
        self, state: _GroupState, case: Case, fault: Fault, start_s: float
    ) -> Outcome:
        trial = trial_without_result(case, state.repeat, fault, start_s, state.place)
        if state.lost is not None:
            # The first case says how the node was lost; the rest cannot be tried.
            reason = Reason(code=ReasonCode.NODE_LOST, text=state.lost.reason.text)
            trial = msgspec.structs.replace(
                trial, status=Status.SKIPPED, reason=reason, culprits=[]
            )
        elif fault.status is Status.NODE_LOST:
            # Who cancels a run signals every process. This one may hear of the others' end before
            # its own signal comes; then the run is interrupted, and no node is to blame.
            await asyncio.sleep(_SIGNAL_WAIT_S)
            state.lost = fault
        return Outcome(trial=trial)

    async def _measured(self, seats: list[Seat], case: Case, policy: Policy) -> list[Done] | Fault:
        for seat in seats:
            seat.events.clear()
            seat.counters.clear()
        order = Measure(case=case, policy=policy)
        return await self._crew.asked(
            Done, seats, order, self._policy.deadline_s, ReasonCode.NO_PROGRESS
        )

    async def _proved_by_twin(self, state: _GroupState, case: Case) -> list[RankProof] | Fault:
        """Runs a case once in logged workers that were started alike."""
        start_s = time.monotonic()
        seats = await self._team(state, case, Kind.LOGGED)
        proofs: list[RankProof] | Fault
        if isinstance(seats, Fault):
            proofs = seats
        else:
            order = Prove(case=case)
            answer = await self._crew.asked(
                Proved, seats, order, self._policy.deadline_s, ReasonCode.NO_PROGRESS
            )
            if isinstance(answer, Fault):
                await self._end(state, Kind.LOGGED)
                proofs = answer
            else:
                proofs = [message.proof for message in answer]
        self._count(proof_s=self.facts.proof_s + time.monotonic() - start_s)
        return proofs

    async def _team(self, state: _GroupState, case: Case, kind: Kind) -> list[Seat] | Fault:
        """Returns living workers of a kind with the case's setting; the fault if there are none."""
        needs = needs_of(case.setting, self._swept)
        if (kind, needs) in state.given_up:
            return state.given_up[kind, needs]
        seats = await self._crew.seated(state.ranks, kind, state.repeat, needs)
        self._count(
            workers=self._crew.forked,
            zygotes=self._crew.zygotes,
            slowest_import=self._crew.slowest_import(),
        )
        if isinstance(seats, Fault):
            return seats
        formed = state.formed.get(kind)
        if (
            formed is not None
            and formed.seats == seats
            and formed.group is not None
            and {seat.group for seat in seats} == {formed.group}
        ):
            if formed.communicator == needs.communicator:
                return seats
            joined = await self._renewed(formed, needs)
        else:
            state.formed[kind] = _Formed(seats, needs.communicator)
            joined = await self._crew.join(seats)
        if isinstance(joined, Fault):
            await self._end(state, kind)
            self._judge_formation(state, kind, case, needs, joined)
            return joined
        state.formed[kind].group = seats[0].group
        self._learn(joined[0], case)
        self._ever_formed = True
        state.failed.pop((kind, needs), None)
        return await self._connected(state, case, kind)

    async def _renewed(self, formed: _Formed, needs: Needs) -> list[Joined] | Fault:
        formed.communicator = needs.communicator
        order = Renew(variables=dict(needs.communicator))
        return await self._crew.asked(
            Joined, formed.seats, order, self._policy.init_deadline_s, ReasonCode.NO_START
        )

    def _learn(self, joined: Joined, case: Case) -> None:
        name = case.setting.get(LIBRARY)
        if name is not None and joined.nccl is not None:
            self._count(libraries={**self.facts.libraries, name: joined.nccl})
        self._count(
            communicators=self.facts.communicators + 1,
            torch=joined.torch,
            cuda=joined.cuda,
            nccl=joined.nccl,
        )

    async def _connected(self, state: _GroupState, case: Case, kind: Kind) -> list[Seat] | Fault:
        """NCCL connects at the first call: that is made by the case to come, before its time."""
        seats = state.formed[kind].seats
        if case.backend == "nccl":
            order = Connect(case=case)
            answer = await self._crew.asked(
                Connected, seats, order, self._policy.init_deadline_s, ReasonCode.NO_START
            )
            if isinstance(answer, Fault):
                await self._end(state, kind)
                return answer
        return seats

    def _judge_formation(
        self, state: _GroupState, kind: Kind, case: Case, needs: Needs, fault: Fault
    ) -> None:
        """A setting that cannot be formed is given up: at once where it was refused by all."""
        if fault.status is Status.NODE_LOST:
            return
        if case.setting and fault.status is Status.UNSUPPORTED:
            state.given_up[kind, needs] = fault
            return
        state.failed[kind, needs] = state.failed.get((kind, needs), 0) + 1
        if state.failed[kind, needs] < _FORMATION_TRIES:
            return
        if not self._ever_formed:
            raise NothingMeasured(
                f"the ranks did not come together {_FORMATION_TRIES} times in a row:"
                f" {self._explained(fault)}"
            )
        state.given_up[kind, needs] = fault

    async def _end(self, state: _GroupState, kind: Kind) -> None:
        """Kills a group's workers of a kind. One that survives loses its node.

        Raises:
            NothingMeasured: that was the only one.
        """
        formed = state.formed.pop(kind, None)
        if formed is not None:
            await self._crew.dismiss(formed.seats, kill=True)
        self._crew.require_somebody()

    def _lose(self, node: str, state: NodeState) -> None:
        """A node takes no part any more: the topology says so, and what became of it first."""
        topology = self.facts.topology
        nodes = [
            msgspec.structs.replace(known, state=state)
            if known.name == node and known.state is NodeState.PRESENT
            else known
            for known in topology.nodes
        ]
        self._count(topology=msgspec.structs.replace(topology, nodes=nodes))

    def _count(self, **facts: object) -> None:
        self.facts = msgspec.structs.replace(self.facts, **facts)

    def _explained(self, fault: Fault) -> str:
        who = "; ".join(
            f"rank {culprit.rank}" + (f" on GPU {culprit.gpu}" if culprit.gpu is not None else "")
            for culprit in fault.culprits
        )
        return f"{fault.reason.text}" + (f" ({who})" if who else "") + f"; logs: {self._logs}"


def _counters(seats: Sequence[Seat]) -> dict[str, dict[str, int]]:
    """Returns by node what its counters rose by while a case ran."""
    found: dict[str, dict[str, int]] = {}
    for seat in seats:
        if seat.counters:
            found.setdefault(seat.node, {}).update(seat.counters)
    return found
