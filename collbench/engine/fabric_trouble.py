"""Which calls do not come to their end, and which wait for packets that are lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collbench.engine.fabric_calls import Hops
from collbench.engine.fabric_layout import FloatArray, IntArray, Layout, Place
from collbench.engine.faults import Fault
from collbench.model import Culprit, Policy, RankPlace, Reason, ReasonCode, Status
from collbench.units import format_duration


class Trouble:
    """A fabric's hangs, splits and losses, asked group by group.

    Args:
        layout: of the fabric.
        node_of: [rank]
        places: where each rank is.
    """

    def __init__(self, layout: Layout, node_of: IntArray, places: Sequence[RankPlace]) -> None:
        self._layout, self._node_of, self._places = layout, node_of, places

    def faults(self, ranks: IntArray, hops: Hops, policy: Policy) -> list[Fault | None]:
        """Returns why a group's call never ends; None where it does.

        Args:
            ranks: [group, position]
            hops: of the groups' calls.
            policy: with the deadlines.
        """
        nodes = self._node_of[ranks]
        found: list[Fault | None] = [None] * ranks.shape[0]
        for place in self._layout.hangs:
            if place.b is None:
                for group in np.flatnonzero((nodes == place.a).any(axis=1)):
                    stuck = ranks[group][nodes[group] == place.a]
                    found[group] = found[group] or self._stopped(stuck, policy)
            else:
                for group in np.flatnonzero(self._messages(place, hops, ranks.shape[0])):
                    found[group] = found[group] or self._silent(place, policy)
        for part in self._layout.parts:
            side = part[nodes]
            first = np.where(side < 0, side.max(axis=1, keepdims=True), side).min(axis=1)
            for group in np.flatnonzero(first != side.max(axis=1)):
                found[group] = found[group] or _parted(ranks[group], policy)
        return found

    def losses(self, hops: Hops, groups: int) -> list[list[tuple[tuple[str, ...], float]]]:
        """Returns at which nodes a group's calls lose packets, and the chance that one has to wait.

        A call waits where the last packet of one of its hops is lost: nothing comes after it that
        would show the gap. The chance of that is 1 - (1 - share) ^ hops.
        """
        found: list[list[tuple[tuple[str, ...], float]]] = [[] for _ in range(groups)]
        for place, share in self._layout.losses:
            chance = 1 - (1 - share) ** self._messages(place, hops, groups)
            for group in np.flatnonzero(chance):
                found[group].append((self._names(place), float(chance[group])))
        return found

    def _messages(self, place: Place, hops: Hops, groups: int) -> FloatArray:
        """Returns how many hops of each group go through a place."""
        source, target = self._node_of[hops.source], self._node_of[hops.target]
        if place.b is None:
            through = (source == place.a) | (target == place.a)
        else:
            ends = (place.a, place.b)
            through = np.isin(source, ends) & np.isin(target, ends)
        through &= source != target
        return np.bincount(hops.group[through], minlength=groups).astype(np.float64)

    def _names(self, place: Place) -> tuple[str, ...]:
        ends = (place.a,) if place.b is None else (place.a, place.b)
        return tuple(self._layout.names[node] for node in ends)

    def _stopped(self, ranks: IntArray, policy: Policy) -> Fault:
        places = [self._places[rank] for rank in ranks.tolist()]
        culprits = tuple(
            Culprit(
                rank=place.rank,
                node=place.node,
                local_rank=place.local_rank,
                pid=0,
                gpu=place.gpu,
                calls=0,
                what="stopped",
                evidence=["the model's node hangs"],
            )
            for place in places
        )
        shown = ", ".join(str(place.rank) for place in places)
        text = f"rank {shown} (on {places[0].node}) stopped, in call 0"
        return _hung(text, ReasonCode.NO_PROGRESS, culprits, policy)

    def _silent(self, place: Place, policy: Policy) -> Fault:
        text = (
            f"no rank is behind: all are in call 1; nothing passes {' - '.join(self._names(place))}"
        )
        return _hung(text, ReasonCode.NO_PROGRESS, (), policy)


def deadline_s(fault: Fault, policy: Policy) -> float:
    """Returns how long it takes until a fault is noticed."""
    if fault.status is not Status.HUNG:
        return 0.0
    starting = fault.reason.code is ReasonCode.NO_START
    return policy.init_deadline_s if starting else policy.deadline_s


def _parted(ranks: IntArray, policy: Policy) -> Fault:
    text = f"not ready: rank {ranks[0]} and {ranks.size - 1} more; their nodes are split"
    return _hung(text, ReasonCode.NO_START, (), policy)


def _hung(text: str, code: ReasonCode, culprits: tuple[Culprit, ...], policy: Policy) -> Fault:
    fault = Fault(Status.HUNG, Reason(code=code, text=text), culprits)
    silent = format_duration(deadline_s(fault, policy))
    return Fault(Status.HUNG, Reason(code=code, text=f"{text}; no progress for {silent}"), culprits)
