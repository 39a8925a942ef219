"""Made stores of releases as tables of times, with noise of the kinds of ``noise``."""

from __future__ import annotations

import numpy as np
from noise import KEYS, noise_of

from collbench.analyze.history_check import check_newest
from collbench.analyze.history_tables import ReleaseTimes
from collbench.analyze.keys import CaseKey

_LEVELS = np.tile(np.linspace(2, 8, len(KEYS) // 2), 2)


def store(
    kind: str,
    random: np.random.Generator,
    *,
    releases: int = 8,
    repeats: int = 3,
    planted: tuple[CaseKey, int, float] | None = None,
) -> ReleaseTimes:
    """Returns the times of releases that were measured interleaved.

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
    return ReleaseTimes(
        by_run=tuple(
            {"run": {key: tuple(np.exp(logs[:, number, k])) for k, key in enumerate(KEYS)}}
            for number in range(releases)
        )
    )


def regressed_keys(source: ReleaseTimes, new: int | None = None) -> set[CaseKey]:
    """Returns the cases that the newest release, or another, is called slower in."""
    found = check_newest(source, new=new)
    assert found is not None
    return {case.key for case in found.slower} | {one.case.key for one in found.below_best}
