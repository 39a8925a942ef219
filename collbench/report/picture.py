"""What all pictures share: their looks, the heading, the mark of what is not real."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from collbench.model import Run, Topology
from collbench.report.heading import heading

SETTINGS: Any = {
    "font.size": 12,
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
"""For matplotlib."""
TITLE_COLUMNS = 105


def heading_text(run: Run, topology: Topology) -> str:
    """Returns the lines that say on what a picture stands."""
    first, _, rest = heading(run, topology).partition(" | ")
    return wrapped_title([first, f"{rest} | run {run.run_id}"])


def wrapped_title(paragraphs: Sequence[str]) -> str:
    """Returns paragraphs in lines that fit over a picture."""
    return "\n".join(line for text in paragraphs for line in textwrap.wrap(text, TITLE_COLUMNS))


def draw_mark(figure: Any, run: Run) -> None:
    """Writes across a picture what shows no network or no hardware."""
    draw_words(figure, _mark(run))


def draw_words(figure: Any, words: str) -> None:
    """Writes words across a picture; nothing if there are none."""
    if words:
        place = {"ha": "center", "va": "center", "rotation": 30}
        figure.text(0.5, 0.5, words, fontsize=54, color="#BBBBBB", alpha=0.4, **place)


def _mark(run: Run) -> str:
    if run.simulated:
        return "SIMULATED"
    return "PLANTED FAULT" if run.planted else "EMULATED" if run.emulated else ""
