"""``sweep --resume RUN``: what a run asked for, whether this is the same question, what is missing.

A run is one question in one environment: what differs is refused, by name. Node names may differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from collbench.cli.earlier import (
    OF_THIS_CALL,
    Earlier,
    is_given,
    refuse_other_command,
    run_of_before,
    taken_from,
)
from collbench.cli.sweep_table import OPTIONS
from collbench.engine.protocol import Round
from collbench.errors import UsageError
from collbench.model import Environment, Run, Status, Topology, Trial
from collbench.plan.sweep import Refused, SweepPlan
from collbench.store import StoredRun
from collbench.units import utc_text

FINAL = frozenset({Status.OK, Status.DATA_WRONG, Status.UNSUPPORTED, Status.PATH_NOT_USED})
"""What is kept; other trials are run again."""

_QUESTION_ASIDE = frozenset({"name", "description", "source", "seed", "policy"})
"""Of the stored suite: words about it, and what the run's header holds as it came out."""

_SAME_HEADER = (
    "seed",
    "backend",
    "world_size",
    "via",
    "repeats",
    "planned_trials",
    "simulated",
    "emulated",
    "planted",
)
_PLACE_VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES"})
"""They say where, as a node's name does."""

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Rest:
    """What of a plan is still to be done."""

    rounds: tuple[Round, ...]
    refused: tuple[Refused, ...]

    @property
    def case_ids(self) -> list[str]:
        """Of the cases to run, once for each repeat."""
        groups = (group for round_ in self.rounds for group in round_.groups)
        return [case.case_id for group in groups for case in group.cases]

    @property
    def trials(self) -> int:
        """How many are still to be had."""
        return len(self.case_ids) + len(self.refused)


def with_options_of_before(
    context: click.Context, given: dict[str, Any], command: str
) -> tuple[dict[str, Any], str | None]:
    """Returns the parameters, and the command line that they were taken from if it is another's.

    ``--resume RUN`` with nothing that says what to measure takes that from the run's own command
    line; what concerns this call alone (nodes, output) stays as it is given.

    Args:
        context: of the command, with where each parameter came from.
        given: its parameters.
        command: the name that its runs are kept under.

    Raises:
        RunNotFound: no such run.
        UsageError: it is of another command.
    """
    asking = {"suite", *(option.param for option in OPTIONS)} - OF_THIS_CALL
    if given["resume"] is None or any(is_given(context, name) for name in asking):
        return given, None
    run = run_of_before(given)
    refuse_other_command(run, command)
    taken, line = taken_from(context, run, asking)
    return {**given, **taken}, line


def rest_of(plan: SweepPlan, trials: Sequence[Trial]) -> Rest:
    """Returns what of a plan is not final, in the plan's order.

    Args:
        plan: the whole.
        trials: those that are there.
    """
    done = {trial.trial_id for trial in trials if trial.status in FINAL}
    rounds = []
    for round_ in plan.rounds:
        groups = []
        for group in round_.groups:
            cases = tuple(c for c in group.cases if c.trial_id(round_.repeat) not in done)
            if cases:
                groups.append(msgspec.structs.replace(group, cases=cases))
        if groups:
            rounds.append(msgspec.structs.replace(round_, groups=tuple(groups)))
    refused = tuple(item for item in plan.refused if item.case.trial_id(0) not in done)
    return Rest(rounds=tuple(rounds), refused=refused)


def continued(stored: StoredRun, header: Run, plan: SweepPlan, topology: Topology) -> Run:
    """Returns the header of a run that goes on.

    Args:
        stored: the run as it is.
        header: as a new run would have it.
        plan: the whole, made with the run's seed.
        topology: where it goes on.

    Raises:
        UsageError: this is another question, or other hardware; names what differs.
    """
    before = stored.run
    differences = [*_header_differences(before, header), *_suite_differences(before, header)]
    if not differences:
        differences = _case_differences(stored.trials, plan)
    _add_difference(differences, "hardware", _shape(stored.topology), _shape(topology))
    _refuse(before, differences, "give the options of before, or --resume alone")
    return msgspec.structs.replace(
        before,
        resumed_at=[*before.resumed_at, utc_text(time.time())],
        ended_at=None,
        exit_code=None,
        findings=[],
        environment=header.environment,
    )


def settled_environment(stored: StoredRun, present: Environment) -> Environment:
    """Returns the environment of a run that goes on: that in which its trials were measured.

    Args:
        stored: the run as it is.
        present: what is loaded now.

    Raises:
        UsageError: they differ; names in what. What one of them does not know does not count.
    """
    if not any(trial.status in FINAL for trial in stored.trials):
        return present
    before = stored.run.environment
    differences: list[str] = []
    for name, was, is_now in _software(before, present):
        if was is not None and is_now is not None:
            _add_difference(differences, name, was, is_now)
    here = present.variables
    for name in sorted({*before.variables, *here} - _PLACE_VARIABLES):
        was, is_now = before.variables.get(name, "not set"), here.get(name, "not set")
        _add_difference(differences, name, was, is_now)
    _refuse(stored.run, differences, "make them equal, or begin a new run")
    return before


def resuming_lines(earlier: Earlier, rest: Rest) -> list[str]:
    """Returns what is said of a run that goes on: how much of it is there."""
    run = earlier.stored.run
    there = run.planned_trials - rest.trials
    counts = f"{there} of {run.planned_trials} trials are there, {rest.trials} to go"
    lines = [f"resuming {run.run_id}: {counts}"]
    if earlier.argv_of_before is not None:
        lines.append(f"  with the options of before: {earlier.argv_of_before}")
    return lines


def _header_differences(before: Run, now: Run) -> list[str]:
    found: list[str] = []
    for name in _SAME_HEADER:
        _add_difference(found, name, getattr(before, name), getattr(now, name))
    for name in before.policy.__struct_fields__:
        _add_difference(found, name, getattr(before.policy, name), getattr(now.policy, name))
    return found


def _suite_differences(before: Run, now: Run) -> list[str]:
    """A key that only one of them has came with another version, which is refused by itself."""
    found: list[str] = []
    for name in before.suite.keys() & now.suite.keys() - _QUESTION_ASIDE:
        _add_difference(found, name, before.suite[name], now.suite[name])
    return sorted(found)


def _case_differences(trials: Sequence[Trial], plan: SweepPlan) -> list[str]:
    planned = {item.case.trial_id(0) for item in plan.refused} | {
        case.trial_id(round_.repeat)
        for round_ in plan.rounds
        for group in round_.groups
        for case in group.cases
    }
    foreign = [trial.trial_id for trial in trials if trial.trial_id not in planned]
    if not foreign:
        return []
    return [f"{len(foreign)} of its trials are not in the plan, first {foreign[0]}"]


def _software(before: Environment, now: Environment) -> Iterator[tuple[str, object, object]]:
    for name in ("collbench", "torch", "cuda", "driver", "config_files"):
        yield name, getattr(before, name), getattr(now, name)
    yield "NCCL", before.nccl and before.nccl.version, now.nccl and now.nccl.version


def _shape(topology: Topology) -> str:
    """Returns what the nodes that measure are: GPU model, GPUs, NICs; never a host name."""
    in_use: dict[str, set[int | None]] = {}
    for place in topology.ranks:
        in_use.setdefault(place.node, set()).add(place.gpu)
    nodes = [node for node in topology.nodes if node.name in in_use]
    kinds = set()
    for node in nodes:
        gpus = [gpu.name for gpu in node.gpus if gpu.index in in_use[node.name]]
        rails = [nic for nic in node.nics if nic.kind != "ethernet"]
        kinds.add(f"{len(gpus)}x{gpus[0] if gpus else node.cpu_model}+{len(rails)}rails")
    return f"{len(nodes)} nodes, {len(topology.ranks)} ranks: " + "; ".join(sorted(kinds))


def _add_difference(found: list[str], name: str, before: object, now: object) -> None:
    if before != now:
        found.append(f"{name} was {_shown(before)} and is {_shown(now)}")


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, Mapping | list):
        value = msgspec.json.encode(value).decode()
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _refuse(run: Run, differences: Sequence[str], advice: str) -> None:
    if differences:
        raise UsageError(
            f"run {run.run_id} cannot be resumed: {'; '.join(differences)}; a run is one question"
            f" in one environment: {advice}"
        )
