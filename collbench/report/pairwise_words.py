"""What is said of a node and of a fault between nodes: figures, who saw it, how sure it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collbench.analyze.pair_groups import IntArray
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import PairKind
from collbench.analyze.pair_verdicts import (
    Effect,
    FabricCode,
    FabricVerdict,
    NodeCode,
    NodeState,
    NodeVerdict,
)
from collbench.analyze.rate_unit import RateUnit, rate_unit
from collbench.report.pair_component import Hardware
from collbench.report.pair_ranks import tells_of_ends

_MOST_NAMES = 4
_NOTHING = 5e-4
"""A share that is written as 0.0 %."""
_SLOW = {NodeCode.NODE_SLOW, NodeCode.RAIL_SLOW, NodeCode.SLOW_SEND, NodeCode.SLOW_RECEIVE}


@dataclass(frozen=True, eq=False)
class Words:
    """Makes the sentences of one run's report."""

    state: PairwiseState
    hardware: Hardware

    @cached_property
    def unit(self) -> RateUnit:
        """The unit of all rates."""
        return rate_unit(self.state.values["value"][self.state.measured])

    def names(self, nodes: Iterable[int]) -> str:
        """Returns names, of many the first ones and how many more there are."""
        return listed([self.state.names[node] for node in nodes], _MOST_NAMES)

    def node(self, verdict: NodeVerdict) -> str:
        """Returns ``node5  node_slow: 63.0 of 187 MB/s: 66.3 % slower [65.8, 66.8]; ...``."""
        name = self.state.names[verdict.node]
        if verdict.code is None:
            return f"{name}  {'; '.join(verdict.evidence)}"
        parts = self._slow(verdict) if verdict.code in _SLOW else self._other(verdict)
        return f"{name}  {verdict.code}{self._rail(name, verdict)}: {'; '.join(parts)}"

    def _rail(self, name: str, verdict: NodeVerdict) -> str:
        if verdict.rail is None:
            return ""
        if len(verdict.rails) > 1:
            return f" rails {', '.join(map(str, verdict.rails))}, the worst {verdict.rail}"
        nic = self.hardware.nic(name, verdict.rail)
        known = [] if nic is None else [nic.name, *([nic.pci_bus_id] if nic.pci_bus_id else [])]
        parts = f" ({', '.join(known)})" if known else ""
        return f" rail {verdict.rail}{parts}"

    def _slow(self, verdict: NodeVerdict) -> list[str]:
        if verdict.measured is None or verdict.expected is None:
            return list(verdict.evidence)
        figures = self.figures(verdict.measured, verdict.expected, verdict.effect)
        if verdict.cleared:
            return ["stood out at first", f"over all its pairs {figures}", self._again(verdict)]
        below_bar = [line for line in verdict.evidence if line.startswith("below ")]
        seen = [self._seen_by(verdict), self._directions(verdict), *below_bar, self._again(verdict)]
        return [figures, *(words for words in seen if words)]

    def _other(self, verdict: NodeVerdict) -> list[str]:
        words = []
        if verdict.code is NodeCode.LOSSY and verdict.measured is not None:
            words.append(f"{100 * verdict.measured:.2g} % {verdict.unit}")
        return [*words, *verdict.evidence]

    def figures(self, measured: float, expected: float, effect: Effect | None) -> str:
        """Returns ``63.0 of 187 MB/s: 66.3 % slower [65.8, 66.8]``, the interval that of 95 %."""
        unit = self.unit
        figures = f"{unit.text(measured)} of {unit.text(expected)} {unit.name}"
        if effect is None:
            return figures
        sign, word = (-1, "slower") if effect.share < _NOTHING else (1, "faster")
        ends = sorted(100 * sign * share for share in (effect.low, effect.high))
        share = f"{100 * abs(effect.share):.1f} % {word} [{ends[0]:.1f}, {ends[1]:.1f}]"
        return f"{figures}: {share}"

    def _seen_by(self, verdict: NodeVerdict) -> str:
        """Returns how many partners and leaves saw a slow node low."""
        rows, partners = self._worst_kind(verdict)
        if not rows.size or verdict.measured is None or verdict.expected is None:
            return ""
        cut = math.sqrt(verdict.measured * verdict.expected)
        low = np.unique(partners[self.state.values["value"][rows] < cut])
        words = f"low with {low.size} of {np.unique(partners).size} partners"
        leaves = self.state.leaf_numbers[partners]
        if np.unique(leaves).size > 1:
            seen = np.unique(self.state.leaf_numbers[low]).size
            words += f", in {seen} of {np.unique(leaves).size} leaves"
        return words

    def _worst_kind(self, verdict: NodeVerdict) -> tuple[IntArray, IntArray]:
        """Returns the rows, and partners, of the kind in which a node is furthest behind."""
        found: list[tuple[float, IntArray, IntArray]] = []
        for kind, rail in self.state.judged:
            if rail != verdict.rail:
                continue
            every = np.flatnonzero(self.state.rows_of(kind, rail))
            first, second = tells_of_ends(self.state, every)
            a, b = (ends[every] for ends in self.state.ends)
            sides = ((first & (a == verdict.node), b), (second & (b == verdict.node), a))
            rows = np.concatenate([every[mine] for mine, _ in sides])
            partners = np.concatenate([others[mine] for mine, others in sides])
            if rows.size:
                values = self.state.values["value"]
                ratio = float(np.median(values[rows]) / np.median(values[every]))
                found.append((ratio, rows, partners))
        if not found:
            nothing = np.empty(0, np.intp)
            return nothing, nothing
        _, rows, partners = min(found, key=lambda one: one[0])
        return rows, partners

    def _directions(self, verdict: NodeVerdict) -> str:
        """Returns what a node sends and receives, where it was run one way."""
        rows = self.state.rows_of(PairKind.SEND, verdict.rail)
        a, b = self.state.ends
        values = self.state.values["value"]
        sent, received = values[rows & (a == verdict.node)], values[rows & (b == verdict.node)]
        if not sent.size or not received.size:
            return ""
        unit = self.unit
        rates = f"sends at {unit.text(float(np.median(sent)))}, receives at"
        rates += f" {unit.text(float(np.median(received)))} {unit.name}"
        return f"both directions: {rates}" if verdict.code is NodeCode.NODE_SLOW else rates

    def _again(self, verdict: NodeVerdict) -> str:
        a, b = self.state.ends
        rows = np.flatnonzero(self.state.again & ((a == verdict.node) | (b == verdict.node)))
        partners = np.where(a[rows] == verdict.node, b[rows], a[rows])
        names = self.names(dict.fromkeys(partners.tolist()))
        if not names and verdict.confirmed:
            return "no node is known to be good, to run it again with"
        if not names:
            return "not yet run again"
        alone = " alone" if bool(self.state.values["alone"][rows].all()) else ""
        if verdict.confirmed:
            return f"confirmed{alone} with {names}"
        if verdict.cleared:
            return f"fine when it was run again{alone} with {names}"
        tries = "inconclusive" if verdict.verdict is NodeState.INCONCLUSIVE else "still open"
        return f"run again{alone} with {names}: {tries}"

    def fault(self, fault: FabricVerdict) -> str:
        """Returns ``slow_path node1-node6: 62.0 of 187 MB/s: 66.8 % slower [66, 67.6]; ...``."""
        words = f"{fault.code} {self._where(fault)}"
        words += "" if fault.rail is None else f" rail {fault.rail}"
        parts = []
        if fault.measured is not None and fault.expected:
            parts.append(self.figures(fault.measured, fault.expected, fault.effect))
        elif fault.measured is not None:
            parts.append(f"{100 * fault.measured:.2g} % {fault.unit}")
        state = "confirmed" if fault.confirmed else "not confirmed"
        return f"{words}: {'; '.join([*parts, *fault.evidence, state])}"

    def _where(self, fault: FabricVerdict) -> str:
        if fault.leaves:
            return " or ".join(fault.leaves)
        path = fault.code is FabricCode.SLOW_PATH
        names = [self.state.names[node] for node in sorted(fault.nodes)]
        return "-".join(names) if path else listed(names, _MOST_NAMES)


def gravest_first(nodes: Iterable[NodeVerdict]) -> list[NodeVerdict]:
    """Returns verdicts, those that have no figure first, then the most slowed ones."""
    return sorted(
        nodes, key=lambda node: (-1.0 if node.effect is None else node.effect.share, node.node)
    )


def listed(names: Sequence[str], most: int) -> str:
    """Returns ``node1, node2 and 7 more``."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
