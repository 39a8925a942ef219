"""``collbench show``: a stored run's tables and conclusions."""

from __future__ import annotations

import os

import click

from collbench.analyze.findings import sweep_findings
from collbench.cli.output import print_run
from collbench.errors import ExitCode
from collbench.report.json_output import json_document
from collbench.store import StoredRun, find_run, read_run, results_root


@click.command()
@click.argument("run", default="last")
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="The JSON of `sweep --json`.")
def show(run: str, results: str | None, as_json: bool) -> None:
    """Print RUN again: a folder, an id, a unique beginning of one, or `last`."""
    stored = read_run(find_run(run, results_root(results, os.environ)))
    for problem in stored.problems:
        click.echo(f"collbench: {problem}", err=True)
    header, findings, code = stored.run, stored.run.findings, stored.run.exit_code
    if code is None:
        # Findings are made when a run ends; this one did not, but what it kept can be judged.
        findings = sweep_findings(header, stored.trials, stored.over_ranks_us)
    if as_json:
        shown = ExitCode.INCOMPLETE if code is None else code
        click.echo(json_document(header.run_id, shown, stored.trials, findings))
        return
    lines = _of_ab(stored) if header.command == "ab" else []
    print_run(header, stored.topology, stored.trials, findings, stored.folder, lines)
    if code is None:
        click.echo(
            f"{len(stored.trials)} of {header.planned_trials} trials: the run goes on, or"
            " ended without a chance to say so"
        )


def _of_ab(stored: StoredRun) -> list[str]:
    """Returns the sides of a run of ``ab`` against its first, as at the run's end."""
    from collbench.cli.ab_sides import sides_lines, threshold_of

    return sides_lines(stored, threshold_of(stored))
