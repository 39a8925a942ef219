"""Sets of cores as text, the way the kernel writes them: ``0-7,16``."""

from __future__ import annotations

from collections.abc import Iterable


def format_cores(cores: Iterable[int]) -> str:
    """Returns ``0-7,16`` for a set of cores; empty text for none."""
    ordered = sorted(set(cores))
    runs: list[list[int]] = []
    for core in ordered:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_cores(text: str) -> frozenset[int]:
    """Returns the cores that ``0-7,16`` names."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)
