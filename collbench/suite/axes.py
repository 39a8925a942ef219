"""The axes of NCCL's settings: from the words of a suite or an option to the settings to measure.

The readers raise ``UsageError`` as those of ``values`` do.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from collbench.errors import UsageError, nearest
from collbench.nccl.grammar import ALGORITHMS, PROTOCOLS, canonical_choice, split_choices
from collbench.nccl.settings import ALG_SELECTION, IB, LIBRARY, PLUGIN
from collbench.nccl.variables import MANAGED, SECRET_NAME

DEFAULT = "default"
"""The word for "not set": what NCCL chooses by itself."""
MOST_SETTINGS = 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.: -]*")
_ON_OFF = ("on", "off", DEFAULT)
_OWN_OPTION = {"NCCL_ALGO": "--algo", "NCCL_PROTO": "--proto", "NCCL_NET": "--net"}

Axis = tuple[Mapping[str, str], ...]
"""The values of one axis, each as what it adds to a setting."""


def read_algorithms(words: Sequence[str]) -> tuple[str, ...]:
    """Returns values of NCCL_ALGO in NCCL's spelling; ``all`` is every algorithm."""
    return _choices("algorithm", words, ALGORITHMS)


def read_protocols(words: Sequence[str]) -> tuple[str, ...]:
    """Returns values of NCCL_PROTO in NCCL's spelling; ``all`` is every protocol."""
    return _choices("protocol", words, PROTOCOLS)


def _choices(
    kind: Literal["algorithm", "protocol"], words: Sequence[str], everything: Sequence[str]
) -> tuple[str, ...]:
    found: list[str] = []
    for word in words:
        for text in split_choices(word):
            whole = text.strip().lower() == "all"
            found += everything if whole else [canonical_choice(kind, text)]
    return tuple(dict.fromkeys(found))


def read_ib(words: Sequence[str]) -> tuple[str, ...]:
    """Returns ``on``, ``off`` or both, in the order asked for; ``default``: as it comes."""
    for word in words:
        if word not in _ON_OFF:
            raise UsageError(
                f"'{word}' is not allowed; allowed: on, off, on,off for both, or default"
            )
    return tuple(dict.fromkeys(words))


def read_networks(words: Sequence[str]) -> tuple[str, ...]:
    """Returns values of NCCL_NET: ``IB``, ``Socket``, a plug-in's name, or ``default``."""
    for word in words:
        if not _NETWORK.fullmatch(word):
            raise UsageError(f"'{word}' names no network; write for instance IB, Socket or default")
    return tuple(dict.fromkeys(words))


def read_selections(words: Sequence[str]) -> tuple[str, ...]:
    """Returns values of NCCL's per-call choice, as they stand: NCCL itself judges them."""
    for word in words:
        if not word.strip():
            raise UsageError("an empty choice; write for instance ring, or tree,ring")
    return tuple(dict.fromkeys(words))


def read_variables(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the values of each variable, from ``KEY=VALUE`` texts; a value is taken whole."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UsageError(f"'{pair}' is no KEY=VALUE; write for instance NCCL_BUFFSIZE=8388608")
        if SECRET_NAME.search(name):
            raise UsageError(
                f"{name} looks like a secret, and settings are stored with the results; set it in"
                " the environment of the command instead"
            )
        if name in MANAGED:
            raise UsageError(f"{name} cannot be set so: {MANAGED[name]}")
        if name in _OWN_OPTION:
            raise UsageError(f"{name} has an option of its own; write {_OWN_OPTION[name]} {value}")
        if "\0" in value:
            raise UsageError(f"the value of {name} holds a null byte, which no variable can")
        values = found.setdefault(name, [])
        values += [value] if value not in values else []
    return {name: tuple(values) for name, values in found.items()}


def read_settings(texts: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Returns whole settings from texts such as ``NCCL_ALGO=Tree NCCL_PROTO=Simple``.

    Words are parted as a shell does it, so that a value in quotes may hold blanks. ``ib=off`` is a
    word as well; ``default`` is the empty setting.
    """
    return tuple(_setting(text) for text in texts)


def _setting(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise UsageError(f"'{text}' is no setting: {problem}; close the quotes") from None
    if not words:
        raise UsageError("an empty setting; write for instance NCCL_ALGO=Tree, or default")
    found: dict[str, str] = {}
    for word in [] if words == [DEFAULT] else words:
        name, _, value = word.partition("=")
        if name in found:
            raise UsageError(f"'{text}' sets {name} twice; leave one out")
        match name:
            case "NCCL_ALGO":
                found[name] = canonical_choice("algorithm", value)
            case "NCCL_PROTO":
                found[name] = canonical_choice("protocol", value)
            case "NCCL_NET":
                found[name] = read_networks([value])[0]
            case "ib":
                found[IB] = read_ib([value])[0]
            case _:
                found |= {key: values[0] for key, values in read_variables([word]).items()}
    return found


def product_of_axes(
    *,
    algorithms: Sequence[str],
    protocols: Sequence[str],
    ib: Sequence[str],
    networks: Sequence[str],
    variables: Mapping[str, Sequence[str]],
    selections: Sequence[str],
    libraries: Sequence[str] = (),
    plugins: Mapping[str, str] | None = None,
    whole: Sequence[Mapping[str, str]] = (),
    reference: bool,
) -> tuple[dict[str, str], ...]:
    """Returns all settings, each once; without axes the empty one alone.

    Args:
        algorithms: values of NCCL_ALGO; ``default``: not set.
        protocols: values of NCCL_PROTO.
        ib: ``on``, ``off``.
        networks: values of NCCL_NET.
        variables: values of each further variable.
        selections: values of the per-call choice.
        libraries: names of NCCL libraries.
        plugins: the network plug-ins of some of them, which go with the library.
        whole: settings that are given as wholes.
        reference: also each combination of the others with neither algorithm nor protocol set.

    Raises:
        UsageError: axes that contradict each other, or too many settings.
    """
    if ib and networks:
        raise UsageError(
            "--ib and --net cannot both be given: --ib sets NCCL_NET itself; leave one out"
        )
    if ib and "NCCL_IB_DISABLE" in variables:
        raise UsageError("--ib and NCCL_IB_DISABLE cannot both be given; leave one out")
    by_axes = {
        *(["NCCL_ALGO"] if algorithms else []),
        *(["NCCL_PROTO"] if protocols else []),
        *([IB, "NCCL_NET", "NCCL_IB_DISABLE"] if ib else []),
        *(["NCCL_NET", IB] if networks else []),
        *variables,
        *([PLUGIN] if plugins else []),
    }
    if plugins and PLUGIN in variables:
        raise UsageError(
            f"--nccl NAME=PATH,plugin=... and --env {PLUGIN} both say it; leave one out"
        )
    for name in sorted({name for setting in whole for name in setting} & by_axes):
        raise UsageError(f"--setting and an option of its own both say {name}; say it in one place")
    choice = [_axis("NCCL_ALGO", algorithms), _axis("NCCL_PROTO", protocols)]
    others = [
        _axis(IB, ib),
        _axis("NCCL_NET", networks),
        _axis(ALG_SELECTION, selections),
        tuple(whole) or ({},),
        tuple(_library(name, plugins or {}) for name in libraries) or ({},),
        # Of a variable every text is a value, the word default too.
        *(tuple({name: value} for value in values) for name, values in variables.items()),
    ]
    found: list[dict[str, str]] = []
    for rest in itertools.product(*others):
        if reference:
            found.append(_merged(rest))
        found += [_merged((*chosen, *rest)) for chosen in itertools.product(*choice)]
        if len(found) > MOST_SETTINGS:
            raise UsageError(f"more than {MOST_SETTINGS} settings; take fewer values an axis")
    return tuple(dict(pairs) for pairs in dict.fromkeys(tuple(s.items()) for s in found))


def _library(name: str, plugins: Mapping[str, str]) -> dict[str, str]:
    plugin = plugins.get(name)
    return {LIBRARY: name} | ({} if plugin is None else {PLUGIN: plugin})


def _axis(name: str, values: Iterable[str]) -> Axis:
    return tuple({} if value == DEFAULT else {name: value} for value in values) or ({},)


def _merged(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for part in parts for name, value in part.items()}


def one_of(what: str, word: str, allowed: Sequence[str]) -> str:
    """Returns the word if it is allowed.

    Raises:
        UsageError: it is not.
    """
    if word not in allowed:
        raise UsageError(
            f"unknown {what} '{word}'{nearest(word, allowed) or ';'} allowed: {', '.join(allowed)}"
        )
    return word
