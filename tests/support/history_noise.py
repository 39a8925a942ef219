"""Made stores of releases as tables of times, with noise of the kinds of ``noise``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from noise import KEYS, noise_of

from collbench.analyze.history_check import Between, check_newest
from collbench.analyze.keys import CaseKey
from collbench.analyze.sides import Times

_LEVELS = np.tile(np.linspace(2, 8, len(KEYS) // 2), 2)


def store(
    kind: str,
    random: np.random.Generator,
    *,
    releases: int = 8,
    repeats: int = 3,
    planted: tuple[CaseKey, int, float] | None = None,
) -> tuple[list[Times], Between]:
    """Returns the times of releases that were measured interleaved, and what compares them.

    Args:
        kind: of noise.
        random: where it comes from.
        releases: how many.
        repeats: of each; the n-th repeats of all releases come one after the other.
        planted: a case, the release from which on it differs, and its ratio from there on.
    """
    logs = _LEVELS + noise_of(kind, random, repeats * releases)
    logs = logs.reshape(repeats, releases, len(KEYS))
    if planted is not None:
        key, since, ratio = planted
        logs[:, since:, KEYS.index(key)] += np.log(ratio)
    times: list[Times] = [
        {key: tuple(np.exp(logs[:, number, k])) for k, key in enumerate(KEYS)}
        for number in range(releases)
    ]

    def between(base: Sequence[int], new: int) -> tuple[Times, Times]:
        joined = {key: tuple(t for number in base for t in times[number][key]) for key in KEYS}
        return joined, times[new]

    return times, between


def regressed_keys(times: Sequence[Times], between: Between) -> set[CaseKey]:
    """Returns the cases that the newest release is called slower in."""
    found = check_newest(times, between)
    assert found is not None
    return {case.key for case in found.slower} | {one.case.key for one in found.below_best}
