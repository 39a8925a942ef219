"""A setting: the swept variables of a case, and what they ask of the processes that run it.

In a case's record a setting is a plain dictionary: variables by name, and words of our own, ``ib``
(``on``, ``off``), ``alg_selection`` (NCCL's per-call choice) and ``nccl`` (the library, by the name
that the user gave it). An empty one is what the environment says by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collbench.model import Record
from collbench.nccl.grammar import ALGORITHMS, PROTOCOLS
from collbench.nccl.variables import ReadAt, read_at

IB = "ib"
ALG_SELECTION = "alg_selection"
LIBRARY = "nccl"
PLUGIN = "NCCL_NET_PLUGIN"
"""A network plug-in: with some sites as much a part of what is loaded as the library."""
LIBRARY_VARIABLE = "COLLBENCH_NCCL"
"""Names the library that a process is for: processes of two libraries are never shared."""
Changes = tuple[tuple[str, str | None], ...]
"""Variables in order of their names; None: not set."""

_IB_VARIABLES: Mapping[str, Mapping[str, str | None]] = {
    # NCCL_NET=Socket is the sure lever: NCCL_IB_DISABLE=1 leaves a network plug-in at work.
    "off": {"NCCL_NET": "Socket"},
    "on": {"NCCL_NET": None, "NCCL_IB_DISABLE": "0"},
}


class Needs(Record, frozen=True, kw_only=True):
    """What a setting needs, by what must be fresh for it: equal parts can be shared."""

    zygote: Changes
    worker: Changes
    communicator: Changes


def variables_of(setting: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the variables that a setting sets, or takes away (None)."""
    found: dict[str, str | None] = {}
    for name, value in setting.items():
        if name == IB:
            found |= _IB_VARIABLES[value]
        elif name == LIBRARY:
            found[LIBRARY_VARIABLE] = value
        elif name != ALG_SELECTION:
            found[name] = value
    return found


def swept_variables(settings: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Returns the names that any of the settings touches.

    A setting without one of them means "not set", whatever the environment says.
    """
    return frozenset(name for setting in settings for name in variables_of(setting))


def needs_of(setting: Mapping[str, str], swept: Iterable[str]) -> Needs:
    """Returns what a setting needs, beside others that touch the ``swept`` variables.

    Unset in a communicator's part is not the same as absent: the communicator before may have set
    it in the same process.
    """
    mine = variables_of(setting)
    parts: dict[ReadAt, list[tuple[str, str | None]]] = {when: [] for when in ReadAt}
    for name in sorted({*swept, *mine}):
        parts[read_at(name)].append((name, mine.get(name)))
    return Needs(
        zygote=tuple(parts[ReadAt.ZYGOTE]),
        worker=tuple(parts[ReadAt.WORKER]),
        communicator=tuple(parts[ReadAt.COMMUNICATOR]),
    )


def setting_text(setting: Mapping[str, str]) -> str:
    """Returns a setting in a few words: ``Ring/LL, ib off``; ``default`` where nothing is set."""
    words = []
    algorithm, protocol = setting.get("NCCL_ALGO"), setting.get("NCCL_PROTO")
    if algorithm or protocol:
        words.append("/".join(word for word in (algorithm, protocol) if word))
    for name, value in sorted(setting.items()):
        if name == IB:
            words.append(f"ib {value}")
        elif name == LIBRARY:
            words.append(f"NCCL {value}")
        elif name not in ("NCCL_ALGO", "NCCL_PROTO"):
            words.append(f"{name.removeprefix('NCCL_')}={value}")
    return ", ".join(words) or "default"


def settings_text(settings: Iterable[Mapping[str, str]]) -> str:
    """Returns several settings in words; an algorithm with every protocol stands by its name."""
    texts = list(dict.fromkeys(setting_text(setting) for setting in settings))
    for algorithm in ALGORITHMS:
        every = {f"{algorithm}/{protocol}" for protocol in PROTOCOLS}
        rests = dict.fromkeys(
            rest for text in texts for whole, _, rest in [text.partition(", ")] if whole in every
        )
        for rest in rests:
            tail = f", {rest}" if rest else ""
            mine = [text for text in texts if text in {whole + tail for whole in every}]
            if len(mine) == len(PROTOCOLS):
                texts[texts.index(mine[0])] = algorithm + tail
                texts = [text for text in texts if text not in mine]
    return "; ".join(texts)


def setting_order(setting: Mapping[str, str]) -> tuple[tuple[str, ...], int, int, str]:
    """Returns where a setting stands among others: by all else, then algorithm, then protocol.

    What is not set comes first.
    """
    algorithm, protocol = setting.get("NCCL_ALGO", ""), setting.get("NCCL_PROTO", "")
    rest = tuple(
        f"{name}={value}"
        for name, value in sorted(setting.items())
        if name not in ("NCCL_ALGO", "NCCL_PROTO")
    )
    return rest, _place(algorithm, ALGORITHMS), _place(protocol, PROTOCOLS), algorithm + protocol


def _place(value: str, names: Sequence[str]) -> int:
    if not value:
        return -1
    return names.index(value) if value in names else len(names)
