"""The nine collectives as torch.distributed calls on the views of one slot.

Only workers import this. Each entry takes the two sides of a slot, the ranks' own numbers and the
group, and returns a function that issues one call; all look-ups happen before timing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from collbench.model import Case

Call = Callable[[], object]

_REDOPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG,
}

# torch 2.13 renamed these and warns about the old names; older releases know only the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def bind_call(
    case: Case,
    rank: int,
    given: torch.Tensor,
    taken: torch.Tensor,
    group: dist.ProcessGroup,
) -> Call:
    """Returns what issues one call of the case.

    Args:
        case: which collective.
        rank: this rank in the group; the group holds all ranks of the case.
        given: the input, one-dimensional.
        taken: the output; shares memory with ``given`` in place.
        group: where it runs.
    """
    op = _REDOPS[case.redop] if case.redop else None
    n, root = case.world_size, case.root or 0
    match case.collective:
        case "all_reduce":
            return lambda: dist.all_reduce(taken, op=op, group=group)
        case "all_gather":
            return lambda: _all_gather(taken, given, group=group)
        case "reduce_scatter":
            return lambda: _reduce_scatter(taken, given, op=op, group=group)
        case "broadcast":
            return lambda: dist.broadcast(taken, group=group, group_src=root)
        case "reduce":
            return lambda: dist.reduce(taken, op=op, group=group, group_dst=root)
        case "all_to_all":
            return lambda: dist.all_to_all_single(taken, given, group=group)
        case "gather":
            parts = list(taken.chunk(n)) if rank == root else None
            return lambda: dist.gather(given, parts, group=group, group_dst=root)
        case "scatter":
            parts = list(given.chunk(n)) if rank == root else None
            return lambda: dist.scatter(taken, parts, group=group, group_src=root)
        case "send_recv":
            return _ring_shift(rank, n, given, taken, group)
        case _:
            raise AssertionError(case.collective)


def _ring_shift(
    rank: int, n: int, given: torch.Tensor, taken: torch.Tensor, group: dist.ProcessGroup
) -> Call:
    """Each rank sends to the next and receives from the one before, the receive posted first.

    A send that is posted before its receive makes a Gloo pair half-duplex.
    """
    pair = [
        dist.P2POp(dist.irecv, taken, group=group, group_peer=(rank - 1) % n),
        dist.P2POp(dist.isend, given, group=group, group_peer=(rank + 1) % n),
    ]

    def call() -> None:
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return call
