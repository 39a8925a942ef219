"""The values of NCCL_ALGO and NCCL_PROTO: which are well formed, and what they leave on.

NCCL reads both with one grammar (parseList in src/graph/tuning.cc, 2.24 and later): entries
separated by ``;``, each an optional function and ``:`` and then a list separated by ``,``; only
the first entry may lack the function; ``^`` before a list means all but these; case does not
matter. A value that breaks it makes every communicator fail to start, so it is refused here, before
anything runs. Releases before 2.24 know a plain list and ``^`` alone and skip words they do not
know.

Both variables reach five functions. All others (all_to_all, gather, scatter, send and receive) are
sends and receives, whose protocol NCCL chooses by NCCL_P2P_LL_THRESHOLD.
"""

from __future__ import annotations

from typing import Literal

from collbench.errors import UsageError, nearest

Kind = Literal["algorithm", "protocol"]
"""``algorithm`` for values of NCCL_ALGO, ``protocol`` for values of NCCL_PROTO."""

ALGORITHMS = ("Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain", "PAT")
"""In NCCL's spelling."""

PROTOCOLS = ("LL", "LL128", "Simple")
"""In NCCL's spelling."""

DEFAULT = "default"
"""The value that stands for a variable that is not set."""

_NAMES: dict[Kind, tuple[str, ...]] = {"algorithm": ALGORITHMS, "protocol": PROTOCOLS}

_FUNCTIONS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}


def ignores_choice(collective: str) -> bool:
    """Returns whether NCCL reads neither variable for a collective: a sweep would show noise."""
    return collective not in _FUNCTIONS


def split_choices(text: str) -> tuple[str, ...]:
    """Returns the values that one option or string of a suite holds, not yet checked.

    ``ring,tree`` holds two; text with ``:``, ``;`` or ``^`` is one value, because commas in it
    belong to NCCL.
    """
    if any(mark in text for mark in ":;^"):
        return (text.strip(),)
    return tuple(word.strip() for word in text.split(","))


def canonical_choice(kind: Kind, text: str) -> str:
    """Returns one value in NCCL's spelling, functions in lower case: ``allreduce:Tree,Ring``.

    Args:
        kind: which variable the value is for.
        text: a value as NCCL takes it, or ``default``; spaces around words are dropped.

    Raises:
        UsageError: an unknown name or function, a later entry without function, an empty list.
    """
    if text.strip().lower() == DEFAULT:
        return DEFAULT
    entries = []
    for index, entry in enumerate(text.split(";")):
        function, colon, listed = entry.rpartition(":")
        if index > 0 and not colon:
            raise UsageError(
                f"{kind} value '{text}' has '{entry.strip()}' without a function; only the first"
                f" entry may lack it: write FUNCTION:{entry.strip()}, with FUNCTION one of"
                f" {', '.join(_FUNCTIONS.values())}"
            )
        prefix = f"{_function_named(function)}:" if colon else ""
        entries.append(prefix + _canonical_list(kind, listed, text))
    return ";".join(entries)


def chosen(kind: Kind, value: str, collective: str) -> frozenset[str]:
    """Returns the algorithms (protocols) that a value leaves on for a collective.

    That is the whole set for ``default``, for a collective that the value does not name, and for
    one that ignores the variables. LL128, which NCCL enables by itself only where it knows it to be
    safe, counts as left on.

    Args:
        kind: which variable the value is for.
        value: as ``canonical_choice`` returns it.
        collective: torch.distributed's word.
    """
    names = frozenset(_NAMES[kind])
    if value == DEFAULT or ignores_choice(collective):
        return names
    left_on = names
    for entry in value.split(";"):
        function, colon, listed = entry.rpartition(":")
        if not colon or function == _FUNCTIONS[collective]:
            words = frozenset(listed.removeprefix("^").split(","))
            left_on = names - words if listed.startswith("^") else words
    return left_on


def _canonical_list(kind: Kind, listed: str, text: str) -> str:
    stripped = listed.strip()
    negation = "^" if stripped.startswith("^") else ""
    words = [word.strip() for word in stripped.removeprefix("^").split(",")]
    shown = f"{', '.join(_NAMES[kind])}, or {DEFAULT} alone"
    if not all(words):
        raise UsageError(f"{kind} value '{text}' has an empty name; allowed: {shown}")
    names = [_spelled(kind, word, _NAMES[kind], shown) for word in words]
    return negation + ",".join(dict.fromkeys(names))


def _function_named(word: str) -> str:
    functions = tuple(_FUNCTIONS.values())
    return _spelled("function", word.strip(), functions, ", ".join(functions))


def _spelled(what: str, word: str, allowed: tuple[str, ...], shown: str) -> str:
    found = {name.lower(): name for name in allowed}.get(word.lower())
    if found is None:
        raise UsageError(f"unknown {what} '{word}'{nearest(word, allowed) or ';'} allowed: {shown}")
    return found
