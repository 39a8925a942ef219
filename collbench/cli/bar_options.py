"""The options that set bars, shared by the commands that measure: what a run has to reach.

Values are checked in every process, the baseline is read by the one that measures and judges.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.cli.earlier import is_given
from collbench.cli.option import Command, Option, as_words, with_options
from collbench.cli.request import read_values
from collbench.collectives import collective_named
from collbench.errors import ExitCode, RunNotFound, UsageError
from collbench.units import parse_share

if TYPE_CHECKING:  # they bring numpy, and --help does without
    from collbench.analyze.bars import BarReport, Bars
    from collbench.analyze.baseline import Baseline
    from collbench.model import Case, Finding, Run, Topology, Trial

_EVERY = ""
"""Stands for all collectives that have no bar of their own."""


def _as_rates(value: str) -> dict[str, float]:
    """Rates in GB/s: one for all collectives, or by collective."""
    found: dict[str, float] = {}
    for word in as_words(value):
        name, _, rate = word.rpartition("=")
        key = collective_named(name).name if name else _EVERY
        if key in found:
            raise UsageError(f"'{name or word}' is given twice; give each once")
        found[key] = _as_rate(rate)
    if not found:
        raise UsageError("the list is empty; write 300, or all_reduce=300,all_gather=280")
    return found


def _as_rate(text: str) -> float:
    """A rate above zero."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise UsageError(
            f"'{text}' is no rate in GB/s; write 300, or all_reduce=300,all_gather=280"
        )
    return rate


BAR_OPTIONS = (
    Option(
        names=("--baseline",),
        metavar="FILE|RUN",
        help="Hold each case against a baseline's file, or a run; exit 1 if one is slower.",
    ),
    Option(
        names=("--tolerance",),
        metavar="SHARE",
        read=parse_share,
        help="So much slower than the baseline a case may be [5%].",
    ),
    Option(
        names=("--min-busbw",),
        metavar="GB/S",
        read=_as_rates,
        help="Bus bandwidth that each collective's peak has to reach: 300, or all_reduce=300,"
        "all_gather=280; exit 1 if one does not.",
    ),
    Option(
        names=("--min-of-limit",),
        metavar="SHARE",
        read=parse_share,
        help="Share of the wire's limit that each peak has to reach: 85%; exit 4 if the limit is"
        " not known.",
    ),
)


def bar_options(command: Command) -> Command:
    """Gives a command these options; it passes their values to ``read_bars``."""
    return with_options(command, BAR_OPTIONS)


def with_bars_of_before(
    context: click.Context, given: dict[str, Any], argv_of_before: str | None
) -> dict[str, Any]:
    """Returns the parameters, with the bars of a run that goes on where none is given anew.

    Args:
        context: of the command, with where each parameter came from.
        given: its parameters.
        argv_of_before: the command line that the other options were taken from; None: from none.
    """
    names = [option.param for option in BAR_OPTIONS]
    if argv_of_before is None or any(is_given(context, name) for name in names):
        return given
    _, command, *options = shlex.split(argv_of_before)
    with context.command.make_context(command, options) as before:
        return {**given, **{name: before.params[name] for name in names}}


def read_bars(given: dict[str, Any], *, judges: bool = True) -> Bars | None:
    """Returns the bars that are set, or None where none is.

    Args:
        given: parameters as click gives them, text or None; others beside them are not looked at,
            but for ``results``, the folder of all runs.
        judges: False in a process that only serves the one that judges: values are checked, the
            baseline, which may not be there, is not read.

    Raises:
        UsageError: a value that cannot be; names the option.
        RunNotFound: the baseline is neither a file nor a run.
        RecordError: it cannot be read.
    """
    values = read_values(BAR_OPTIONS, given)
    source = values.get("baseline")
    if "tolerance" in values and source is None:
        raise UsageError("--tolerance is of a baseline; give --baseline as well")
    if not values or not judges:
        return None
    from collbench.analyze.bars import TOLERANCE, Bars
    from collbench.store import results_root

    rates = values.get("min_busbw", {})
    root = results_root(given.get("results"), os.environ)
    return Bars(
        baseline=None if source is None else find_baseline(source, root),
        source=source or "",
        tolerance=values.get("tolerance", TOLERANCE),
        min_busbw_gb_per_s=rates.get(_EVERY),
        min_busbw_of={name: rate for name, rate in rates.items() if name != _EVERY},
        min_of_limit=values.get("min_of_limit"),
    )


def find_baseline(source: str, root: Path) -> Baseline:
    """Returns the baseline in a file, or made of a run.

    Args:
        source: the file's name, or the run as commands take it.
        root: the folder of all runs.

    Raises:
        UsageError: there is no such file, or of the run none can be made.
        RecordError: the file is no baseline.
        RunNotFound: it is neither a file nor a run.
    """
    from collbench.analyze.baseline import read_baseline
    from collbench.analyze.pair_levels import baseline_of
    from collbench.store import find_run, read_run

    if os.path.isfile(source):  # noqa: PTH113  Path.is_file raises on long names
        return read_baseline(Path(source))
    if source.endswith(".json"):
        raise UsageError(f"--baseline {source}: no such file; 'collbench baseline RUN' writes one")
    try:
        return baseline_of([read_run(find_run(source, root))])
    except (UsageError, RunNotFound) as problem:
        raise type(problem)(f"--baseline {source}: {problem}") from None


def check_bars(bars: Bars, run: Run, topology: Topology, planned: Sequence[Case]) -> None:
    """Makes sure that bars can be held against a run that is about to begin.

    Raises:
        UsageError: the baseline is of a model, for other hardware, or made of this very run; no
            case that is planned has a bar.
    """
    measured = list(dict.fromkeys(case.collective for case in planned))
    for name in bars.min_busbw_of:
        if name not in measured:
            raise UsageError(
                f"--min-busbw {name}: it is not measured; measured: {', '.join(measured)}"
            )
    if bars.baseline is not None:
        _check_baseline(f"--baseline {bars.source}", bars.baseline, run, topology, planned)


def _check_baseline(
    label: str, baseline: Baseline, run: Run, topology: Topology, planned: Sequence[Case]
) -> None:
    from collbench.analyze.baseline import class_differences, hardware_class
    from collbench.analyze.keys import case_key

    if not baseline.cases:
        raise UsageError(
            f"{label} holds pairs of nodes, for 'pairwise'; give a run of 'sweep', or what"
            " 'collbench baseline' writes of one"
        )
    if baseline.simulated != run.simulated:
        kinds = ("measured", "simulated")
        raise UsageError(
            f"{label} is {kinds[baseline.simulated]} and this run is {kinds[run.simulated]}: a"
            " model says nothing of hardware; give a baseline of the same kind"
        )
    if run.run_id in baseline.run_ids:
        raise UsageError(f"{label} is the run that goes on ({run.run_id}); give another")
    apart = class_differences(baseline.hardware, hardware_class(run, topology))
    if apart:
        found = ", ".join(f"{name} {was} there and {is_now} here" for name, was, is_now in apart)
        raise UsageError(
            f"{label} is for other hardware: {found}; make one of a run on this hardware with"
            " 'collbench baseline RUN'"
        )
    known = {case_key(item.case) for item in baseline.cases}
    asked = {case_key(case) for case in planned}
    if not known & asked:
        raise UsageError(
            f"{label} has none of the {len(asked)} cases that are planned: collective, type,"
            " size, mode, placement, pattern, setting and --via must agree"
        )


@dataclass(kw_only=True, slots=True)
class BarJudge:
    """Holds a command's run against the bars that are set; without any it says nothing."""

    bars: Bars | None
    report: BarReport | None = None
    """Known once the run was judged."""

    def check(self, run: Run, topology: Topology, planned: Sequence[Case]) -> None:
        """Makes sure that the bars can be held against the run, before anything is measured.

        Raises:
            UsageError: they cannot.
        """
        if self.bars is not None:
            check_bars(self.bars, run, topology, planned)

    def among(
        self, found: list[Finding], run: Run, topology: Topology, trials: Sequence[Trial]
    ) -> list[Finding]:
        """Judges all trials; returns the findings with the verdicts, bars missed first."""
        if self.bars is None:
            return found
        from collbench.analyze.bars import check_against
        from collbench.cli.output import limits_of
        from collbench.report.bars import bar_findings

        self.report = check_against(trials, run, self.bars, limits_of(run, topology))
        verdicts = bar_findings(self.report, self.bars)
        missed = [finding for finding in verdicts if finding.severity == "bad"]
        return missed + found + [finding for finding in verdicts if finding not in missed]

    def lines(self) -> list[str]:
        """Returns what is printed of the bars after everything else."""
        if self.bars is None or self.report is None:
            return []
        from collbench.report.bars import bar_lines

        return bar_lines(self.report, self.bars)

    def settled(self, status: ExitCode) -> ExitCode:
        """Returns how the command ends whose trials end so: a bar missed is the answer no.

        Also of a run in which cases hung. A bar that cannot be told is no answer; data that were
        wrong and a run that measured nothing stay what they are.
        """
        if self.report is None or status not in (ExitCode.FINE, ExitCode.INCOMPLETE):
            return status
        from collbench.analyze.bars import BarVerdict

        if self.report.verdict is BarVerdict.BELOW:
            return ExitCode.CONFIRMED_BAD
        return status if self.report.verdict is BarVerdict.MET else ExitCode.INCOMPLETE
