"""``collbench runs``: the stored runs."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from collbench.store import list_runs, results_root
from collbench.store.paths import RunSummary

_ENDS = {
    0: "fine",
    1: "answer is no",
    2: "usage",
    3: "nothing measured",
    4: "incomplete",
    70: "collbench error",
    130: "interrupted",
    143: "terminated",
}


@click.command()
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on stdout.")
def runs(results: str | None, as_json: bool) -> None:
    """List the stored runs, the newest first."""
    root = results_root(results, os.environ)
    found = list_runs(root)
    if as_json:
        rows = [
            {"folder": str(folder), **(msgspec.to_builtins(run) if run else {})}
            for folder, run in found
        ]
        click.echo(msgspec.json.encode(rows))
        return
    if not found:
        click.echo(f"no runs in '{root}'; 'collbench sweep' makes one")
        return
    click.echo(f"{'run':<20} {'command':<8} {'cluster':<16} {'started (UTC)':<17} {'on':<18} end")
    for folder, run in found:
        click.echo(_line(folder, run))


def _line(folder: Path, run: RunSummary | None) -> str:
    if run is None:
        return f"{folder.name:<20} run.json cannot be read"
    on = f"{run.world_size} ranks {run.backend}"
    marks = " simulated" if run.simulated else ""
    marks += f" planted {run.planted}" if run.planted else ""
    end = "not ended" if run.exit_code is None else _ENDS.get(run.exit_code, str(run.exit_code))
    when = run.started_at[:16].replace("T", " ")
    return f"{run.run_id:<20} {run.command:<8} {run.cluster:<16} {when:<17} {on:<18} {end}{marks}"
