"""What the simulated fabric costs; printed, never a gate: ``pytest -m bench tests/bench``."""

from pathlib import Path

import numpy as np
import pytest
from fabrics import a_case, a_layout, a_round

from collbench.engine.fabric_engine import FabricEngine
from collbench.engine.simulation import read_layout
from collbench.model import Policy

pytestmark = pytest.mark.bench

LARGE = Path(__file__).parents[2] / "suites/fabrics/large_4096.toml"
ENDS = Policy(samples=1, warmup=0, check=False)


def _pairs(rails: int) -> list[tuple[int, int]]:
    ends = np.random.default_rng(1).permutation(4096).reshape(-1, 2) * rails
    return [(int(a) + rail, int(b) + rail) for a, b in ends for rail in range(rails)]


def test_laying_out_4096_nodes(benchmark):
    benchmark(read_layout, LARGE)


@pytest.mark.parametrize("routing", ["hashed", "adaptive"])
def test_the_rates_of_2048_pairs_on_8_rails(benchmark, routing):
    """Up to the first outcome: all rates of the round are known then."""
    layout = a_layout(
        4096, gpus_per_node=8, rails=8, nodes_a_leaf=32, oversubscription=2, routing=routing
    )
    engine = FabricEngine(layout, ENDS)
    round_ = a_round(a_case("send_recv", 2**30), *_pairs(8))
    benchmark.pedantic(lambda: next(engine.run(round_)), rounds=3)


def test_a_round_of_2048_pairs_with_its_records(benchmark):
    layout = read_layout(LARGE)
    assert layout is not None
    engine = FabricEngine(layout, Policy())
    round_ = a_round(a_case("send_recv", 2**30), *_pairs(1))
    benchmark.pedantic(lambda: list(engine.run(round_)), rounds=1)


def test_a_ring_over_32768_ranks(benchmark):
    engine = FabricEngine(a_layout(4096, gpus_per_node=8, rails=8, nodes_a_leaf=32), ENDS)
    round_ = a_round(a_case("all_reduce", 2**30, 32768), tuple(range(32768)))
    benchmark.pedantic(lambda: list(engine.run(round_)), rounds=1)


def test_an_all_to_all_over_2048_ranks(benchmark):
    engine = FabricEngine(a_layout(2048, nodes_a_leaf=32, routing="hashed"), ENDS)
    round_ = a_round(a_case("all_to_all", 2**30, 2048), tuple(range(2048)))
    benchmark.pedantic(lambda: list(engine.run(round_)), rounds=1)
