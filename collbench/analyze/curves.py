"""Curves over message size: one a collective, mode and placement; a point a size."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.collectives import COLLECTIVES
from collbench.model import Case, Mode, Proof, Status, Summary, Trial
from collbench.nccl.settings import setting_order, setting_text
from collbench.stats import spread

TIMED = (Status.OK, Status.PATH_NOT_USED)
"""Trials whose times stand in curves."""

PLATEAU = 0.02
"""Last two sizes that differ by more have not reached the plateau."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size: the median over repeats of each repeat's median."""

    size_bytes: int
    requested_bytes: int
    time_us: float
    busbw_gb_per_s: float | None
    low_us: float | None
    high_us: float | None
    """With one repeat the 95 % interval of its median, with more the range of the repeats."""
    repeats: int
    spread: float
    """(largest - smallest) / median over repeats; 0 for one."""
    proof: Proof | None = None
    """What ran; None where nothing was proved or where repeats ran differently."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """All sizes of one question."""

    case: Case
    """Its smallest case: everything but the size holds for all points."""
    points: tuple[Point, ...]

    @property
    def peak(self) -> Point | None:
        """The point of the largest bus bandwidth."""
        rated = [point for point in self.points if point.busbw_gb_per_s is not None]
        return max(rated, key=lambda point: point.busbw_gb_per_s or 0.0, default=None)

    @property
    def quickest(self) -> Point:
        """The point of the smallest time."""
        return min(self.points, key=lambda point: point.time_us)

    def at(self, size_bytes: int) -> Point | None:
        """Returns the point of a size."""
        return next((point for point in self.points if point.size_bytes == size_bytes), None)

    def half_size_bytes(self) -> float | None:
        """Returns the size from which on half of the peak is reached, between points on log axes.

        The last crossing: from there up no size falls below half again. None where no size is
        below half, the largest one is, or there is no peak.
        """
        peak = self.peak
        if peak is None or peak.busbw_gb_per_s is None:
            return None
        half = peak.busbw_gb_per_s / 2
        rated = [(p.size_bytes, p.busbw_gb_per_s) for p in self.points if p.busbw_gb_per_s]
        below = [k for k, (_, rate) in enumerate(rated) if rate < half]
        if not below or below[-1] + 1 == len(rated):
            return None
        (low_size, low), (high_size, high) = rated[below[-1]], rated[below[-1] + 1]
        share = math.log(half / low) / math.log(high / low)
        return float(low_size * (high_size / low_size) ** share)

    def climbing(self) -> bool:
        """Whether the last two sizes' bus bandwidths still differ by more than 2 %."""
        rates = [point.busbw_gb_per_s for point in self.points if point.busbw_gb_per_s]
        return len(rates) > 1 and (rates[-1] - rates[-2]) / rates[-1] > PLATEAU


def question(case: Case) -> tuple[object, ...]:
    """Returns everything of a case but its size: equal for the cases of one curve."""
    return (
        case.collective,
        case.backend,
        case.via,
        case.emulated,
        case.dtype,
        case.redop,
        case.root,
        case.in_place,
        case.world_size,
        case.nodes,
        case.pattern,
        tuple(sorted(case.setting.items())),
        case.mode,
    )


def in_reading_order(trials: Sequence[Trial]) -> list[Trial]:
    """Undoes the shuffling of repeats: by collective, setting, mode, size, repeat.

    Else as they came.
    """
    collectives, modes = list(COLLECTIVES), list(Mode)
    # Of a hundred thousand trials few differ in more than size and repeat.
    settings = {_items(trial.case): trial.case.setting for trial in trials}
    order = {items: setting_order(setting) for items, setting in settings.items()}
    return sorted(
        trials,
        key=lambda trial: (
            collectives.index(trial.case.collective),
            order[_items(trial.case)],
            modes.index(trial.case.mode),
            trial.case.size_bytes,
            trial.repeat,
        ),
    )


def _items(case: Case) -> tuple[tuple[str, str], ...]:
    return tuple(case.setting.items())


def has_times(trial: Trial) -> bool:
    """Returns whether a trial stands in a curve."""
    return trial.summary is not None and trial.status in TIMED


def curves(trials: Sequence[Trial]) -> list[Curve]:
    """Returns the curves of all trials that have times, in reading order."""
    groups: dict[tuple[object, ...], dict[int, list[Trial]]] = {}
    for trial in in_reading_order(trials):
        sizes = groups.setdefault(question(trial.case), {})
        if has_times(trial):
            sizes.setdefault(trial.case.size_bytes, []).append(trial)
    found = []
    for sizes in groups.values():
        if sizes:
            points = tuple(_point(sizes[size]) for size in sorted(sizes))
            found.append(Curve(case=sizes[min(sizes)][0].case, points=points))
    return found


def _point(trials: Sequence[Trial]) -> Point:
    summaries: list[Summary] = [trial.summary for trial in trials if trial.summary is not None]
    medians = np.array([summary.median_us for summary in summaries])
    rates = [s.busbw_gb_per_s for s in summaries if s.busbw_gb_per_s is not None]
    time_us = float(np.median(medians))
    low, high = float(medians.min()), float(medians.max())
    interval: tuple[float, float] | None = (low, high)
    if len(summaries) == 1:
        interval = summaries[0].ci95_us
    # Rates come from times: the rate of the median time, never a mean of rates.
    rate = rates[0] * summaries[0].median_us / time_us if len(rates) == len(summaries) else None
    case = trials[0].case
    return Point(
        size_bytes=case.size_bytes,
        requested_bytes=case.requested_bytes,
        time_us=time_us,
        busbw_gb_per_s=rate,
        low_us=interval[0] if interval else None,
        high_us=interval[1] if interval else None,
        repeats=len(summaries),
        spread=spread(medians),
        proof=shared_proof(trials),
    )


def shared_proof(trials: Sequence[Trial]) -> Proof | None:
    """Returns what all of the trials ran, None where nothing was proved or where they differ.

    Trials without a proof do not count; nor do channels, which change no path.
    """
    proofs = [trial.proof for trial in trials if trial.proof is not None and trial.proof.ranks]
    paths = {(p.algorithm, p.protocol, *p.transports, "on", *p.devices) for p in proofs}
    return proofs[0] if len(paths) == 1 else None


def name_among(curve: Curve, found: Sequence[Curve], always: Collection[str] = ()) -> str:
    """Returns the words that tell a curve from the others, and no more: ``all_reduce graph``.

    Args:
        curve: to name.
        found: all curves, this one included.
        always: of ``dtype``, ``redop``, ``root`` and ``mode`` those to say even where all agree.
    """
    case = curve.case
    words = [case.collective]
    for name in ("dtype", "redop", "root", "mode"):
        value = getattr(case, name)
        values = {getattr(other.case, name) for other in found} - {None}
        if value is not None and (len(values) > 1 or name in always):
            words.append(f"root {value}" if name == "root" else str(value))
    placed = {other.case.in_place for other in found if other.case.collective == case.collective}
    if len(placed) > 1:
        words.append("in place" if case.in_place else "out of place")
    if any(other.case.setting != case.setting for other in found):
        words.append(f"({setting_text(case.setting)})")
    return " ".join(words)


def mode_pairs(found: Sequence[Curve], one: Mode, other: Mode) -> list[tuple[Curve, Curve]]:
    """Returns pairs of curves that ask the same in two modes."""
    by_question = {question(curve.case): curve for curve in found}
    pairs = []
    for key, curve in by_question.items():
        partner = by_question.get((*key[:-1], other))
        if curve.case.mode is one and partner is not None:
            pairs.append((curve, partner))
    return pairs
