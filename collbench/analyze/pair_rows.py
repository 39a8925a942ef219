"""From the trials of a ``pairwise`` run to the values that verdicts are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analyze.pair_inside import as_paired
from collbench.analyze.pair_state import PairwiseState, Reference
from collbench.analyze.pair_types import PairKind, PairValue, pair_table
from collbench.model import NodeState, Pattern, RankPlace, Status, Topology, Trial
from collbench.probe.watch import RDMA_ERRORS, TCP_RETRANSMISSIONS
from collbench.store import StoredRun

SLOW_ROUND_TRIP_US = 100_000.0
"""TCP sends again after 200 ms at the least: a longer round trip has lost something."""
LATENCY_BYTES = 64
"""Exchanges of at most so many bytes, one at a time, are a latency pass."""
CONFIRMS = "confirm/"
THROTTLED = "throttled/"
"""The names of groups that run suspects again begin so."""
PROBES = "probe/"
"""Those that find out how large a message should be begin so: no verdict is made of them."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a run by number, and where its ranks are."""

    names: tuple[str, ...]
    """In the order of the topology: those that were asked."""
    ranks: Sequence[RankPlace]

    @classmethod
    def of(cls, topology: Topology) -> Nodes:
        """Returns those of a topology."""
        return cls(tuple(node.name for node in topology.nodes), topology.ranks)

    def number_of(self) -> dict[str, int]:
        """Returns each node's number."""
        return {name: number for number, name in enumerate(self.names)}

    def ranks_of(self) -> dict[str, list[int]]:
        """Returns each node's ranks, by local rank."""
        found: dict[str, list[int]] = {name: [] for name in self.names}
        for place in self.ranks:
            found[place.node].append(place.rank)
        return found


def state_of_run(stored: StoredRun, reference: Reference | None = None) -> PairwiseState:
    """Returns all that a run knows of its nodes."""
    paired = as_paired(stored)
    return state_of(paired.topology, paired.trials, stored, reference)


def state_of(
    topology: Topology,
    trials: Iterable[Trial],
    samples: StoredRun | None,
    reference: Reference | None = None,
) -> PairwiseState:
    """Returns all that is known of some nodes from the trials so far.

    Args:
        topology: the nodes asked, with their states and leaves.
        trials: of named groups of two nodes; others are left out.
        samples: holds the samples of latency passes; without, no round trip is known to be slow.
        reference: an absolute bar, if there is one.
    """
    nodes = Nodes.of(topology)
    number_of, several = nodes.number_of(), _several_ranks(topology)
    paired = [trial for trial in trials if trial.group is not None]
    single = _rounds_of_one_pair(paired, nodes)
    values = [
        value
        for trial in paired
        if (value := _value(trial, nodes, number_of, several, single, samples))
    ]
    return PairwiseState(
        names=nodes.names,
        values=pair_table(values),
        leaves=_leaves(topology),
        confirming=frozenset(
            trial.group.round
            for trial in paired
            if trial.group is not None and trial.group.name.startswith(CONFIRMS)
        ),
        throttled=frozenset(
            trial.group.round
            for trial in paired
            if trial.group is not None and trial.group.name.startswith(THROTTLED)
        ),
        not_tested=_not_tested(topology, number_of),
        reference=reference,
    )


def _leaves(topology: Topology) -> tuple[str, ...] | None:
    """Returns each node's leaf; None where that of a node that takes part is unknown.

    A node without ranks has no pairs, so that nothing is judged by its leaf. Where it is unknown
    it is put into that of the node before: a leaf of its own would be one more leaf.
    """
    holders = {place.node for place in topology.ranks}
    known = [node.leaf for node in topology.nodes if node.name in holders]
    if not known or None in known:
        return None
    found: list[str] = []
    for node in topology.nodes:
        found.append(node.leaf or (found[-1] if found else str(known[0])))
    return tuple(found)


def _rounds_of_one_pair(trials: Sequence[Trial], nodes: Nodes) -> set[int]:
    """Returns the rounds in which one pair ran by itself, be it on several rails."""
    pairs: dict[int, set[frozenset[str]]] = {}
    for trial in trials:
        if trial.group is not None:
            ends = frozenset(nodes.ranks[rank].node for rank in trial.group.ranks)
            pairs.setdefault(trial.group.round, set()).add(ends)
    return {number for number, found in pairs.items() if len(found) == 1}


def _several_ranks(topology: Topology) -> bool:
    return max(Counter(place.node for place in topology.ranks).values(), default=1) > 1


def _not_tested(topology: Topology, number_of: Mapping[str, int]) -> dict[int, str]:
    words = {
        NodeState.ABSENT: "absent",
        NodeState.EXCLUDED: "excluded",
        NodeState.GPU_MISSING: "a GPU is missing",
    }
    return {
        number_of[node.name]: words[node.state] for node in topology.nodes if node.state in words
    }


def _value(
    trial: Trial,
    nodes: Nodes,
    number_of: Mapping[str, int],
    several: bool,
    by_themselves: Collection[int],
    samples: StoredRun | None,
) -> PairValue | None:
    """Returns a trial's value; None where its group is not of two nodes."""
    group = trial.group
    assert group is not None
    places = [nodes.ranks[rank] for rank in group.ranks]
    ends = list(dict.fromkeys(place.node for place in places))
    if len(ends) != 2 or trial.status is Status.SKIPPED or group.name.startswith(PROBES):
        return None
    kind = kind_of(trial)
    if kind is PairKind.SEND and trial.case.root == 1:
        ends.reverse()
    summary = trial.summary
    of_a_rail = len(places) == 2 and several
    latency = kind is PairKind.LATENCY
    slow = _slow_round_trips(trial, samples) if latency else 0
    sent_again = _sent_again(trial, ends) if latency else None
    return PairValue(
        a=number_of[ends[0]],
        b=number_of[ends[1]],
        kind=kind,
        rail=places[0].local_rank if of_a_rail and not latency else None,
        round=group.round,
        value=None if summary is None or latency else summary.busbw_gb_per_s,
        status=trial.status,
        alone=group.round in by_themselves,
        round_trips=summary.samples if summary is not None and latency else 0,
        # What no end sent again was not lost: then a busy host made the exchange wait.
        slow_round_trips=slow if sent_again is None else min(slow, sent_again),
        retransmits=sent_again,
        median_us=summary.median_us if summary is not None else None,
        p99_us=summary.p99_us if summary is not None else None,
    )


def kind_of(trial: Trial) -> PairKind:
    """Returns what a pair ran: a broadcast between two is one way, from its root."""
    case = trial.case
    if case.collective == "all_reduce":
        return PairKind.ALL_REDUCE
    if case.collective == "broadcast":
        return PairKind.SEND
    small = case.size_bytes <= LATENCY_BYTES and case.pattern is Pattern.ISOLATED
    return PairKind.LATENCY if small else PairKind.SEND_RECV


def _slow_round_trips(trial: Trial, samples: StoredRun | None) -> int:
    times_us = None if samples is None else samples.over_ranks_us(trial)
    if times_us is None:
        return 0
    return int(np.count_nonzero(times_us[2] > SLOW_ROUND_TRIP_US))


def _sent_again(trial: Trial, ends: Sequence[str]) -> int | None:
    """Returns what both ends sent again; None where one of them could not be read."""
    found = [
        [c[name] for name in (TCP_RETRANSMISSIONS, RDMA_ERRORS) if name in c]
        for c in (trial.counters.get(end, {}) for end in ends)
    ]
    return sum(map(sum, found)) if all(found) else None
