"""From observations to the points of a knee: latency taken out, flows counted, plateaus named.

Of a round of pairs, and of halves, the *mean* rate counts, of those that share an uplink: what the
uplink carries, over its flows, however evenly they share it. The slowest of m falls with m by
chance alone (7 % at 64 pairs and 3 % of noise), which would look like a knee.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from collbench.analyze.flows import flows_of_pairs, flows_per_uplink
from collbench.analyze.knee import Point
from collbench.analyze.scale_types import (
    PAIRED,
    RINGS,
    NodeOrder,
    Observation,
    ScalePattern,
    Step,
)

_SIZES_APART = 4
"""The second size has to be smaller by so much, else alpha is noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """How much of a call's time does not grow with the size."""

    corrected: bool
    """Two sizes were measured, so that it could be taken out."""
    share: float = 0.0
    """Of the time of the large size, at the step where it is largest."""
    share_at_n: int = 0


def correct_latency(
    observations: Sequence[Observation],
) -> tuple[tuple[Observation, ...], Latency]:
    """Returns the observations of the large size with rates of S / (t - alpha), and alpha's share.

    alpha comes from the same steps at a smaller size, the median over those of one pattern, order
    and, of collectives, number of nodes; of pairs from the steps with the fewest of them, since
    those that share a link take turns at it, which is no latency. Observations without such a
    partner stay as they are.
    """
    usable = [one for one in observations if one.usable]
    largest = max((one.step.size_bytes for one in usable), default=0)
    small = {
        _partner(one): one
        for one in usable
        if one.step.size_bytes * _SIZES_APART <= largest and one.time_us is not None
    }
    by_pairs: dict[Hashable, dict[int, list[float]]] = {}
    for one in usable:
        other = small.get(_partner(one))
        if one.step.size_bytes == largest and one.time_us is not None and other is not None:
            found = by_pairs.setdefault(_place(one), {}).setdefault(len(one.step.pairs), [])
            found.append(_alpha_us(other, one))
    alphas = {place: found[min(found)] for place, found in by_pairs.items()}
    corrected, shares = [], [(0.0, 0)]
    for one in usable:
        if one.step.size_bytes != largest:
            continue
        share = 0.0
        if one.time_us and _place(one) in alphas:
            share = min(max(float(np.median(alphas[_place(one)])) / one.time_us, 0.0), 0.9)
            shares.append((share, one.step.n))
        corrected.append(_faster(one, 1 / (1 - share)) if share else one)
    share, n = max(shares)
    return tuple(corrected), Latency(corrected=bool(alphas), share=share, share_at_n=n)


def _partner(one: Observation) -> Hashable:
    return msgspec.structs.replace(one.step, size_bytes=0), one.rail, one.algorithm


def _place(one: Observation) -> Hashable:
    """Returns what has one alpha; a pair's is the same however many run, and hashes draw anew."""
    step = one.step
    n = 0 if step.pairs else step.n
    return step.pattern, step.order, n, one.rail, one.algorithm


def _alpha_us(small: Observation, large: Observation) -> float:
    """Returns where the line through both meets a size of zero."""
    if small.time_us is None or large.time_us is None:
        return 0.0
    grown = large.step.size_bytes - small.step.size_bytes
    slope = (large.time_us - small.time_us) / grown
    return small.time_us - slope * small.step.size_bytes


def _faster(one: Observation, factor: float) -> Observation:
    rate = None if one.rate_gb_per_s is None else one.rate_gb_per_s * factor
    pairs = tuple(pair * factor for pair in one.pair_rates_gb_per_s)
    return msgspec.structs.replace(one, rate_gb_per_s=rate, pair_rates_gb_per_s=pairs)


def points_of(
    observations: Sequence[Observation],
    leaf_of: Mapping[int, int] | None,
    *,
    against_control: bool = False,
    slow: frozenset[int] = frozenset(),
) -> list[Point]:
    """Returns the points of a fit.

    Pairs across share their plateau with pairs inside. A ring shares it with the contiguous ring
    over the same number of nodes, where there is one: whatever n itself does (latency, algorithm,
    the collective's own factor) is the same in both.

    Args:
        observations: usable or not, of one size; those without a rate are left out.
        leaf_of: each node's leaf; None where leaves are unknown: then only random orders are taken
            and the number of nodes stands in for that of flows.
        against_control: each round of pairs is held against as many pairs inside leaves, for
            hosts that slow down by themselves.
        slow: nodes that are slow by themselves: their pairs are left out, and count as no more
            flows than they take; collectives with them are left out.
    """
    usable = [one for one in observations if one.usable and not _held_up(one, slow)]
    if leaf_of is None:
        return [
            _point(one, loaded_rate(one, None), float(one.step.n), ())
            for one in usable
            if _is_random(one.step)
        ]
    baselines = {_baseline(one) for one in usable if one.step.order is NodeOrder.CONTIGUOUS}
    points: list[Point] = []
    for one in usable:
        if one.step.pattern in PAIRED or _has_pair_rates(one):
            of_m: tuple[Hashable, ...] = (one.step.m,) if against_control and one.step.m else ()
            points += _of_pairs(one, leaf_of, of_m, slow)
        else:
            same_n = one.step.pattern in RINGS and _baseline(one) in baselines
            of_n: tuple[Hashable, ...] = (one.step.n, one.step.growth) if same_n else ()
            rate = one.rate_gb_per_s or 0.0
            points.append(_point(one, rate, flows_per_uplink(one.step, leaf_of), of_n))
    return points


def _held_up(one: Observation, slow: frozenset[int]) -> bool:
    """Whether slow nodes decide its rate: a collective's, or a round's without a rate a pair."""
    return not _has_pair_rates(one) and bool(slow & set(one.step.nodes))


def _has_pair_rates(one: Observation) -> bool:
    return bool(one.step.pairs) and len(one.pair_rates_gb_per_s) == len(one.step.pairs)


def _is_random(step: Step) -> bool:
    return step.order is NodeOrder.RANDOM and step.pattern not in PAIRED


def _baseline(one: Observation) -> Hashable:
    return one.step.pattern, one.step.n, one.step.growth, one.rail, one.algorithm


def _kind(one: Observation) -> tuple[Hashable, ...]:
    pattern = one.step.pattern
    name = ScalePattern.PAIRS if pattern in PAIRED else pattern
    # Another algorithm is another plateau: a change with n is no knee.
    return name, one.rail, one.algorithm


def _point(one: Observation, rate: float, flows: float, extra: tuple[Hashable, ...]) -> Point:
    return Point(flows=flows, rate_gb_per_s=rate, plateau=(*_kind(one), *extra))


def _of_pairs(
    one: Observation,
    leaf_of: Mapping[int, int],
    extra: tuple[Hashable, ...],
    slow: frozenset[int],
) -> Iterator[Point]:
    for flows, rates in rates_by_flows(one, leaf_of, slow).items():
        yield Point(flows=flows, rate_gb_per_s=_mean(rates), plateau=(*_kind(one), *extra))


def _mean(rates: Sequence[float]) -> float:
    return float(np.mean(rates))


def rates_by_flows(
    one: Observation, leaf_of: Mapping[int, int], slow: frozenset[int] = frozenset()
) -> dict[float, tuple[float, ...]]:
    """Returns the rates of a round's pairs by the flows that share their uplink.

    A round without a rate for each pair counts as its slowest one at the most loaded uplink. Pairs
    of slow nodes are left out; what they leave free the others share, so that they count as the
    share of a flow that they take.
    """
    flows = flows_of_pairs(one.step, leaf_of)
    if not _has_pair_rates(one):
        return {max(flows): (one.rate_gb_per_s,)} if flows and one.rate_gb_per_s else {}
    groups: dict[Hashable, tuple[float, list[float], list[float]]] = {}
    for pair, x, rate in zip(one.step.pairs, flows, one.pair_rates_gb_per_s, strict=True):
        ends = frozenset(leaf_of[node] for node in pair)
        _, rates, held = groups.setdefault((x, ends if x else None), (x, [], []))
        (held if slow & set(pair) else rates).append(rate)
    found: dict[float, list[float]] = {}
    for x, rates, held in groups.values():
        if rates:
            found.setdefault(_taken(x, held, _mean(rates)), []).extend(rates)
    return {x: tuple(rates) for x, rates in found.items()}


def _taken(flows: float, held: Sequence[float], rate: float) -> float:
    """Returns the flows, those that are held up counted by their share of the others' rate."""
    if flows == 0 or not held:
        return flows
    return round(flows - sum(1 - min(one / rate, 1.0) for one in held), 2)


def loaded_rate(one: Observation, leaf_of: Mapping[int, int] | None) -> float:
    """Returns a step's rate in GB/s: of pairs the mean of those at the most loaded uplink.

    Where leaves are unknown, of all its pairs.
    """
    if not _has_pair_rates(one):
        return one.rate_gb_per_s or 0.0
    if leaf_of is None:
        return _mean(one.pair_rates_gb_per_s)
    rates = rates_by_flows(one, leaf_of)
    return _mean(rates[max(rates)])


def uplink_sums(
    observations: Sequence[Observation], leaf_of: Mapping[int, int]
) -> dict[float, list[float]]:
    """Returns by flows per uplink the rates of all pairs over the most loaded one, summed, GB/s."""
    found: dict[float, list[float]] = {}
    for one in observations:
        if one.step.pattern is not ScalePattern.PAIRS or not one.usable:
            continue
        flows = flows_of_pairs(one.step, leaf_of)
        if len(one.pair_rates_gb_per_s) != len(flows):
            continue
        sums: dict[int, float] = {}
        loads: dict[int, int] = {}
        for pair, rate in zip(one.step.pairs, one.pair_rates_gb_per_s, strict=True):
            for leaf in {leaf_of[node] for node in pair}:
                sums[leaf] = sums.get(leaf, 0.0) + rate
                loads[leaf] = loads.get(leaf, 0) + 1
        leaf = max(loads, key=lambda key: loads[key])
        found.setdefault(float(loads[leaf]), []).append(sums[leaf])
    return found
