"""By what cases of two sides are matched."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from collbench.analyze.curves import question
from collbench.model import Case, Mode


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseKey:
    """Two cases with one key ask the same; those of one mode share their noise estimate."""

    question: tuple[Hashable, ...]
    """Everything but mode and size."""
    mode: Mode
    size_bytes: int


def case_key(case: Case, *, setting: bool = True) -> CaseKey:
    """Returns the key of a case.

    Args:
        case: of either side.
        setting: False where the sides are two settings.
    """
    *words, mode = question(case)
    if not setting:
        # The swept variables stand before the mode.
        words = words[:-1]
    return CaseKey(question=tuple(words), mode=Mode(str(mode)), size_bytes=case.size_bytes)
