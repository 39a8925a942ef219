"""What ``collbench ab`` does: a sweep over its sides, and what they are against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from collbench.analyze.compare import Verdict
from collbench.analyze.readings import readings
from collbench.cli.ab_sides import (
    FAIL_ON_OPTION,
    pairs_of,
    read_threshold,
    said_in,
    sides_lines,
    threshold_of,
)
from collbench.cli.conclusion import Comparing, Conclusion
from collbench.cli.sweep_run import run_sweep
from collbench.errors import UsageError
from collbench.model import Finding
from collbench.store import StoredRun
from collbench.suite import AUTO, Suite, load_suite, read_libraries

_REPEATS = 5
"""From five on repeats can be permuted as wholes: docs/statistics.md."""
_SLOWER = "slower"


def run_ab(context: click.Context, given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
    """
    return run_sweep(context, given, read_ab(given))


def read_ab(given: dict[str, Any]) -> Conclusion:
    """Returns what will be made of the trials; takes its options out of the parameters.

    Args:
        given: parameters as click gives them; a sweep's are left.

    Raises:
        UsageError: a value that cannot be.
    """
    text, fail_on = given.pop("threshold"), given.pop("fail_on")
    threshold = None if text is None else read_threshold(text)
    if fail_on not in (None, _SLOWER):
        raise UsageError(f"{FAIL_ON_OPTION}: '{fail_on}' is not allowed; allowed: {_SLOWER}")
    return _Comparing(threshold, fail_on_slower=fail_on is not None)


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters with five repeats, and the back end that loads named libraries.

    Only where the command line and its suite do not say otherwise.

    Args:
        given: parameters as click gives them.
    """
    suite = load_suite(given["suite"])
    changes: dict[str, Any] = {}
    if given["repeats"] is None and suite.run.repeats == Suite().run.repeats:
        changes["repeats"] = str(_REPEATS)
    if given["via"] is None and any(_named_libraries(given["nccl"])):
        changes["via"] = "native"
    return {**given, **changes}


def _named_libraries(texts: Sequence[str]) -> list[str]:
    """Returns the names; what is wrong with the texts is said where the option is read."""
    try:
        return [name for name in read_libraries(texts or AUTO) if name]
    except UsageError:
        return []


class _Comparing(Comparing):
    """Each side against the first."""

    command = "ab"

    def __init__(self, threshold: float | None, *, fail_on_slower: bool) -> None:
        """Without a threshold that of the run's own command line holds, which is resumed with."""
        self._threshold, self._fail_on_slower = threshold, fail_on_slower
        super().__init__()

    def check(self, settings: Sequence[Mapping[str, str]]) -> None:
        """Refuses a single side."""
        if len(settings) < 2:
            raise UsageError(
                "ab holds sides against each other and one is given; name two or more: --setting"
                " default --setting NCCL_ALGO=Tree, --nccl old=PATH --nccl new=PATH, --ib on,off"
            )

    def findings(self, stored: StoredRun) -> list[Finding]:
        """Returns what the sides are to each other."""
        pairs = pairs_of(stored, self._threshold_for(stored))
        found = readings(pairs)
        self._told = any(pair.comparison.told for pair in pairs)
        fails = self._fail_on_slower or said_in(stored.run.argv, FAIL_ON_OPTION) == _SLOWER
        for pair in pairs if fails else ():
            slower, cases = pair.comparison.of(Verdict.SLOWER), pair.comparison.cases
            if slower:
                self._slower = True
                found.append(
                    Finding(
                        code="slower",
                        severity="bad",
                        text=f"{pair.new.name} is slower than {pair.base.name} in {len(slower)} of"
                        f" {len(cases)} cases.",
                    )
                )
        return found

    def lines(self, stored: StoredRun) -> list[str]:
        """Returns the comparison of each side with the first."""
        return sides_lines(stored, self._threshold_for(stored))

    def _threshold_for(self, stored: StoredRun) -> float:
        return threshold_of(stored) if self._threshold is None else self._threshold
