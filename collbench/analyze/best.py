"""The best setting of each row, and how far the default is behind it, without a winner's curse.

The best of fifteen equal settings always looks faster than it is. So half of the repeats choose
the winner and the other half say by how much it wins (sample splitting; Cox 1975, "A note on
data-dependent hypotheses"). Winner and default are held against each other repeat by repeat: what
slows a whole repeat cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from collbench.analyze.compare import FEWEST_REPEATS, JUMP_MARGIN
from collbench.analyze.keys import CaseKey
from collbench.analyze.moderated import moderate, neighbourhood
from collbench.analyze.permutation import holm
from collbench.analyze.significance import largest_of_others, largest_steps, members_of
from collbench.errors import UsageError, nearest
from collbench.stats import FloatArray

_SEED = 20261130


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The answer for one row; the gap is the default's time over the winner's, less 1."""

    winner: str
    claimed: bool
    """The winner is faster than the default by more than the threshold, sure over all rows."""
    gap: float | None = None
    """0.04: the default takes 4 % longer. From the repeats that did not choose."""
    low: float | None = None
    high: float | None = None
    """The gap's interval, simultaneous over all rows."""
    p: float | None = None
    """Against a winner that is not faster, corrected over all rows."""
    reason: str | None = None
    """Why nothing is claimed."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row whose settings all have as many repeats."""

    key: CaseKey
    settings: tuple[str, ...]
    logs: FloatArray
    """[repeat, setting]."""
    behind: FloatArray
    """The default's log time less the setting's, [repeat, setting]."""


def best_settings(
    times: Mapping[CaseKey, Mapping[str, Sequence[float]]],
    default: str,
    *,
    threshold: float = 0.01,
    alpha: float = 0.01,
) -> dict[CaseKey, Best]:
    """Returns for each row its winner and the default's gap to it.

    Args:
        times: by row and setting, one time a repeat in microseconds; the same repeats in the same
            order everywhere. Settings with fewer repeats than the default take no part.
        default: the setting that the others are held against.
        threshold: a smaller gap is of no interest, as a share.
        alpha: the chance that any row claims a gap though no setting is faster.

    Raises:
        UsageError: a row without the default, or a time that is not above zero.
    """
    rows = [_row(key, settings, default) for key, settings in times.items()]
    found: dict[CaseKey, Best] = {}
    for repeats in sorted({len(row.logs) for row in rows}):
        alike = [row for row in rows if len(row.logs) == repeats]
        if repeats < FEWEST_REPEATS:
            found |= {row.key: _too_few(row, repeats) for row in alike}
        else:
            # Rows of other numbers of repeats count in the correction as well.
            found |= _judged(alike, default, threshold, alpha * len(alike) / len(rows))
    return {key: found[key] for key in times}


def _row(key: CaseKey, settings: Mapping[str, Sequence[float]], default: str) -> _Row:
    if default not in settings:
        raise UsageError(
            f"{key.question[0]} of {key.size_bytes} B has no setting '{default}'"
            f"{nearest(default, list(settings)) or ';'} measured are {', '.join(settings)}"
        )
    repeats = len(settings[default])
    names = tuple(name for name, values in settings.items() if len(values) == repeats)
    values = np.array([settings[name] for name in names], np.float64).T
    if not np.all((values > 0) & np.isfinite(values)):
        raise UsageError(
            f"{key.question[0]} of {key.size_bytes} B has a time that is not above zero;"
            " leave the setting out"
        )
    logs = np.log(values)
    behind = logs[:, names.index(default), np.newaxis] - logs
    return _Row(key, names, logs, behind)


def _too_few(row: _Row, repeats: int) -> Best:
    means = row.logs.mean(axis=0) if repeats else np.zeros(len(row.settings))
    return Best(
        winner=row.settings[int(np.argmin(means))],
        claimed=False,
        reason=f"too few repeats: {repeats}, needs {FEWEST_REPEATS}",
    )


def _judged(
    rows: Sequence[_Row], default: str, threshold: float, alpha: float
) -> dict[CaseKey, Best]:
    repeats = len(rows[0].logs)
    choosing, judging = _halves(repeats)
    winners = [int(np.argmin(row.logs[choosing].mean(axis=0))) for row in rows]
    error, freedom = _errors(rows, winners, default)
    error = error / math.sqrt(len(judging))
    gaps = np.array(
        [row.behind[judging, won].mean() for row, won in zip(rows, winners, strict=True)]
    )
    # One side alone: a winner that turns out slower is no finding.
    p = holm(special.stdtr(freedom, -gaps / error))
    reach = -special.stdtrit(freedom, alpha / len(rows) / 2) * error
    jumps = _jumps(rows)
    found = {}
    for k, (row, won) in enumerate(zip(rows, winners, strict=True)):
        winner = row.settings[won]
        if winner == default:
            found[row.key] = Best(winner=winner, claimed=False, reason="the default is the best")
            continue
        gap = float(gaps[k])
        reason = None
        if gap <= math.log1p(threshold):
            reason = f"the gap is within {threshold:.0%}"
        elif p[k] >= alpha:
            reason = f"not sure over {len(rows)} rows (p = {p[k]:.2g})"
        elif gap <= JUMP_MARGIN * jumps[k]:
            reason = f"repeats of other rows jump by {math.expm1(jumps[k]):.1%}"
        found[row.key] = Best(
            winner=winner,
            claimed=reason is None,
            gap=math.expm1(gap),
            low=math.expm1(gap - reach[k]),
            high=math.expm1(gap + reach[k]),
            p=float(p[k]),
            reason=reason,
        )
    return found


def _halves(repeats: int) -> tuple[list[int], list[int]]:
    """Returns the repeats that choose and those that judge: odd and even of a seeded shuffle."""
    shuffled = [int(one) for one in np.random.default_rng(_SEED).permutation(repeats)]
    # Of an odd number the judges get one more: one repeat chooses well enough.
    return shuffled[1::2], shuffled[0::2]


def _errors(
    rows: Sequence[_Row], winners: Sequence[int], default: str
) -> tuple[FloatArray, FloatArray]:
    """Returns each winner's deviation of one difference, and its degrees of freedom.

    From all repeats and all settings: a choice by means makes no variance smaller.
    """
    variances, times, modes, places = [], [], [], []
    begin = 0
    for row, won in zip(rows, winners, strict=True):
        # The default's differences from itself are all zero: no noise to share.
        kept = [k for k, name in enumerate(row.settings) if name != default or k == won]
        variances.append(row.behind.var(axis=0, ddof=1)[kept])
        times += [float(row.logs.mean())] * len(kept)
        modes += [str(row.key.mode)] * len(kept)
        places.append(begin + kept.index(won))
        begin += len(kept)
    shared = moderate(
        np.concatenate(variances), len(rows[0].logs) - 1, neighbourhood(modes, np.array(times))
    )
    return np.sqrt(shared.variance[places]), shared.freedom[places]


def _jumps(rows: Sequence[_Row]) -> FloatArray:
    """Returns for each row the largest step between sorted differences in other rows' settings."""
    own = np.array([largest_steps(row.behind).max() for row in rows])
    return largest_of_others(own, members_of([str(row.key.mode) for row in rows]))
