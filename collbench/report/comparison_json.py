"""A comparison as one JSON object, ``collbench.comparison/1``."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from collbench.analyze.alphabeta import Fit
from collbench.analyze.comparable import Difference
from collbench.analyze.compare import CaseComparison, Verdict
from collbench.analyze.compared import Compared, Side
from collbench.analyze.keys import CaseKey
from collbench.analyze.located import CurveLaws, Place
from collbench.model import Case
from collbench.nccl.settings import setting_text
from collbench.report.comparison import needs_line
from collbench.report.proof import ran_text

SCHEMA = "collbench.comparison/1"

_ASKED = (
    "collective",
    "backend",
    "via",
    "emulated",
    "dtype",
    "redop",
    "root",
    "in_place",
    "world_size",
    "nodes",
    "pattern",
    "mode",
)


def comparison_json(found: Compared, exit_code: int) -> bytes:
    """Returns the object as JSON; what is infinite or not known is null, never NaN."""
    return msgspec.json.encode(comparison_dict(found, exit_code))


def comparison_dict(found: Compared, exit_code: int) -> dict[str, Any]:
    """Returns the object: all cases, also those that are the same.

    Args:
        found: the comparison.
        exit_code: of the command.
    """
    comparison = found.comparison
    needs = None
    if comparison.needs is not None:
        needs = {"repeats": comparison.needs_repeats, "text": needs_line(found)}
    return {
        "schema": SCHEMA,
        "exit_code": exit_code,
        "simulated": found.simulated,
        "forced": bool(found.forced),
        "base": _side(found.base, comparison.base_repeats),
        "new": _side(found.new, comparison.new_repeats),
        "threshold": found.threshold,
        "alpha": found.alpha,
        "test": comparison.test,
        "needs": needs,
        "counts": {str(verdict): len(comparison.of(verdict)) for verdict in Verdict},
        "differences": {
            "shape": [_difference(one) for one in found.differences.shape],
            "software": [_difference(one) for one in found.differences.software],
            "measuring": [_difference(one) for one in found.differences.measuring],
            "planted": list(found.differences.planted),
        },
        "cases": [_case(found, case) for case in comparison.cases],
        "curves": [_curve(found, law) for law in found.location.curves],
        "only_base": [asked_dict(found.cases[key]) for key in comparison.only_base],
        "only_new": [asked_dict(found.cases[key]) for key in comparison.only_new],
    }


def _side(side: Side, repeats: int) -> dict[str, Any]:
    return {
        "name": side.name,
        "repeats": repeats,
        "runs": [
            {"run_id": stored.run.run_id, "started_at": stored.run.started_at}
            for stored in side.runs
        ],
    }


def _difference(one: Difference) -> dict[str, str]:
    return {"name": one.name, "base": one.base, "new": one.new}


def asked_dict(case: Case, *, size: bool = True) -> dict[str, Any]:
    """Returns what a case asks, as the base's words have it."""
    words = {name: getattr(case, name) for name in _ASKED} | {"setting": setting_text(case.setting)}
    return words | ({"size_bytes": case.size_bytes} if size else {})


def _case(found: Compared, case: CaseComparison) -> dict[str, Any]:
    interval = None if case.low is None or case.high is None else [case.low, case.high]
    return {
        **asked_dict(found.cases[case.key]),
        "verdict": str(case.verdict),
        "base_us": case.base_us,
        "new_us": case.new_us,
        "ratio": case.ratio,
        "ci95": interval,
        "p": case.p,
        "surely": case.surely,
        "doubt": case.doubt,
        "reason": case.reason,
        "located": _place(found.location.places.get(case.key)),
        "ran": _ran(found, case.key),
    }


def _place(place: Place | None) -> dict[str, str] | None:
    return None if place is None else {"kind": str(place.kind), "text": place.text}


def _ran(found: Compared, key: CaseKey) -> dict[str, str | None]:
    base, new = (ran_text(proof) or None for proof in found.ran[key])
    return {"base": base, "new": new}


def _curve(found: Compared, law: CurveLaws) -> dict[str, Any]:
    asked = asked_dict(found.cases[law.key], size=False)
    return asked | {"base": _laws(law.base), "new": _laws(law.new)}


def _laws(fit: Fit) -> list[dict[str, Any]]:
    return [
        {
            "first_bytes": one.first_bytes,
            "last_bytes": one.last_bytes,
            "alpha_us": one.alpha_us,
            "alpha_ci95_us": [one.alpha_low_us, one.alpha_high_us],
            "algbw_gb_per_s": _finite(one.bandwidth_gb_per_s),
            "algbw_ci95_gb_per_s": [
                _finite(one.bandwidth_low_gb_per_s),
                _finite(one.bandwidth_high_gb_per_s),
            ],
            "half_size_bytes": _finite(one.half_size_bytes),
        }
        for one in fit.segments
    ]


def _finite(value: float) -> float | None:
    """Returns None for a rate without end: the time does not grow."""
    return value if math.isfinite(value) else None
