"""Where finished pictures go, and what a reader can ask of their points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

FORMATS = ("png", "svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place of a picture with words of its own, in the coordinates of its axes' data."""

    axes: Any
    """matplotlib's."""
    x: float
    y: float
    text: str
    width: float = 0.0
    """Of a cell whose middle is at x, y; 0: a point."""
    height: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The figures behind a picture."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_out: int = 0
    """Rows that are not shown."""


Details = Callable[[], tuple[Sequence[Spot], Table]]
"""Returns the words of a picture's points or cells, and the figures behind it."""


class Album(Protocol):
    """Takes pictures as they are finished; a figure is closed after it."""

    def add(self, figure: Any, name: str, title: str, details: Details) -> list[Path]:
        """Keeps a picture.

        Args:
            figure: matplotlib's, drawn.
            name: of its file, without an ending.
            title: what it shows, in a few words.
            details: asked for only where they are shown.

        Returns:
            The files written.
        """


class FilesAlbum:
    """Writes each picture as PNG and SVG.

    Args:
        folder: where the files go; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, figure: Any, name: str, title: str, details: Details) -> list[Path]:
        """Writes ``name.png`` and ``name.svg``."""
        del title, details
        paths = [self._folder / f"{name}.{suffix}" for suffix in FORMATS]
        for path in paths:
            figure.savefig(path, dpi=150)
        return paths
