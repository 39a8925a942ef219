"""Hand-made values of pairs: a matrix of all pairs, with exceptions."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_suspects import control_pairs, next_suspects
from collbench.analyze.pair_types import PairKind, PairValue, pair_table
from collbench.model import Status


def pair(a, b, value=None, *, number=0, kind=PairKind.SEND_RECV, **more):
    return PairValue(a=a, b=b, kind=kind, round=number, value=value, **more)


def all_pairs(nodes, rate, **more):
    """Every pair, all in one round; ``rate(a, b)`` gives a value or a status."""
    found = []
    for a, b in combinations(range(nodes), 2):
        got = rate(a, b)
        if isinstance(got, Status):
            found.append(pair(a, b, status=got, **more))
        else:
            found.append(pair(a, b, got, **more))
    return found


def state_of(nodes, values, leaves=None, **more):
    return PairwiseState(
        names=tuple(f"node{node}" for node in range(nodes)),
        leaves=leaves,
        values=pair_table(values),
        **more,
    )


def settle(state, measure, most=20):
    """Runs suspects again as asked until nobody is open.

    ``measure(a, b, number, alone)`` gives the values of a pair in a round.
    """
    number = 1000
    for _ in range(most):
        wanted = next_suspects(state)
        if not wanted:
            return state
        rows = []
        for one in wanted:
            rows += measure(one.suspect, one.partner, number, one.alone)
            number += one.alone
        for a, b in control_pairs(state, wanted):
            rows += measure(a, b, number, False)
        number += 1
        state = replace(
            state,
            values=np.concatenate([state.values, pair_table(rows)]),
            confirming=state.confirming | set(range(1000, number)),
        )
    raise AssertionError("suspects are still open")


def settled(nodes, rate, leaves=None, **more):
    """All pairs by ``rate``, then suspects again by the same ``rate``."""

    def measure(a, b, number, alone):
        got = rate(min(a, b), max(a, b))
        if isinstance(got, Status):
            return [pair(a, b, number=number, alone=alone, status=got)]
        return [pair(a, b, got, number=number, alone=alone)]

    return settle(state_of(nodes, all_pairs(nodes, rate), leaves, **more), measure)


def words(result):
    """The nodes of which something is said, with verdict and code."""
    return {node.node: (str(node.verdict), node.code) for node in result.nodes if node.code}


def fabric(result):
    """What is said of the fabric."""
    return [(str(one.code), one.nodes or one.leaves, one.confirmed) for one in result.fabric]
