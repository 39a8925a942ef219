"""What a ``scale`` run will do, before anything is started: leaves, design, cost, header."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.cli.course_prepare import PreparedCourse, place_of
from collbench.cli.earlier import Earlier
from collbench.cli.ground import Ground
from collbench.cli.header import new_header, seed_of
from collbench.cli.nodes_by_leaf import left_out, ranks_by_node, refuse_too_few, with_leaves
from collbench.cli.resume_options import continued_header, refuse_other_ground
from collbench.cli.scale_options import ScaleRequest, refuse_another_question
from collbench.cli.scale_output import leaves_of
from collbench.errors import UsageError
from collbench.launch.leaves import Leaves
from collbench.measure.plant import parse_plant, refuse_missing_rank
from collbench.model import NodeState, Run
from collbench.plan.message_size import PROBE_BYTES, PROBE_BYTES_ELSE, window
from collbench.plan.scale import next_steps
from collbench.plan.scale_cases import MESSAGES
from collbench.plan.scale_course import SMALLER, planned_trials
from collbench.plan.scale_design import Estimate, ScaleDesign, check_design, estimate, pattern_of
from collbench.store import cluster_name, find_run, read_run
from collbench.units import format_duration

_REPEATS = 3
_GROUP_S = 0.3
"""Of forming groups."""


@dataclass(frozen=True, kw_only=True)
class Prepared(PreparedCourse):
    """Everything decided and nothing started."""

    request: ScaleRequest
    design: ScaleDesign
    cost: Estimate


def prepare(request: ScaleRequest, root: Path, ground: Ground, earlier: Earlier | None) -> Prepared:
    """Returns what will run.

    Args:
        request: what is asked.
        root: the folder of all runs.
        ground: the nodes have met.
        earlier: the run that goes on, if one does.

    Raises:
        UsageError: it cannot be, or is another question than that of the run that goes on.
    """
    plant = parse_plant(request.plant) if request.plant else None
    if earlier is not None:
        refuse_other_ground(earlier.stored.run, simulated=request.simulate is not None)
    refuse_missing_rank(plant, ground.slots.world_size)
    ground, leaves = _with_leaves(request, root, ground)
    nodes, ranks = ground.topology.nodes, ranks_by_node(ground.topology)
    members = [n for n in ranks if ranks[n] and nodes[n].state is NodeState.PRESENT]
    refuse_too_few(members, alone=ground.company.alone, dry_run=request.dry_run, command="scale")
    seed = seed_of(ground.suite, earlier)
    by_leaf = leaves_of(ground.topology)
    design = _design(request, ground, by_leaf, members, ranks, seed)
    check_design(design)
    place = place_of(ground, [node.name for node in nodes], ranks, latency=False)
    steps = next_steps(design)
    step_s = _GROUP_S + window(place.backend, MESSAGES).total_s
    cost = estimate(steps, nodes=len(members), step_s=step_s, start_s=4.0)
    run = _header(request, ground, design, leaves, planned_trials(steps, _rails(ranks, members)))
    if earlier is not None:
        refuse_another_question(earlier.stored.run, run)
        run = continued_header(
            earlier.stored.run, max_oversubscription=request.max_oversubscription
        )
    return Prepared(
        request=request,
        ground=ground,
        leaves=leaves,
        design=design,
        place=place,
        cost=cost,
        run=run,
        plant=plant,
        earlier=earlier,
    )


def _rails(ranks: dict[int, list[int]], members: Sequence[int]) -> int:
    return min(len(ranks[number]) for number in members)


def _with_leaves(request: ScaleRequest, root: Path, ground: Ground) -> tuple[Ground, Leaves | None]:
    """Returns the ground with every node's leaf, from a run of pairwise if one is given."""
    if request.from_pairwise is None:
        return with_leaves(ground, request.topology)
    stored = read_run(find_run(request.from_pairwise, root))
    if stored.run.command != "pairwise":
        raise UsageError(
            f"--from-pairwise {request.from_pairwise} is a run of '{stored.run.command}'; give one"
            " of 'pairwise'"
        )
    leaf_of = {node.name: node.leaf for node in stored.topology.nodes if node.leaf is not None}
    here = [n.name for n in ground.topology.nodes if n.state is NodeState.PRESENT]
    unknown = [name for name in here if name not in leaf_of]
    if unknown:
        raise UsageError(
            f"--from-pairwise {request.from_pairwise} does not know the leaf of {unknown[0]}"
            f"{f' and {len(unknown) - 1} more' if len(unknown) > 1 else ''}; give --topology FILE"
        )
    topology = ground.topology.with_leaves(leaf_of)
    source = f"run {stored.run.run_id} of pairwise"
    return ground.with_topology(topology), Leaves(source=source, leaf_of=leaf_of)


def _design(
    request: ScaleRequest,
    ground: Ground,
    by_leaf: tuple[tuple[int, ...], ...] | None,
    members: Sequence[int],
    ranks: dict[int, list[int]],
    seed: int,
) -> ScaleDesign:
    size = request.size_bytes or PROBE_BYTES.get(ground.slots.backend, PROBE_BYTES_ELSE)
    design = ScaleDesign(
        leaves=by_leaf or (),
        nodes=() if by_leaf else tuple(members),
        repeats=request.repeats or _REPEATS,
        size_bytes=size,
        small_bytes=max(1, size // SMALLER),
        step=request.step,
        one_node=_rails(ranks, members) > 1,
        seed=seed,
    )
    if request.patterns is not None:
        patterns = tuple(pattern_of(word) for word in request.patterns)
        design = msgspec.structs.replace(design, patterns=patterns)
    if request.redraws is not None:
        design = msgspec.structs.replace(design, redraws=request.redraws)
    return design


def _header(
    request: ScaleRequest,
    ground: Ground,
    design: ScaleDesign,
    leaves: Leaves | None,
    planned: int,
) -> Run:
    names = [ground.topology.nodes[number].name for number in design.all_nodes]
    return new_header(
        ground,
        command="scale",
        cluster=cluster_name(request.cluster, os.environ),
        source="scale",
        also={
            "members": names,
            "leaf_of": None
            if leaves is None
            else {name: leaves.leaf_of.get(name) for name in names},
            "patterns": [str(pattern) for pattern in design.patterns],
            "step": design.step,
            "redraws": design.redraws,
            "size_bytes": request.size_bytes,
            "leaves_source": leaves.source if leaves is not None and leaves.leaf_of else None,
            "left_out": left_out(ground),
            "max_oversubscription": request.max_oversubscription,
        },
        repeats=design.repeats,
        seed=design.seed,
        planned_trials=planned,
        planted=request.plant,
    )


def refuse_long(prepared: Prepared) -> None:
    """Makes sure that a plan that takes long is meant; a model takes no node's time.

    Raises:
        UsageError: it is above 30 minutes and ``--yes`` is not given.
    """
    if prepared.cost.asks and not prepared.request.yes and prepared.ground.simulation is None:
        raise UsageError(
            f"this takes about {format_duration(prepared.cost.seconds)}"
            f" ({prepared.cost.node_hours:.1f} node-hours); say --yes, or ask for less: fewer"
            " --patterns, --repeats, --redraws, a larger --step"
        )
