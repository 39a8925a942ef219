"""``collbench baseline``: keep what a good run reached, for later runs to be held against."""

from __future__ import annotations

import os
import re
import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from collbench.cli.context import CONTEXT
from collbench.cli.run_names import complete_run

if TYPE_CHECKING:  # they bring numpy and scipy, and --help does without
    from collbench.analyze.baseline import Baseline, HardwareClass
    from collbench.store import StoredRun


@click.command(context_settings=dict(CONTEXT))
@click.argument(
    "runs", nargs=-1, required=True, metavar="RUN [RUN...]", shell_complete=complete_run
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where it goes [named by the hardware, as baseline-2xH200.json].",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def baseline(runs: tuple[str, ...], output: str | None, force: bool, results: str | None) -> None:
    """Write what RUN reached into a file, for `--baseline FILE` to hold later runs against.

    RUN is a folder, an id, a unique beginning of one, or `last`. Several runs of one class of
    hardware add their repeats; make it of 5 repeats or more, 3 at the least. Of runs of `pairwise`
    it keeps what good pairs reach, for `pairwise --baseline FILE`.

    \b
    Examples:
      collbench sweep --repeats 5 && collbench baseline last
      collbench sweep --repeats 5 --baseline baseline-2xH200.json
      collbench baseline last && collbench pairwise --baseline baseline-8xH200-pairs.json
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.analyze.baseline import baseline_bytes
    from collbench.analyze.pair_levels import baseline_of
    from collbench.cli.export_files import put
    from collbench.cli.readers import refuse_unreadable
    from collbench.store import find_run, read_run, results_root

    root = results_root(results, os.environ)
    stored = [read_run(find_run(name, root)) for name in runs]
    for one in stored:
        for problem in one.problems:
            click.echo(f"collbench: {one.run.run_id}: {problem}", err=True)
        refuse_unreadable(one.run, "baseline")
    made = baseline_of(stored)
    name = output or (name_of_pairs(made) if made.pairs else name_of_cases(made))
    put(baseline_bytes(made), name, force=force)
    told = _told_pairs(made) if made.pairs else _told(made, stored)
    told.append(f"  {_next_command(name, made, stored)}")
    click.echo("\n".join(told))


def name_of_cases(made: Baseline) -> str:
    """Returns a file's name that says the class: ``baseline-4x8xH200.json``."""
    hardware = made.hardware
    if made.simulated:
        return f"baseline-simulated-{hardware.ranks}-ranks.json"
    nodes = f"{hardware.nodes}x" if hardware.nodes > 1 else ""
    ranks = f"-{hardware.ranks}-ranks" if hardware.gpus_per_node == [0] else ""
    return f"baseline-{nodes}{_node_words(hardware)}{ranks}{'-emulated' * hardware.emulated}.json"


def name_of_pairs(made: Baseline) -> str:
    """Returns a file's name that says the class of a node: ``baseline-8xH200-pairs.json``."""
    node = "simulated" if made.simulated else _node_words(made.hardware)
    return f"baseline-{node}{'-emulated' * made.hardware.emulated}-pairs.json"


def _node_words(hardware: HardwareClass) -> str:
    if hardware.gpus_per_node == [0]:
        return "CPU"
    models = "-".join(model.removeprefix("NVIDIA ") for model in hardware.models)
    models = re.sub(r"[^A-Za-z0-9]+", "-", models).strip("-")
    return f"{'-'.join(map(str, hardware.gpus_per_node))}x{models}"


def _next_command(name: str, made: Baseline, stored: Sequence[StoredRun]) -> str:
    """Returns the command that is held against the file: of a model's runs on that model."""
    from collbench.cli.ab_sides import said_in

    words = ["collbench", "pairwise" if made.pairs else "sweep"]
    if any(level.inside for level in made.pairs):
        words.append("--inside")
    if made.simulated:
        words += ["--simulate", said_in(stored[-1].run.argv, "--simulate") or "FILE"]
    return shlex.join([*words, "--baseline", name])


def _told_pairs(made: Baseline) -> list[str]:
    """Returns what the file of pairs holds."""
    from collbench.report.bars import software_words

    marks = "SIMULATED: " if made.simulated else ""
    lines = [f"{marks}{len(made.pairs)} rates of good pairs, of {', '.join(made.run_ids)}"]
    lines.append(f"  {software_words(made)}")
    for level in made.pairs:
        rail = "" if level.rail is None else f" rail {level.rail}"
        where = " inside nodes" if level.inside else ""
        lines.append(
            f"  {level.collective}{rail}{where}: {level.busbw_gb_per_s:.4g} GB/s"
            f" (median of {level.pairs})"
        )
    return lines


def _told(made: Baseline, stored: Sequence[StoredRun]) -> list[str]:
    """Returns what the file holds, and what is not in it."""
    from collbench.analyze.compare import FEWEST_REPEATS
    from collbench.report.bars import hardware_words, repeats_words, software_words

    marks = "SIMULATED: " if made.simulated else ""
    lines = [
        f"{marks}{len(made.cases)} cases, {repeats_words(made)}, of {', '.join(made.run_ids)}",
        f"  {hardware_words(made.hardware)}",
        f"  {software_words(made)}",
    ]
    scatters = [case.scatter for case in made.cases if case.scatter is not None]
    if scatters:
        lines.append(
            f"  scatter of repeats {min(scatters):.1%} to {max(scatters):.1%},"
            f" half of the cases below {statistics.median(scatters):.1%}"
        )
    left_out = Counter(
        str(trial.status) for one in stored for trial in one.trials if trial.status != "ok"
    )
    if left_out:
        told = ", ".join(f"{count} {status}" for status, count in left_out.most_common())
        lines.append(f"  left out: trials that are not ok: {told}")
    if max(case.repeats for case in made.cases) < FEWEST_REPEATS:
        lines.append(
            f"  fewer than {FEWEST_REPEATS} repeats tell no scatter: no case will be called below;"
            " measure with --repeats 5"
        )
    return lines
