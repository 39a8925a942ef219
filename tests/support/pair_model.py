"""A small model of a cluster for verdicts on pairs: y = min(b_i, b_j) x path x noise.

Independent of the product: no rule of the verdicts is used here. Node and rail rates have a healthy
spread of 0.5 %; across leaves flows may share uplinks that they are hashed to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_suspects import control_pairs, next_suspects
from collbench.analyze.pair_types import KINDS, PairKind, empty_table
from collbench.analyze.pairwise import judge
from collbench.plan.pairwise import confirmation_rounds, pair_rounds

LINE_GB_PER_S = 48.0
MOST_CONFIRMATIONS = 20


@dataclass(frozen=True)
class Cluster:
    nodes: int
    leaf: int | None = None
    """Nodes a leaf; None: leaves are unknown and nothing is shared."""
    rails: int = 1
    uplinks: int | None = None
    """Of each leaf, each as fast as a node's link, flows hashed to them; None: never full."""
    noise: str = "normal"
    size: float = 0.015
    slow: dict[int, float] = field(default_factory=dict)
    slow_rails: dict[tuple[int, int], float] = field(default_factory=dict)
    paths: dict[tuple[int, int], float] = field(default_factory=dict)
    """Smaller number first."""
    leaf_known: bool = True

    @property
    def leaves(self):
        if self.leaf is None or not self.leaf_known:
            return None
        return tuple(f"leaf{node // self.leaf}" for node in range(self.nodes))


def noise_of(kind: str, size: float, random, shape):
    normal = random.standard_normal(shape)
    match kind:
        case "normal":
            return np.exp(size * normal)
        case "skewed":
            return np.exp(-size * random.standard_exponential(shape))
        case "bimodal":
            return np.exp(size * normal) * np.where(random.random(shape) < 0.1, 0.92, 1.0)
    raise AssertionError(kind)


class Run:
    """Measures a cluster round by round and asks the verdicts what to run again."""

    def __init__(self, cluster: Cluster, seed: int, **schedule) -> None:
        self._cluster, self._random = cluster, np.random.default_rng(seed)
        self._rates = np.exp(self._random.normal(0, 0.005, (cluster.nodes, cluster.rails)))
        for node, factor in cluster.slow.items():
            self._rates[node] *= factor
        for (node, rail), factor in cluster.slow_rails.items():
            self._rates[node, rail] *= factor
        self._round = 0
        first = pair_rounds(cluster.nodes, cluster.leaves, seed=seed, **schedule)
        self.state = PairwiseState(
            names=tuple(f"node{node}" for node in range(cluster.nodes)),
            leaves=cluster.leaves,
            values=np.concatenate([self.measure(one.pairs) for one in first.rounds]),
        )
        self.again = 0

    def effect(self, verdict):
        """What a node's verdict should say: its true rate against the usual pair's."""
        rail = verdict.rail or 0
        drawn = self._random.integers(0, self._cluster.nodes, (2, 20001))
        usual = np.median(np.minimum(*self._rates[drawn, rail]))
        return self._rates[verdict.node, rail] / usual - 1

    def measure(self, pairs):
        """One round: all its pairs at once."""
        model, random = self._cluster, self._random
        a, b = pairs.T
        rates = np.minimum(self._rates[a], self._rates[b])
        rates = rates * noise_of(model.noise, model.size, random, rates.shape) * self._shares(a, b)
        if model.paths:
            found = [model.paths.get((min(pair), max(pair)), 1.0) for pair in pairs.tolist()]
            rates *= np.array(found)[:, None]
        table = empty_table(rates.size)
        table["a"], table["b"] = np.repeat(a, model.rails), np.repeat(b, model.rails)
        table["kind"] = KINDS.index(PairKind.SEND_RECV)
        if model.rails > 1:
            table["rail"] = np.tile(np.arange(model.rails), len(pairs))
        table["round"] = self._round
        table["value"] = LINE_GB_PER_S * rates.ravel()
        table["alone"] = len(pairs) == 1
        self._round += 1
        return table

    def _shares(self, a, b):
        model = self._cluster
        if model.uplinks is None or model.leaf is None:
            return np.ones((len(a), model.rails))
        ends = np.stack([a, b]) // model.leaf
        across = (ends[0] != ends[1])[:, None] & np.ones(model.rails, bool)
        links = model.uplinks * model.rails
        rail = np.arange(model.rails)
        shares = np.ones((len(a), model.rails))
        # Each direction of a pair is a flow of its own, up from one leaf and down to the other.
        for up, down in (ends, ends[::-1]):
            for leaf in (up, down):
                pick = self._random.integers(0, model.uplinks, (len(a), model.rails))
                link = leaf[:, None] * links + rail * model.uplinks + pick
                load = np.bincount(link[across], minlength=1)
                shares[across] = np.minimum(shares[across], 1 / load[link[across]])
        return shares

    def confirm(self):
        """Runs suspects again until none is open, or the limit of this model is reached."""
        for _ in range(MOST_CONFIRMATIONS):
            wanted = next_suspects(self.state)
            if not wanted:
                break
            together = [(one.suspect, one.partner) for one in wanted if not one.alone]
            together += control_pairs(self.state, wanted)
            alone = [(one.suspect, one.partner) for one in wanted if one.alone]
            rounds = confirmation_rounds(together, alone, serial=False)
            start = self._round
            tables = [self.state.values, *(self.measure(one.pairs) for one in rounds)]
            self.state = replace(
                self.state,
                values=np.concatenate(tables),
                confirming=self.state.confirming | set(range(start, self._round)),
            )
            self.again += 1
        return self

    def result(self):
        return judge(self.confirm().state)


def named(result):
    """Numbers of the nodes that fail."""
    return {node.node for node in result.nodes if node.verdict == "fail"}


@dataclass(frozen=True)
class Row:
    """A row of the calibration: clusters of one sort, drawn with random places of their faults."""

    name: str
    nodes: int
    bad: int = 0
    slowdown: float = 0.1
    bad_paths: int = 0
    bad_rails: int = 0
    cluster: dict = field(default_factory=dict)

    def draw(self, random):
        """A cluster, the nodes and the paths that are at fault in it."""
        chosen = random.choice(self.nodes, self.bad + self.bad_rails, replace=False).tolist()
        slow, railed = chosen[: self.bad], chosen[self.bad :]
        options = {"leaf": leaf_of(self.nodes), **self.cluster}
        paths = {}
        while len(paths) < self.bad_paths:
            a, b = sorted(random.choice(self.nodes, 2, replace=False).tolist())
            paths[a, b] = 1 - self.slowdown
        rails = options.get("rails", 1)
        cluster = Cluster(
            self.nodes,
            slow=dict.fromkeys(slow, 1 - self.slowdown),
            slow_rails={(node, int(random.integers(rails))): 1 - self.slowdown for node in railed},
            paths=paths,
            **options,
        )
        return cluster, set(chosen), set(paths)


def leaf_of(nodes: int) -> int:
    """Nodes a leaf: all of few, 8 of tens, 32 of many."""
    return nodes if nodes <= 8 else 8 if nodes <= 64 else 32


@dataclass
class Tally:
    """What came out of a row's runs."""

    runs: int = 0
    planted: int = 0
    found: int = 0
    false: int = 0
    exact: int = 0
    unclear: int = 0
    again: int = 0
    false_fabric: int = 0
    paths: int = 0
    paths_found: int = 0
    rails_right: int = 0
    covered: int = 0
    most_false: int = 0

    @property
    def recall(self) -> float:
        return self.found / self.planted if self.planted else 1.0


def tally(row: Row, runs: int, seed: int = 0) -> Tally:
    """Runs a row so many times."""
    total = Tally(runs=runs)
    for number in range(runs):
        random = np.random.default_rng([seed, number, row.nodes, row.bad])
        cluster, bad, paths = row.draw(random)
        run = Run(cluster, int(random.integers(1 << 30)))
        result = run.result()
        got = named(result)
        total.planted += len(bad)
        total.found += len(got & bad)
        total.false += len(got - bad)
        total.most_false = max(total.most_false, len(got - bad))
        total.exact += got == bad
        total.unclear += len(result.of("inconclusive"))
        total.again += run.again
        confirmed = [fault for fault in result.fabric if fault.confirmed]
        right = {tuple(sorted(fault.nodes)) for fault in confirmed if fault.code == "slow_path"}
        total.paths += len(paths)
        total.paths_found += len(right & paths)
        total.false_fabric += len(confirmed) - len(right & paths)
        for node in result.nodes:
            if node.node in got & bad:
                rails = {rail for one, rail in cluster.slow_rails if one == node.node}
                total.rails_right += set(node.rails) == rails
                total.covered += node.effect.low <= run.effect(node) <= node.effect.high
    return total
