"""The best setting of each row of a run, what ran under it, and one sentence on all of them.

A run says something here where it swept settings and measured the default among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analyze.best import Best, best_settings
from collbench.analyze.compare import ENOUGH_REPEATS, FEWEST_REPEATS
from collbench.analyze.curves import Curve, in_reading_order, name_among, question
from collbench.analyze.keys import CaseKey, case_key
from collbench.analyze.sides import times_by_row, times_by_setting
from collbench.model import Case, Proof, Status, Trial
from collbench.nccl.settings import setting_text
from collbench.units import format_size

DEFAULT = setting_text({})
"""The setting that the others are held against, in words: nothing is set."""

_Ran = Mapping[tuple[CaseKey, str], tuple[Proof, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class BestRow:
    """One size of one question in one mode."""

    key: CaseKey
    case: Case
    """The default's."""
    best: Best
    repeats: int
    default_us: float
    """Geometric mean over the repeats' medians."""
    winner_us: float
    default_ran: tuple[Proof, ...]
    """Algorithm, protocol, channels and nodes alone; one that differs between repeats each once,
    none where nothing was proved."""
    winner_ran: tuple[Proof, ...]

    @property
    def same_ran(self) -> bool:
        """Whether the winner made NCCL do what it does by itself."""
        return len(self.winner_ran) == 1 and self.winner_ran == self.default_ran


@dataclass(frozen=True, kw_only=True, slots=True)
class BestTable:
    """All rows of a run, by question, mode and size."""

    rows: tuple[BestRow, ...]
    repeats: int
    settings: int
    """How many were measured, the default included."""
    needs_repeats: int
    """How many more to say which is the best; 0: there are enough."""
    without_default: tuple[Case, ...]
    """Cases that other settings have and the default has not: no row."""

    def name(self, row: BestRow) -> str:
        """Returns the words that tell a row's question and mode from the others'."""
        shown = [Curve(case=other.case, points=()) for other in self.rows]
        return name_among(Curve(case=row.case, points=()), shown, always=("mode",))

    def groups(self) -> list[tuple[BestRow, ...]]:
        """Returns the rows of each question and mode, in order of their sizes."""
        found: dict[tuple[object, ...], list[BestRow]] = {}
        for row in self.rows:
            found.setdefault(question(row.case), []).append(row)
        return [tuple(rows) for rows in found.values()]


def best_of_run(trials: Sequence[Trial]) -> BestTable | None:
    """Returns the best setting of each row; None where no other setting was measured.

    Args:
        trials: of one run, in any order; those that are not ``ok`` take no part.
    """
    trials = [trial for trial in in_reading_order(trials) if trial.status is Status.OK]
    sides = times_by_setting(trials)
    times = times_by_row(sides)
    cases: dict[CaseKey, Case] = {}
    for trial in trials:
        cases.setdefault(case_key(trial.case, setting=False), trial.case)
    held = {key: row for key, row in times.items() if DEFAULT in row}
    compared = {key: row for key, row in held.items() if len(row) > 1}
    if not compared:
        return None
    found = best_settings(compared, DEFAULT)
    alone = Best(winner=DEFAULT, claimed=False, reason="no other setting was measured")
    ran = _ran(trials)
    rows = [_row(key, held[key], found.get(key, alone), cases[key], ran) for key in _ordered(held)]
    repeats = max(row.repeats for row in rows)
    return BestTable(
        rows=tuple(rows),
        repeats=repeats,
        settings=len(sides),
        needs_repeats=ENOUGH_REPEATS - repeats if repeats < FEWEST_REPEATS else 0,
        without_default=tuple(cases[key] for key in times if key not in held),
    )


def _ordered(keys: Iterable[CaseKey]) -> list[CaseKey]:
    """Returns the keys with those of one question together, by mode and size; else as they came."""
    keys = list(keys)
    questions = list(dict.fromkeys(key.question for key in keys))
    modes = list(dict.fromkeys(key.mode for key in keys))
    return sorted(
        keys,
        key=lambda key: (questions.index(key.question), modes.index(key.mode), key.size_bytes),
    )


def _row(
    key: CaseKey, times: Mapping[str, Sequence[float]], best: Best, case: Case, ran: _Ran
) -> BestRow:
    return BestRow(
        key=key,
        case=case,
        best=best,
        repeats=len(times[DEFAULT]),
        default_us=_mean_us(times[DEFAULT]),
        winner_us=_mean_us(times[best.winner]),
        default_ran=ran.get((key, DEFAULT), ()),
        winner_ran=ran.get((key, best.winner), ()),
    )


def _mean_us(times_us: Sequence[float]) -> float:
    return float(np.exp(np.log(times_us).mean()))


def _ran(trials: Sequence[Trial]) -> dict[tuple[CaseKey, str], tuple[Proof, ...]]:
    """Returns what each case ran as under each setting, by the proofs of its repeats."""
    found: dict[tuple[CaseKey, str], tuple[Proof, ...]] = {}
    for trial in trials:
        proof = trial.proof
        if proof is None or proof.algorithm is None:
            continue
        choice = Proof(
            algorithm=proof.algorithm,
            protocol=proof.protocol,
            channels=proof.channels,
            nodes=proof.nodes,
        )
        place = case_key(trial.case, setting=False), setting_text(trial.case.setting)
        known = found.get(place, ())
        if choice not in known:
            found[place] = (*known, choice)
    return found


def conclusion(table: BestTable, *, named: bool = True) -> str:
    """Returns what the table says, in one sentence.

    ``default within 1.4 % of the best everywhere except all_reduce graph >= 256 MiB: Tree/Simple
    4.1 % faster``. Shares are of the default's time; only what is claimed is an exception.

    Args:
        table: of a run.
        named: False where it is clear of which collective and mode it speaks.
    """
    if table.needs_repeats:
        more = f"{table.needs_repeats} more repeat{'s' * (table.needs_repeats > 1)}"
        seen = f"{table.repeats} repeat{'s' * (table.repeats > 1)}"
        return f"no best setting from {seen}: needs {more}"
    exceptions = [
        f"{table.name(group[0])} " * named + _exception(stretch, group)
        for group in table.groups()
        for stretch in _stretches(group)
    ]
    rest = [row for row in table.rows if not row.best.claimed]
    widest = max(rest, key=_open_gap, default=None)
    if not exceptions:
        return f"no setting beats the default beyond noise{_largest_gap(widest, table)}"
    if widest is None:
        return f"the default is the best nowhere: {'; '.join(exceptions)}"
    within = f"{100 * saved(_open_gap(widest)):.1f} %"
    begin = "is the best" if within == "0.0 %" else f"within {within} of the best"
    return f"default {begin} everywhere except {'; '.join(exceptions)}"


def saved(gap: float) -> float:
    """Returns the share of the default's time that the winner saves."""
    return gap / (1 + gap)


def saved_text(best: Best) -> str:
    """Returns ``-4.1 % [-6.0, -2.2]``: the winner's time against the default's, with interval."""
    if best.gap is None or best.low is None or best.high is None:
        return "-"
    change, low, high = (100 * (1 / (1 + gap) - 1) for gap in (best.gap, best.high, best.low))
    return f"{change:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _open_gap(row: BestRow) -> float:
    """Returns a gap that is seen and not claimed; where both did the same it is noise."""
    return 0.0 if row.same_ran else max(row.best.gap or 0.0, 0.0)


def _largest_gap(row: BestRow | None, table: BestTable) -> str:
    if row is None or not _open_gap(row):
        return f": in none of {len(table.rows)} rows is another one faster"
    where = f"{table.name(row)} {format_size(row.key.size_bytes)}"
    return f"; the largest gap is {saved_text(row.best)} ({row.best.winner}, {where})"


def _stretches(group: Sequence[BestRow]) -> Iterator[tuple[int, int]]:
    """Yields first and last place of rows one behind the other with one claimed winner."""
    begin = 0
    for k in range(1, len(group) + 1):
        if k == len(group) or _claim(group[k]) != _claim(group[begin]):
            if _claim(group[begin]):
                yield begin, k - 1
            begin = k


def _claim(row: BestRow) -> str | None:
    return row.best.winner if row.best.claimed else None


def _exception(stretch: tuple[int, int], group: Sequence[BestRow]) -> str:
    first, last = stretch
    shares = [100 * saved(row.best.gap or 0.0) for row in group[first : last + 1]]
    low, high = f"{min(shares):.1f}", f"{max(shares):.1f}"
    share = low if low == high else f"{low} to {high}"
    sizes = _sizes([row.key.size_bytes for row in group], first, last)
    return f"{sizes}: {group[first].best.winner} {share} % faster"


def _sizes(sizes: Sequence[int], first: int, last: int) -> str:
    """Returns ``>= 256 MiB``, ``<= 16 KiB``, ``1 MiB to 4 MiB``, ``4 MiB``, ``at all sizes``."""
    if first == last:
        return format_size(sizes[first])
    if last == len(sizes) - 1:
        return "at all sizes" if first == 0 else f">= {format_size(sizes[first])}"
    if first == 0:
        return f"<= {format_size(sizes[last])}"
    return f"{format_size(sizes[first])} to {format_size(sizes[last])}"
