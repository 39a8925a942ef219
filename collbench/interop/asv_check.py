"""Whether asv's result files hold what they should: asv itself skips a bad one and says nothing."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collbench.errors import EngineError

MACHINE = "machine.json"
BENCHMARKS = "benchmarks.json"


def has_asv() -> bool:
    """Whether asv can be imported; nothing is."""
    return importlib.util.find_spec("asv") is not None


def result_files(results: Path) -> list[Path]:
    """Returns the files of results in a folder of them, in order."""
    return [path for path in sorted(results.glob("*/*.json")) if path.name != MACHINE]


def load(path: Path) -> Any:
    """Returns the content of one of the files.

    Raises:
        EngineError: it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise EngineError(f"{path}: what was exported cannot be read: {problem}") from None


def values_of(document: Mapping[str, Any]) -> Iterator[tuple[str, list[float | None]]]:
    """Gives each benchmark of a result file with its values, one a combination of parameters."""
    column = document["result_columns"].index("result")
    for name, row in document["results"].items():
        yield name, row[column]


def check_results(results: Path, hashes: Mapping[str, str]) -> int:
    """Reads result files back by asv's own rules.

    Args:
        results: the folder that holds ``benchmarks.json``.
        hashes: of the releases' commits, by version.

    Returns:
        How many values they hold.

    Raises:
        EngineError: asv would leave a file out, or take a value for another.
    """
    benchmarks = load(results / BENCHMARKS)
    _demand(benchmarks.get("version") == 2, results / BENCHMARKS, "version is not 2")
    commits, count = set(hashes.values()), 0
    for path in result_files(results):
        document, machine = load(path), load(path.with_name(MACHINE))
        commit = document["commit_hash"]
        _demand(document["version"] == 2, path, "version is not 2")
        _demand(commit in commits, path, f"{commit} is no commit of a release")
        _demand(path.name == f"{commit[:8]}-{document['env_name']}.json", path, "its name is wrong")
        named = {path.parent.name, machine["machine"], document["params"]["machine"]}
        _demand(len(named) == 1, path, f"its machine has {len(named)} names")
        for name, row in document["results"].items():
            _demand(name in benchmarks, path, f"{name} is not in {BENCHMARKS}")
            _check_row(
                dict(zip(document["result_columns"], row, strict=False)), benchmarks[name], path
            )
        count += sum(value is not None for _, found in values_of(document) for value in found)
    return count


def _check_row(row: Mapping[str, Any], benchmark: Mapping[str, Any], path: Path) -> None:
    name, parameters = benchmark["name"], benchmark["params"]
    _demand(row["params"] == parameters, path, f"{name} has other parameters")
    _demand(row["version"] == benchmark["version"], path, f"{name} has another version")
    slots = math.prod(map(len, parameters))
    for column, values in row.items():
        if isinstance(values, list) and column != "params":
            _demand(len(values) == slots, path, f"{name} {column}: {len(values)}, not {slots}")


def _demand(holds: bool, path: Path, problem: str) -> None:
    if not holds:
        raise EngineError(f"{path}: what was exported is not right: {problem}")


def load_with_asv(results: Path) -> bool:
    """Lets asv load each file, where it is installed.

    Args:
        results: the folder that holds ``benchmarks.json``.

    Returns:
        Whether it is.

    Raises:
        EngineError: asv refuses a file, or finds other results in it.
    """
    if not has_asv():
        return False
    # By name: without asv there is nothing to check types against.
    names = ("config", "benchmarks", "results", "util")
    modules = [importlib.import_module(f"asv.{name}") for name in names]
    asv_config, asv_benchmarks, asv_results, asv_util = modules
    configuration = asv_config.Config()
    configuration.results_dir = str(results)
    try:
        benchmarks = asv_benchmarks.Benchmarks.load(configuration)
        for path in result_files(results):
            loaded = asv_results.Results.load(str(path), machine_name=path.parent.name)
            found = {
                name: loaded.get_result_value(name, benchmarks[name]["params"])
                for name in loaded.get_result_keys(benchmarks)
            }
            _demand(found == dict(values_of(load(path))), path, "asv reads other values")
    except asv_util.UserError as problem:
        raise EngineError(f"asv cannot read what was exported: {problem}") from None
    return True
