"""What a comparison is made of: each case's times, one a repeat, of a side.

A side is a run, several runs of one shape, or one setting of a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from collbench.analyze.keys import CaseKey, case_key
from collbench.model import Status, Trial
from collbench.nccl.settings import setting_order, setting_text

Times = dict[CaseKey, tuple[float, ...]]
"""By case, one time a repeat in microseconds; repeats in one order everywhere."""


def times_of(trials: Iterable[Trial], *, setting: bool = True) -> Times:
    """Returns the times of the trials that are right: status ``ok``.

    Args:
        trials: of one run; or of several, one run's behind the other's.
        setting: False where the settings are the sides: cases of two settings have one key.
    """
    # A dictionary keeps the order in which runs came; within a run the repeat decides.
    found: dict[CaseKey, list[tuple[int, float]]] = {}
    for trial in trials:
        if trial.status is Status.OK and trial.summary is not None:
            key = case_key(trial.case, setting=setting)
            found.setdefault(key, []).append((trial.repeat, trial.summary.median_us))
    return {key: tuple(time for _, time in sorted(times)) for key, times in found.items()}


def times_of_runs(runs: Iterable[Iterable[Trial]]) -> Times:
    """Returns the times of several runs of one shape: each run adds its repeats."""
    return joined(map(times_of, runs))


def joined(runs: Iterable[Times]) -> Times:
    """Returns the times of several runs as one: each run adds its repeats."""
    found: dict[CaseKey, tuple[float, ...]] = {}
    for times in runs:
        for key, values in times.items():
            found[key] = (*found.get(key, ()), *values)
    return found


def with_words_of(
    base: Sequence[Trial], new: Sequence[Trial], words: Collection[str]
) -> list[Trial]:
    """Returns the new side's trials with the base's words, where these are the sides' own.

    What all cases of a side have in common says nothing within it: two sides of one setting each,
    say, are told apart by it, and their cases ask the same but for it.

    Args:
        base: of all runs of the side.
        new: likewise.
        words: fields of a case.
    """
    given = {}
    for word in words:
        values = [{repr(getattr(t.case, word)) for t in side} for side in (base, new)]
        if all(len(distinct) == 1 for distinct in values):
            given[word] = getattr(base[0].case, word)
    return [
        msgspec.structs.replace(trial, case=msgspec.structs.replace(trial.case, **given))
        for trial in new
    ]


def times_by_setting(trials: Sequence[Trial]) -> dict[str, Times]:
    """Returns the sides of a run that swept settings, by their words; what is not set first."""
    settings = {setting_text(trial.case.setting): trial.case.setting for trial in trials}
    ordered = sorted(settings, key=lambda text: setting_order(settings[text]))
    parted: dict[str, list[Trial]] = {text: [] for text in ordered}
    for trial in trials:
        parted[setting_text(trial.case.setting)].append(trial)
    return {text: times_of(mine, setting=False) for text, mine in parted.items()}


def times_by_row(sides: Mapping[str, Times]) -> dict[CaseKey, dict[str, tuple[float, ...]]]:
    """Returns the same by case first, then by side."""
    found: dict[CaseKey, dict[str, tuple[float, ...]]] = {}
    for name, times in sides.items():
        for key, values in times.items():
            found.setdefault(key, {})[name] = values
    return found
