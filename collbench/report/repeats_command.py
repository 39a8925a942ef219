"""The command that measures what a run measured with more repeats."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from collbench.analyze.compare import ENOUGH_REPEATS

_NAMES = ("--repeats", "-N")
_WITH_VALUE = re.compile(r"--repeats=.*|-N.+")
_ONLY_HOW_IT_IS_SHOWN = "--json"


def repeats_command(argv: Sequence[str], repeats: int = ENOUGH_REPEATS) -> str:
    """Returns a run's own command line with so many repeats.

    Args:
        argv: the run's, from the command's name on.
        repeats: instead of what it says itself.
    """
    if argv and argv[0] == "import":
        return f"collbench import nccl-tests FILE..., of {repeats} runs of nccl-tests"
    words, rest = [], iter(argv)
    for word in rest:
        if word in _NAMES:
            next(rest, None)
        elif not _WITH_VALUE.fullmatch(word) and word != _ONLY_HOW_IT_IS_SHOWN:
            words.append(word)
    return shlex.join(["collbench", *words, "--repeats", str(repeats)])
