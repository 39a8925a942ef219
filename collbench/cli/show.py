"""``collbench show``: a stored run's tables and conclusions."""

from __future__ import annotations

import os

import click

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run


@click.command(context_settings=dict(CONTEXT))
@click.argument("run", default="last", shell_complete=complete_run)
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="The JSON of the command that made it.")
def show(run: str, results: str | None, as_json: bool) -> None:
    """Print RUN again: a folder, an id, a unique beginning of one, or `last`.

    A run of any command; of one that goes on or was killed what it kept until now.

    \b
    Examples:
      collbench show
      collbench show 20261130-0635
      collbench show results/2xh200/20261130-0635-3947 --json
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help and the completion of RUN do not wait for numpy.
    from collbench.cli.output import say
    from collbench.cli.readers import refuse_unreadable, shown
    from collbench.cli.runs import kept_words
    from collbench.store import find_run, read_run, results_root

    stored = read_run(find_run(run, results_root(results, os.environ)))
    for problem in stored.problems:
        say(f"collbench: {problem}", err=True)
    refuse_unreadable(stored.run, "show")
    found = shown(stored)
    if as_json:
        say(found.document())
        return
    say(found.text())
    if stored.run.exit_code is None:
        kept = kept_words(len(stored.trials), stored.run.planned_trials)
        say(f"{kept} trials: the run goes on, or ended without a chance to say so")
