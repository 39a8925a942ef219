"""An executor that a model answers: the same loop, records and tables, without hardware.

``--simulate FILE`` reads the model from TOML:

    ranks = 8
    alpha_us = 12.0
    bandwidth_gb_per_s = 300.0
    noise = 0.01        # relative standard deviation of a call; 0: exact figures
    seed = 1

Every rank is a thread on a fake clock. Records say ``simulated: true``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from collbench.engine.merge import merge_results
from collbench.engine.protocol import Facts, Outcome, Round
from collbench.errors import UsageError
from collbench.measure.fake import FakeBackend, FakeClock, FakeWorld, LinkModel, NoProgress
from collbench.measure.loop import RankResult, measure_case
from collbench.model import Case, Node, Policy, RankPlace, Topology

_MOST_RANKS = 64


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file's content."""

    ranks: int = 2
    alpha_us: float = 10.0
    bandwidth_gb_per_s: float = 100.0
    noise: float = 0.0
    seed: int = 1


def read_fabric(path: Path) -> Fabric:
    """Returns the model in a file.

    Raises:
        UsageError: not readable, not TOML, an unknown key or a value that cannot be.
    """
    try:
        fabric = msgspec.toml.decode(path.read_bytes(), type=Fabric)
    except OSError as problem:
        raise UsageError(f"--simulate {path}: {problem.strerror}; give a TOML file") from None
    except msgspec.DecodeError as problem:
        keys = ", ".join(Fabric.__struct_fields__)
        raise UsageError(f"--simulate {path}: {problem}; allowed keys: {keys}") from None
    if not 1 <= fabric.ranks <= _MOST_RANKS:
        raise UsageError(f"--simulate {path}: ranks {fabric.ranks} must be 1 to {_MOST_RANKS}")
    figures = (fabric.bandwidth_gb_per_s, fabric.alpha_us, fabric.noise)
    if not all(map(math.isfinite, figures)) or figures[0] <= 0 or min(figures) < 0:
        raise UsageError(
            f"--simulate {path}: bandwidth_gb_per_s must be above 0, alpha_us and noise not below"
            " 0, all finite"
        )
    return fabric


class SimulatedEngine:
    """An ``Executor`` over ``Fabric``."""

    def __init__(self, fabric: Fabric, policy: Policy) -> None:
        self._fabric, self._policy = fabric, policy
        self._model = LinkModel(
            alpha_us=fabric.alpha_us,
            bandwidth_gb_per_s=fabric.bandwidth_gb_per_s,
            noise=fabric.noise,
        )
        self._facts = Facts(topology=self.topology_of(fabric))

    @staticmethod
    def topology_of(fabric: Fabric) -> Topology:
        """Returns the place that the model pretends to be."""
        node = Node(name="simulated", cpu_model="model", cpus=1, numa_nodes=1, memory_bytes=0)
        places = [RankPlace(rank=r, node=node.name, local_rank=r) for r in range(fabric.ranks)]
        return Topology(nodes=[node], ranks=places)

    def start(self, round_: Round) -> None:
        """Needs nothing."""

    def facts(self) -> Facts:
        """Returns the model's topology."""
        return self._facts

    def run(self, round_: Round) -> Iterator[Outcome]:
        """Yields one outcome a case."""
        for group in round_.groups:
            for case in group.cases:
                start_s = time.time()
                results = self._measure(case, round_)
                span_s = (start_s, time.time())
                topology = self._facts.topology
                yield merge_results(
                    case,
                    round_.repeat,
                    results,
                    span_s,
                    [],
                    topology,
                    group.ranks,
                    place=round_.place_of(group),
                )

    def _measure(self, case: Case, round_: Round) -> list[RankResult]:
        policy = round_.policy or self._policy
        world = FakeWorld(case.world_size)
        seed = int(case.case_id.partition("#")[2], 16) ^ (self._fabric.seed << 8) ^ round_.repeat

        def one(rank: int) -> RankResult:
            backend = FakeBackend(self._model, world, rank, FakeClock(), NoProgress(), seed)
            try:
                return measure_case(case, policy, backend, backend.control, NoProgress())
            except BaseException:
                world.abort()  # or the other threads would wait for this one for ever
                raise

        with ThreadPoolExecutor(max_workers=case.world_size) as pool:
            return list(pool.map(one, range(case.world_size)))

    def close(self) -> None:
        """Holds nothing."""
