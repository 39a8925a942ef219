"""What ``collbench ab`` does: a sweep over its sides, and what they are against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from collbench.analyze.compare import Verdict
from collbench.analyze.compared import Compared
from collbench.analyze.readings import held_against_first, readings
from collbench.cli.conclusion import Conclusion
from collbench.cli.sweep_run import run_sweep
from collbench.errors import ExitCode, UsageError
from collbench.model import Finding
from collbench.report.comparison import comparison_text
from collbench.store import StoredRun
from collbench.suite import AUTO, Suite, load_suite, read_libraries
from collbench.units import parse_share

_REPEATS = 5
"""From five on repeats can be permuted as wholes: docs/statistics.md."""


def run_ab(context: click.Context, given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
    """
    threshold = _threshold(given.pop("threshold"))
    fail_on = given.pop("fail_on")
    if fail_on not in (None, "slower"):
        raise UsageError(f"--fail-on: '{fail_on}' is not allowed; allowed: slower")
    if given["resume"] is None:
        given = _with_defaults(given)
    return run_sweep(context, given, _Comparing(threshold, fail_on_slower=fail_on is not None))


def _threshold(text: str) -> float:
    try:
        return parse_share(text)
    except UsageError as problem:
        raise UsageError(f"--threshold: {problem}") from None


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Five repeats, and for libraries with names the back end that can load them."""
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


class _Comparing(Conclusion):
    """Each side against the first."""

    command = "ab"

    def __init__(self, threshold: float, *, fail_on_slower: bool) -> None:
        self._threshold, self._fail_on_slower = threshold, fail_on_slower
        self._slower = False

    def check(self, settings: Sequence[Mapping[str, str]]) -> None:
        """Refuses a single side."""
        if len(settings) < 2:
            raise UsageError(
                "ab holds sides against each other and one is given; name two or more: --setting"
                " default --setting NCCL_ALGO=Tree, --nccl old=PATH --nccl new=PATH, --ib on,off"
            )

    def findings(self, stored: StoredRun) -> list[Finding]:
        """Returns what the sides are to each other."""
        pairs = self._pairs(stored)
        found = readings(pairs)
        for pair in pairs if self._fail_on_slower else ():
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

    def settled(self, status: ExitCode) -> ExitCode:
        """Returns 1 where a side is slower and that was asked for."""
        no = self._slower and status in (ExitCode.FINE, ExitCode.INCOMPLETE)
        return ExitCode.CONFIRMED_BAD if no else status

    def lines(self, stored: StoredRun) -> list[str]:
        """Returns the comparison of each side with the first."""
        texts = [comparison_text(pair).rstrip() for pair in self._pairs(stored)]
        return [line for text in texts for line in (*text.splitlines(), "")][:-1]

    def _pairs(self, stored: StoredRun) -> list[Compared]:
        settings = stored.run.suite["settings"]
        assert isinstance(settings, list)
        return held_against_first(stored, settings, self._threshold)
