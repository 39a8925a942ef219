"""``collbench compare``: stored runs against each other, or two settings of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run
from collbench.errors import ExitCode, UsageError, nearest

if TYPE_CHECKING:
    from collbench.analyze.compared import Compared, Side
    from collbench.store import StoredRun

_NOT_SET = "default"
"""The words of the setting in which nothing is set."""


@click.command(context_settings=dict(CONTEXT))
@click.argument("base_runs", metavar="BASE", shell_complete=complete_run)
@click.argument("new_runs", metavar="[NEW]", required=False, shell_complete=complete_run)
@click.option("--base", "base_setting", metavar="SETTING", help="A setting of BASE, in its words.")
@click.option("--new", "new_setting", metavar="SETTING", help="A setting of NEW, or of BASE.")
@click.option(
    "--threshold", default="3%", show_default=True, help="A smaller change is of no interest."
)
@click.option("--force", is_flag=True, help="Compare runs of different shape all the same.")
@click.option("--markdown", is_flag=True, help="Markdown on stdout.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option(
    "--fail-on", type=click.Choice(["slower"]), help="Exit status 1 if any case is slower."
)
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def compare(
    base_runs: str,
    new_runs: str | None,
    base_setting: str | None,
    new_setting: str | None,
    threshold: str,
    force: bool,
    markdown: bool,
    as_json: bool,
    fail_on: str | None,
    results: str | None,
) -> int:
    """Say which cases of NEW are slower or faster than BASE, surely, and where the change sits.

    BASE and NEW are each a run (folder, id, a unique beginning of one, `last`) or a folder of
    runs, whose repeats count together. Without NEW two settings of BASE are compared. It takes 3
    repeats of each side, better 5: `sweep --repeats 5`.

    \b
    Examples:
      collbench compare 20261130-0635 last
      collbench compare results/before results/after --fail-on slower
      collbench compare last --base default --new Tree/Simple
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help does not wait for numpy.
    from collbench.analyze.compared import compare_sides
    from collbench.cli.ab_sides import read_threshold
    from collbench.cli.output import say
    from collbench.report.comparison import comparison_markdown, comparison_text
    from collbench.report.comparison_json import comparison_json
    from collbench.store import results_root

    if markdown and as_json:
        raise UsageError("--markdown and --json were both given; give one of them")
    root = results_root(results, os.environ)
    base = _side(base_runs, root)
    if new_runs is None:
        sides = _two_settings(base, base_setting, new_setting)
    else:
        new = _side(new_runs, root)
        _refuse_the_same(base, new)
        sides = _under(base, base_setting, "--base"), _under(new, new_setting, "--new")
    found = compare_sides(*sides, threshold=read_threshold(threshold), force=force)
    status = _exit_status(found, fail_on_slower=fail_on is not None)
    if as_json:
        say(comparison_json(found, status).decode())
    else:
        say((comparison_markdown if markdown else comparison_text)(found))
    return status


def _side(name: str, root: Path) -> Side:
    """Returns the run that a person names, or all runs in a folder."""
    from collbench.analyze.compared import Side
    from collbench.store import find_run, runs_inside

    inside = runs_inside(Path(name))
    folders = inside or [find_run(name, root)]
    runs = tuple(_read(folder) for folder in folders)
    words = f"{len(runs)} runs in {name}" if len(runs) > 1 else f"run {runs[0].run.run_id}"
    return Side(name=words, runs=runs)


def _read(folder: Path) -> StoredRun:
    from collbench.cli.readers import refuse_unreadable
    from collbench.store import read_run

    stored = read_run(folder)
    for problem in stored.problems:
        click.echo(f"collbench: {stored.run.run_id}: {problem}", err=True)
    refuse_unreadable(stored.run, "compare")
    return stored


def _refuse_the_same(base: Side, new: Side) -> None:
    ids = {stored.run.run_id for stored in base.runs}
    both = [stored.run.run_id for stored in new.runs if stored.run.run_id in ids]
    if both:
        raise UsageError(
            f"run {both[0]} is on both sides; give two runs, or leave NEW out to compare settings"
        )


def _under(side: Side, setting: str | None, option: str) -> Side:
    """Returns a side, or one setting of it."""
    if setting is None:
        return side
    known = side.settings
    if setting not in known:
        near = nearest(setting, known) or ";"
        raise UsageError(
            f"{option} '{setting}' is no setting of {side.name}{near} allowed: {_listed(known)}"
        )
    return side.under(setting)


def _two_settings(side: Side, base: str | None, new: str | None) -> tuple[Side, Side]:
    """Returns two settings of one side: those named, or the only two there are."""
    known = side.settings
    if len(known) < 2:
        ends = side.settings_without_times.items()
        also = "; ".join(f"no case of {text} is ok: {end}" for text, end in ends)
        raise UsageError(
            f"{side.name} has {len(known)} setting{'s' * (len(known) != 1)}"
            f"{f' ({also})' if also else ''};"
            " give a second run as NEW, or measure several settings (sweep --algo, --env)"
        )
    if base is None:
        others = [text for text in known if text != new]
        # What is not set comes first.
        base = others[0] if others[0] == _NOT_SET or len(known) == 2 else None
    if new is None and len(known) == 2:
        new = next((text for text in known if text != base), None)
    if base is None or new is None:
        raise UsageError(
            f"{side.name} has {len(known)} settings; name two with --base and --new, of:"
            f" {_listed(known)}"
        )
    if base == new:
        raise UsageError(f"--base and --new are both '{base}'; allowed: {_listed(known)}")
    return _under(side, base, "--base"), _under(side, new, "--new")


def _listed(settings: list[str]) -> str:
    return ", ".join(f"'{text}'" for text in settings)


def _exit_status(found: Compared, *, fail_on_slower: bool) -> int:
    from collbench.analyze.compare import Verdict

    if fail_on_slower and found.comparison.of(Verdict.SLOWER):
        return ExitCode.CONFIRMED_BAD
    return ExitCode.FINE if found.comparison.told else ExitCode.INCOMPLETE
