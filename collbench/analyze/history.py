"""Stored runs as histories: what was loaded, release by release, on one make of hardware.

A history is one series of releases of one thing, NCCL as a rule, in which all else is the same:
the shape of the hardware, what else was loaded, and through what the library was called. Runs that
differ there stand in series of their own: a new driver is not a new NCCL.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import msgspec

from collbench.analyze.comparable import Facts, shapes_of
from collbench.analyze.compared import Side
from collbench.analyze.curves import in_reading_order
from collbench.analyze.history_tables import ReleaseTimes
from collbench.analyze.keys import CaseKey, case_key
from collbench.analyze.sides import Times, joined, times_of
from collbench.model import Case, LibraryVersion, Trial
from collbench.nccl.settings import LIBRARY, PLUGIN
from collbench.store import StoredRun

_UNKNOWN = "unknown"
_RELEASE = re.compile(r"\d+(\.\d+)*")
_BEFORE_FINAL = re.compile(r"[.-]?(a|b|c|rc|alpha|beta|dev|pre|nightly)[.-]?\d*", re.IGNORECASE)


class Loaded(StrEnum):
    """What a run loads; one of these is a history's axis."""

    NCCL = "nccl"
    PLUGIN = "plugin"
    TORCH = "torch"
    CUDA = "cuda"
    DRIVER = "driver"


WORDS: Mapping[Loaded, str] = {
    Loaded.NCCL: "NCCL",
    Loaded.PLUGIN: "network plug-in",
    Loaded.TORCH: "torch",
    Loaded.CUDA: "CUDA",
    Loaded.DRIVER: "driver",
}
"""As people are told."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRelease:
    """One release in a series, with all that was measured on it."""

    version: str
    side: Side
    """Its runs hold the trials of this release alone; the library is no part of their settings."""

    @cached_property
    def times_by_run(self) -> dict[str, Times]:
        """By run: by case, one time a repeat in us."""
        return {
            stored.run.run_id: times_of(in_reading_order(stored.trials))
            for stored in self.side.runs
        }

    @cached_property
    def times(self) -> Times:
        """By case, one time a repeat in us, all runs together."""
        return joined(self.times_by_run.values())

    @property
    def repeats(self) -> int:
        """The most that a case has."""
        return max(map(len, self.times.values()), default=0)

    @property
    def run_ids(self) -> list[str]:
        """Of the runs that hold it."""
        return [stored.run.run_id for stored in self.side.runs]

    def of_runs(self, ids: Collection[str] | None) -> Side:
        """Returns as much of it as stands in some runs; all of it if None."""
        if ids is None:
            return self.side
        runs = tuple(stored for stored in self.side.runs if stored.run.run_id in ids)
        return replace(self.side, runs=runs)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Releases of one thing, in order, with all else the same."""

    axis: Loaded
    facts: Facts
    """What all of it shares."""
    releases: tuple[MeasuredRelease, ...]

    @cached_property
    def cases(self) -> dict[CaseKey, Case]:
        """Every case that is ok in any release, in the order in which they came."""
        found: dict[CaseKey, Case] = {}
        for release in self.releases:
            for trial in release.side.trials:
                key = case_key(trial.case)
                if key in release.times:
                    found.setdefault(key, trial.case)
        return found

    @property
    def versions(self) -> list[str]:
        """In order."""
        return [release.version for release in self.releases]

    @cached_property
    def source(self) -> ReleaseTimes:
        """The times of its releases, by their numbers."""
        return ReleaseTimes(by_run=tuple(release.times_by_run for release in self.releases))

    def sides(self, base: Sequence[int], new: int) -> tuple[Side, Side]:
        """Returns what stands behind a comparison of releases with another one.

        Args:
            base: which of ``releases``; the repeats of several count as one side's.
            new: which one is held against them.
        """
        runs = self.source.tables(base, new).runs
        old = [self.releases[number].of_runs(runs) for number in base]
        name = " and ".join(side.name for side in old)
        together = Side(name=name, runs=tuple(run for side in old for run in side.runs))
        return together, self.releases[new].of_runs(runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Histories:
    """All series of some runs."""

    series: tuple[Series, ...]
    left_out: tuple[str, ...]
    """A line for each kind of run that is in none, with the reason."""

    @property
    def differing(self) -> dict[str, list[str]]:
        """What tells the series apart: by name, the value in each."""
        names = dict.fromkeys(name for one in self.series for name in one.facts)
        values = {name: [one.facts.get(name, _UNKNOWN) for one in self.series] for name in names}
        return {name: found for name, found in values.items() if len(set(found)) > 1}


def histories_of(
    runs: Sequence[StoredRun], *, axis: Loaded = Loaded.NCCL, across: Collection[Loaded] = ()
) -> Histories:
    """Returns the series that runs make.

    Args:
        runs: of commands that measure cases; real ones, or simulated ones.
        axis: what the releases are of.
        across: what may differ within a series beside that.
    """
    shapes = shapes_of(runs)
    parted: dict[tuple[tuple[str, str], ...], dict[str, list[StoredRun]]] = {}
    unknown: list[str] = []
    by_time = sorted(zip(runs, shapes, strict=True), key=lambda pair: pair[0].run.started_at)
    for stored, shape in by_time:
        for loaded, part in _by_loaded(stored):
            version = loaded.get(axis)
            if version is None:
                unknown.append(stored.run.run_id)
                continue
            facts = {**shape, "via": stored.run.via}
            for thing in Loaded:
                if thing is not axis and thing not in across:
                    facts[WORDS[thing]] = loaded.get(thing) or "none"
            versions = parted.setdefault(tuple(facts.items()), {})
            versions.setdefault(version, []).append(part)
    series = tuple(_series(axis, dict(facts), versions) for facts, versions in parted.items())
    left_out = []
    if unknown:
        ids = list(dict.fromkeys(unknown))
        left_out.append(
            f"{len(ids)} run{'s' * (len(ids) != 1)} without a {WORDS[axis]} version"
            f" ({', '.join(ids[:3])}{', ...' * (len(ids) > 3)})"
        )
    ordered = sorted(series, key=lambda one: (-len(one.releases), version_order(one.versions[0])))
    return Histories(series=tuple(ordered), left_out=tuple(left_out))


def _series(axis: Loaded, facts: Facts, versions: Mapping[str, list[StoredRun]]) -> Series:
    releases = [
        MeasuredRelease(
            version=version, side=Side(name=f"{WORDS[axis]} {version}", runs=tuple(runs))
        )
        for version, runs in sorted(versions.items(), key=lambda pair: version_order(pair[0]))
    ]
    return Series(axis=axis, facts=facts, releases=tuple(releases))


def _by_loaded(stored: StoredRun) -> Iterator[tuple[dict[Loaded, str | None], StoredRun]]:
    """Yields a run's trials by what they were measured on; the rest of a setting stays theirs."""
    environment = stored.run.environment
    counts = Counter(map(_version, environment.libraries.values()))
    parts: dict[tuple[str | None, str | None], list[Trial]] = {}
    for trial in stored.trials:
        setting = dict(trial.case.setting)
        name = setting.pop(LIBRARY, None)
        plugin = setting.pop(PLUGIN, None) or environment.variables.get(PLUGIN)
        library = environment.nccl if name is None else environment.libraries.get(name)
        version = _version(library)
        if counts[version] > 1 and name != version:
            version = f"{version} ({name})"  # one of several builds of a release
        if len(setting) < len(trial.case.setting):
            case = msgspec.structs.replace(trial.case, setting=setting)
            trial = msgspec.structs.replace(trial, case=case)
        parts.setdefault((version, plugin), []).append(trial)
    for (version, plugin), trials in parts.items():
        loaded: dict[Loaded, str | None] = {
            Loaded.NCCL: version,
            Loaded.PLUGIN: plugin,
            # A library that is called straight has no torch beside it.
            Loaded.TORCH: None if stored.run.via == "native" else environment.torch,
            Loaded.CUDA: environment.cuda,
            Loaded.DRIVER: environment.driver,
        }
        yield loaded, replace(stored, trials=tuple(trials))


def _version(library: LibraryVersion | None) -> str | None:
    """Returns the release without what a build adds: ``2.29.7+cuda13.0`` is 2.29.7."""
    return None if library is None else library.version.partition("+")[0]


def version_order(version: str) -> tuple[tuple[int, ...], bool, tuple[int, ...], str]:
    """Returns the key by which versions are ordered: 2.9.9 before 2.28.3, 2.14.0a0 before 2.14.0.

    What a build adds (``+cu130``) counts last.
    """
    public = version.partition("+")[0]
    match = _RELEASE.match(public)
    numbers = match[0] if match else ""
    rest = public[len(numbers) :]
    final = _BEFORE_FINAL.match(rest) is None
    return _numbers(numbers), final, _numbers(rest), version


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", text))
