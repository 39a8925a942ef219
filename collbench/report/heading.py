"""The first lines: what was found, what will be run."""

from __future__ import annotations

from collections import Counter

from collbench.model import Case, Run, Topology
from collbench.nccl.settings import settings_text
from collbench.plan.sweep import SweepPlan
from collbench.units import format_duration

_COLUMNS = 120
"""Of a line that people read."""


def heading(run: Run, topology: Topology) -> str:
    """Returns the line that says on what a run stands: hardware, versions loaded."""
    parts = [_hardware(run, topology), _software(run), f"collbench {run.environment.collbench}"]
    line = " | ".join(part for part in parts if part)
    if run.simulated:
        line = f"SIMULATED: a model answered, no hardware was measured | {line}"
    if run.planted:
        line = f"PLANTED FAULT ({run.planted}) | {line}"
    return line


def _hardware(run: Run, topology: Topology) -> str:
    if run.note:
        return run.note
    if run.simulated:
        return f"{run.world_size} ranks"
    names: Counter[str] = Counter()
    kinds: set[str] = set()
    rails: set[int] = set()
    holders = {place.node for place in topology.ranks}
    for node in topology.nodes:
        used = {place.gpu for place in topology.ranks if place.node == node.name}
        names.update(gpu.name for gpu in node.gpus if gpu.index in used)
        kinds |= {link.kind for link in node.gpu_links if {link.a, link.b} <= used}
        if node.name in holders:
            rails.add(sum(nic.kind != "ethernet" for nic in node.nics))
    if not names:
        return f"{run.world_size} ranks on CPUs"
    counts = " or ".join(str(count) for count in sorted(rails))
    network = "no IB device" if rails <= {0} else f"{counts} IB or RoCE devices a node"
    models = ", ".join(f"{count} x {name}" for name, count in names.items())
    where = f"{len(holders)} node{'s' * (len(holders) > 1)}"
    return f"{models} on {where} ({', '.join([*sorted(kinds), network])})"


def _software(run: Run) -> str:
    environment = run.environment
    words = [f"torch {environment.torch}"] if environment.torch else []
    nccl = environment.nccl
    if environment.libraries:
        named = [
            name if name == library.version else f"{name} ({library.version})"
            for name, library in environment.libraries.items()
        ]
        words.append(f"NCCL {' and '.join(named)} loaded in turn")
    elif nccl is not None:
        differs = f" (torch was built with {nccl.compiled})" if _differs(run) else ""
        words.append(f"NCCL {nccl.version} loaded{differs}")
    if environment.driver and run.backend == "nccl":
        words.append(f"driver {environment.driver}")
    return ", ".join(words)


def _differs(run: Run) -> bool:
    nccl = run.environment.nccl
    return nccl is not None and nccl.compiled is not None and nccl.compiled != nccl.version


def plan_line(plan: SweepPlan, run_id: str) -> str:
    """Returns the line that says how much will be run, and how long it takes."""
    cases = plan.cases
    counts = [
        (len({case.collective for case in cases}), "collective"),
        (len({(case.dtype, case.redop) for case in cases if case.redop}) or 1, "type and operator"),
        (len({case.requested_bytes for case in cases}), "size"),
        (len({tuple(case.setting.items()) for case in cases}), "setting"),
        (len({case.mode for case in cases}), "mode"),
    ]
    axes = " x ".join(
        f"{count} {word if count == 1 else _plural(word)}"
        for count, word in counts
        if count > 1 or word in ("collective", "size")
    )
    starts = plan.starts
    parts = [_counted(len(cases), "case"), _counted(plan.repeats, "repeat")]
    if cases and cases[0].backend != "simulated":
        # Of those that a launcher started each has zygotes of its own.
        each = " a process" if cases[0].nodes > 1 and not cases[0].emulated else ""
        parts += [
            f"{_counted(starts.zygotes, 'zygote')}{each}",
            _counted(starts.workers, "worker"),
            _counted(starts.communicators, "communicator"),
        ]
        parts += [f"{_counted(starts.twins, 'case')} proved apart"] if starts.twins else []
    said = f"plan: {axes}: {', '.join(parts)}, about {format_duration(plan.estimate_s)}"
    apart = "    " if len(said) + len(run_id) + 8 <= _COLUMNS else "\n  "
    return f"{said}{apart}run {run_id}"


def refused_lines(plan: SweepPlan) -> list[str]:
    """Returns what of the plan cannot be and is not run: a line a collective."""
    found: dict[str, list[Case]] = {}
    for item in plan.refused:
        found.setdefault(item.case.collective, []).append(item.case)
    return [
        f"cannot be, not run: {name} with {settings_text(case.setting for case in cases)}"
        for name, cases in found.items()
    ]


def _counted(count: int, word: str) -> str:
    return f"{count} {word if count == 1 else _plural(word)}"


def _plural(word: str) -> str:
    return "types and operators" if word == "type and operator" else f"{word}s"
