"""What good pairs reach, kept for one class of hardware: the baseline of ``pairwise``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from collbench.analyze.baseline import (
    Baseline,
    HardwareClass,
    PairLevel,
    class_differences,
    head_of,
    make_baseline,
)
from collbench.analyze.pair_rows import state_of_run
from collbench.analyze.pair_verdicts import NodeState
from collbench.analyze.pairwise import judge
from collbench.errors import UsageError
from collbench.stats import FloatArray
from collbench.store import StoredRun

_ANY_NUMBER = ("nodes", "ranks")
"""What pairs are of: two nodes, however many there are."""


def baseline_of(runs: Sequence[StoredRun]) -> Baseline:
    """Returns what runs of one kind and class reached: cases of a sweep, or pairs.

    Raises:
        UsageError: as ``make_baseline``; or runs of ``pairwise`` beside others.
    """
    of_pairs = [stored.run.command == "pairwise" for stored in runs]
    if not any(of_pairs):
        return make_baseline(runs)
    if not all(of_pairs):
        named = ", ".join(f"{stored.run.run_id} of '{stored.run.command}'" for stored in runs)
        raise UsageError(f"a baseline holds cases or pairs, and the runs are of both: {named}")
    head, levels = head_of(runs), _levels(runs)
    if not levels:
        raise UsageError(
            f"no good pair in {', '.join(head.run_ids)}: nothing to make a baseline of; 'collbench"
            " show' tells why"
        )
    return msgspec.structs.replace(head, pairs=levels)


def _levels(runs: Sequence[StoredRun]) -> list[PairLevel]:
    """Returns the median rate of pairs of which both nodes pass, by what they were asked."""
    rates: dict[tuple[str, int | None, bool], list[FloatArray]] = {}
    for stored in runs:
        state = state_of_run(stored)
        good = sorted(one.node for one in judge(state).of(NodeState.PASS))
        inside = bool(stored.run.suite.get("inside"))
        fine = np.isin(state.ends[0], good) & np.isin(state.ends[1], good)
        for kind, rail in state.judged:
            values = state.values["value"][fine & state.rows_of(kind, rail)]
            rates.setdefault((str(kind), rail, inside), []).append(values)
    together = {asked: np.concatenate(found) for asked, found in rates.items()}
    return [
        PairLevel(
            collective=collective,
            rail=rail,
            inside=inside,
            busbw_gb_per_s=float(np.median(values)),
            pairs=values.size,
        )
        for (collective, rail, inside), values in together.items()
        if values.size
    ]


def pair_class_differences(one: HardwareClass, other: HardwareClass) -> list[tuple[str, str, str]]:
    """Returns what differs of the nodes themselves: name, in the one, in the other."""
    return class_differences(one, other, without=_ANY_NUMBER)
