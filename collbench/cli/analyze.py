"""``collbench analyze``: a stored run's curves as laws, its best settings, what is odd."""

from __future__ import annotations

import os

import click

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run
from collbench.errors import ExitCode, UsageError
from collbench.store import find_run, results_root


@click.command(context_settings=dict(CONTEXT))
@click.argument("run", default="last", shell_complete=complete_run)
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def analyze(run: str, results: str | None, as_json: bool) -> int:
    """Fit the curves of RUN: a folder, an id, a unique beginning of one, or `last`.

    Prints for each curve time = alpha + S / B by spans of sizes and the share of the wire's limit,
    then the best settings where some were swept, and what is odd about the times. Ends with status
    4 where no curve has enough sizes for a law.

    \b
    Examples:
      collbench analyze
      collbench sweep nccl_matrix --repeats 5 && collbench analyze last
      collbench analyze results/2xh200/20261130-0929-1943 --json
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.analyze.best_table import best_of_run
    from collbench.analyze.laws import laws_of
    from collbench.analyze.oddities import oddities
    from collbench.cli.output import limits_of, say
    from collbench.cli.readers import refuse_unreadable
    from collbench.report.analysis import Analysis, analysis_json, analysis_text
    from collbench.store import read_run

    stored = read_run(find_run(run, results_root(results, os.environ)))
    for problem in stored.problems:
        click.echo(f"collbench: {problem}", err=True)
    refuse_unreadable(stored.run, "analyze")
    laws = laws_of(stored.trials, limits_of(stored.run, stored.topology))
    if not laws:
        raise UsageError(
            f"run '{stored.run.run_id}' has no times to fit; 'collbench show' says why"
        )
    found = Analysis(
        run=stored.run,
        topology=stored.topology,
        laws=laws,
        best=best_of_run(stored.trials),
        flags=oddities(stored.trials, stored.over_ranks_us),
        name=run if results is None else str(stored.folder),
    )
    code = ExitCode.FINE if any(law.fit for law in laws) else ExitCode.INCOMPLETE
    say(analysis_json(found, code).decode() if as_json else analysis_text(found))
    return code
