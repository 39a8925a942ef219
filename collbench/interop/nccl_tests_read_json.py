"""nccl-tests' own JSON (``-J``), schema 1 to 3: one start of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from collbench.interop.nccl_tests_read_table import CpuTimes
from collbench.interop.nccl_tests_read_types import (
    Figures,
    Rank,
    ReadFile,
    Row,
    Table,
    version_text,
)
from collbench.probe.environment import recorded_variables

_LAST_DIGIT = 0.5e-6
"""Half a unit of the sixth decimal, which is the last that is written."""
_PLACEMENTS = {"out_of_place": False, "in_place": True}


class _Devices(msgspec.Struct):
    rank: int
    hostname: str
    device: int
    device_hex: str = ""
    device_info: str = ""
    group: int = 0


class _Config(msgspec.Struct):
    nthreads: int = 1
    ngpus: int = 1
    warmup_iters: int | None = None
    iterations: int = 1
    aggregated_iterations: int = 1
    validation: int = 1
    graph: int = 0
    blocking_collectives: str = "false"
    devices: list[_Devices] = []


class _Document(msgspec.Struct):
    config: _Config
    results: list[dict[str, Any]]
    args: list[str] = []
    env: list[str] = []
    nccl_version: int | None = None
    start_time: str | None = None


def read_json(name: str, document: Mapping[str, Any]) -> ReadFile:
    """Returns what a decoded file holds.

    Args:
        name: of the file.
        document: its one object.

    Raises:
        msgspec.ValidationError: it is none of nccl-tests.
        CpuTimes: the times are the host's.
    """
    found = msgspec.convert(document, _Document)
    config, odd, rows = found.config, list[str](), list[Row]()
    for number, result in enumerate(found.results, 1):
        try:
            rows.append(_row(f"row {number}", result))
        except (KeyError, ValueError, TypeError) as problem:
            what = f"lacks {problem}" if isinstance(problem, KeyError) else str(problem)
            odd.append(f"row {number}: {what}; it is left out")
    table = Table(
        where="",
        program=found.args[0].rpartition("/")[2] if found.args else None,
        nccl_version=None if found.nccl_version is None else version_text(found.nccl_version),
        iterations=config.iterations,
        aggregated=config.aggregated_iterations,
        warmup=config.warmup_iters,
        validation=config.validation > 0,
        graph=config.graph > 0,
        blocking=config.blocking_collectives == "true",
        average=_average(found.args),
        variables=recorded_variables(dict(_pairs(found.env))),
        arguments=found.args,
        started=found.start_time,
        ranks=list(_ranks(config)),
        rows=rows,
    )
    if len({device.group for device in config.devices}) > 1:
        odd.append("the ranks ran as several groups at once; only group 0 is taken as ranks")
    return ReadFile(name=name, tables=(table,) if rows else (), odd=tuple(odd))


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition("=")
        yield name, value


def _average(arguments: list[str]) -> int:
    """Returns what ``-a`` asks for; the mean where it is not given."""
    for place, word in enumerate(arguments):
        following = arguments[place + 1] if place + 1 < len(arguments) else ""
        joined = word.removeprefix("--average=").removeprefix("-a")
        text = following if word in ("-a", "--average") else joined if joined != word else ""
        if text.isdecimal():
            return int(text)
    return 1


def _ranks(config: _Config) -> Iterator[Rank]:
    """Yields all ranks: the file lists the first of each process, the rest follow it in order."""
    for first in config.devices:
        if first.group != config.devices[0].group:
            continue
        rank = Rank(
            host=first.hostname,
            device=first.device,
            bus_id=first.device_hex,
            model=first.device_info,
        )
        yield rank
        for more in range(1, config.nthreads * config.ngpus):
            yield replace(rank, device=first.device + more, bus_id="")


def _row(where: str, result: Mapping[str, Any]) -> Row:
    figures = [
        _figures(result, key, in_place=in_place)
        for key, in_place in _PLACEMENTS.items()
        if result.get(key) is not None
    ]
    return Row(
        where=where,
        size_bytes=int(result["size"]),
        count=int(result["count"]),
        type_name=str(result["type"]),
        redop=str(result["redop"]),
        root=int(result["root"]),
        figures=tuple(figures),
    )


def _figures(result: Mapping[str, Any], key: str, *, in_place: bool) -> Figures:
    cells = result[key]
    if "cpu_time" in cells:
        raise CpuTimes
    wrong = cells["nwrong"]
    return Figures(
        in_place=in_place,
        time_us=float(cells["time"]),
        time_within_us=_LAST_DIGIT,
        algbw_gb_per_s=float(cells["alg_bw"]),
        busbw_gb_per_s=float(cells["bus_bw"]),
        busbw_within_gb_per_s=_LAST_DIGIT,
        wrong=None if wrong is None else int(wrong),
        calls_us=_calls(result.get(f"{key}_per_iter")),
    )


def _calls(
    report: Mapping[str, Any] | None,
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    """Returns float32[process, call] without the calls that the program's own summary skips."""
    if not report or not report.get("times_us"):
        return None
    rows = report.get("per_process_max_times_us") or [report["times_us"]]
    return np.array(rows, dtype=np.float32)[:, int(report.get("skipped_iterations", 0)) :]
