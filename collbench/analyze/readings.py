"""What a comparison of settings means to the person who has to act: readings in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from collbench.analyze.compare import Verdict
from collbench.analyze.compared import Compared, Side, compare_sides
from collbench.analyze.keys import CaseKey, case_key
from collbench.errors import UsageError
from collbench.model import Finding, Status, Summary
from collbench.nccl.settings import IB, setting_text
from collbench.store import StoredRun

_ALPHA = 0.01
_BANDWIDTH_BYTES = 2**20
"""From here on a rate says more of the path than of its latency."""
_UNSTEADY = 0.10
"""Samples whose 95th percentile is so far above the median are unsteady; so much more of it on one
side is a difference."""
_OF_THE_NETWORK = ("NCCL_IB_", "NCCL_NET", "NCCL_SOCKET_", "GLOO_", "UCX_", "FI_", IB)


def held_against_first(
    stored: StoredRun, settings: Sequence[Mapping[str, str]], threshold: float
) -> list[Compared]:
    """Returns every side of a run but the first against the first.

    The chance of a false claim is shared out over the pairs, so that all of them together make one
    with at most 1 %. Sides without a case in common with the first are left out.

    Args:
        stored: the run.
        settings: its sides, the base first.
        threshold: a smaller change is of no interest, as a share.
    """
    whole = Side(name=stored.run.run_id, runs=(stored,))
    measured = set(whole.settings)
    base, *others = (setting_text(setting) for setting in settings)
    found = []
    for other in others:
        if base in measured and other in measured:
            with suppress(UsageError):
                sides = whole.under(base), whole.under(other)
                found.append(compare_sides(*sides, threshold=threshold, alpha=_ALPHA / len(others)))
    return found


def not_compared(
    stored: StoredRun, settings: Sequence[Mapping[str, str]], pairs: Sequence[Compared]
) -> list[str]:
    """Returns a line for each side that was not held against the first, with the reason.

    Args:
        stored: the run.
        settings: its sides, the base first.
        pairs: those that were.
    """
    base, *others = (setting_text(setting) for setting in settings)
    ends = Side(name=stored.run.run_id, runs=(stored,)).settings_without_times
    held = {pair.new.name for pair in pairs}
    lines = []
    for other in (other for other in others if other not in held):
        why = [f"no case of {name} is ok ({ends[name]})" for name in (base, other) if name in ends]
        text = "; ".join(why) or "no case is ok on both sides"
        lines.append(f"{other} against {base}: not compared: {text}")
    return lines


def readings(pairs: Sequence[Compared]) -> list[Finding]:
    """Returns what the pairs mean to who has to act; nothing where nothing is sure."""
    return [finding for pair in pairs for finding in _read(pair)]


def _read(pair: Compared) -> Iterator[Finding]:
    ends = {_setting(side).get(IB) for side in (pair.base, pair.new)}
    if "off" in ends and len(ends) == 2:
        yield from _ib(pair)
    elif _differs_in_network(pair):
        yield from _slower_but_steady(pair)


def _setting(side: Side) -> Mapping[str, str]:
    return side.trials[0].case.setting


def _ib(pair: Compared) -> Iterator[Finding]:
    off_is_new = _setting(pair.new).get(IB) == "off"
    on, off = (pair.base, pair.new) if off_is_new else (pair.new, pair.base)
    faster = pair.comparison.of(Verdict.FASTER if off_is_new else Verdict.SLOWER)
    large = [case for case in faster if case.key.size_bytes >= _BANDWIDTH_BYTES]
    advice = (
        "look at RDMA on these nodes (GPU Direct, ACS and IOMMU, HCA firmware), and with RoCE at"
        " lossless Ethernet: PFC and ECN on every switch and NIC"
    )
    if large:
        gain = max(abs(case.ratio - 1) for case in large)
        yield Finding(
            code="ib_off_faster",
            severity="warning",
            text=f"IB off is faster than on in {_cases(len(large))} from 1 MiB on (by up to"
            f" {gain:.0%}): the RDMA path is at fault, not the capacity of the network.",
            next_step=advice,
        )
    unsteady = _steadier(on, off)
    if unsteady:
        yield Finding(
            code="ib_off_steadier",
            severity="warning",
            text=f"IB off is steadier than on in {_cases(len(unsteady))}: with IB on the 95th"
            f" percentile stands up to {max(unsteady):.0%} above the median.",
            next_step=advice,
        )
    slower = pair.comparison.of(Verdict.SLOWER if off_is_new else Verdict.FASTER)
    if slower and not large and not unsteady:
        gain = max(max(case.ratio, 1 / case.ratio) for case in slower)
        yield Finding(
            code="ib_on_faster",
            severity="info",
            text=f"IB on is up to {gain:.1f} times as fast as off, and as steady: RDMA does its"
            " work.",
        )


def _slower_but_steady(pair: Compared) -> Iterator[Finding]:
    slower = pair.comparison.of(Verdict.SLOWER)
    tails = _tails(pair.new)
    steady = [
        case
        for case in slower
        if case.key.size_bytes >= _BANDWIDTH_BYTES and tails.get(_apart(case.key), 1.0) < _UNSTEADY
    ]
    if steady:
        most = max(case.ratio - 1 for case in steady)
        yield Finding(
            code="slower_but_steady",
            severity="warning",
            text=f"{pair.new.name} is slower than {pair.base.name} in {_cases(len(steady))} from"
            f" 1 MiB on (by up to {most:.0%}) and steady: congestion or loss that the transport"
            " makes up for, or a path of less capacity; no fault that comes and goes.",
            next_step="read the counters of the NICs and switches around a run (ECN and CNP marks,"
            " PFC pauses, retransmissions), and the rate of the interface in use",
        )


def _differs_in_network(pair: Compared) -> bool:
    one, other = dict(_setting(pair.base)), dict(_setting(pair.new))
    names = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    return bool(names) and all(name.startswith(_OF_THE_NETWORK) for name in names)


def _steadier(on: Side, off: Side) -> list[float]:
    """Returns how unsteady the first is where the second is steadier, a share a case.

    Empty unless that holds in more than half of the cases: single tails are chance.
    """
    of_on, of_off = _tails(on), _tails(off)
    both = [key for key in of_on if key in of_off]
    found = [of_on[key] for key in both if of_on[key] - of_off[key] > _UNSTEADY]
    return found if len(found) * 2 > len(both) else []


def _apart(key: CaseKey) -> CaseKey:
    """Returns a case's key without its setting."""
    return replace(key, question=key.question[:-1])


def _tails(side: Side) -> dict[CaseKey, float]:
    """Returns by case, settings aside, how far p95 stands above the median.

    The median over repeats.
    """
    found: dict[CaseKey, list[float]] = {}
    for trial in side.trials:
        if trial.status is Status.OK:
            tail = None if trial.summary is None else _tail(trial.summary)
            if tail is not None:
                found.setdefault(case_key(trial.case, setting=False), []).append(tail)
    return {key: float(np.median(tails)) for key, tails in found.items()}


def _tail(summary: Summary) -> float | None:
    return None if summary.p95_us is None else summary.p95_us / summary.median_us - 1


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
