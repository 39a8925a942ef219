"""``collbench import``: results of other tools as stored runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli.context import CONTEXT
from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.interop.nccl_tests_read_runs import MadeRun
    from collbench.model import Finding

_MOST_ODD = 10


@click.group(context_settings=dict(CONTEXT), invoke_without_command=True)
@click.pass_context
def import_results(context: click.Context) -> None:
    """Take results of another tool in as runs, to be shown, drawn and compared.

    \b
    Examples:
      collbench import nccl-tests all_reduce.txt
      collbench import nccl-tests before-*.txt --cluster before
    """  # noqa: D301  click's mark for "do not rewrap"
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@import_results.command(name="nccl-tests", short_help="What nccl-tests or rccl-tests printed.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--collective", metavar="NAME", help="What a table measured that does not name its program."
)
@click.option(
    "--cluster", metavar="NAME", help="The folder that runs are kept under [Slurm's, else host's]."
)
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def nccl_tests(
    files: Sequence[str], collective: str | None, cluster: str | None, results: str | None
) -> None:
    """Store FILEs as runs: text tables of nccl-tests 2.0 to 2.19 or rccl-tests, or JSON (-J).

    Files of one NCCL version, mode, ranks and device become the repeats of one run. What cannot be
    taken as it stands is said on stderr.

    \b
    Examples:
      collbench import nccl-tests before-*.txt --cluster before
      collbench import nccl-tests after-*.txt --cluster after
      collbench compare results/before results/after
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help does not wait for numpy.
    from collbench.cli.output import say
    from collbench.collectives import collective_named
    from collbench.interop.nccl_tests_read_file import read_file
    from collbench.interop.nccl_tests_read_runs import make_runs
    from collbench.store import check_writable, cluster_name, results_root
    from collbench.units import utc_text

    try:
        asked = None if collective is None else collective_named(collective).name
    except UsageError as problem:
        raise UsageError(f"--collective: {problem}") from None
    twice = next((name for name in files if files.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"'{twice}' is given twice; a file is one repeat: give each once")
    root = results_root(results, os.environ)
    made = make_runs(
        [read_file(Path(name)) for name in files],
        collective=asked,
        cluster=cluster_name(cluster, os.environ),
        argv=["import", "nccl-tests", *files, *([] if asked is None else ["--collective", asked])],
        now=utc_text(time.time()),
    )
    check_writable(root)
    for line in made.odd[:_MOST_ODD]:
        say(f"collbench: {line}", err=True)
    if len(made.odd) > _MOST_ODD:
        say(f"collbench: {len(made.odd) - _MOST_ODD} more such lines", err=True)
    for one in made.runs:
        folder = _store(one, root)
        say(_told(one, folder))


def _store(made: MadeRun, root: Path) -> Path:
    """Writes a run and returns its folder.

    Raises:
        StoreError: it cannot be written.
    """
    import msgspec

    from collbench.session import exit_code_of
    from collbench.store import RunWriter
    from collbench.units import utc_text

    # All is known before the first trial is written, so the header is final from the start.
    run = msgspec.structs.replace(
        made.run,
        ended_at=utc_text(time.time()),
        exit_code=int(exit_code_of(made.trials)),
        findings=_findings(made),
    )
    writer = RunWriter.create(root, run, made.topology)
    try:
        for one in made.readings:
            writer.append(one.trial, one.calls_us, "cuda_event")
        writer.sync()
    finally:
        writer.close()
    return writer.folder


def _findings(made: MadeRun) -> list[Finding]:
    """Returns what stands out, as in a sweep, and what nccl-tests' figures are."""
    import msgspec

    from collbench.analyze.findings import sweep_findings
    from collbench.interop.nccl_tests_read_runs import note_findings

    calls = {one.trial.trial_id: one.calls_us for one in made.readings}
    plain = [msgspec.structs.replace(trial, notes=[]) for trial in made.trials]
    found = sweep_findings(made.run, plain, lambda trial: calls[trial.trial_id])
    return [*found, *note_findings(made.trials)]


def _told(made: MadeRun, folder: Path) -> str:
    """Returns the lines that say what became of which files."""
    repeats, trials = made.run.repeats, len(made.readings)
    files = made.files
    names = files[0] if len(files) == 1 else f"{len(files)} files, {files[0]} to {files[-1]}"
    first = (
        f"run {folder.name}: {repeats} repeat{'s' * (repeats != 1)}, {trials} trials, {made.words}"
    )
    next_command = f"  collbench show {folder.name}"
    return "\n".join([first, f"  of {names}", f"  kept in {folder}", next_command])
