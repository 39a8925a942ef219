"""Two sides compared: verdicts, where the changes sit, what else differs; for all its reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from collbench.analyze.comparable import Difference, Differences, differences
from collbench.analyze.compare import Comparison, compare_cases
from collbench.analyze.curves import in_reading_order
from collbench.analyze.keys import CaseKey, case_key
from collbench.analyze.located import Location, locate
from collbench.analyze.sides import times_of_runs, with_words_of
from collbench.errors import UsageError
from collbench.model import Case, Proof, Status, Trial
from collbench.nccl.settings import setting_order, setting_text
from collbench.store import StoredRun
from collbench.units import format_size

_SIDES_OWN = ("setting", "via")
"""Of a case: may differ between two sides, where all cases of a side have one."""
_OF_ANOTHER_SHAPE = ("backend", "emulated", "world_size", "nodes")
"""Of a case: the same, for who insists on comparing other shapes."""
_ASKED = ("collective", "dtype", "redop", "in_place", "pattern", "mode", "size_bytes")
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """Runs whose repeats count as one, or one setting of them."""

    name: str
    """What a person is told: a run's id, a setting."""
    runs: tuple[StoredRun, ...]
    """With the trials that are compared."""

    @property
    def trials(self) -> list[Trial]:
        """Of all runs, each in reading order."""
        return [trial for stored in self.runs for trial in in_reading_order(stored.trials)]

    @property
    def settings(self) -> list[str]:
        """The settings in words that have a case that is ok; what is not set first."""
        right = [trial.case.setting for trial in self.trials if trial.status is Status.OK]
        by_text = {setting_text(setting): setting for setting in right}
        return sorted(by_text, key=lambda text: setting_order(by_text[text]))

    @property
    def settings_without_times(self) -> dict[str, str]:
        """The settings of which no case is ok, with what became of them: ``6 failed``."""
        right, ends = self.settings, dict[str, Counter[str]]()
        for trial in self.trials:
            ends.setdefault(setting_text(trial.case.setting), Counter())[trial.status] += 1
        return {
            text: ", ".join(f"{count} {status}" for status, count in counts.most_common())
            for text, counts in ends.items()
            if text not in right
        }

    def under(self, setting: str) -> Side:
        """Returns one setting of this side, by its words."""
        runs = tuple(
            replace(
                stored,
                trials=tuple(t for t in stored.trials if setting_text(t.case.setting) == setting),
            )
            for stored in self.runs
        )
        return Side(name=setting, runs=runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """All that is known of two sides."""

    base: Side
    new: Side
    comparison: Comparison
    location: Location
    differences: Differences
    cases: Mapping[CaseKey, Case]
    """Of every key of either side."""
    ran: Mapping[CaseKey, tuple[Proof | None, Proof | None]]
    """What was proved to run, first proof of base and new."""
    threshold: float
    alpha: float

    @property
    def forced(self) -> tuple[Difference, ...]:
        """The differences of shape; where there are any, somebody insisted."""
        return self.differences.shape

    @property
    def interleaved(self) -> bool:
        """Whether both sides were measured in one go, so that no drift can tell them apart."""
        ids = [{stored.run.run_id for stored in side.runs} for side in (self.base, self.new)]
        return ids[0] == ids[1]

    @property
    def simulated(self) -> bool:
        """Whether a model answered."""
        return any(stored.run.simulated for stored in self.base.runs)


def compare_sides(
    base: Side, new: Side, *, threshold: float = 0.03, alpha: float = 0.01, force: bool = False
) -> Compared:
    """Returns what changed from base to new.

    Args:
        base: one run, several of one shape, or one setting of these.
        new: likewise.
        threshold: a smaller change is of no interest, as a share.
        alpha: the chance that any case is called FASTER or SLOWER though none is.
        force: compare sides of different shape all the same.

    Raises:
        UsageError: sides of different shape, a simulated one beside a real one, no case in common.
    """
    found = differences(base.runs, new.runs)
    if found.shape and not force:
        raise UsageError(
            f"{base.name} and {new.name} have different shapes:"
            f" {'; '.join(difference.text for difference in found.shape)};"
            " compare runs of one shape, or give --force"
        )
    words = (*_SIDES_OWN, *(_OF_ANOTHER_SHAPE if found.shape else ()))
    old_trials, new_trials = base.trials, with_words_of(base.trials, new.trials, words)
    base_times = times_of_runs(_by_run(base, old_trials))
    new_times = times_of_runs(_by_run(new, new_trials))
    for side, times in ((base, base_times), (new, new_times)):
        if not times:
            raise UsageError(f"{side.name} has no case that is ok; 'collbench show' says why")
    if not base_times.keys() & new_times.keys():
        raise UsageError(_nothing_in_common(old_trials, new_trials))
    comparison = compare_cases(base_times, new_times, threshold=threshold, alpha=alpha)
    return compared_by(
        comparison,
        (base, new),
        (old_trials, new_trials),
        found,
        threshold=threshold,
        alpha=alpha,
    )


def compared_by(
    comparison: Comparison,
    sides: tuple[Side, Side],
    trials: tuple[Sequence[Trial], Sequence[Trial]],
    differing: Differences,
    *,
    threshold: float,
    alpha: float,
) -> Compared:
    """Returns a comparison with where its changes sit and what ran.

    Args:
        comparison: of the trials.
        sides: base and new.
        trials: of each, under the keys of the comparison.
        differing: what the sides do not share.
        threshold: that it was made with.
        alpha: likewise.
    """
    old_trials, new_trials = trials
    cases = {case_key(trial.case): trial.case for trial in (*new_trials, *old_trials)}
    proofs = _proofs(old_trials), _proofs(new_trials)
    return Compared(
        base=sides[0],
        new=sides[1],
        comparison=comparison,
        location=locate(comparison),
        differences=differing,
        cases=cases,
        ran={key: (proofs[0].get(key), proofs[1].get(key)) for key in cases},
        threshold=threshold,
        alpha=alpha,
    )


def _by_run(side: Side, trials: Sequence[Trial]) -> list[tuple[Trial, ...]]:
    """Returns the trials, in the order of the side's, run by run."""
    rest = iter(trials)
    return [tuple(islice(rest, len(stored.trials))) for stored in side.runs]


def _nothing_in_common(base: Sequence[Trial], new: Sequence[Trial]) -> str:
    """Returns what no case of one side shares with any of the other."""
    found = []
    for word in (*_ASKED, *_SIDES_OWN, *_OF_ANOTHER_SHAPE):
        texts = [
            list(dict.fromkeys(_text(word, trial.case) for trial in side)) for side in (base, new)
        ]
        if not set(texts[0]) & set(texts[1]):
            found.append(f"{word} is {_some(texts[0])} against {_some(texts[1])}")
    what = "; ".join(found) or "each part of a case is there on both sides, but never together"
    return f"the two sides have no case in common: {what}; measure the same on both sides"


def _text(word: str, case: Case) -> str:
    value = getattr(case, word)
    if isinstance(value, dict):
        return setting_text(value)
    return format_size(value) if word == "size_bytes" else str(value)


def _some(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _proofs(trials: Sequence[Trial]) -> dict[CaseKey, Proof]:
    found: dict[CaseKey, Proof] = {}
    for trial in trials:
        if trial.proof is not None:
            found.setdefault(case_key(trial.case), trial.proof)
    return found
