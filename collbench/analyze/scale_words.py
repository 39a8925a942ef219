"""The verdict of `scale` in sentences: answer, seen, for you, not it, next."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collbench.analyze.false_knees import FalseKneeKind
from collbench.analyze.knee import KneeAnswer, KneeFit
from collbench.analyze.rate_unit import RateUnit, rate_unit
from collbench.analyze.scale_types import NodeOrder, ScalePattern
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.analyze.scale_witness import Witness

_SHOWN = 3
_ORDERS = {
    NodeOrder.CONTIGUOUS: "in leaf order",
    NodeOrder.ROUND_ROBIN: "interleaved",
    NodeOrder.RANDOM: "in random order",
}


def conclusion(verdict: ScaleVerdict) -> list[str]:
    """Returns the headline, then what explains a fall that is no knee."""
    said = headline(verdict)
    # The headline has collisions itself.
    there = [one.text for one in verdict.checks if one.found and one.text[1:] not in said]
    return [said, *(f"{text[:1].upper()}{text[1:]}." for text in there)]


def headline(verdict: ScaleVerdict) -> str:
    """Returns the answer in one sentence."""
    fit, k = verdict.fit, verdict.leaf_size
    if verdict.answer is KneeAnswer.INCONCLUSIVE:
        ratio = "" if verdict.ratio.low is None else f" (oversubscribed {verdict.ratio.text})"
        return f"Cannot tell: {verdict.reason}{ratio}."
    if k == 0:
        return _unknown(fit)
    if verdict.collisions is not None and verdict.collisions.there:
        return _capital(_collided(verdict)) + "."
    if verdict.answer is KneeAnswer.KNEE:
        of_sum = ""
        if verdict.capacity_gb_per_s is not None and verdict.full_gb_per_s is not None:
            unit = _unit(verdict)
            whole = unit.text(k * verdict.full_gb_per_s)
            of_sum = f" ({unit.text(verdict.capacity_gb_per_s)} of {whole} {unit.name})"
        return (
            f"Knee: a leaf's uplinks carry {_span(fit)} node links of {k}: oversubscribed"
            f" {verdict.ratio.text}{of_sum}."
        )
    return (
        f"No knee up to {fit.most_flows:g} flows a leaf: its uplinks carry at least"
        f" {fit.flows_low or 0:.2f} node links of {k}, oversubscription {verdict.ratio.text}."
    )


def seen(verdict: ScaleVerdict) -> str | None:
    """Returns what the pairs did, None where nothing was concluded from them."""
    if verdict.answer is not KneeAnswer.KNEE or verdict.full_gb_per_s is None:
        return None
    if verdict.collisions is not None and verdict.collisions.there:
        return None
    hosts = verdict.check(FalseKneeKind.HOSTS)
    control = ""
    if hosts is not None and hosts.found is False:
        control = "; as many pairs inside leaves keep full rate, so it is no host limit"
    unit = _unit(verdict)
    return (
        f"pairs across run at full rate ({unit.text(verdict.full_gb_per_s)} {unit.name}) up to"
        f" {verdict.fit.flows or 0:.1f} at once, then share{control}"
    )


def for_you(verdict: ScaleVerdict) -> Iterator[str]:
    """Yields a line for each other pattern: its rates on all nodes, and what it says of uplinks."""
    collided = verdict.collisions is not None and verdict.collisions.there
    unit = _unit(verdict)
    for one in verdict.witnesses:
        name = "half to the other half" if one.pattern is ScalePattern.HALF else one.pattern
        rates = ", ".join(
            f"{unit.text(rate)} {_ORDERS[order]}" for order, rate in one.rates_gb_per_s.items()
        )
        says = "" if collided else f"; {_says(one)}"
        yield f"{name} on {one.n} nodes, {unit.name}: {rates}{says}"


def _says(one: Witness) -> str:
    agrees = {True: ", in agreement", False: ", in disagreement", None: ""}[one.agrees]
    if one.fit.answer is KneeAnswer.KNEE:
        return f"by it the uplinks carry {_span(one.fit)}{agrees}"
    if one.fit.answer is KneeAnswer.NO_KNEE:
        return f"does not feel the uplinks up to {one.fit.most_flows:.3g} flows each{agrees}"
    return f"says nothing of the uplinks: {one.fit.reason}{agrees}"


def not_it(verdict: ScaleVerdict) -> list[str]:
    """Returns the sentences of what was looked for and is not there."""
    return [one.text for one in verdict.checks if one.found is False]


def also(verdict: ScaleVerdict) -> list[str]:
    """Returns the sentences of what is there beside the answer, and of what could not be told."""
    there = [one.text for one in verdict.checks if one.found]
    untold = [one.text for one in verdict.checks if one.found is None]
    steps = verdict.lost.steps
    lost = list(steps[:_SHOWN])
    if len(steps) > _SHOWN:
        lost.append(f"{len(steps) - _SHOWN} more steps without a rate")
    if verdict.lost.node is not None:
        lost.append(f"all steps without a rate are with node {verdict.lost.node}")
    return [*there, *untold, *lost]


def next_step(verdict: ScaleVerdict) -> str:
    """Returns what to do."""
    if verdict.slow_nodes:
        return f"look at {verdict.slow_nodes[0].name} first: collbench pairwise"
    if verdict.lost.node is not None:
        return f"look at node {verdict.lost.node} first: collbench pairwise"
    hosts = verdict.check(FalseKneeKind.HOSTS)
    if hosts is not None and hosts.found:
        return "look at the hosts: cores, memory and PCIe beside the NICs; then measure again"
    if verdict.collisions is not None and verdict.collisions.there:
        return "more connections a pair (NCCL_IB_QPS_PER_CONNECTION), or adaptive routing"
    if verdict.answer is KneeAnswer.KNEE and verdict.leaf_size:
        return (
            "keep jobs inside a leaf or in leaf order (srun --switches=1, topology plug-in); or"
            f" ask for uplinks of {verdict.leaf_size} node links a leaf"
        )
    if verdict.answer is KneeAnswer.KNEE:
        return "name the leaves (--topology, --from-pairwise): then it can be told from a node"
    if verdict.lost.steps and verdict.full_gb_per_s is None:
        return "see first why steps have no rate: below, and in the run's logs/"
    if verdict.answer is KneeAnswer.INCONCLUSIVE:
        return "more repeats, more nodes in at least two leaves, or a larger size"
    return "nothing to do: the fabric carries all that its nodes send"


def _unit(verdict: ScaleVerdict) -> RateUnit:
    """Returns one unit for all sentences, so that slow links do not read 0.03 GB/s."""
    rates = [rate for one in verdict.witnesses for rate in one.rates_gb_per_s.values()]
    if verdict.full_gb_per_s is not None:
        rates.append(verdict.full_gb_per_s)
    return rate_unit(np.array(rates))


def _collided(verdict: ScaleVerdict) -> str:
    check = verdict.check(FalseKneeKind.COLLISIONS)
    return "" if check is None else check.text


def _unknown(fit: KneeFit) -> str:
    if fit.answer is KneeAnswer.KNEE:
        return (
            f"Rates in random order fall from {_span(fit)} nodes on; leaves are unknown, so this"
            " may be oversubscription, n itself or a node."
        )
    return f"No fall up to {fit.most_flows:g} nodes in random order; leaves are unknown."


def _span(fit: KneeFit) -> str:
    high = "more" if fit.flows_high is None else f"{fit.flows_high:.2f}"
    return f"{fit.flows or 0:.2f} [{fit.flows_low or 0:.2f}, {high}]"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
