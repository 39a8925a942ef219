"""What a ``pairwise`` run will do, before anything is started: nodes, schedule, bars, header."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.analyze.baseline import class_of
from collbench.analyze.pair_inside import per_rank
from collbench.analyze.pair_reference import (
    bar_of_baseline,
    bar_of_limit,
    bar_of_rates,
    questions_of,
)
from collbench.analyze.pair_state import Reference
from collbench.cli.bar_options import BAR_OPTIONS, find_baseline, read_bars
from collbench.cli.course_prepare import PreparedCourse, place_of
from collbench.cli.earlier import Earlier
from collbench.cli.ground import Ground
from collbench.cli.header import new_header, seed_of
from collbench.cli.nodes_by_leaf import (
    left_out,
    ranks_by_node,
    refuse_too_few,
    shares_gpus,
    with_leaves,
)
from collbench.cli.pairwise_options import PairwiseRequest, refuse_another_question
from collbench.cli.pairwise_output import reference_as_dict, reference_of, who_started
from collbench.cli.qualify import chosen_members
from collbench.cli.request import read_values
from collbench.cli.resume_options import continued_header, refuse_other_ground
from collbench.errors import UsageError
from collbench.launch.leaves import Leaves
from collbench.measure.plant import parse_plant, refuse_missing_rank
from collbench.model import Run
from collbench.plan.pair_cases import PairPlace
from collbench.plan.pairwise import Schedule, inside_rounds, pair_rounds
from collbench.store import cluster_name

_FEW_AT_ONCE = 64
"""Pairs at a time for so many nodes, above 64 where leaves are not known."""
_TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class Prepared(PreparedCourse):
    """Everything decided and nothing started."""

    request: PairwiseRequest
    members: Sequence[int]
    """Numbers of the nodes that take part."""
    schedule: Schedule
    reference: Reference | None


def prepare(
    request: PairwiseRequest,
    given: dict[str, Any],
    root: Path,
    ground: Ground,
    earlier: Earlier | None,
) -> Prepared:
    """Returns what will run.

    Args:
        request: what is asked.
        given: parameters as click gives them, for the bars.
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
    ground, leaves = with_leaves(ground, request.topology)
    units = per_rank(ground.topology) if request.inside else ground.topology
    nodes, ranks = units.nodes, ranks_by_node(units)
    able = [number for number in ranks if ranks[number]]
    members = chosen_members(request.qualify, request.against, nodes, able)
    refuse_too_few(members, alone=ground.company.alone, dry_run=request.dry_run, command="pairwise")
    seed = seed_of(ground.suite, earlier)
    schedule = _schedule(request, [nodes[number].leaf for number in members], seed)
    reference = _reference(request, given, root, ground, max(len(ranks[n]) for n in members))
    if reference is None and earlier is not None:
        reference = reference_of(earlier.stored)
    pair_place = place_of(
        ground,
        [node.name for node in nodes],
        ranks,
        latency=_wants_latency(request, ground),
        inside=request.inside,
    )
    names = [nodes[number].name for number in members]
    run = _header(request, ground, schedule, pair_place, names, members, seed, reference, leaves)
    if earlier is not None:
        refuse_another_question(earlier.stored.run, run)
        run = continued_header(earlier.stored.run, reference=run.suite["reference"])
    return Prepared(
        request=request,
        ground=ground,
        leaves=leaves,
        members=members,
        schedule=schedule,
        place=pair_place,
        reference=reference,
        run=run,
        plant=plant,
        earlier=earlier,
    )


def _schedule(request: PairwiseRequest, leaves: Sequence[str | None], seed: int) -> Schedule:
    """Returns the rounds of all members, by their leaves."""
    known = [leaf for leaf in leaves if leaf is not None]
    if request.inside:
        return inside_rounds(known, serial=request.serial, seed=seed)
    return pair_rounds(
        len(leaves),
        known if len(known) == len(leaves) else None,
        rounds=request.rounds,
        at_once=None if known or len(leaves) <= 64 else max(2, len(leaves) // _FEW_AT_ONCE),
        serial=request.serial or request.qualify is not None,
        seed=seed,
    )


def _wants_latency(request: PairwiseRequest, ground: Ground) -> bool:
    """Where ranks share a GPU they take turns; inside a node nothing is lost."""
    if request.latency is not None:
        return request.latency
    return not request.inside and not shares_gpus(ground)


def _reference(
    request: PairwiseRequest, given: dict[str, Any], root: Path, ground: Ground, ranks: int
) -> Reference | None:
    """Returns the absolute bar that is asked for; the last one named of several is not silent."""
    values = read_values(BAR_OPTIONS, given)
    baseline, tolerance = values.get("baseline"), values.get("tolerance", _TOLERANCE)
    without = {"baseline": None, "tolerance": None} if baseline is not None else {}
    bars = read_bars({**given, **without})
    kinds = [baseline is not None]
    if bars is not None:
        kinds += [bool(bars.min_busbw_gb_per_s or bars.min_busbw_of), bars.min_of_limit is not None]
    if sum(kinds) > 1:
        raise UsageError("--baseline, --min-busbw and --min-of-limit are three bars; give one")
    asked = questions_of(ranks)
    if baseline is not None:
        emulated = bool(ground.slots.fake_hosts)
        return bar_of_baseline(
            asked,
            find_baseline(baseline, root),
            baseline,
            tolerance,
            class_of(ground.topology, backend=ground.slots.backend, emulated=emulated),
            simulated=request.simulate is not None,
            inside=request.inside,
        )
    if bars is None:
        return None
    if bars.min_of_limit is not None and request.inside:
        raise UsageError(
            "--min-of-limit is of the NICs, and --inside goes over none; say the bar in GB/s with"
            " --min-busbw"
        )
    if bars.min_of_limit is not None:
        return bar_of_limit(asked, ground.topology, bars.min_of_limit)
    return bar_of_rates(asked, bars.min_busbw_gb_per_s, bars.min_busbw_of)


def _header(
    request: PairwiseRequest,
    ground: Ground,
    schedule: Schedule,
    place: PairPlace,
    names: Sequence[str],
    members: Sequence[int],
    seed: int,
    reference: Reference | None,
    leaves: Leaves | None,
) -> Run:
    source = leaves.source if leaves is not None and leaves.leaf_of else None
    return new_header(
        ground,
        command="pairwise",
        cluster=cluster_name(request.cluster, os.environ),
        source="pairwise",
        also={
            "members": list(names),
            "inside": request.inside,
            "rounds": request.rounds,
            "serial": request.serial,
            "qualify": request.qualify,
            "size_bytes": request.size_bytes,
            "latency": place.latency,
            "leaves_source": "the nodes themselves" if request.inside else source,
            "left_out": left_out(ground),
            **who_started(os.environ),
            "reference": None if reference is None else reference_as_dict(reference),
        },
        repeats=1,
        seed=seed,
        planned_trials=schedule.tried() * place.trials_a_pair(members),
        planted=request.plant,
    )
