"""How slow: effects with intervals, and the direction of a slow node."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_confirm import Rerun
from collbench.analyze.pair_groups import SMALLEST_EFFECT
from collbench.analyze.pair_screen import Screen
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import PairKind
from collbench.analyze.pair_verdicts import Effect, NodeCode
from collbench.stats import FloatArray

_FEWEST_CONTROLS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A node's rate against what it should be, in GB/s."""

    value: float
    expected: float
    effect: Effect
    values: int
    low: int
    """Values below the cut of a pair."""


def effect_of(relative: FloatArray, spread: float, against: int | None = None) -> Effect:
    """Returns the median of relative logs, as a share, with its 95 % interval.

    The spread of a value is that of healthy pairs, or the values' own where that is larger: a few
    values know little of their spread. Of three and more values the median, which one slow path
    does not move: its error is 1.2533 times the mean's.

    Args:
        relative: values less their baselines.
        spread: standard deviation of healthy ones.
        against: healthy values behind the baselines, whose median errs too; None: very many.
    """
    own = float(relative.std(ddof=1)) if relative.size >= 3 else 0.0
    factor = 1.2533 if relative.size >= 3 else 1.0
    error = (factor * max(spread, own)) ** 2 / relative.size
    if against is not None:
        error += (1.2533 * spread) ** 2 / max(against, 1)
    half = 1.96 * math.sqrt(error)
    middle = float(np.median(relative))
    return Effect(
        share=math.expm1(middle), low=math.expm1(middle - half), high=math.expm1(middle + half)
    )


def measured(screen: Screen, again: Rerun, node: int, good: NDArray[np.bool_]) -> Measured | None:
    """Returns a node's figures from its pairs with good partners; None without any.

    Where it met bad partners alone these stand in.
    """
    for partners in (good, np.ones_like(good)):
        one = screen.accuses[0] & (screen.a == node) & partners[screen.b]
        other = screen.accuses[1] & (screen.b == node) & partners[screen.a]
        first = np.flatnonzero(one | other)
        second = again.with_good(node, partners)
        relative = np.concatenate([screen.relative[first], again.relative[second]])
        if relative.size:
            break
    else:
        return None
    logs = np.concatenate([screen.logs[first], again.logs[second]])
    value = math.exp(float(np.median(logs)))
    effect = effect_of(relative, screen.spread, again.healthy.size)
    return Measured(
        value=value,
        expected=value / (1 + effect.share),
        effect=effect,
        values=relative.size,
        low=int((relative < screen.pair_cut(node)).sum()),
    )


def measured_by_bar(screen: Screen, again: Rerun, node: int) -> Measured | None:
    """Returns a node's figures against the bar, from all of its pairs; None without any.

    Whether a partner is good does not matter: what is below the bar is, whoever the others are.
    """
    if screen.bar is None:
        return None
    one = screen.accuses[0] & (screen.a == node)
    other = screen.accuses[1] & (screen.b == node)
    second = again.with_good(node, np.ones_like(screen.slow))
    logs = np.concatenate([screen.logs[one | other], again.logs[second]])
    if not logs.size:
        return None
    effect = effect_of(logs - screen.bar, screen.spread)
    return Measured(
        value=math.exp(float(np.median(logs))),
        expected=math.exp(screen.bar),
        effect=effect,
        values=logs.size,
        low=int((logs < screen.bar).sum()),
    )


def direction(
    state: PairwiseState, screen: Screen, node: int, good: NDArray[np.bool_]
) -> NodeCode | None:
    """Returns ``slow_send`` or ``slow_receive`` where one-way values tell; None: both, or unknown.

    They are held against one-way values of good pairs, from 3 on; else against the better ones of
    all one-way values, or both directions at once where that is more: with one direction slow,
    half of a node's one-way values are fine.
    """
    rows = state.rows_of(PairKind.SEND, screen.rail)
    if not rows.any() and screen.kind is PairKind.ALL_REDUCE:
        return None
    a, b = state.ends[0][rows], state.ends[1][rows]
    logs = np.log(state.values["value"][rows])
    sent, received = logs[(a == node) & good[b]], logs[(b == node) & good[a]]
    if not sent.size or not received.size:
        return None
    controls = logs[good[a] & good[b]]
    if controls.size >= _FEWEST_CONTROLS:
        expected = float(np.median(controls))
    else:
        expected = max(float(np.quantile(logs, 0.75)), float(np.nanmax(screen.centers)))
    cut = expected + min(screen.pair_cut(node), math.log1p(-SMALLEST_EFFECT))
    slow = float(np.median(sent)) < cut, float(np.median(received)) < cut
    return {
        (True, False): NodeCode.SLOW_SEND,
        (False, True): NodeCode.SLOW_RECEIVE,
    }.get(slow)
