"""Cases as asv's benchmarks: one a collective, everything else of a case a parameter.

asv spells a parameter as Python would: a word in quotes is a label, evenly spaced on an axis; a
bare number stands on a linear axis, which is of no use for sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.analyze.history import Series
from collbench.analyze.keys import CaseKey
from collbench.errors import EngineError
from collbench.model import Case, Mode
from collbench.nccl.settings import setting_order, setting_text
from collbench.units import format_size

TIME = "time"
BUSBW = "busbw"

METHOD_VERSION = "1"
"""To be raised when a value comes to mean something else: asv then leaves out older results."""

Slot = tuple[CaseKey, Case] | None
"""A case and under what its times are found; None where a series has no such case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """One collective with all parameters that its cases differ in."""

    collective: str
    names: tuple[str, ...]
    """Of the parameters."""
    values: tuple[tuple[str, ...], ...]
    """Of each parameter, as asv spells them, in order."""
    cases: tuple[tuple[Slot, ...], ...]
    """Of each series, in the order of the list given: what stands in each slot."""

    @property
    def slots(self) -> int:
        """Combinations of parameters; the last one runs fastest."""
        return math.prod(map(len, self.values))

    def name(self, what: str) -> str:
        """Returns asv's name of its times (``TIME``) or its rates (``BUSBW``)."""
        return f"{self.collective}.{what}"

    def document(self, what: str) -> dict[str, Any]:
        """Returns its entry in ``benchmarks.json``."""
        seen = {
            TIME: ("time", "seconds", "time of one call, the slowest rank's: lower is better"),
            BUSBW: ("track", "GB/s", "bus bandwidth: higher is better, so asv must not judge it"),
        }
        kind, unit, words = seen[what]
        return {
            "code": f"{self.collective}: {words}.\nMedian over repeats, measured by collbench.",
            "name": self.name(what),
            "param_names": list(self.names),
            "params": [list(values) for values in self.values],
            "type": kind,
            "unit": unit,
            "version": METHOD_VERSION,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parameter:
    """One word of a case."""

    name: str
    text: Callable[[Case], str]
    """As asv spells it."""
    order: Callable[[Case], Any]
    always: bool = False
    """Also where all cases share it."""
    of_series: bool = False
    """Two series may differ in it and say so elsewhere."""


def _label(word: object) -> str:
    return f"'{word}'"


_MODES = tuple(Mode)
_PARAMETERS = (
    _Parameter(
        name="size",
        text=lambda case: _label(format_size(case.size_bytes).replace(" ", "")),
        order=lambda case: case.size_bytes,
        always=True,
    ),
    _Parameter(
        name="mode",
        text=lambda case: _label(case.mode),
        order=lambda case: _MODES.index(case.mode),
        always=True,
    ),
    _Parameter(
        name="ranks",
        text=lambda case: str(case.world_size),
        order=lambda case: case.world_size,
        always=True,
    ),
    _Parameter(
        name="setting",
        text=lambda case: _label(setting_text(case.setting)),
        order=lambda case: setting_order(case.setting),
        always=True,
    ),
    _Parameter(name="dtype", text=lambda case: _label(case.dtype), order=lambda case: case.dtype),
    _Parameter(
        name="redop",
        text=lambda case: _label(case.redop or "none"),
        order=lambda case: case.redop or "",
    ),
    _Parameter(
        name="root",
        text=lambda case: _label("none" if case.root is None else case.root),
        order=lambda case: -1 if case.root is None else case.root,
    ),
    _Parameter(
        name="placement",
        text=lambda case: _label("in place" if case.in_place else "out of place"),
        order=lambda case: not case.in_place,
    ),
    _Parameter(
        name="pattern", text=lambda case: _label(case.pattern), order=lambda case: case.pattern
    ),
    _Parameter(
        name="nodes",
        text=lambda case: str(case.nodes),
        order=lambda case: case.nodes,
        of_series=True,
    ),
    _Parameter(
        name="via",
        text=lambda case: _label(case.via),
        order=lambda case: case.via,
        of_series=True,
    ),
    _Parameter(
        name="back_end",
        text=lambda case: _label(case.backend),
        order=lambda case: case.backend,
        of_series=True,
    ),
    _Parameter(
        name="hosts",
        text=lambda case: _label("fake" if case.emulated else "real"),
        order=lambda case: case.emulated,
        of_series=True,
    ),
)
"""All that tells two cases of a collective apart (``collbench.analyze.curves.question``)."""


def benchmarks_of(series: Sequence[Series]) -> list[Benchmark]:
    """Returns a benchmark for each collective of any series, in the order in which they came.

    Raises:
        EngineError: two cases of a series would stand in one place.
    """
    names = dict.fromkeys(case.collective for one in series for case in one.cases.values())
    return [_benchmark(name, series) for name in names]


def _benchmark(collective: str, series: Sequence[Series]) -> Benchmark:
    found = [
        {key: case for key, case in one.cases.items() if case.collective == collective}
        for one in series
    ]
    parts = [list(cases.values()) for cases in found]
    every = [case for cases in parts for case in cases]
    shown = [parameter for parameter in _PARAMETERS if _is_shown(parameter, every, parts)]
    values = tuple(
        tuple(dict.fromkeys(map(parameter.text, sorted(every, key=parameter.order))))
        for parameter in shown
    )
    slots = math.prod(map(len, values))
    placed: list[list[Slot]] = [[None] * slots for _ in series]
    for mine, row in zip(found, placed, strict=True):
        for key, case in mine.items():
            slot = 0
            for parameter, words in zip(shown, values, strict=True):
                slot = slot * len(words) + words.index(parameter.text(case))
            if row[slot] is not None:
                raise EngineError(
                    f"two cases of {collective} would be one of asv's: {case.case_id} is one"
                )
            row[slot] = key, case
    return Benchmark(
        collective=collective,
        names=tuple(parameter.name for parameter in shown),
        values=values,
        cases=tuple(map(tuple, placed)),
    )


def _is_shown(parameter: _Parameter, every: Sequence[Case], parts: Sequence[list[Case]]) -> bool:
    groups = parts if parameter.of_series else [every]
    return parameter.always or any(len(set(map(parameter.text, cases))) > 1 for cases in groups)
