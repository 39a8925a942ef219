"""NCCL's releases and the moments of their first uploads; more of them from a file.

``releases.csv`` holds what PyPI says of ``nvidia-nccl-cu12`` and ``nvidia-nccl-cu13``
(https://pypi.org/simple/NAME/ as JSON, ``upload-time``): of each version the first file still
there, of either package; a rebuild (``.post1``) counts as its version. Uploads are not always in
the order of versions (2.20.3 is dated after 2.20.5), so history goes by version, never by date.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from collbench.errors import UsageError

COLUMNS = ("version", "uploaded")

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_KNOWN = Path(__file__).with_name("releases.csv")


@dataclass(frozen=True)
class Release:
    """A version of NCCL and when it could first be installed."""

    version: str
    """Three numbers, as NCCL itself says it: 2.30.7."""
    uploaded: datetime
    """UTC, to the second."""


def release_order(version: str) -> tuple[int, ...]:
    """Returns what sorts versions as NCCL counts them: 2.9.9 stands before 2.10.3.

    Raises:
        UsageError: not three numbers with dots.
    """
    if not _VERSION.fullmatch(version):
        raise UsageError(f"NCCL version '{version}': three numbers are meant, as 2.30.7")
    return tuple(int(number) for number in version.split("."))


def known_releases() -> tuple[Release, ...]:
    """Returns the releases that collbench knows, in the order of their versions."""
    return _in_order({one.version: one for _, one in _rows(_KNOWN)})


def read_releases(path: Path) -> tuple[Release, ...]:
    """Returns the known releases and those of a file, in the order of their versions.

    A release that both have is dated by the file.

    Args:
        path: CSV with the columns ``version,uploaded``; a moment as ISO 8601, in UTC where it
            names no zone, or a date.

    Raises:
        UsageError: not readable, or not such a file: with its name and the line.
    """
    lines: dict[str, int] = {}
    releases = {one.version: one for one in known_releases()}
    for line, release in _rows(path):
        if release.version in lines:
            raise UsageError(
                f"{path} line {line}: {release.version} stands on line {lines[release.version]}"
                " already; keep one of them"
            )
        lines[release.version] = line
        releases[release.version] = release
    return _in_order(releases)


def _in_order(releases: dict[str, Release]) -> tuple[Release, ...]:
    return tuple(releases[version] for version in sorted(releases, key=release_order))


def _rows(path: Path) -> Iterator[tuple[int, Release]]:
    """Gives each release of a file with the number of its line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path}: the releases cannot be read: {why}") from None
    rows = csv.reader(text.splitlines())
    header = tuple(word.strip() for word in next(rows, []))
    if header != COLUMNS:
        raise UsageError(
            f"{path} line 1: '{','.join(header)}'; the line of names is meant: {','.join(COLUMNS)}"
        )
    for row in rows:
        if row:
            yield rows.line_num, _release(row, f"{path} line {rows.line_num}")


def _release(row: list[str], where: str) -> Release:
    if len(row) != len(COLUMNS):
        raise UsageError(f"{where}: {len(row)} fields; two are meant: 2.30.7,2026-06-09T03:23:15Z")
    version, moment = (field.strip() for field in row)
    try:
        release_order(version)
    except UsageError as problem:
        raise UsageError(f"{where}: {problem}") from None
    try:
        uploaded = datetime.fromisoformat(moment)
    except ValueError:
        raise UsageError(
            f"{where}: '{moment}' is no moment; 2026-06-09T03:23:15Z or 2026-06-09 is meant"
        ) from None
    if uploaded.tzinfo is None:
        uploaded = uploaded.replace(tzinfo=UTC)
    return Release(version, uploaded.astimezone(UTC).replace(microsecond=0))
