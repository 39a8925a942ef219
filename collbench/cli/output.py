"""What commands print of a run, live or stored."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from collbench.analyze.limit import LimitOf, wire_limit
from collbench.errors import StoreError
from collbench.model import Finding, Run, Topology, Trial
from collbench.report.closing import closing, figure_lines, took_line
from collbench.report.heading import heading
from collbench.report.table import render_tables


def say(text: str, *, err: bool = False) -> None:
    """Prints a text at once.

    Raises:
        BrokenPipeError: nobody reads any more.
        StoreError: the file behind the stream takes no more (disk full).
    """
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        raise
    except OSError as problem:
        stream = sys.stderr if err else sys.stdout
        # What is left in the buffer would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        name = "standard error" if err else "standard output"
        raise StoreError(
            f"cannot write to {name}: {problem.strerror}; what was measured is kept"
        ) from None


def limits_of(run: Run, topology: Topology) -> LimitOf:
    """Returns what tells the wire's limit of a case of this run, given what ran."""
    variables = run.environment.variables
    return lambda case, proof: wire_limit(case, topology, variables, proof)


def run_text(
    run: Run,
    topology: Topology,
    trials: Sequence[Trial],
    findings: Sequence[Finding],
    folder: Path,
    *,
    figures: Sequence[str],
    between: Sequence[str] = (),
) -> str:
    """Returns heading, tables, the lines that stand between, and closing."""
    started = f"run {run.run_id}, {run.started_at[:16].replace('T', ' ')} UTC\n"
    results = results_text(
        run,
        topology,
        trials,
        findings,
        folder,
        name=str(folder),
        figures=figures,
        between=between,
    )
    return "\n".join([heading(run, topology), started, results])


def results_text(
    run: Run,
    topology: Topology,
    trials: Sequence[Trial],
    findings: Sequence[Finding],
    folder: Path,
    *,
    name: str,
    figures: Sequence[str] | None = None,
    between: Sequence[str] = (),
) -> str:
    """Returns tables and closing.

    Args:
        run: its header.
        topology: where it ran.
        trials: all of it.
        findings: what stands out.
        folder: where it is kept.
        name: what the next commands call the run.
        figures: the lines to remember, where they are known already.
        between: lines between tables and closing.
    """
    limit_of = limits_of(run, topology)
    parts = [render_tables(trials, limit_of)] if trials else []
    parts += ["\n".join([*between, ""])] if between else []
    if figures is None:
        figures = figure_lines(trials, limit_of)
    took = took_line(run, trials)
    return "\n".join([*parts, closing(figures, findings, folder, name, took=took)])
