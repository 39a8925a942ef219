"""A report's content as sections of tables and lines, and two ways to write it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from collbench.report.closing import wrapped
from collbench.report.text_table import new_table, table_text

_MARKUP = "\\`*|<"
"""Underscores and brackets of our words and intervals mean nothing to Markdown where they stand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A heading, a table, lines below it."""

    title: str
    head: Sequence[str] = ()
    """The table's columns; one whose name begins with ``<`` is aligned left."""
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()


def sections_text(opening: Sequence[str], sections: Sequence[Section]) -> str:
    """Returns a report as text; lines have at most 120 columns, tables and titles what they need.

    Args:
        opening: the title, then lines that must be read before all else.
        sections: the rest.
    """
    title, *rest = opening
    lines = [title, *(part for line in rest for part in wrapped(line, "", "  "))]
    for section in sections:
        lines += ["", section.title]
        if section.head:
            lines += [f"  {line}".rstrip() for line in _table(section).splitlines()]
        for line in section.lines:
            lines += wrapped(line, "  ", "    ")
    return "\n".join(lines)


def sections_markdown(opening: Sequence[str], sections: Sequence[Section]) -> str:
    """Returns the same as Markdown."""
    title, *rest = opening
    lines = [f"**{_escaped(title)}**"]
    if rest:
        lines += ["", *(f"- {_escaped(line)}" for line in rest)]
    for section in sections:
        lines += ["", f"## {_escaped(section.title)}"]
        if section.head:
            lines += ["", *_pipes(section)]
        if section.lines:
            lines += ["", *(f"- {_escaped(line)}" for line in section.lines)]
    return "\n".join(lines)


def _table(section: Section) -> str:
    table = new_table()
    for name in section.head:
        table.add_column(name.lstrip("<"), justify="left" if name.startswith("<") else "right")
    for row in section.rows:
        # As Text: brackets in a cell are no markup.
        table.add_row(*(Text(cell) for cell in row))
    return table_text(table)


def _pipes(section: Section) -> list[str]:
    marks = (":--" if name.startswith("<") else "--:" for name in section.head)
    head = f"| {' | '.join(name.lstrip('<') for name in section.head)} |"
    rows = [f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in section.rows]
    return [head, f"| {' | '.join(marks)} |", *rows]


def _escaped(text: str) -> str:
    """Returns text that Markdown shows as it is."""
    return "".join(f"\\{one}" if one in _MARKUP else one for one in text)
