"""Which rank is where: stations in order of their nodes, then of their local processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from collbench.engine.placement import Slots
from collbench.engine.seats import Berth, Post
from collbench.model import RankPlace


def places_of(nodes: Sequence[str], slots: Sequence[Slots]) -> list[RankPlace]:
    """Returns where every rank runs, as the topology has it.

    Args:
        nodes: the name of each station's node; stations of one node stand together.
        slots: what each station offers.
    """
    places: list[RankPlace] = []
    local: Counter[str] = Counter()
    for node, offer in zip(nodes, slots, strict=True):
        for place in offer.places(node):
            places.append(msgspec.structs.replace(place, rank=len(places), local_rank=local[node]))
            local[node] += 1
    return places


def berths_of(slots: Sequence[Slots], posts: Sequence[Post]) -> list[Berth]:
    """Returns the place of every rank.

    Args:
        slots: what each station offers; stations of one node stand together.
        posts: where orders for each go.
    """
    homes = [
        (post, offer, slot)
        for offer, post in zip(slots, posts, strict=True)
        for slot in range(offer.world_size)
    ]
    sharing = Counter(_device(offer, slot, post.node) for post, offer, slot in homes)
    return [
        Berth(
            rank=place.rank,
            post=post,
            local_rank=place.local_rank,
            gpu=place.gpu,
            cuda_index=offer.cuda_index(slot),
            cpuset=place.cpuset,
            ranks_on_device=sharing[_device(offer, slot, post.node)],
            fake_host=place.fake_host,
        )
        for place, (post, offer, slot) in zip(
            places_of([post.node for post in posts], slots), homes, strict=True
        )
    ]


def _device(offer: Slots, slot: int, node: str) -> str:
    """Returns what tells a slot's GPU from all others, or its node's CPU from those of others."""
    return offer.gpus[slot].uuid if offer.gpus else node
