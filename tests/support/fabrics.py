"""Simulated fabrics for tests: small tables, exact times."""

from pathlib import Path

from collbench.collectives import COLLECTIVES
from collbench.engine.fabric_engine import FabricEngine
from collbench.engine.fabric_file import parse_fabric_file
from collbench.engine.fabric_layout import Layout, lay_out
from collbench.engine.protocol import Group, Outcome, Round
from collbench.model import Case, Policy

CALL_US = 10.0
NO_HOPS = {"call": CALL_US, "nvlink": 0.0, "leaf": 0.0, "spine": 0.0}
"""Latencies of a fabric whose times are 10 us + what is sent / rate."""
MB = 10**6
"""Of a message: 1 MB at 1 GB/s takes 1,000 us."""


def a_layout(nodes: int = 4, *, faults: dict | None = None, **fabric) -> Layout:
    """One GPU and one rail of 10 GB/s a node unless something else is said."""
    table = {
        "nodes": nodes,
        "gpus_per_node": 1,
        "rails": 1,
        "rail_gb_per_s": 10.0,
        "nvlink_gb_per_s": 100.0,
        "alpha_us": NO_HOPS,
        **fabric,
    }
    return lay_out(parse_fabric_file(Path("fabric.toml"), {"fabric": table, **(faults or {})}))


def a_case(collective: str = "send_recv", size_bytes: int = MB, ranks: int = 2, **changes) -> Case:
    fields = {
        "collective": collective,
        "backend": "simulated",
        "dtype": "uint8",
        "size_bytes": size_bytes,
        "requested_bytes": size_bytes,
        "count": COLLECTIVES[collective].count(size_bytes, "uint8", ranks),
        "world_size": ranks,
        "in_place": False,
    }
    return Case(**{**fields, **changes})


def a_round(case: Case, *ranks: tuple[int, ...], number: int = 0, repeat: int = 0) -> Round:
    """All groups run the same case at one time."""
    groups = tuple(
        Group(ranks=group, cases=(case,), name="-".join(map(str, group))) for group in ranks
    )
    return Round(repeat=repeat, groups=groups, number=number)


def outcomes(layout: Layout, round_: Round, policy: Policy | None = None) -> list[Outcome]:
    engine = FabricEngine(layout, policy or Policy(samples=1, warmup=0, max_time_s=60.0))
    engine.start(round_)
    found = list(engine.run(round_))
    engine.close()
    return found


def times_us(layout: Layout, round_: Round) -> list[float]:
    """The median time of every group's case."""
    return [outcome.trial.summary.median_us for outcome in outcomes(layout, round_)]


def rates(layout: Layout, round_: Round) -> list[float]:
    """GB/s of every group's message, without the time of a call that sends nothing."""
    return [
        outcome.trial.case.size_bytes / (outcome.trial.summary.median_us - CALL_US) / 1e3
        for outcome in outcomes(layout, round_)
    ]
