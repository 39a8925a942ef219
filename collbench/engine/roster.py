"""Which rank is where: stations in order of their nodes, then of their local processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collbench.engine.placement import Slots
from collbench.engine.seats import Berth, Post


def berths_of(slots: Sequence[Slots], posts: Sequence[Post]) -> list[Berth]:
    """Returns the place of every rank.

    Args:
        slots: what each station offers; stations of one node stand together.
        posts: where orders for each go.
    """
    berths: list[Berth] = []
    local: Counter[str] = Counter()
    for offer, post in zip(slots, posts, strict=True):
        for slot in range(offer.world_size):
            berths.append(
                Berth(
                    rank=len(berths),
                    post=post,
                    local_rank=local[post.node],
                    gpu=offer.gpus[slot].index if offer.gpus else None,
                    cuda_index=offer.cuda_index(slot),
                    cpuset=offer.cpusets[slot] if offer.cpusets else "",
                    ranks_on_device=offer.ranks_on_device(slot),
                    fake_host=offer.fake_hosts[slot] if offer.fake_hosts else None,
                )
            )
            local[post.node] += 1
    return berths
