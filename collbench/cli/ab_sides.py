"""The sides of an ``ab`` run held against the first, for the run at its end and for ``show``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from collbench.analyze.compared import Compared
from collbench.analyze.readings import held_against_first, not_compared
from collbench.errors import UsageError
from collbench.report.comparison import comparison_text
from collbench.store import StoredRun
from collbench.units import parse_share

THRESHOLD_OPTION = "--threshold"
FAIL_ON_OPTION = "--fail-on"
_THRESHOLD = "3%"


def read_threshold(text: str) -> float:
    """Returns the share below which a change is of no interest.

    Raises:
        UsageError: it is no share; names the option.
    """
    try:
        return parse_share(text)
    except UsageError as problem:
        raise UsageError(f"{THRESHOLD_OPTION}: {problem}") from None


def threshold_of(stored: StoredRun) -> float:
    """Returns the threshold that a stored run's own command line says."""
    return read_threshold(said_in(stored.run.argv, THRESHOLD_OPTION) or _THRESHOLD)


def said_in(argv: Sequence[str], option: str) -> str | None:
    """Returns the last value of an option on a command line, None where it has none."""
    found = None
    for word, following in pairwise(argv):
        found = following if word == option else found
    joined = [word.partition("=")[2] for word in argv if word.startswith(f"{option}=")]
    return joined[-1] if joined else found


def pairs_of(stored: StoredRun, threshold: float) -> list[Compared]:
    """Returns each side against the first, where both have a time.

    Args:
        stored: a run of ``ab``.
        threshold: a smaller change is of no interest, as a share.
    """
    return held_against_first(stored, _settings(stored), threshold)


def sides_lines(stored: StoredRun, threshold: float) -> list[str]:
    """Returns the comparisons as text, then the sides that could not be compared."""
    pairs = pairs_of(stored, threshold)
    texts = [comparison_text(pair).rstrip() for pair in pairs]
    left = "\n".join(not_compared(stored, _settings(stored), pairs))
    # Sides that all need more repeats need one command.
    blocks = dict.fromkeys([*texts, left] if left else texts)
    return [line for text in blocks for line in (*text.splitlines(), "")][:-1]


def _settings(stored: StoredRun) -> Sequence[Mapping[str, str]]:
    settings = stored.run.suite["settings"]
    assert isinstance(settings, list)
    return settings
