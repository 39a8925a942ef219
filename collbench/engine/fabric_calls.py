"""What a collective sends: the hops between ranks, and the bytes of each.

Rings follow the order of a group's ranks, as NCCL follows the order of a communicator's nodes. Of
a message of S bytes over n ranks a hop of the ring carries 2 (n - 1) / n S (all_reduce) or
(n - 1) / n S (all_gather, reduce_scatter); a hop of the chain from or to a root S (broadcast,
reduce); a pair S / n (all_to_all, gather, scatter); each neighbour's message S (send_recv).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collbench.engine.fabric_layout import IntArray
from collbench.model import Case

MOST_HOPS = 2**23
"""Hops of one case that the model computes."""
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""How often data go round the ring."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hops:
    """All hops of the groups of a round that run alike cases at one time."""

    group: IntArray
    """[hop] the row of ``ranks`` that it belongs to."""
    source: IntArray
    """[hop] rank"""
    target: IntArray
    """[hop] rank"""
    hop_bytes: float
    """Of each."""
    whole_nodes: bool
    """Whether a hop between nodes goes over all NICs that the group's ranks have there, as the
    channels of a ring do; else over those of the receiving rank's GPU, as NCCL's messages between
    two ranks do (PXN)."""
    chain: float
    """How many hops a byte goes through one after the other, as a multiple of the group's hops; 0
    where all hops are at once."""


def hop_count(case: Case) -> int:
    """Returns the hops of a case."""
    n = case.world_size
    if case.collective == "all_to_all":
        return n * (n - 1)
    return n if case.collective in {*_PASSES, "send_recv"} else n - 1


def hops_of(case: Case, ranks: IntArray) -> Hops:
    """Returns the hops of a case.

    Args:
        case: what runs.
        ranks: [group, position] the ranks of the groups that run it.
    """
    n = ranks.shape[1]
    size = float(case.size_bytes)
    root = case.root or 0
    if case.collective in _PASSES:
        passes = _PASSES[case.collective]
        share = (n - 1) / n
        following = np.roll(ranks, -1, axis=1)
        return _hops(ranks, following, passes * share * size, whole=True, chain=passes * share)
    if case.collective == "send_recv":
        return _hops(ranks, np.roll(ranks, -1, axis=1), size, whole=False, chain=0.0)
    if case.collective == "all_to_all":
        first, second = np.nonzero(~np.eye(n, dtype=bool))
        return _hops(ranks[:, first], ranks[:, second], size / n, whole=False, chain=0.0)
    ordered = np.roll(ranks, -root, axis=1)
    if case.collective in ("broadcast", "reduce"):
        source, target = ordered[:, :-1], ordered[:, 1:]
        bytes_, whole, chain = size, True, 1.0
    else:
        assert case.collective in ("gather", "scatter"), case.collective
        source, target = np.broadcast_to(ordered[:, :1], (ranks.shape[0], n - 1)), ordered[:, 1:]
        bytes_, whole, chain = size / n, False, 0.0
    if case.collective in ("reduce", "gather"):
        source, target = target, source
    return _hops(source, target, bytes_, whole=whole, chain=chain)


def _hops(
    source: IntArray, target: IntArray, hop_bytes: float, *, whole: bool, chain: float
) -> Hops:
    groups, hops = source.shape
    group = np.repeat(np.arange(groups), hops)
    between = (source != target).reshape(-1)  # a group of one rank sends nothing
    return Hops(
        group=group[between],
        source=source.reshape(-1)[between],
        target=target.reshape(-1)[between],
        hop_bytes=hop_bytes,
        whole_nodes=whole,
        chain=chain,
    )
