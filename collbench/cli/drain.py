"""``collbench drain``: the lines that take a run's bad nodes out of service; it runs none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run
from collbench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collbench.store import StoredRun


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    reason: str
    line: str


class _Refused(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    why: str


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints; the lines of a run that measured no hardware are comments."""

    run_id: str
    simulated: bool
    drain: list[_Line]
    refused: list[_Refused]


@click.command(context_settings=dict(CONTEXT))
@click.argument("run", default="last", shell_complete=complete_run)
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def drain(run: str, results: str | None, as_json: bool) -> int:
    """Print the Slurm line that drains each node that fails in RUN; nothing is run.

    RUN is a folder, an id, a unique beginning of one, or `last`. Only nodes whose fault was
    confirmed have a line. Lines of a simulated or emulated run are comments.

    \b
    Examples:
      collbench drain
      srun -N 8 --ntasks-per-node=1 collbench pairwise; collbench drain last
      collbench drain 20261130-0635 --json
    """  # noqa: D301  click's mark for "do not rewrap"
    # Here, so that --help and the completion of RUN do not wait for numpy.
    from collbench.cli.output import say
    from collbench.cli.readers import refuse_unreadable
    from collbench.store import find_run, read_run, results_root

    stored = read_run(find_run(run, results_root(results, os.environ)))
    for problem in stored.problems:
        say(f"collbench: {problem}", err=True)
    refuse_unreadable(stored.run, "drain")
    if stored.run.suite.get("inside"):
        raise UsageError(
            f"run {stored.run.run_id} is of GPUs inside nodes (--inside), and Slurm drains nodes;"
            f" 'collbench show {stored.run.run_id}' names the GPUs"
        )
    found = _document(stored)
    if as_json:
        say(msgspec.json.encode(found).decode())
    elif not found.drain and not found.refused:
        say(f"nothing to drain: no node of run {stored.run.run_id} fails for certain")
    else:
        for item in found.drain:
            say(item.line)
        for refused in found.refused:
            say(f"collbench: {refused.why}", err=True)
    return ExitCode.INCOMPLETE if found.refused else ExitCode.FINE


def _document(stored: StoredRun) -> _Document:
    from collbench.analyze.pair_rows import state_of_run
    from collbench.analyze.pairwise import judge
    from collbench.cli.pairwise_output import reference_of
    from collbench.report.drain_line import drain_line_of, failing, reason_text

    state = state_of_run(stored, reference_of(stored))
    lines, refused = [], []
    for verdict in failing(judge(state)):
        name = state.names[verdict.node]
        try:
            line = drain_line_of(state, stored.run, verdict)
        except UsageError as problem:
            refused.append(_Refused(node=name, why=str(problem)))
        else:
            reason = reason_text(stored.run, verdict)
            lines.append(_Line(node=name, reason=reason, line=line))
    return _Document(
        run_id=stored.run.run_id,
        simulated=stored.run.simulated,
        drain=lines,
        refused=refused,
    )
