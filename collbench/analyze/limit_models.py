"""How much of a wire's rate an algorithm can turn into bus bandwidth.

Bounds that hold whatever the size: bytes that the algorithm must put through the busiest wire in
one direction, against busbw = S x factor / time. ``n`` ranks, ``N`` nodes, ``g`` = n / N ranks on
each. What a protocol adds to the bytes (LL: as much again) is not in them: the share of the limit
shows what it costs.
"""

from __future__ import annotations

_RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Collectives that NCCL runs as a ring, or as a chain along it."""

_BY_PAIRS = ("all_to_all", "gather", "scatter", "send_recv")
"""Collectives that are sends and receives: NCCL chooses no algorithm for them."""


def links_share(collective: str, algorithm: str | None, ranks: int, nodes: int) -> float | None:
    """Returns busbw at most, as a multiple of what one GPU's NVLinks carry in one direction.

    None where no bound is known, or where no NVLink is passed (one rank a node).

    * Ring: each rank sends as much as busbw counts. On several nodes the ring leaves each node
      once, so of g hops g - 1 are NVLink's.
    * Tree: along the chain of a node data go up and down, 2 (g - 1) S in all.
    * NVLS and NVLSTree reduce and copy in the switch: a GPU sends (g + 1) / g S for an all_reduce,
      (n + 1) / n S on one node. In an all_gather a GPU receives and in a reduce_scatter it sends
      (n - 1) / n S, as in a ring: a switch cannot help there.

    Args:
        collective: torch.distributed's word.
        algorithm: as NCCL_ALGO spells it; None where NCCL told none.
        ranks: of all nodes.
        nodes: with equally many ranks.
    """
    here = ranks // nodes
    if here < 2:
        return None
    leaves = 1.0 if nodes == 1 else here / (here - 1)
    if algorithm is None:
        return _links_share_of_pairs(collective, ranks, nodes)
    if algorithm == "Ring" and collective in _RINGS:
        return leaves
    if algorithm == "Tree" and collective == "all_reduce":
        return here * (ranks - 1) / (ranks * (here - 1))
    if algorithm in ("NVLS", "NVLSTree") and collective == "all_reduce":
        # NVLS on several nodes is SHARP's; NVLSTree on one node is none.
        alone = algorithm == "NVLS"
        return _reduced_in_switch(ranks, here) if alone == (nodes == 1) else None
    if algorithm == "NVLS" and nodes == 1 and collective in ("all_gather", "reduce_scatter"):
        return 1.0
    return None


def _reduced_in_switch(ranks: int, here: int) -> float:
    return 2 * (ranks - 1) / ranks * here / (here + 1)


def _links_share_of_pairs(collective: str, ranks: int, nodes: int) -> float | None:
    if collective == "all_to_all":
        return (ranks - 1) / (ranks // nodes - 1)
    return 1.0 if nodes == 1 and collective in _BY_PAIRS else None


def network_share(collective: str, algorithm: str | None, ranks: int, nodes: int) -> float | None:
    """Returns busbw at most, as a multiple of what all NICs of a node carry in one direction.

    None where no bound is known.

    * Ring: what busbw counts passes each node's border once, however many nodes there are.
    * Tree, NVLSTree: two trees over the nodes, half of the data in each. Between 2 nodes every
      byte crosses once each way; of 3 nodes one sends 1.5 S; from 4 on one sends 2 S: up, and
      down to two children, in one tree, and up in the other.
    * PAT, one rank a node: each receives (all_gather) or sends (n - 1) / n S.
    * all_to_all: g ranks send (n - g) / n S each.

    Args:
        collective: torch.distributed's word.
        algorithm: as NCCL_ALGO spells it; None where NCCL told none.
        ranks: of all nodes.
        nodes: with equally many ranks, at least 2.
    """
    here = ranks // nodes
    if algorithm is None:
        if collective == "all_to_all":
            return (ranks - 1) / (here * (ranks - here))
        return 1.0 if here == 1 and collective in _BY_PAIRS else None
    if algorithm == "Ring" and collective in _RINGS:
        return 1.0
    if algorithm in ("Tree", "NVLSTree") and collective == "all_reduce":
        sent = {2: 1.0, 3: 1.5}.get(nodes, 2.0)
        return 2 * (ranks - 1) / ranks / sent
    if algorithm == "PAT" and here == 1 and collective in ("all_gather", "reduce_scatter"):
        return 1.0
    return None
