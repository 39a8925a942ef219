"""What two sides of runs share, and what differs: shape, software, the way of measuring.

Sides of another shape answer another question; other software is what is being compared. Host
names never count and are never shown: runs of two machines of one make can be compared.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from collbench.errors import UsageError
from collbench.model import Nic, Node
from collbench.nccl.settings import setting_text
from collbench.store import StoredRun
from collbench.units import format_size

_PLACE_VARIABLES = frozenset(
    {"CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "NCCL_COMM_ID", "NCCL_RAS_ADDR"}
)
"""They say where, as a node's name does."""

_SHOWN_CHARACTERS = 60

Facts = Mapping[str, str]
"""What is known of a run, by the name it is shown under."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing that the two sides do not share; a side of several values names them all."""

    name: str
    base: str
    new: str

    @property
    def text(self) -> str:
        """The difference in a line: ``NCCL: 2.30.7 -> 2.31.2``."""
        return f"{self.name}: {self.base} -> {self.new}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """All that differs between two sides."""

    shape: tuple[Difference, ...]
    """Sides that differ here are not comparable, unless one insists."""
    software: tuple[Difference, ...]
    measuring: tuple[Difference, ...]
    planted: tuple[str, ...]
    """A line for each run with a fault planted on purpose."""


def differences(base: Sequence[StoredRun], new: Sequence[StoredRun]) -> Differences:
    """Returns what differs between two sides, each of one run or several.

    Raises:
        UsageError: a run of a side has another shape than the side's others, or a simulated run
            stands beside a real one.
    """
    runs = [*base, *new]
    _refuse_simulated_beside_real(runs)
    found = shapes_of(runs)
    shapes = [found[: len(base)], found[len(base) :]]
    for side, facts in zip((base, new), shapes, strict=True):
        _refuse_odd(side, facts)
    return Differences(
        shape=_differing(*shapes),
        software=_differing([_software(one) for one in base], [_software(one) for one in new]),
        measuring=_differing([_measuring(one) for one in base], [_measuring(one) for one in new]),
        planted=tuple(
            f"run {stored.run.run_id} has a planted fault ({stored.run.planted}):"
            " it proves the tool, not the hardware"
            for stored in runs
            if stored.run.planted
        ),
    )


def shapes_of(runs: Sequence[StoredRun]) -> list[Facts]:
    """Returns what each run would have to share with others to be compared with them.

    What is not known of all of them (the NICs in use, the leaves) does not count.
    """
    used = all(_nics_used(stored) is not None for stored in runs)
    leaves = all(_leaf_spread(stored) is not None for stored in runs)
    return [_shape(stored, used=used, leaves=leaves) for stored in runs]


def _refuse_simulated_beside_real(runs: Sequence[StoredRun]) -> None:
    simulated = [stored.run.run_id for stored in runs if stored.run.simulated]
    real = [stored.run.run_id for stored in runs if not stored.run.simulated]
    if simulated and real:
        raise UsageError(
            f"run {simulated[0]} is simulated and run {real[0]} is not: a model says nothing of"
            " hardware; compare simulated runs with simulated ones, real ones with real ones"
        )


def _refuse_odd(side: Sequence[StoredRun], shapes: Sequence[Facts]) -> None:
    """The odd run is one that differs from what most of its side share."""
    counts = Counter(tuple(shape.items()) for shape in shapes)
    usual = dict(counts.most_common(1)[0][0])
    for stored, shape in zip(side, shapes, strict=True):
        if shape != usual:
            found = "; ".join(
                f"{name} {shape[name]}, not {usual[name]}"
                for name in usual
                if shape[name] != usual[name]
            )
            raise UsageError(
                f"run {stored.run.run_id} has another shape than the {len(side) - 1} other runs of"
                f" its side ({found}); a side is runs of one shape: leave it out"
            )


def _differing(base: Sequence[Facts], new: Sequence[Facts]) -> tuple[Difference, ...]:
    names = dict.fromkeys(name for facts in (*base, *new) for name in facts)
    found = []
    for name in names:
        texts = [_values(name, side) for side in (base, new)]
        if texts[0] != texts[1]:
            found.append(Difference(name=name, base=texts[0], new=texts[1]))
    return tuple(found)


def _values(name: str, side: Sequence[Facts]) -> str:
    """Returns a side's values, each once; in one order whatever that of the runs."""
    return " and ".join(sorted({facts.get(name, "not set") for facts in side}))


def _shape(stored: StoredRun, *, used: bool, leaves: bool) -> Facts:
    """Returns what comparable runs share.

    Args:
        stored: a run.
        used: the NICs in use are known of all runs.
        leaves: so is which nodes share a leaf.
    """
    holders, run = _holders(stored), stored.run
    gpus = {place.node: 0 for place in stored.topology.ranks}
    models: set[str] = set()
    for node in holders:
        indices = {place.gpu for place in stored.topology.ranks if place.node == node.name}
        mine = [gpu.name for gpu in node.gpus if gpu.index in indices]
        gpus[node.name] = len(mine)
        models |= set(mine) or {f"CPU {node.cpu_model}"}
    word = "GPU" if any(gpus.values()) else "rank"
    ranks = Counter(place.node for place in stored.topology.ranks)
    each = Counter(gpus.values() if word == "GPU" else ranks.values())
    nics = _nics_used(stored) if used else _nics_present(stored)
    spread = {"leaf spread": _leaf_spread(stored) or "none"} if leaves else {}
    return spread | {
        "hardware": " and ".join(sorted(models)),
        "placement": " and ".join(
            f"{_counted(nodes, 'node')} x {_counted(size, word)}"
            for size, nodes in sorted(each.items())
        ),
        "ranks": str(run.world_size),
        "NICs used" if used else "NICs": nics or "none",
        "back end": run.backend,
        "fake hosts": "yes" if run.emulated else "no",
    }


def _holders(stored: StoredRun) -> list[Node]:
    names = {place.node for place in stored.topology.ranks}
    return [node for node in stored.topology.nodes if node.name in names]


def _leaf_spread(stored: StoredRun) -> str | None:
    """Returns how many nodes are in each leaf, whatever it is called: ``4 + 4 nodes``."""
    leaves = [node.leaf for node in _holders(stored)]
    if None in leaves:
        return None
    sizes = sorted(Counter(leaves).values(), reverse=True)
    return f"{' + '.join(map(str, sizes))} node{'s' * (sizes != [1])}"


def _nics_present(stored: StoredRun) -> str:
    return _nics_text([[nic for nic in node.nics if _is_fast(nic)] for node in _holders(stored)])


def _nics_used(stored: StoredRun) -> str | None:
    """Returns the NICs that carried data, ``none`` where none did, None where it is not known.

    On one node without fake hosts no network is used unless NCCL's log shows one.
    """
    holders = _holders(stored)
    proofs = [t.proof for t in stored.trials if t.proof is not None and t.proof.transports]
    if stored.run.backend != "nccl" or (
        not proofs and len(holders) == 1 and not stored.run.emulated
    ):
        return "none"
    if not proofs:
        return None
    # A virtual device is named after its parts: mlx5_0+mlx5_1.
    names = {name for proof in proofs for device in proof.devices for name in device.split("+")}
    known = {nic.name for node in holders for nic in node.nics}
    if names - known and any(proof.network not in (None, "Socket") for proof in proofs):
        return None
    return _nics_text(
        [[nic for nic in node.nics if _is_fast(nic) and nic.name in names] for node in holders]
    )


def _is_fast(nic: Nic) -> bool:
    return nic.kind != "ethernet"


def _nics_text(nodes: Sequence[Sequence[Nic]]) -> str:
    """Returns ``8 x infiniband 400 Gbit/s a node``; nodes that differ each once."""
    texts = set()
    for nics in nodes:
        kinds = Counter((nic.kind, nic.rate_gbit_per_s) for nic in nics)
        parts = [
            f"{count} x {kind} {f'{rate:g} Gbit/s' if rate else 'of unknown rate'}"
            for (kind, rate), count in sorted(kinds.items(), key=str)
        ]
        texts.add(f"{' + '.join(parts)} a node" if parts else "none")
    return " and ".join(sorted(texts))


def _software(stored: StoredRun) -> Facts:
    environment = stored.run.environment
    nccl = environment.nccl
    found = {
        "collbench": environment.collbench,
        "torch": environment.torch or "none",
        "NCCL": nccl.version if nccl is not None else "none",
        **{f"NCCL {name}": one.version for name, one in environment.libraries.items()},
        "CUDA": environment.cuda or "none",
        "driver": environment.driver or "none",
        "kernel": environment.kernel,
        "os": environment.os,
        "via": stored.run.via,
    }
    for name, value in sorted(environment.variables.items()):
        if name not in _PLACE_VARIABLES:
            found[name] = _short(value)
    for path, content in sorted(environment.config_files.items()):
        name = "~/.nccl.conf" if path.endswith("/.nccl.conf") else path
        found[name] = _short("; ".join(content.split("\n")).strip("; "))
    return found


def _measuring(stored: StoredRun) -> Facts:
    policy, cases = stored.run.policy, [trial.case for trial in stored.trials]
    settings = {setting_text(case.setting) for case in cases}
    found = {
        # Of several settings each is a case of its own.
        "setting": settings.pop() if len(settings) == 1 else "several",
        "pattern": " and ".join(sorted({str(case.pattern) for case in cases})) or "none",
        "precision": f"{policy.precision:g}",
        "most time a case": f"{policy.max_time_s:g} s",
        "samples": "as many as needed" if policy.samples is None else str(policy.samples),
        "warm-up": "detected" if policy.warmup is None else str(policy.warmup),
        "walk": "over the cache" if policy.walk_bytes is None else format_size(policy.walk_bytes),
        "data checked": "yes" if policy.check else "no",
        "what ran proved": "yes" if policy.proof else "no",
    }
    model = _option(stored.run.argv, "--simulate")
    return found | ({"model": model} if model else {})


def _option(argv: Sequence[str], name: str) -> str | None:
    for word, following in zip_longest(argv, argv[1:], fillvalue=""):
        if word == name:
            return shlex.quote(following)
        if word.startswith(f"{name}="):
            return shlex.quote(word.partition("=")[2])
    return None


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
