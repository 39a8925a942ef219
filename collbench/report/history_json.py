"""Histories as JSON, ``collbench.history/1``: one object, UTC, never NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from collbench.analyze.history import Histories, Series
from collbench.analyze.history_bisect import Bisected, Change
from collbench.analyze.history_verdict import SeriesCheck
from collbench.analyze.keys import CaseKey
from collbench.report.comparison_json import asked_dict, comparison_dict

SCHEMA = "collbench.history/1"


def check_json(found: Sequence[SeriesCheck], histories: Histories, exit_code: int) -> bytes:
    """Returns what ``history check`` found."""
    return _encoded("check", histories, exit_code, [_check(one, exit_code) for one in found])


def bisect_json(
    found: Sequence[tuple[Series, Bisected]], histories: Histories, exit_code: int
) -> bytes:
    """Returns what ``history bisect`` found."""
    parts = [
        {
            **_series(series),
            "pairs": bisected.pairs,
            "needs_repeats": bisected.needs_repeats,
            "changes": [_change(series, change) for change in bisected.changes],
        }
        for series, bisected in found
    ]
    return _encoded("bisect", histories, exit_code, parts)


def show_json(found: Sequence[tuple[Series, Bisected]], histories: Histories) -> bytes:
    """Returns time over release of every case, and the changes."""
    parts = [
        {
            **_series(series),
            "cases": [_times(series, key) for key in series.cases],
            "changes": [_change(series, change) for change in bisected.changes],
        }
        for series, bisected in found
    ]
    return _encoded("show", histories, 0, parts)


def _encoded(
    what: str, histories: Histories, exit_code: int, parts: Sequence[dict[str, Any]]
) -> bytes:
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "what": what,
            "exit_code": exit_code,
            "histories": list(parts),
            "left_out": list(histories.left_out),
        }
    )


def _series(series: Series) -> dict[str, Any]:
    return {
        "axis": str(series.axis),
        "facts": dict(series.facts),
        "releases": [
            {"version": one.version, "repeats": one.repeats, "runs": one.run_ids}
            for one in series.releases
        ],
    }


def _check(found: SeriesCheck, exit_code: int) -> dict[str, Any]:
    versions = found.series.versions
    return {
        **_series(found.series),
        "new": found.new.version,
        "before": versions[found.checked.before],
        "regressed": found.regressed,
        "no_longer_ok": [
            {**asked_dict(found.series.cases[key]), "status": str(status)}
            for key, status in found.lost.items()
        ],
        "not_measured": [asked_dict(found.series.cases[key]) for key in found.untried],
        "against_before": comparison_dict(found.before, exit_code),
        "against_best": [
            {
                **asked_dict(compared.cases[case.key]),
                "best": [versions[number] for number in window],
                "ratio": case.ratio,
                "ci95": None if case.low is None else [case.low, case.high],
                "surely": case.surely,
            }
            for window, compared in found.best.items()
            for case in found.below(window)
        ],
    }


def _change(series: Series, change: Change) -> dict[str, Any]:
    case, versions = change.case, series.versions
    return {
        **asked_dict(series.cases[case.key]),
        "verdict": str(case.verdict),
        "after": versions[change.base],
        "changed_with": versions[change.new] if change.named else None,
        "one_of": versions[change.base + 1 : change.new + 1],
        "ratio": case.ratio,
        "ci95": None if case.low is None else [case.low, case.high],
    }


def _times(series: Series, key: CaseKey) -> dict[str, Any]:
    return {
        **asked_dict(series.cases[key]),
        "times_us": {
            one.version: list(one.times[key]) for one in series.releases if key in one.times
        },
    }
