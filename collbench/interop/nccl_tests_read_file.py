"""A file of nccl-tests or rccl-tests: which of its forms it is, or what it is instead."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import UsageError
from collbench.interop.nccl_tests_read_json import read_json
from collbench.interop.nccl_tests_read_table import CpuTimes, TableReader
from collbench.interop.nccl_tests_read_types import ReadFile

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order mark -> encoding; that of UTF-32 begins as that of UTF-16 does, and stands first."""
_WHO = re.compile(r"\s*(?:\[(\d+,\d+)\](?:<std(?:out|err)>:?|:) ?|(\d+): )")
"""mpirun's and srun's marks of the rank that printed a line."""
_MOST_KEYS = 4
_WANTED = "give what nccl-tests printed, or its -J file"


def read_file(path: Path) -> ReadFile:
    """Returns what a file holds.

    Args:
        path: of a text or a JSON file.

    Raises:
        UsageError: it cannot be read, is none of nccl-tests, or has no rows.
    """
    name = str(path)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot read '{name}': {problem.strerror}") from None
    text = _text(name, data)
    try:
        found = _json(name, text) if text.lstrip()[:1] in ("{", "[") else _tables(name, text)
    except CpuTimes:
        raise UsageError(
            f"'{name}' holds the host's times (-C), which are none of a collective; run nccl-tests"
            " without -C"
        ) from None
    return found


def _text(name: str, data: bytes) -> str:
    if not data.strip():
        raise UsageError(f"'{name}' is empty; {_WANTED}")
    encoding = next((word for mark, word in _MARKS.items() if data.startswith(mark)), None)
    if encoding is None:
        if b"\0" in data:
            raise UsageError(f"'{name}' is binary; {_WANTED}")
        # Only host and device names can hold other characters.
        return data.decode("utf-8", errors="replace")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise UsageError(
            f"'{name}' begins as {encoding} and is damaged further on; {_WANTED}"
        ) from None


def _json(name: str, text: str) -> ReadFile:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        if not text.lstrip().startswith("{"):
            return _tables(name, text)  # a mark or a moment in brackets
        where = ""
        if isinstance(problem, json.JSONDecodeError):
            where = f" at line {problem.lineno}, column {problem.colno}"
        raise UsageError(
            f"'{name}' is damaged JSON{where}: the program may have ended early; give what it"
            " printed as text instead"
        ) from None
    if not isinstance(document, Mapping):
        raise UsageError(f"'{name}' looks like JSON of a {type(document).__name__}; {_WANTED}")
    try:
        found = read_json(name, document)
    except msgspec.ValidationError:
        raise UsageError(f"'{name}' looks like JSON of {_keys(document)}; {_WANTED}") from None
    if not found.tables:
        errors = [str(text) for text in document.get("errors") or [] if str(text).strip()]
        raise _no_rows(name, errors[0] if errors else None)
    return found


def _keys(document: Mapping[str, Any]) -> str:
    names = [f"'{key}'" for key in document][:_MOST_KEYS]
    more = ", ..." if len(document) > _MOST_KEYS else ""
    return f"{', '.join(names)}{more}" if names else "nothing"


def _tables(name: str, text: str) -> ReadFile:
    readers: dict[str, TableReader] = {}
    for number, line in enumerate(text.splitlines(), 1):
        who = _WHO.match(line)
        key = "" if who is None else who[1] or who[2]
        rest = line if who is None else line[who.end() :]
        readers.setdefault(key, TableReader()).feed(number, rest)
    for reader in readers.values():
        reader.finish()
    odd = sorted(one for reader in readers.values() for one in reader.odd)
    tables = [table for reader in readers.values() for table in reader.tables]
    if not tables:
        failures = [reader.failure for reader in readers.values() if reader.failure]
        if failures or "algbw" in text:
            raise _no_rows(name, failures[0] if failures else None)
        raise UsageError(f"'{name}' looks like a log without a table; {_WANTED}")
    return ReadFile(
        name=name,
        tables=tuple(sorted(tables, key=lambda table: int(table.where.split()[1]))),
        odd=tuple(f"line {number}: {words}" for number, words in odd),
    )


def _no_rows(name: str, failure: str | None) -> UsageError:
    said = f': the program ended with "{failure}"' if failure else ""
    return UsageError(f"'{name}' has no row with figures{said}; {_WANTED} of a run that measured")
