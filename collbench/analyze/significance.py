"""What repeats of two sides say of all their cases at once: differences, errors and p.

Two tests, by how many repeats there are (docs/statistics.md has their calibration):

* From 5 + 5 repeats both have to agree: the permutation of whole repeats, which holds whatever the
  noise looks like, and Holm's correction of the moderated t.
* Below, the moderated t stands alone and two things could fool it. A whole repeat can be slow
  (drift): unless the mean over all cases has clearly changed, a case must also stand out from that
  mean. Repeats can jump between two levels: ``largest_jump`` tells how far those of the other
  cases do within one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from collbench.analyze.moderated import (
    SMALLEST_VARIANCE,
    Moderated,
    Neighbourhood,
    moderate,
    neighbourhood,
)
from collbench.analyze.permutation import count_splits, holm, splits, step_down
from collbench.stats import FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Of each case, [case]; logs are natural."""

    log_ratio: FloatArray
    """Mean log time of the new side less that of the base."""
    error: FloatArray
    """Standard error of it, with the noise shared between cases."""
    freedom: FloatArray
    p: FloatArray
    """Corrected over all cases."""
    critical_p: FloatArray
    """Of a case's own p: its t interval at this level is simultaneous over all cases."""
    largest_jump: FloatArray
    """The largest step between sorted repeats of one side, over the other cases of its group;
    0 where the permutation makes it needless."""
    permuted: bool

    def reach(self, level: FloatArray | float) -> FloatArray:
        """Returns the half-width of the two-sided t interval that misses with ``level``."""
        return np.asarray(-special.stdtrit(self.freedom, np.asarray(level) / 2) * self.error)


def can_permute(base_repeats: int, new_repeats: int, alpha: float) -> bool:
    """Whether the rarest outcome of a permutation is rare enough: from 5 + 5 repeats for 1 %."""
    return 1 / count_splits(base_repeats, new_repeats) < alpha


def evidence(base: FloatArray, new: FloatArray, groups: Sequence[str], alpha: float) -> Evidence:
    """Returns what the repeats say of each case.

    Args:
        base: log times, [repeat, case]; at least three repeats.
        new: log times of the same cases.
        groups: one a case; noise is shared within a group alone.
        alpha: the chance of any false difference in the whole table.
    """
    table = _Table(np.vstack([base, new]), len(base), groups)
    cases = base.shape[1]
    if can_permute(len(base), len(new), alpha):
        found = table.tested(splits(len(base), len(new)))
        permuted_p, limits = step_down(found.p, alpha)
        p = np.maximum(permuted_p, holm(found.p[0]))
        critical = np.minimum(limits, alpha / cases)
        return table.evidence(found, p, critical, jumps=False)
    found = table.tested(table.real)
    own = np.maximum(found.p[0], table.drift_p(found, alpha / 2))
    # Half of alpha is for the cases, half for a drift that is taken for a change of all.
    p = np.minimum(1.0, 2 * holm(own))
    critical = np.full(cases, alpha / 2 / cases)
    return table.evidence(found, p, critical, jumps=True)


@dataclass(frozen=True, slots=True)
class _Tested:
    """By way of dealing the repeats and by case, [way, case]."""

    difference: FloatArray
    error: FloatArray
    moderated: Moderated
    p: FloatArray


@dataclass(frozen=True, slots=True)
class _Table:
    logs: FloatArray
    base_repeats: int
    groups: Sequence[str]

    @property
    def real(self) -> NDArray[np.bool_]:
        return (np.arange(len(self.logs)) >= self.base_repeats)[np.newaxis]

    def neighbours(self) -> Neighbourhood:
        return neighbourhood(self.groups, self.logs.mean(axis=0))

    def tested(self, ways: NDArray[np.bool_], logs: FloatArray | None = None) -> _Tested:
        values = self.logs if logs is None else logs
        difference, variance, share = _two_sided(values, ways)
        moderated = moderate(variance, len(values) - 2, self.neighbours())
        error = np.sqrt(moderated.variance * share)
        p = 2 * special.stdtr(moderated.freedom, -np.abs(difference) / error)
        return _Tested(difference, error, moderated, p)

    def drift_p(self, found: _Tested, alpha: float) -> FloatArray:
        """Returns each case's p against the mean of its group; 0 where that mean has changed.

        The mean over a group's cases, quiet ones before noisy ones, has one value a repeat: a
        plain t test of these values knows drift as noise, having no other case to borrow from.
        """
        logs, members = self.logs.copy(), members_of(self.groups)
        drifts = np.zeros(logs.shape[1], bool)
        for group in members:
            weights = 1 / found.moderated.variance[0, group]
            mean = self.logs[:, group] @ (weights / weights.sum())
            difference, variance, share = _two_sided(mean[:, np.newaxis], self.real)
            error = np.sqrt(np.maximum(variance, SMALLEST_VARIANCE) * share)
            p = 2 * special.stdtr(len(mean) - 2, -np.abs(difference) / error).item()
            if p * len(members) >= alpha:
                logs[:, group] -= mean[:, np.newaxis]
                drifts |= group
        return np.where(drifts, self.tested(self.real, logs).p[0], 0.0)

    def largest_jumps(self) -> FloatArray:
        sides = self.logs[: self.base_repeats], self.logs[self.base_repeats :]
        steps = np.max([largest_steps(side) for side in sides], axis=0)
        return largest_of_others(steps, members_of(self.groups))

    def evidence(
        self, found: _Tested, p: FloatArray, critical: FloatArray, jumps: bool
    ) -> Evidence:
        return Evidence(
            log_ratio=found.difference[0],
            error=found.error[0],
            freedom=found.moderated.freedom[0],
            p=p,
            critical_p=critical,
            largest_jump=self.largest_jumps() if jumps else np.zeros(p.size),
            permuted=not jumps,
        )


def _two_sided(values: FloatArray, ways: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, float]:
    """Returns new less base, the variance within sides, [way, case], and 1/n + 1/n of the sides."""
    repeats, new = len(values), int(ways[0].sum())
    base = repeats - new
    centred = values - values.mean(axis=0)
    of_new = ways.astype(np.float64) @ centred
    # What is centred sums to zero: the base has the rest.
    squares = (centred**2).sum(axis=0) - of_new**2 * (1 / new + 1 / base)
    difference = of_new * (1 / new + 1 / base)
    return difference, np.maximum(squares, 0) / (repeats - 2), 1 / new + 1 / base


def members_of(groups: Sequence[str]) -> list[NDArray[np.bool_]]:
    """Returns for each group which cases are of it, [case]."""
    labels = np.array(groups, dtype=object)
    return [labels == group for group in dict.fromkeys(groups)]


def largest_steps(values: FloatArray) -> FloatArray:
    """Returns the largest step between sorted repeats, [case], of values [repeat, case]."""
    return np.asarray(np.diff(np.sort(values, axis=0), axis=0).max(axis=0))


def largest_of_others(values: FloatArray, members: Sequence[NDArray[np.bool_]]) -> FloatArray:
    """Returns for each case the largest value of the others of its group; 0 where it is alone."""
    found = np.zeros(values.size)
    for group in members:
        places = np.flatnonzero(group)
        if places.size > 1:
            places = places[np.argsort(values[places])]
            found[places] = values[places[-1]]
            found[places[-1]] = values[places[-2]]
    return found
