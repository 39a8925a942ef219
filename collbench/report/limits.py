"""The wire's limit beside a table: which one holds for which row, and the words it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from collbench.analyze.curves import shared_proof
from collbench.analyze.limit import Limit, LimitOf
from collbench.model import Trial
from collbench.units import format_size

Limits = Mapping[int, Limit]
"""By size in bytes, where it is known."""


def limits_by_size(trials: Sequence[Trial], limit_of: LimitOf) -> Limits:
    """Returns the limit of each size.

    Args:
        trials: of one mode, each size with all its repeats.
        limit_of: what the wire allows.
    """
    sizes: dict[int, list[Trial]] = {}
    for trial in trials:
        sizes.setdefault(trial.case.size_bytes, []).append(trial)
    found = {size: limit_of(own[0].case, shared_proof(own)) for size, own in sizes.items()}
    return {size: limit for size, limit in found.items() if limit is not None}


def limit_lines(modes: Iterable[Limits]) -> list[str]:
    """Returns what the shares of a table are of; with the sizes where there are several limits."""
    texts: dict[str, set[int]] = {}
    for limits in modes:
        for size, limit in limits.items():
            texts.setdefault(limit.text, set()).add(size)
    every = sorted(set().union(*texts.values()))
    where = {text: f"  ({_spans(sizes, every)})" for text, sizes in texts.items()}
    return [
        f"  limit: busbw as a share of {text}{where[text] if len(texts) > 1 else ''}"
        for text in sorted(texts, key=lambda text: min(texts[text]))
    ]


def _spans(sizes: set[int], every: Sequence[int]) -> str:
    """Returns sizes in words, neighbours among all sizes as one: ``4 B to 64 KiB, 1 GiB``."""
    words = []
    for inside, group in groupby(every, key=lambda size: size in sizes):
        run = list(group)
        if inside:
            ends = dict.fromkeys((format_size(run[0]), format_size(run[-1])))
            words.append(" to ".join(ends))
    return ", ".join(words)
