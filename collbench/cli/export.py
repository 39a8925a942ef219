"""``collbench export``: a stored run in another tool's format."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run
from collbench.errors import ExitCode, UsageError, nearest
from collbench.store import find_run, results_root

if TYPE_CHECKING:
    from collbench.interop.tuner_choices import Choices
    from collbench.interop.tuner_lines import Checked
    from collbench.store import StoredRun


class _Formats(click.Group):
    """Says which format is nearest to an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            raise click.UsageError(
                f"unknown format '{args[0]}'{nearest(args[0], self.commands) or ';'}"
                f" allowed: {', '.join(self.commands)}",
                ctx,
            )
        return super().resolve_command(ctx, args)


@click.group(cls=_Formats, invoke_without_command=True, context_settings=dict(CONTEXT))
@click.pass_context
def export(context: click.Context) -> None:
    """Write a stored run in another tool's format.

    \b
    Examples:
      collbench export csv last -o trials.csv
      collbench export jsonl last -o trials.jsonl
      collbench export parquet last -o trials.parquet
      collbench export nccl-tests last
      collbench export tuner last -o nccl_tuner.conf
      collbench export prometheus -o /var/lib/node_exporter/collbench.prom
    """  # noqa: D301  click's mark for "do not rewrap"
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@export.command(short_help="Best settings for NCCL's example tuner plug-in.")
@click.argument("run", default="last", shell_complete=complete_run)
@click.option("-o", "--output", metavar="FILE", help="Where it goes [stdout].")
@click.option(
    "--format",
    "form",
    type=click.Choice(["plugin", "optimizer"]),
    default="plugin",
    show_default=True,
    help="The plug-in's own file, or the CSV of its helper optimize_config.py.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--check", metavar="FILE", help="Read FILE as the plug-in does; write nothing.")
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def tuner(
    run: str, output: str | None, form: str, force: bool, check: str | None, results: str | None
) -> ExitCode:
    """Write RUN's best settings for NCCL's example tuner plug-in (NCCL_TUNER_CONFIG_FILE).

    Settings that are faster than NCCL's own choice beyond noise, elsewhere that choice as it ran.
    With --check the exit status is 1 where FILE makes the plug-in choose something else.
    """
    from collbench.cli.export_files import put
    from collbench.cli.readers import refuse_unreadable
    from collbench.interop.tuner_choices import choices_of
    from collbench.report.best import best_lines

    if check is not None and (output is not None or form != "plugin"):
        raise UsageError("--check reads the plug-in's file and writes none; leave out -o, --format")
    from collbench.store import read_run

    stored = read_run(find_run(run, results_root(results, os.environ)))
    for problem in stored.problems:
        click.echo(f"collbench: {problem}", err=True)
    refuse_unreadable(stored.run, "export")
    choices = choices_of(stored.run, stored.trials)
    if choices.table.needs_repeats:
        click.echo(best_lines(choices.table, stored.run.argv)[0], err=True)
        return ExitCode.INCOMPLETE
    if check is not None:
        return _check(choices, check)
    put(_text(stored, choices, form), output, force=force)
    _say_what_it_holds(choices)
    return ExitCode.FINE


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what every command has that writes RUN into a file."""
    for decorate in (
        click.option(
            "--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results]."
        ),
        click.option("--force", is_flag=True, help="Replace FILE if it exists."),
        click.option("-o", "--output", metavar="FILE", help="Where it goes [stdout]."),
        click.argument("run", default="last", shell_complete=complete_run),
    ):
        command = decorate(command)
    return command


@export.command(short_help="Every trial a line of CSV.", context_settings=dict(CONTEXT))
@_options
def csv(run: str, output: str | None, force: bool, results: str | None) -> None:
    """Write RUN's trials as CSV: a line of names, then a line a trial, as they were measured.

    Of a run of any command. What is missing is empty.
    """
    from collbench.cli.export_files import put, read_told
    from collbench.interop.table_files import csv_text, trial_table

    put(csv_text(trial_table(read_told(run, results))), output, force=force)


@export.command(short_help="Every trial a JSON object, one a line.", context_settings=dict(CONTEXT))
@_options
def jsonl(run: str, output: str | None, force: bool, results: str | None) -> None:
    """Write RUN's trials as JSON lines: an object a trial, as they were measured.

    Of a run of any command. What is missing is null.
    """
    from collbench.cli.export_files import put, read_told
    from collbench.interop.table_files import jsonl_text, trial_table

    put(jsonl_text(trial_table(read_told(run, results))), output, force=force)


@export.command(short_help="Every trial a row of a Parquet file.", context_settings=dict(CONTEXT))
@_options
def parquet(run: str, output: str | None, force: bool, results: str | None) -> None:
    """Write RUN's trials as Parquet into the file that -o names; types are kept.

    Of a run of any command. It needs pyarrow, which the extra `parquet` brings.
    """
    from collbench.cli.export_files import put, read_told
    from collbench.interop.table_files import parquet_bytes, trial_table

    if output is None:
        raise UsageError("Parquet is no text for stdout; give a file with -o")
    put(parquet_bytes(trial_table(read_told(run, results))), output, force=force)


@export.command(
    "nccl-tests", short_help="Tables as nccl-tests prints them.", context_settings=dict(CONTEXT)
)
@_options
def nccl_tests(run: str, output: str | None, force: bool, results: str | None) -> None:
    """Write RUN as nccl-tests prints results, for scripts that read such tables.

    A table for each collective, type, operator, root, mode and setting. Times are the slowest
    rank's, the median over samples and repeats. N/A: that placement was not measured.
    """
    from collbench.cli.export_files import put, read_told
    from collbench.cli.readers import refuse_unreadable
    from collbench.interop.nccl_tests_text import nccl_tests_text
    from collbench.report.pairwise_about import mark_words

    stored = read_told(run, results)
    refuse_unreadable(stored.run, "export")
    put(nccl_tests_text(stored, mark_words(stored.run)), output, force=force)


@export.command(
    short_help="Verdicts and rates for node_exporter's textfile collector.",
    context_settings=dict(CONTEXT),
)
@click.argument("runs", metavar="[RUN...]", nargs=-1, shell_complete=complete_run)
@click.option("-o", "--output", metavar="FILE", help="Where it goes [stdout].")
@click.option(
    "--force", is_flag=True, help="Replace any FILE; take runs that measured no hardware."
)
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def prometheus(runs: tuple[str, ...], output: str | None, force: bool, results: str | None) -> None:
    """Write verdicts on nodes and bus bandwidth in Prometheus' text format.

    Without RUN: of the newest run of each command that has ended. An earlier export is replaced.
    Simulated, emulated and planted runs are left out, and refused by name.
    """
    from collbench.cli.export_files import put
    from collbench.cli.export_prometheus import readings_of
    from collbench.interop.prometheus import HEAD, metrics_text

    readings = readings_of(runs, results_root(results, os.environ), force=force)
    put(metrics_text(readings), output, force=force, earlier=HEAD)


def _text(stored: StoredRun, choices: Choices, form: str) -> str:
    from collbench.interop.tuner import optimizer_text, plugin_text
    from collbench.interop.tuner_lines import about, optimizer_rows, tuner_rows

    if form == "optimizer":
        return optimizer_text(optimizer_rows(choices))
    return plugin_text(tuner_rows(choices), about(stored.run, choices))


def _say_what_it_holds(choices: Choices) -> None:
    """Says beside the file, whose reader may be a program, what it is worth."""
    from collbench.analyze.best_table import conclusion
    from collbench.report.closing import wrapped

    text = conclusion(choices.table)
    lines = wrapped(f"{text[:1].upper()}{text[1:]}.", "", "  ")
    lines += [part for line in choices.left_out for part in wrapped(line, "  ", "    ")]
    click.echo("\n".join(lines), err=True)


def _check(choices: Choices, name: str) -> ExitCode:
    from collbench.interop.tuner import read_tuner
    from collbench.interop.tuner_lines import check_rows

    try:
        text = Path(name).read_text(errors="replace")
    except OSError as problem:
        raise UsageError(f"cannot read '{name}': {problem.strerror}") from None
    rows = read_tuner(text)
    for row in rows:
        for words in row.misread:
            click.echo(f"line {row.line}: {words}")
    checked = check_rows(choices, rows)
    click.echo("\n".join(_checked_lines(checked)))
    wrong = sum(not one.as_meant for one in checked)
    if wrong:
        click.echo(
            f"The file makes the plug-in choose something else at {wrong} of {len(checked)} sizes."
        )
        return ExitCode.CONFIRMED_BAD
    click.echo(f"All {len(checked)} sizes are as meant.")
    return ExitCode.FINE


def _checked_lines(checked: tuple[Checked, ...]) -> list[str]:
    """Returns a line for each size: what the plug-in would choose, and whether that was meant."""
    from collbench.report.text_table import new_table, table_text
    from collbench.units import format_size

    table = new_table()
    for head in ("", "size", "line", "the plug-in chooses", "", "meant"):
        table.add_column(head, justify="right" if head in ("size", "line") else "left")
    for one in checked:
        size = format_size(one.meant.size_bytes)
        algorithm, protocol, channels = one.meant.ran
        table.add_row(
            one.meant.name,
            f"> {size}" if one.larger else size,
            str(one.row.line) if one.row else "-",
            _chooses(one),
            "as meant" if one.as_meant else "NOT MEANT",
            "" if one.as_meant else f"{algorithm}/{protocol} {channels} ch",
        )
    return table_text(table).splitlines()


def _chooses(one: Checked) -> str:
    row = one.row
    if row is None:
        return "no line: NCCL's own, 1 ch"
    channels = {0: "NCCL's own number of ch", -1: "1 ch"}.get(row.channels, f"{row.channels} ch")
    return f"{row.algorithm}/{row.protocol} {channels}"
