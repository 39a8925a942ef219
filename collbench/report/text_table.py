"""Tables as text: right-aligned columns without lines around them."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table


def new_table() -> Table:
    """Returns an empty table in this project's looks."""
    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")


def table_text(table: Table) -> str:
    """Returns a table as lines, none with blanks at its end."""
    stream = io.StringIO()
    Console(file=stream, width=400, color_system=None, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
