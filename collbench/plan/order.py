"""In which order the cases of a repeat run: what can share processes stands together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from collbench.model import Case
from collbench.nccl.settings import needs_of

T = TypeVar("T")


def in_blocks(
    cases: Sequence[Case], swept: Sequence[str], shuffle: random.Random | None
) -> tuple[Case, ...]:
    """Returns the cases so that each zygote, worker and communicator is started once.

    Args:
        cases: in reading order, which each block keeps.
        swept: the variables that any setting touches.
        shuffle: draws the order of blocks within their block, and of cases in the innermost.
    """
    blocks: dict[object, dict[object, dict[object, list[Case]]]] = {}
    for case in cases:
        needs = needs_of(case.setting, swept)
        of_zygote = blocks.setdefault(needs.zygote, {})
        of_workers = of_zygote.setdefault(needs.worker, {})
        of_workers.setdefault(needs.communicator, []).append(case)
    return tuple(
        case
        for of_zygote in _drawn(list(blocks.values()), shuffle)
        for of_workers in _drawn(list(of_zygote.values()), shuffle)
        for block in _drawn(list(of_workers.values()), shuffle)
        for case in _drawn(block, shuffle)
    )


def _drawn(items: list[T], shuffle: random.Random | None) -> list[T]:
    if shuffle is not None:
        shuffle.shuffle(items)
    return items
