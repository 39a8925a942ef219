"""What commands say of a ``scale`` run, live or stored."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analyze.scale_rows import breaking_nodes, observations_of
from collbench.analyze.scale_types import Observation, ScalePattern
from collbench.analyze.scale_verdict import ScaleVerdict, judge_scale
from collbench.cli.course_output import duration_s, what_did_not_fit, who_came
from collbench.model import Topology
from collbench.report.scale_about import ScaleAbout
from collbench.store import StoredRun
from collbench.units import format_size


def judged(stored: StoredRun) -> tuple[ScaleVerdict, list[Observation], ScaleAbout]:
    """Returns all that reports of a run need."""
    observations = observations_of(stored.topology, stored.trials)
    leaves = leaves_of(stored.topology)
    verdict = judge_scale(observations, leaves)
    return verdict, observations, about_of(stored, observations, leaves)


def leaves_of(topology: Topology) -> tuple[tuple[int, ...], ...] | None:
    """Returns node numbers by leaf, of nodes with ranks; None where a leaf is unknown."""
    holders = {place.node for place in topology.ranks}
    found: dict[str, list[int]] = {}
    for number, node in enumerate(topology.nodes):
        if node.name not in holders:
            continue
        if node.leaf is None:
            return None
        found.setdefault(node.leaf, []).append(number)
    return tuple(tuple(members) for members in found.values()) or None


def about_of(
    stored: StoredRun,
    observations: Sequence[Observation],
    leaves: tuple[tuple[int, ...], ...] | None,
) -> ScaleAbout:
    """Returns what a report says of a run beside its verdict."""
    run, came = stored.run, who_came(stored)
    source = run.suite.get("leaves_source")
    ran = {one.step.pattern for one in observations}
    patterns = [str(pattern) for pattern in ScalePattern if pattern in ran]
    sizes = [one.step.size_bytes for one in observations]
    steps = len({one.step for one in observations})
    breaking = {
        name: f"{count} rounds with it broke off, so it was left out of the others"
        for name, count in breaking_nodes(stored.trials).items()
    }
    return ScaleAbout(
        run=run,
        topology=stored.topology,
        **{**came, "lost": {**breaking, **came["lost"]}},
        leaves=leaves,
        leaves_source=source if isinstance(source, str) else None,
        ran=f"{', '.join(patterns)} {format_size(max(sizes))}" if sizes else "nothing",
        steps=f"{steps} steps in {run.repeats} repeat{'s' * (run.repeats > 1)}",
        duration_s=duration_s(stored.trials),
        next_commands=(
            *what_did_not_fit(stored.trials),
            *(f"collbench pairwise --qualify {name}" for name in breaking),
        ),
    )
