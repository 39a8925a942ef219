"""asv's result files (format 2), and the repository of releases that they hang on.

Written as JSON, without asv: its classes promise nothing, its format is documented. Everything is
derived from stored runs and the table of releases: the same store gives the same bytes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from collbench.analyze.history import MeasuredRelease, Series
from collbench.errors import EngineError, UsageError
from collbench.interop.asv_benchmarks import (
    BUSBW,
    METHOD_VERSION,
    TIME,
    Benchmark,
    benchmarks_of,
)
from collbench.interop.asv_check import check_results, load_with_asv, result_files
from collbench.interop.asv_facts import Place, places_of
from collbench.interop.asv_values import CaseValue, case_value
from collbench.interop.release_repository import BRANCH, write_release_repository
from collbench.nccl.releases import Release

MARKER = ".collbench-history"
"""Says that a folder is an export, which may be replaced."""
CONFIGURATION = "asv.conf.json"
REPOSITORY = "releases"
RESULTS = "results"
HTML = "html"

FEWEST_RELEASES = 2

RELEASE_URL = "https://github.com/NVIDIA/nccl/tree/"
"""Of a release by the name of its tag there (``v2.30.7-1``)."""

_COLUMNS = (
    "result",
    "params",
    "version",
    "started_at",
    "duration",
    "stats_ci_99_a",
    "stats_ci_99_b",
    "stats_q_25",
    "stats_q_75",
    "stats_number",
    "stats_repeat",
    "samples",
    "profile",
)
_MS_PER_S = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """What was written."""

    folder: Path
    machines: tuple[str, ...]
    """Of each series."""
    files: int
    """Result files: one a release of a series."""
    values: int
    """Times and rates in them."""
    releases: int
    """In the repository."""
    checked_by_asv: bool
    """Whether asv is installed and has read all of it."""


def export_asv(
    folder: Path,
    series: Sequence[Series],
    releases: Sequence[Release],
    *,
    threshold: float = 0.03,
) -> Exported:
    """Writes series for asv, and reads them back.

    Args:
        folder: new, empty, or an earlier export, which is replaced.
        series: of NCCL releases.
        releases: all that are known, measured or not: those between two measured ones keep their
            place, and a new release leaves the hashes of older ones alone.
        threshold: the smallest slow-down that asv shall list, as a share.

    Raises:
        UsageError: the folder holds something else; a release is not among those known; fewer than
            two releases.
        EngineError: what was written cannot be read back.
    """
    _refuse(series, releases)
    _prepare(folder)
    hashes = write_release_repository(folder / REPOSITORY, releases)
    dates = {release.version: release.uploaded for release in releases}
    new = folder / f".{RESULTS}.new"
    shutil.rmtree(new, ignore_errors=True)
    places = places_of(series)
    written = _result_files(series, places, hashes, dates)
    for path, document in written.items():
        _write(new / path, document)
    values = check_results(new, hashes)
    files = sum("commit_hash" in document for document in written.values())
    found = len(result_files(new))
    if found != files:
        raise EngineError(f"{new} holds {found} of {files} result files: asv would miss the others")
    checked = load_with_asv(new)
    _write(folder / CONFIGURATION, _configuration(series, threshold))
    _replace(folder / RESULTS, new)
    return Exported(
        folder=folder,
        machines=tuple(place.machine for place in places),
        files=files,
        values=values,
        releases=len(hashes),
        checked_by_asv=checked,
    )


def _refuse(series: Sequence[Series], releases: Sequence[Release]) -> None:
    known = {release.version for release in releases}
    unknown = [v for one in series for v in one.versions if v not in known]
    if unknown:
        raise UsageError(
            f"NCCL {unknown[0]} is not in the table of releases; give --releases FILE with the"
            f" lines 'version,uploaded' and '{unknown[0]},2026-12-01T00:00:00Z' (its first upload)"
        )
    most = max((sum(bool(r.times) for r in one.releases) for one in series), default=0)
    if most < FEWEST_RELEASES:
        raise UsageError(
            f"an export needs {FEWEST_RELEASES} releases of one history, and the longest has"
            f" {most}; measure more: collbench history run --nccl 2.29.7,2.30.7"
        )


def _prepare(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"'{folder}' is a file; give a folder for the export")
    is_new = not folder.is_dir() or not any(folder.iterdir())
    if not is_new and not (folder / MARKER).is_file():
        raise UsageError(
            f"'{folder}' is no export of 'collbench history' and not empty; give a new folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(
            "Written by 'collbench history export', which replaces what is in this folder.\n"
        )
    except OSError as problem:
        raise UsageError(f"'{folder}' cannot be written: {problem.strerror}") from None


def _replace(target: Path, new: Path) -> None:
    """Puts a whole folder in the place of another."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    temporary.write_text(f"{text}\n", encoding="utf-8")
    temporary.replace(path)


def _configuration(series: Sequence[Series], threshold: float) -> dict[str, Any]:
    runs = [stored.run for one in series for r in one.releases for stored in r.side.runs]
    simulated = ", SIMULATED" * any(run.simulated for run in runs)
    return {
        "version": 1,
        "project": f"NCCL releases{simulated}",
        "project_url": RELEASE_URL.removesuffix("tree/"),
        "show_commit_url": RELEASE_URL,
        "repo": REPOSITORY,
        "branches": [BRANCH],
        "environment_type": "existing",
        "results_dir": RESULTS,
        "html_dir": HTML,
        # asv takes larger as worse: a higher bandwidth would be a regression.
        "regressions_first_commits": {f".*{BUSBW}.*": None},
        "regressions_thresholds": {".*": threshold},
    }


def _result_files(
    series: Sequence[Series],
    places: Sequence[Place],
    hashes: Mapping[str, str],
    dates: Mapping[str, datetime],
) -> dict[str, dict[str, Any]]:
    """Returns the content of each file by its path below the folder of results."""
    benchmarks = benchmarks_of(series)
    found: dict[str, dict[str, Any]] = {}
    filled: set[str] = set()
    for number, (one, place) in enumerate(zip(series, places, strict=True)):
        for release in one.releases:
            rows = dict(_rows(benchmarks, number, release))
            if not rows:
                continue
            filled |= rows.keys()
            commit = hashes[release.version]
            pythons = {stored.run.environment.python for stored in release.side.runs}
            path = f"{place.machine}/{commit[:8]}-{place.environment}.json"
            found[f"{place.machine}/machine.json"] = place.machine_document
            found[path] = {
                "commit_hash": commit,
                "env_name": place.environment,
                "date": int(dates[release.version].timestamp()) * _MS_PER_S,
                "params": place.parameters,
                "python": " and ".join(sorted(pythons)),
                "requirements": {},
                "env_vars": {},
                "result_columns": _COLUMNS,
                "results": rows,
                "durations": {},
                "version": 2,
            }
    documents = {
        benchmark.name(what): benchmark.document(what)
        for benchmark in benchmarks
        for what in (TIME, BUSBW)
        if benchmark.name(what) in filled
    }
    found["benchmarks.json"] = {**documents, "version": 2}
    return found


def _rows(
    benchmarks: Sequence[Benchmark], series: int, release: MeasuredRelease
) -> Iterator[tuple[str, list[Any]]]:
    """Gives the name and the row of each benchmark that the release has a value of."""
    runs = [stored.run for stored in release.side.runs]
    started = min(datetime.fromisoformat(run.started_at) for run in runs)
    started_ms = int(started.timestamp()) * _MS_PER_S
    for benchmark in benchmarks:
        values = [
            case_value(slot[1], release.times[slot[0]])
            if slot is not None and slot[0] in release.times
            else None
            for slot in benchmark.cases[series]
        ]
        parameters = [list(words) for words in benchmark.values]
        head = [parameters, METHOD_VERSION, started_ms]
        if any(value is not None for value in values):
            yield benchmark.name(TIME), _time_row(head, values)
        rates = [None if value is None else value.busbw_gb_per_s for value in values]
        if any(rate is not None for rate in rates):
            yield benchmark.name(BUSBW), [rates, *head]


def _time_row(head: list[Any], values: Sequence[CaseValue | None]) -> list[Any]:
    """Returns a row in the order of the columns; what no case has is null as a whole."""

    def column(name: str) -> list[Any] | None:
        found = [None if value is None else getattr(value, name) for value in values]
        return found if any(one is not None for one in found) else None

    row = [
        column("median_s"),
        *head,
        None,
        column("low_s"),
        column("high_s"),
        column("quartile_low_s"),
        column("quartile_high_s"),
        [None if value is None else 1 for value in values],
        column("repeats"),
        column("samples_s"),
    ]
    while row[-1] is None:
        row.pop()
    return row
