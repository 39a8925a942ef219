"""pytest-benchmark as this project uses it: docs/benchmarks.md."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from collbench.collectives import collective_named

_CPU_KEYS = ("arch", "brand_raw", "count")
_MACHINE_KEYS = ("machine", "python_implementation", "python_version", "release", "system")


class ReportedClock:
    """A clock that moves only by the times that are reported to it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def reported_clock(request: pytest.FixtureRequest) -> ReportedClock:
    """The clock of this test's benchmark; asked for before ``benchmark``, which takes it."""
    clock = ReportedClock()
    request.node.add_marker(pytest.mark.benchmark(timer=clock))
    return clock


@pytest.fixture
def reported(reported_clock: ReportedClock, benchmark: Any) -> Callable[..., Any]:
    """Benchmarks what was timed elsewhere: the samples are the returned times and nothing else."""

    def run(
        measure: Callable[[], float], rounds: int, warmup_rounds: int = 0, group: str | None = None
    ) -> Any:
        """Calls ``measure`` so often; it returns seconds.

        Returns:
            The benchmark, for its ``extra_info`` and ``stats``.
        """
        benchmark.group = group

        def one() -> None:
            reported_clock.now_s += measure()

        # Never the calibrated mode: it looks for a resolution, which this clock has not.
        benchmark.pedantic(one, rounds=rounds, warmup_rounds=warmup_rounds, iterations=1)
        return benchmark

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # pytest-benchmark is in the extra dev alone; without it these tests must still be collected.
    config.addinivalue_line("markers", "benchmark: options of pytest-benchmark")
    if config.pluginmanager.hasplugin("benchmark"):
        from pytest_benchmark.logger import PytestBenchmarkWarning

        # What it warns of (another machine, nothing to compare with) is to be read, not to end the
        # session, as warnings do in this project: now, when it loads, and later.
        warnings.filterwarnings("default", category=PytestBenchmarkWarning)
        config.addinivalue_line(
            "filterwarnings", "default::pytest_benchmark.logger.PytestBenchmarkWarning"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Keeps what makes times differ; not the host's name, nor clocks as they are at the moment."""
    cpu = machine_info["cpu"]
    kept = {key: machine_info[key] for key in _MACHINE_KEYS}
    kept["cpu"] = {key: cpu[key] for key in _CPU_KEYS if key in cpu}
    machine_info.clear()
    machine_info.update(kept)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Adds the bus bandwidth of collectives."""
    for found in output_json["benchmarks"]:
        about = found["extra_info"]
        if "collective" in about:
            algbw_gb_per_s = about["size_bytes"] / found["stats"]["median"] / 1e9
            collective = collective_named(about["collective"])
            about["busbw_gb_per_s"] = collective.busbw(algbw_gb_per_s, about["ranks"])
