"""Slurm's compressed lists: ``gpu[001-003,7],login`` and ``2(x3),1``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from collbench.errors import UsageError

MOST_HOSTS = 100_000
_PART = re.compile(r"\[(?P<group>[^\[\]]*)\]|(?P<text>[^\[\],]+)")
_NAME = re.compile(r"(?:\[[^\[\]]*\]|[^\[\],])+")
_RANGE = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+))?")
_COUNT = re.compile(r"(?P<count>\d+)(?:\(x(?P<times>\d+)\))?")


def expand_hostlist(text: str) -> list[str]:
    """Returns the names that a compressed list stands for, in its order.

    A name may hold several groups in brackets, each a list of numbers and ranges; leading zeros
    are kept: ``rack[0-1]n[08-10]``.

    Raises:
        UsageError: it is no such list, or stands for more than ``MOST_HOSTS`` names.
    """
    names: list[str] = []
    rest = text.strip()
    while rest:
        match = _NAME.match(rest)
        if match is None:
            raise _no_list(text)
        names += _expand_name(match[0], text)
        if len(names) > MOST_HOSTS:
            raise _too_many(text)
        rest = rest[match.end() :]
        if rest and (rest[0] != "," or rest == ","):
            raise _no_list(text)
        rest = rest[1:].strip()
    return names


def expand_counts(text: str) -> list[int]:
    """Returns the numbers that ``2(x3),1`` stands for: 2, 2, 2, 1.

    Raises:
        UsageError: it is no such list.
    """
    counts: list[int] = []
    for word in text.split(","):
        match = _COUNT.fullmatch(word.strip())
        times = int(match["times"] or 1) if match else 0
        if match is None or len(counts) + times > MOST_HOSTS:
            raise UsageError(f"'{text}' is no list of counts; Slurm writes for instance 2(x3),1")
        counts += [int(match["count"])] * times
    return counts


def _expand_name(name: str, text: str) -> list[str]:
    choices: list[list[str]] = []
    total = 1
    for part in _PART.finditer(name):
        if part["text"] is not None:
            choices.append([part["text"]])
            continue
        numbers = list(itertools.islice(_numbers(part["group"], text), MOST_HOSTS + 1))
        total *= len(numbers)
        if total > MOST_HOSTS:
            raise _too_many(text)
        choices.append(numbers)
    return ["".join(parts) for parts in itertools.product(*choices)]


def _numbers(group: str, text: str) -> Iterator[str]:
    """Yields the numbers of one pair of brackets, as wide as the first of their range."""
    for word in group.split(","):
        match = _RANGE.fullmatch(word.strip())
        if match is None:
            raise _no_list(text)
        first, last = match["first"], match["last"] or match["first"]
        if int(last) < int(first):
            raise _no_list(text)
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def _no_list(text: str) -> UsageError:
    return UsageError(f"'{text}' is no list of nodes; write for instance gpu[001-003,7],login")


def _too_many(text: str) -> UsageError:
    return UsageError(f"'{text}' stands for more than {MOST_HOSTS} nodes; write a shorter list")
