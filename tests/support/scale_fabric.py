"""A fabric of leaves for tests of `scale`: rates of a step by progressive filling, nothing else.

It shares nothing with the product's simulated fabric, and no formula with the verdicts: flows,
links and what each link still has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from collbench.analyze.scale_types import Observation, ScalePattern, Step

LARGE = 64 * 2**20
SMALL = 2**20


@dataclass
class MadeFabric:
    """Leaves of nodes with links of one rate; what an uplink carries is given by leaf."""

    leaves: tuple[tuple[int, ...], ...]
    uplink: float
    """GB/s of a leaf's uplinks together, one way."""
    link: float = 10.0
    hashed: int = 0
    """The uplink consists of so many, and each flow picks one by chance; 0: shared evenly."""
    slow: dict[int, float] = field(default_factory=dict)
    """Factor of a node's link."""
    noise: float = 0.0
    """Of each pair or node, relative."""
    alpha_us: float = 0.0
    """Per node in a collective, once in a pair and in halves."""
    host_limit: float = float("inf")
    """GB/s that all flows together get, wherever they go: nodes that share what moves the data."""
    own_fall: float = 0.0
    """Collectives lose so much of their rate per doubling of n."""
    algorithm: dict[int, str] = field(default_factory=dict)
    """What runs from n on; Tree gets 1.5 times the rate."""
    dip_at_three: float = 0.0
    seed: int = 0

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)
        self.leaf = {node: k for k, nodes in enumerate(self.leaves) for node in nodes}

    def run(self, steps) -> list[Observation]:
        return [self.observe(step) for step in steps]

    def observe(self, step: Step) -> Observation:
        flows = self._flows(step)
        rates = self._filled(flows)
        rates = rates * np.exp(self.noise * self.random.standard_normal(len(rates)))
        if step.m:
            alpha_us = self.alpha_us
            pairs = tuple(float(min(two)) for two in rates.reshape(-1, 2))
            rate = min(pairs)
        else:
            alone = step.pattern is ScalePattern.HALF
            alpha_us, pairs = self.alpha_us * (1 if alone else step.n), ()
            rate = float(self._slowest_node(step, flows, rates))
            rate *= 1 - self.own_fall * np.log2(max(step.n, 2) / 2)
            rate *= 1 - self.dip_at_three * (step.n == 3)
        name = None
        for first, ran in self.algorithm.items():
            name = ran if step.n >= first else name
        if name is not None and name.startswith("Tree"):
            rate *= 1.5
        time_us = float(alpha_us + step.size_bytes / rate / 1e3)
        slowed = step.size_bytes / time_us / 1e3
        return Observation(
            step=step,
            rate_gb_per_s=slowed,
            pair_rates_gb_per_s=tuple(
                p / (1 + alpha_us * p * 1e3 / step.size_bytes) for p in pairs
            ),
            time_us=time_us,
            p95_us=1.02 * time_us,
            algorithm=name,
        )

    def _flows(self, step: Step) -> list[tuple[int, int]]:
        nodes, n = step.nodes, step.n
        if step.m:
            return [flow for a, b in step.pairs for flow in ((a, b), (b, a))]
        if step.pattern is ScalePattern.ALL_TO_ALL:
            return [(a, b) for a in nodes for b in nodes if a != b]
        away = n // 2 if step.pattern is ScalePattern.HALF else 1
        return [(nodes[i], nodes[(i + away) % n]) for i in range(n)]

    def _slowest_node(self, step, flows, rates):
        if step.pattern is not ScalePattern.ALL_TO_ALL:
            return min(rates)
        # Equal parts to all: the slowest flow holds up its node.
        return min(rates) * (step.n - 1)

    def _filled(self, flows) -> np.ndarray:
        """Max-min fair rates: raise all flows alike until a link is full, hold those, go on."""
        links: dict[object, list[int]] = {}
        room: dict[object, float] = {}
        spine = {}
        for k, (a, b) in enumerate(flows):
            crosses = self.leaf[a] != self.leaf[b]
            uses = [("out", a, self._link(a)), ("in", b, self._link(b))]
            uses.append(("hosts", None, self.host_limit))
            if crosses:
                # Both directions of a pair share their connection's hash.
                key = frozenset((a, b))
                lane = spine.setdefault(key, self._lane())
                rate = self.uplink / max(self.hashed, 1)
                uses += [(("up", lane), self.leaf[a], rate), (("down", lane), self.leaf[b], rate)]
            for kind, place, rate in uses:
                links.setdefault((kind, place), []).append(k)
                room[(kind, place)] = rate
        return _filled(links, room, len(flows))

    def _lane(self) -> int:
        return int(self.random.integers(self.hashed)) if self.hashed else 0

    def _link(self, node: int) -> float:
        return self.link * self.slow.get(node, 1.0)


def _filled(links, room, count) -> np.ndarray:
    names = [name for name in links if np.isfinite(room[name])]
    uses = np.zeros((len(names), count))
    for row, name in enumerate(names):
        uses[row, links[name]] = 1
    left = np.array([room[name] for name in names])
    rates, open_ = np.zeros(count), np.ones(count, bool)
    while open_.any():
        counts = uses[:, open_].sum(axis=1)
        raise_ = np.min(left[counts > 0] / counts[counts > 0])
        rates[open_] += raise_
        left = left - raise_ * counts
        full = (left <= 1e-9 * (1 + raise_)) & (counts > 0)
        open_ &= ~(uses[full].sum(axis=0) > 0)
    return rates


def leaves_of(*sizes: int) -> tuple[tuple[int, ...], ...]:
    """Leaves of these sizes, nodes numbered from 0."""
    ends = np.cumsum(sizes)
    return tuple(
        tuple(range(int(end - size), int(end))) for end, size in zip(ends, sizes, strict=True)
    )
