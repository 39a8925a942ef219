"""An executor that a fabric's model answers, in virtual time and without threads.

The n-th cases of a round's groups run at one time and share the fabric: their rates are max-min
fair (``fabric_share``), and stay what they are as long as the samples are taken, since every
group calls again and again. The hops of one call make progress together, as fast as the slowest
of them: that is the mean over calls that wait for each other. Then the measuring loop, the
stopping rule and the summaries are those of real runs; one rank stands for its group, whose ranks
all have the same times.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from collbench.engine.fabric_backend import FabricBackend, refusal
from collbench.engine.fabric_calls import MOST_HOPS, Hops, hop_count, hops_of
from collbench.engine.fabric_layout import FloatArray, IntArray, Layout
from collbench.engine.fabric_noise import call_factor, trial_factor
from collbench.engine.fabric_paths import Crossings, Paths
from collbench.engine.fabric_place import topology_of
from collbench.engine.fabric_share import max_min_rates
from collbench.engine.fabric_trouble import Trouble, deadline_s
from collbench.engine.faults import Fault
from collbench.engine.merge import merge_results, trial_without_result
from collbench.engine.protocol import Facts, Group, Outcome, Round
from collbench.measure.fake import NoProgress
from collbench.measure.loop import measure_case
from collbench.model import Case, Policy, Reason, ReasonCode, Status

LOSS_COUNTER = "local_ack_timeout_err"
"""What an RDMA device counts where an answer did not come in time."""


@dataclass(kw_only=True, slots=True)
class _Call:
    """What one group does at one time."""

    group: Group
    case: Case
    fault: Fault | None = None
    losses: Sequence[tuple[tuple[str, ...], float]] = ()
    time_us: float = 0.0


class FabricEngine:
    """An ``Executor`` over a fabric of nodes."""

    def __init__(self, layout: Layout, policy: Policy) -> None:
        self._layout, self._policy = layout, policy
        self._facts = Facts(topology=topology_of(layout))
        places = self._facts.topology.ranks
        numbers = {name: number for number, name in enumerate(layout.names)}
        self._node_of = np.array([numbers[place.node] for place in places])
        gpu_of = np.array([place.local_rank for place in places])
        self._paths = Paths(layout, self._node_of, gpu_of)
        self._trouble = Trouble(layout, self._node_of, places)
        self._now_s = time.time()

    def start(self, round_: Round) -> None:
        """Needs nothing."""

    def facts(self) -> Facts:
        """Returns the fabric's topology."""
        return self._facts

    def run(self, round_: Round) -> Iterator[Outcome]:
        """Yields one outcome a case: the first cases of all groups, then the second ones."""
        for step in range(max((len(group.cases) for group in round_.groups), default=0)):
            calls = [
                _Call(group=group, case=group.cases[step])
                for group in round_.groups
                if step < len(group.cases)
            ]
            self._set_times(calls, round_)
            took_s = 0.0
            for call in calls:
                outcome = self._outcome(call, round_)
                took_s = max(took_s, outcome.trial.duration_s)
                yield outcome
            self._now_s += took_s

    def close(self) -> None:
        """Holds nothing."""

    def _set_times(self, calls: Sequence[_Call], round_: Round) -> None:
        """Works out what each call takes while all others run."""
        alike: defaultdict[tuple[object, ...], list[_Call]] = defaultdict(list)
        for call in calls:
            case = call.case
            if hop_count(case) > MOST_HOPS:
                call.fault = _too_large(case)
            elif refusal(case) is None:
                key = (case.collective, case.size_bytes, case.root, case.world_size)
                alike[key].append(call)
        number, policy = _number(round_), round_.policy or self._policy
        running: list[_Call] = []
        parts: list[Crossings] = []
        latencies: list[FloatArray] = []
        for batch in alike.values():
            healthy, hops = self._healthy(batch, policy)
            if healthy:
                losses = self._trouble.losses(hops, len(healthy))
                for call, of_call in zip(healthy, losses, strict=True):
                    call.losses = of_call
                parts.append(self._paths.crossings(hops, len(healthy), number))
                latencies.append(self._latency_us(hops, len(healthy)))
                running += healthy
        if running:
            transfer_us = _transfer_us(parts, self._paths.capacity(number))
            for call, time_us in zip(running, np.concatenate(latencies) + transfer_us, strict=True):
                call.time_us = float(time_us)

    def _healthy(self, batch: Sequence[_Call], policy: Policy) -> tuple[list[_Call], Hops]:
        """Returns the calls that end, and their hops; the others know why they do not."""
        case = batch[0].case
        ranks = np.array([call.group.ranks for call in batch])
        hops = hops_of(case, ranks)
        faults = self._trouble.faults(ranks, hops, policy)
        for call, fault in zip(batch, faults, strict=True):
            call.fault = fault
        healthy = [call for call in batch if call.fault is None]
        if 0 < len(healthy) < len(batch):
            hops = hops_of(case, np.array([call.group.ranks for call in healthy]))
        return healthy, hops

    def _latency_us(self, hops: Hops, groups: int) -> FloatArray:
        """Returns what a call takes however little it sends."""
        alpha = self._layout.table.alpha_us
        source, target = self._node_of[hops.source], self._node_of[hops.target]
        far = self._layout.leaf_of[source] != self._layout.leaf_of[target]
        of_hop = np.where(far, alpha.spine, np.where(source != target, alpha.leaf, alpha.nvlink))
        if hops.chain:
            total = np.zeros(groups)
            np.add.at(total, hops.group, of_hop)
            return alpha.call + hops.chain * total
        longest = np.zeros(groups)
        np.maximum.at(longest, hops.group, of_hop)
        return alpha.call + longest

    def _outcome(self, call: _Call, round_: Round) -> Outcome:
        policy, place = round_.policy or self._policy, round_.place_of(call.group)
        if call.fault is not None:
            trial = trial_without_result(call.case, round_.repeat, call.fault, self._now_s)
            trial = msgspec.structs.replace(
                trial,
                trial_id=round_.trial_id(call.group, call.case),
                group=place,
                duration_s=deadline_s(call.fault, policy),
            )
            return Outcome(trial=trial)
        waits: Counter[str] = Counter()
        backend = FabricBackend(self._clockwork(call, round_, waits))
        result = measure_case(call.case, policy, backend, backend.control, NoProgress())
        ranks = call.group.ranks
        return merge_results(
            call.case,
            round_.repeat,
            [result] * len(ranks),
            (self._now_s, self._now_s + backend.now_s()),
            [
                f"{node}: {count} calls waited until a lost packet was sent again"
                for node, count in waits.items()
            ],
            self._facts.topology,
            ranks,
            place=place,
            counters={node: {LOSS_COUNTER: count} for node, count in waits.items()},
        )

    def _clockwork(self, call: _Call, round_: Round, waits: Counter[str]) -> Callable[[], float]:
        """Returns what says how long the next call takes; it counts those that wait by node."""
        table, number = self._layout.table, _number(round_)
        identity = (call.case.case_id.encode(), np.array(call.group.ranks).tobytes())
        random = np.random.default_rng(
            [table.seed, number, round_.repeat, *map(zlib.crc32, identity)]
        )
        time_us = call.time_us * trial_factor(table.noise, random, number)

        def next_us() -> float:
            found = time_us * call_factor(table.noise, random)
            for nodes, chance in call.losses:
                if random.random() < chance:
                    waits.update(nodes)
                    found += table.loss_timeout_us
            return found

        return next_us


def _number(round_: Round) -> int:
    """Returns the round's number in its run; rounds of whole runs count by repeat."""
    return round_.number if any(group.name for group in round_.groups) else round_.repeat


def _too_large(case: Case) -> Fault:
    text = f"{hop_count(case)} hops; the model computes at most {MOST_HOPS} of one case"
    return Fault(Status.SKIPPED, Reason(code=ReasonCode.BUDGET, text=text))


def _transfer_us(parts: Sequence[Crossings], capacity: FloatArray) -> FloatArray:
    """Returns how long each call sends while all of them share the links."""
    firsts = np.cumsum([0, *(part.unit_bytes.size for part in parts)])
    call: IntArray = np.concatenate(
        [part.call + first for part, first in zip(parts, firsts, strict=False)]
    )
    rates = max_min_rates(
        call,
        np.concatenate([part.link for part in parts]),
        np.concatenate([part.weight for part in parts]),
        capacity,
        int(firsts[-1]),
    )
    return np.concatenate([part.unit_bytes for part in parts]) / rates / 1e3
