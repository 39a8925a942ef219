"""Suite files: finding one, reading it, saying what is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from collbench.errors import SuiteError, UsageError, nearest
from collbench.suite.schema import SUITE_SCHEMA, TABLES, Suite
from collbench.suite.values import check_suite
from collbench.version import __version__

_SHOWN_CHARACTERS = 40
_TYPE_ERROR = re.compile(r"Expected `(?P<kinds>[^`]+)`, got .*? - at `\$\.(?P<path>[^`]+)`")
_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "text",
}


def suite_folder() -> Path:
    """Returns where the shipped suites lie: in the wheel, or beside the package's source."""
    package = Path(__file__).parent.parent
    inside = package / "suites"
    return inside if inside.is_dir() else package.parent / "suites"


def shipped_suites() -> dict[str, Path]:
    """Returns the suites that come with collbench, by name."""
    return {file.stem: file for file in sorted(suite_folder().glob("*.toml"))}


def find_suite(name: str) -> Path:
    """Returns a suite's file by its path or by the name of a shipped one.

    Raises:
        SuiteError: neither.
    """
    if os.path.isfile(name):  # noqa: PTH113  Path.is_file raises on long names
        return Path(name)
    shipped = shipped_suites()
    if name in shipped:
        return shipped[name]
    raise SuiteError(
        f"suite '{name}' is neither a file nor a shipped suite{nearest(name, shipped) or ';'}"
        f" shipped: {', '.join(shipped)}"
    )


def load_suite(name: str) -> Suite:
    """Returns the suite in a file (path, or name of a shipped one), every value checked.

    Raises:
        SuiteError: not found, not TOML, newer, an unknown key, a value that cannot be; the text
            starts with the file and says the key's path.
    """
    path = find_suite(name)
    raw = _read(path)
    _check_schema(path, raw)
    _refuse_unknown_keys(path, raw, "")
    _refuse_contradictions(path, raw)
    try:
        suite = msgspec.convert(raw, Suite)
    except msgspec.ValidationError as problem:
        raise SuiteError(f"{path}: {_type_error(str(problem), raw)}") from None
    try:
        check_suite(suite)
    except UsageError as problem:
        raise SuiteError(f"{path}: {problem}") from None
    return suite


def _read(path: Path) -> dict[str, object]:
    try:
        raw = msgspec.toml.decode(path.read_bytes().decode())
    except OSError as problem:
        raise SuiteError(f"{path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise SuiteError(f"{path} is not TOML: byte {problem.start} is not UTF-8 text") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise SuiteError(
            f"{path} is not TOML: {problem}; an example: {suite_folder() / 'sweep.toml'}"
        ) from None
    assert isinstance(raw, dict), "TOML is a table"
    return raw


def _check_schema(path: Path, raw: Mapping[str, object]) -> None:
    """Refuses a newer file before its keys: they may be new as well."""
    schema = raw.get("schema", SUITE_SCHEMA)
    if not isinstance(schema, int) or isinstance(schema, bool):
        return  # a type error like others
    if schema > SUITE_SCHEMA:
        raise SuiteError(
            f"{path}: schema {schema} is newer than {SUITE_SCHEMA}, the newest that collbench"
            f" {__version__} reads; upgrade collbench"
        )
    if schema < 1:
        raise SuiteError(f"{path}: schema {schema} does not exist; allowed: {SUITE_SCHEMA}")


def _refuse_unknown_keys(path: Path, raw: Mapping[str, object], table: str) -> None:
    """Refuses keys that no suite has, with their place in the file and the nearest known one."""
    known = TABLES[table].__struct_fields__
    for key, value in raw.items():
        place = f"{table}.{key}" if table else key
        if key not in known:
            homes = [
                f"in {name}" if name else "at the top"
                for name, kind in TABLES.items()
                if _has(kind, key)
            ]
            hint = f"; it belongs {homes[0]};" if homes else nearest(key, known) or ";"
            raise SuiteError(f"{path}: unknown key {place}{hint} allowed: {', '.join(known)}")
        if place in TABLES and isinstance(value, dict):
            _refuse_unknown_keys(path, value, place)


def _has(kind: type[msgspec.Struct], key: str) -> bool:
    return key in kind.__struct_fields__


def _refuse_contradictions(path: Path, raw: Mapping[str, object]) -> None:
    """Refuses what defaults would hide once the file is read."""
    measure = raw.get("measure")
    if isinstance(measure, dict) and measure.get("samples") and "precision" in measure:
        raise SuiteError(
            f"{path}: measure.samples and measure.precision cannot both be; a fixed number of"
            " samples has no precision to stop at: leave one out"
        )


def _type_error(text: str, raw: Mapping[str, object]) -> str:
    """Returns msgspec's text as key, value and what is allowed."""
    match = _TYPE_ERROR.fullmatch(text)
    assert match is not None, text
    kinds = [_KINDS[kind] for kind in match["kinds"].split(" | ") if kind in _KINDS]
    value: object = raw
    for step in re.findall(r"\[(\d+)\]|([^.\[\]]+)", match["path"]):
        if step[0]:
            assert isinstance(value, list)
            value = value[int(step[0])]
        else:
            assert isinstance(value, dict)
            value = value[step[1]]
    shown = msgspec.json.encode(value).decode()
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return f"{match['path']} is {shown}; it must be {' or '.join(kinds)}"
