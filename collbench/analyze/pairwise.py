"""The verdict on pairs of nodes: which node, rail or path is the bad one, with evidence.

A node's name is said (``fail``) only when it was found again with known-good partners
(``pair_suspects.next_suspects`` says which), or when its pairs gave no value with two partners.
The rules and how often they err: docs/pairwise_statistics.md.
"""

from __future__ import annotations

import math

import numpy as np

from collbench.analyze.pair_analysis import IDENTIFIABLE, Analysis, analyse
from collbench.analyze.pair_confirm import Again, Outcome
from collbench.analyze.pair_effects import Measured, direction, measured, measured_by_bar
from collbench.analyze.pair_fabric import across_share, collisions, explained_by, throttled_share
from collbench.analyze.pair_fabric_verdicts import fabric_verdicts
from collbench.analyze.pair_groups import distinct, partner_counts
from collbench.analyze.pair_screen import Screen
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeCode, NodeState, NodeVerdict, PairwiseResult

_STATES = {
    Outcome.CONFIRMED: NodeState.FAIL,
    Outcome.CLEARED: NodeState.SUSPECT,
    Outcome.OPEN: NodeState.SUSPECT,
    Outcome.UNDECIDED: NodeState.INCONCLUSIVE,
}


def judge(state: PairwiseState) -> PairwiseResult:
    """Returns the verdict on every node and on the fabric."""
    found = analyse(state)
    judges = _Judge(found)
    across = [one for one in found.screens if one.across.any()]
    shares = [share for one in across if (share := _collisions(found, one)) is not None]
    loads = [share for one in across if (share := across_share(one)) is not None]
    calm = [share for one in across if (share := throttled_share(one)) is not None]
    return PairwiseResult(
        nodes=tuple(judges.node(node) for node in range(state.size)),
        fabric=fabric_verdicts(found),
        reference=None if state.reference is None else state.reference.source,
        smallest_fault=max((-math.expm1(-one.cut.depth) for one in found.screens), default=None),
        smallest_loss=found.loss.smallest,
        across_share=min(loads, default=None),
        throttled_share=min(calm, default=None),
        collisions=max(shares, default=None),
        broken_pairs=len(found.broken.pairs),
    )


def _collisions(found: Analysis, one: Screen) -> float | None:
    """Returns the share of pairs that fell behind; what slow uplinks explain is no collision."""
    slow = tuple(leaf for look, leaf in found.leaves if found.leaf_confirmed(look, leaf))
    return collisions(one, found.good, explained_by(found.state, one, slow))


class _Judge:
    """Says of each node what the analysis found; the gravest word wins."""

    def __init__(self, found: Analysis) -> None:
        self._found = found
        state = found.state
        a, b = state.ends
        self._partners = partner_counts(a, b, state.size)
        number = state.values["round"].astype(np.int64)
        number -= number.min(initial=0)
        width = int(number.max(initial=0)) + 1
        seen = distinct(np.concatenate([a, b]) * width + np.tile(number, 2))
        self._rounds = np.bincount(seen // width, minlength=state.size)

    def node(self, node: int) -> NodeVerdict:
        """Returns a node's verdict."""
        for rule in (self._broken, self._slow, self._lossy, self._differs, self._unclear):
            verdict = rule(node)
            if verdict is not None:
                return verdict
        return self._say(node, NodeState.PASS)

    def _say(self, node: int, state: NodeState, **more: object) -> NodeVerdict:
        return NodeVerdict(
            node=node,
            verdict=state,
            partners=int(self._partners[node]),
            rounds=int(self._rounds[node]),
            **more,  # type: ignore[arg-type]
        )

    def _broken(self, node: int) -> NodeVerdict | None:
        broken = self._found.broken
        if node not in broken.nodes:
            return None
        ends = ", ".join(f"{status} {count} times" for status, count in broken.nodes[node].items())
        partners = broken.partners[node]
        return self._say(
            node,
            NodeState.FAIL,
            code=broken.code(node),
            confirmed=True,
            evidence=(f"{ends}, with {partners} of {self._partners[node]} partners",),
        )

    def _slow(self, node: int) -> NodeVerdict | None:
        looks = self._found.slow_nodes.get(node)
        if not looks:
            return None
        outcome = self._found.node_outcome(node)
        if not self._found.good.any() and self._all_below(looks, node):
            outcome = Outcome.CONFIRMED
        elif not self._found.good.any() and outcome is Outcome.OPEN:
            outcome = Outcome.UNDECIDED
        if outcome is Outcome.CLEARED and node in self._found.lossy_nodes:
            return None
        chosen = [one for one, again in looks.items() if again.outcome is Outcome.CONFIRMED]
        chosen = chosen or list(looks)
        # What goes over all rails is low with any of them: the rail itself says more.
        of_rails = [one for one in chosen if one.rail is not None]
        worst = min(of_rails or chosen, key=lambda one: one.scores[node] - one.cut.center)
        by_bar = bool(worst.below_bar[node] and not worst.slow[node])
        again = self._found.rerun_of(worst)
        figures = (
            measured_by_bar(worst, again, node)
            if by_bar
            else measured(worst, again, node, self._found.good)
        )
        rails = tuple(sorted(one.rail for one in chosen if one.rail is not None))
        confirmed = outcome is Outcome.CONFIRMED
        return self._say(
            node,
            _STATES[outcome],
            code=self._slow_code(node, worst, rails),
            rail=worst.rail,
            rails=rails,
            confirmed=confirmed,
            cleared=outcome is Outcome.CLEARED,
            measured=None if figures is None else figures.value,
            expected=None if figures is None else figures.expected,
            bar=self._bar_words() if by_bar else None,
            effect=None if figures is None else figures.effect,
            evidence=self._words(node, worst, figures, looks[worst]),
        )

    def _all_below(self, looks: dict[Screen, Again], node: int) -> bool:
        """Returns whether all of a node's pairs are below the bar, as all of everybody's are."""
        return self._partners[node] >= 2 and any(one.below_bar[node] for one in looks)

    def _bar_words(self) -> str:
        reference = self._found.state.reference
        return "the bar" if reference is None else reference.source

    def _slow_code(self, node: int, worst: Screen, rails: tuple[int, ...]) -> NodeCode:
        of_all = {one.rail for one in self._found.screens if one.rail is not None}
        if rails and len(of_all) > 1 and set(rails) != of_all:
            return NodeCode.RAIL_SLOW
        way = direction(self._found.state, worst, node, self._found.good)
        return way or NodeCode.NODE_SLOW

    def _words(
        self, node: int, one: Screen, figures: Measured | None, again: Again
    ) -> tuple[str, ...]:
        words = []
        if figures is not None:
            words.append(
                f"{one.kind}: {figures.low} of {figures.values} values low:"
                f" {figures.value:.4g} of {figures.expected:.4g} GB/s"
            )
        if one.below_bar[node] and one.bar is not None:
            words.append(f"below {math.exp(one.bar):.4g} GB/s ({self._bar_words()})")
        if again.tries:
            words.append(f"run again with known-good partners: low {again.low} of {again.tries}")
        elif not self._found.good.any():
            words.append("no node is known to be good, to run it again with")
        else:
            words.append("not yet run again with known-good partners")
        return tuple(words)

    def _lossy(self, node: int) -> NodeVerdict | None:
        if node not in self._found.lossy_nodes:
            return None
        again, seen = self._found.lossy_nodes[node], self._found.loss
        outcome = again.outcome
        mine = (seen.a == node) | (seen.b == node)
        share = float(np.median(seen.shares[mine]))
        words = (
            f"{int(seen.lossy[mine].sum())} of {int(mine.sum())} pairs lose; run again with"
            f" known-good partners: {again.low} of {again.tries}"
        )
        return self._say(
            node,
            _STATES[outcome],
            code=NodeCode.LOSSY,
            measured=share,
            expected=0.0,
            unit="of round trips above 100 ms",
            confirmed=outcome is Outcome.CONFIRMED,
            cleared=outcome is Outcome.CLEARED,
            evidence=(words,),
        )

    def _differs(self, node: int) -> NodeVerdict | None:
        text = self._found.state.config_differs.get(node)
        if text is None:
            return None
        return self._say(
            node, NodeState.FAIL, code=NodeCode.CONFIG_DIFFERS, confirmed=True, evidence=(text,)
        )

    def _unclear(self, node: int) -> NodeVerdict | None:
        state, found = self._found.state, self._found
        if node in state.not_tested:
            return self._say(node, NodeState.NOT_TESTED, evidence=(state.not_tested[node],))
        scores = np.array([one.scores[node] - one.cut.center for one in found.screens])
        tested = bool(np.any(~np.isnan(scores))) or found.fine_again(node) > 0
        if not tested and node not in found.broken.ends:
            seen = found.loss
            if node in seen.a or node in seen.b:
                text = "its pairs lost nothing, and none gave a rate"
                return self._say(node, NodeState.INCONCLUSIVE, evidence=(text,))
            return self._say(node, NodeState.NOT_TESTED, evidence=("no pair of it gave a value",))
        if state.size < IDENTIFIABLE:
            text = "of two alone nobody can tell which would be the slow one"
            return self._say(node, NodeState.INCONCLUSIVE, evidence=(text,))
        if not tested or (self._in_doubt(node) and not found.settled_doubt(node)):
            text = "broke with one partner, and was not run with two others"
            return self._say(node, NodeState.INCONCLUSIVE, evidence=(text,))
        return self._hidden(node)

    def _in_doubt(self, node: int) -> bool:
        return any(node in pair for pair in self._found.broken.in_doubt)

    def _hidden(self, node: int) -> NodeVerdict | None:
        """Returns ``inconclusive`` for a node that is low within what an unknown fabric spreads."""
        if not self._found.state.shares_unknown:
            return None
        for one in self._found.screens:
            low = one.scores[node] - one.cut.center
            if one.cut.depth > math.log(1.1) and low < -math.log(1.1):
                text = (
                    f"{-math.expm1(low):.0%} low, within the fabric's own spread; leaves are"
                    " unknown: a topology, or few pairs at a time, would tell"
                )
                return self._say(node, NodeState.INCONCLUSIVE, evidence=(text,))
        return None
