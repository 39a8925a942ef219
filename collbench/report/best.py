"""Best settings as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from collbench.analyze.best_table import DEFAULT, BestRow, BestTable, conclusion, saved_text
from collbench.model import Proof
from collbench.report.proof import ran_text
from collbench.report.repeats_command import repeats_command
from collbench.report.table import WIDTH
from collbench.report.text_table import new_table, table_text
from collbench.units import format_size, format_time_us


def best_lines(table: BestTable, argv: Sequence[str] = ("sweep",)) -> list[str]:
    """Returns the table, a row a size, and what follows from it.

    Args:
        table: of a run.
        argv: the run's own command line, for the command that measures enough repeats.
    """
    if table.needs_repeats:
        return [f"{conclusion(table)}: {repeats_command(argv)}"]
    counts = f"{table.settings} settings, {table.repeats} repeats"
    meaning = "against default: the best's time, [interval sure over all rows]"
    lines = [f"Best settings: {counts}; {meaning}"]
    for group in table.groups():
        lines += ["", table.name(group[0]), *table_text(_table(group)).splitlines()]
    if table.without_default:
        lines.append(f"  left out: {_without_default(table)}")
    text = conclusion(table)
    return [*lines, "", *textwrap.wrap(f"{text[:1].upper()}{text[1:]}.", WIDTH)]


def best_json(table: BestTable) -> dict[str, Any]:
    """Returns the table for JSON; what is not known is null, never NaN."""
    return {
        "repeats": table.repeats,
        "settings": table.settings,
        "needs_repeats": table.needs_repeats,
        "conclusion": conclusion(table),
        "rows": [_row_json(row) for row in table.rows],
        "without_default": [case.case_id for case in table.without_default],
    }


def _table(group: Sequence[BestRow]) -> Any:
    table = new_table()
    for head in ("size", "default us", "ran", "best", "best us", "against default", ""):
        right = head in ("size", "default us", "best us")
        table.add_column(head, justify="right" if right else "left")
    for row in group:
        won = row.best.winner != DEFAULT
        table.add_row(
            format_size(row.key.size_bytes),
            format_time_us(row.default_us),
            _ran(row.default_ran),
            row.best.winner if won else "-",
            format_time_us(row.winner_us) if won else "-",
            saved_text(row.best),
            _why(row),
        )
    return table


def _ran(proofs: Sequence[Proof]) -> str:
    return " or ".join(ran_text(proof) for proof in proofs) or "-"


def _why(row: BestRow) -> str:
    """Returns ``faster``, or why nothing is claimed."""
    if row.best.claimed:
        return "faster"
    if row.best.winner != DEFAULT and row.same_ran:
        return "the same ran"
    return row.best.reason or ""


def _without_default(table: BestTable) -> str:
    shown = [f"{case.collective} {format_size(case.size_bytes)}" for case in table.without_default]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"{', '.join(shown[:3])}{more}: the default has no time there"


def _row_json(row: BestRow) -> dict[str, Any]:
    best = row.best
    return {
        "case_id": row.case.case_id,
        "collective": row.case.collective,
        "dtype": row.case.dtype,
        "mode": str(row.case.mode),
        "in_place": row.case.in_place,
        "size_bytes": row.key.size_bytes,
        "repeats": row.repeats,
        "default_us": row.default_us,
        "default_ran": [ran_text(proof) for proof in row.default_ran],
        "winner": best.winner,
        "winner_us": row.winner_us,
        "winner_ran": [ran_text(proof) for proof in row.winner_ran],
        "claimed": best.claimed,
        "gap": best.gap,
        "gap_low": best.low,
        "gap_high": best.high,
        "p": best.p,
        "reason": best.reason,
    }
