"""What a page shows below a command, held against what the command printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

_RUN_ID = re.compile(r"\b20\d{6}-\d{4}(-[0-9a-f]{4})?\b")
_AGE = re.compile(r"\b\d+ (s|min|h|d)\b(?= RUN)")


def masked(line: str) -> str:
    return " ".join(_AGE.sub("AGE", _RUN_ID.sub("RUN", " ".join(line.split()))).split())


def not_printed(shown: Sequence[str], text: str) -> str | None:
    """Returns the first line of a page that a command did not print below the line before it.

    ``...`` at the end of a line leaves its rest out, alone any number of lines.
    """
    there = iter([masked(line) for line in text.splitlines()])
    for wanted in map(masked, shown):
        if wanted in ("", "..."):
            continue
        if wanted.endswith("..."):
            found = any(line.startswith(wanted.removesuffix("...")) for line in there)
        else:
            found = wanted in there
        if not found:
            return wanted
    return None
