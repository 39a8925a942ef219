"""``collbench baseline``: keep what a good run reached, for later runs to be held against."""

from __future__ import annotations

import os
import re
import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli.context import CONTEXT
from collbench.errors import UsageError

if TYPE_CHECKING:  # they bring numpy and scipy, and --help does without
    from collbench.analyze.baseline import Baseline, HardwareClass
    from collbench.store import StoredRun


@click.command(context_settings=dict(CONTEXT))
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN...]")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where it goes [named by the hardware, as baseline-2xH200.json].",
)
@click.option("--overwrite", is_flag=True, help="Write over a file that is there.")
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
def baseline(
    runs: tuple[str, ...], output: str | None, overwrite: bool, results: str | None
) -> None:
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
    from collbench.analyze.pair_levels import baseline_of
    from collbench.cli.readers import refuse_unreadable
    from collbench.store import find_run, read_run, results_root

    root = results_root(results, os.environ)
    stored = [read_run(find_run(name, root)) for name in runs]
    for one in stored:
        for problem in one.problems:
            click.echo(f"collbench: {one.run.run_id}: {problem}", err=True)
        refuse_unreadable(one.run, "baseline")
    made = baseline_of(stored)
    path = Path(output or (name_of_pairs(made) if made.pairs else name_of_cases(made)))
    _write(path, made, overwrite=overwrite)
    told = _told_pairs(path, made) if made.pairs else _told(path, made, stored)
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


def _write(path: Path, made: Baseline, *, overwrite: bool) -> None:
    from collbench.analyze.baseline import baseline_bytes

    data = baseline_bytes(made)
    try:
        with path.open("wb" if overwrite else "xb") as stream:
            stream.write(data)
    except FileExistsError:
        raise UsageError(f"'{path}' exists; give another name with -o, or --overwrite it") from None
    except OSError as problem:
        raise UsageError(f"'{path}' cannot be written: {problem.strerror}") from None


def _told_pairs(path: Path, made: Baseline) -> list[str]:
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
    inside = " --inside" if any(level.inside for level in made.pairs) else ""
    command = f"  collbench pairwise{inside} --baseline {shlex.quote(str(path))}"
    return [*lines, f"Written to {path}", command]


def _told(path: Path, made: Baseline, stored: Sequence[StoredRun]) -> list[str]:
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
    return [*lines, f"Written to {path}", f"  collbench sweep --baseline {shlex.quote(str(path))}"]
