"""What each value of a suite may be: text and numbers to what the plan takes.

The readers raise ``UsageError`` with the value, what is allowed and what to do; whoever calls them
knows where the value comes from and puts that in front.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from collbench.collectives import ITEM_BYTES, REDOPS, collective_named, dtype_named, redop_named
from collbench.errors import UsageError
from collbench.model import Mode, Pattern
from collbench.suite.axes import (
    one_of,
    read_algorithms,
    read_ib,
    read_networks,
    read_protocols,
    read_selections,
    read_settings,
    read_variables,
)
from collbench.suite.schema import ALL_ROOTS, AUTO, BACKENDS, IN_PLACE, VIAS, Ladder, Suite
from collbench.units import format_size, parse_duration, parse_share, parse_size

T = TypeVar("T")
DEFAULT_FACTOR = 4.0
MOST_SIZES = 4096
_LARGEST_SIZE_BYTES = 2**50
_LARGEST_NUMBER = 2**31 - 1
_PLUGIN = ",plugin="
"""Between a library's path and its network plug-in."""
_NAMED_LIBRARY = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.+-]*)=(.*)", re.DOTALL)


def read_collectives(words: Sequence[str]) -> tuple[str, ...]:
    """Returns torch's names of the collectives, each once."""
    _some(words, "all_reduce, all_gather")
    return _unique(collective_named(word).name for word in words)


def read_dtypes(words: Sequence[str]) -> tuple[str, ...]:
    """Returns torch's names of the types; ``all`` is every one."""
    return _named_or_all(words, ITEM_BYTES, dtype_named)


def read_redops(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the operators; ``all`` is every one."""
    return _named_or_all(words, REDOPS, redop_named)


def read_roots(roots: Sequence[int]) -> tuple[int, ...]:
    """Returns the roots, each once."""
    _some(roots, "0, or -1 for every rank in turn")
    for root in roots:
        if not ALL_ROOTS <= root <= _LARGEST_NUMBER:
            raise UsageError(
                f"root {root} is no rank; allowed: a rank from 0, or -1 for every rank in turn"
            )
    return _unique(roots)


def read_modes(words: str | Sequence[str]) -> tuple[Mode, ...] | None:
    """Returns the modes, each once; None is "auto"."""
    if words == AUTO:
        return None
    listed = [words] if isinstance(words, str) else words
    _some(listed, "eager, graph")
    allowed = [str(mode) for mode in Mode]
    return tuple(Mode(word) for word in _unique(one_of("mode", w, allowed) for w in listed))


def read_pattern(word: str) -> Pattern:
    """Returns the pattern."""
    return Pattern(one_of("pattern", word, [str(pattern) for pattern in Pattern]))


def read_in_place(word: str) -> str:
    """Returns the word for the placements."""
    return one_of("placement", word, IN_PLACE)


def read_backend(word: str) -> str:
    """Returns the back end's name, or "auto"."""
    return one_of("back end", word, BACKENDS)


def read_via(word: str) -> str:
    """Returns through what NCCL is called."""
    return one_of("way", word, VIAS)


def read_libraries(value: str | Sequence[str]) -> dict[str, str | None]:
    """Returns paths of NCCL libraries by name; None is "the installed one".

    A single library needs no name: it has the empty one.
    """
    return {name: path for name, (path, _) in _libraries(value).items()}


def read_plugins(value: str | Sequence[str]) -> dict[str, str]:
    """Returns the network plug-ins of the libraries that have one, by the library's name."""
    return {name: plugin for name, (_, plugin) in _libraries(value).items() if plugin}


def _libraries(value: str | Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    texts = [value] if isinstance(value, str) else list(value)
    found: dict[str, tuple[str | None, str | None]] = {}
    for text in texts:
        match = _NAMED_LIBRARY.fullmatch(text)
        name, path = (match[1], match[2]) if match else ("", text)
        path, comma, plugin = path.partition(_PLUGIN)
        if comma and not (name and plugin.strip()):
            raise UsageError(
                f"'{text}': a plug-in belongs to a library with a name; write"
                f" NAME=PATH{_PLUGIN}/opt/lib/libnccl-net.so"
            )
        if not path.strip() or "\0" in path:
            raise UsageError(f"{path!r} is no path; give the path of a libnccl.so.2, or auto")
        if name in found or (len(texts) > 1 and not name):
            raise UsageError(
                f"'{text}': several libraries have a name of their own each; write NAME=PATH,"
                " for instance old=/opt/nccl/libnccl.so.2"
            )
        found[name] = (None if path == AUTO else path, plugin or None)
    return found


def read_fake_hosts(value: int) -> int | None:
    """Returns how many hosts to emulate; None is "none"."""
    return _within(value, 0, 4096) or None


def read_count(value: int | str) -> int | None:
    """Returns how many ranks, GPUs or warm-up samples; None is "auto"."""
    if value == AUTO:
        return None
    if isinstance(value, str):
        raise UsageError(f"'{value}' is no number; allowed: a whole number from 1, or auto")
    return _within(value, 1, _LARGEST_NUMBER)


def read_repeats(value: int) -> int:
    """Returns how many starts of fresh processes."""
    return _within(value, 1, 10_000)


def read_seed(value: int) -> int:
    """Returns the seed; 0 is "draw one"."""
    return _within(value, 0, 2**63 - 1)


def read_samples(value: int) -> int | None:
    """Returns the fixed number of samples; None is "by precision"."""
    return _within(value, 0, 1_000_000) or None


def read_precision(text: str) -> float:
    """Returns the precision as a fraction."""
    share = parse_share(text)
    if not 0.001 <= share <= 0.5:
        raise UsageError(f"precision '{text}' is out of range; allowed: 0.1% to 50%")
    return share


def read_max_time(text: str) -> float | None:
    """Returns a case's time at most, seconds; None is "auto"."""
    return None if text == AUTO else _seconds(text, 0.001, "1ms to 1h", 3600.0)


def read_deadline(text: str) -> float:
    """Returns how long nothing may move, seconds."""
    return _seconds(text, 0.1, "100ms to 24h", 86_400.0)


def read_walk(value: int | str) -> int | None:
    """Returns the bytes of a packed walk's buffer; None is "auto"."""
    return None if value == AUTO else _size(value, "walk")


def check_sizes(asked: Ladder | Sequence[int | str]) -> None:
    """Checks sizes as far as no ``"auto"`` is in the way.

    Raises:
        UsageError: a size that cannot be, or sizes that contradict each other.
    """
    if not isinstance(asked, Ladder):
        _listed_sizes(asked)
        return
    smallest = _size(asked.min)
    largest = smallest if asked.max == AUTO else _size(asked.max)
    if smallest > largest:
        raise UsageError(
            f"min {format_size(smallest)} is above max {format_size(largest)};"
            " take a smaller min (-b) or a larger max (-e)"
        )
    if asked.step is not None and asked.factor is not None:
        raise UsageError("factor and step cannot both be; take factor (-f) or step (-i)")
    if asked.step is not None:
        _size(asked.step, "step")
    if asked.factor is not None and not 1 < asked.factor < math.inf:
        raise UsageError(f"factor {asked.factor:g} must be above 1, for instance 2 or 4")


def read_sizes(asked: Ladder | Sequence[int | str], auto_max_bytes: int) -> tuple[int, ...]:
    """Returns the sizes in bytes, rising, each once; a ladder always ends at its maximum.

    Args:
        asked: a ladder or a list.
        auto_max_bytes: what ``max = "auto"`` stands for; a larger ``min`` is then the only size.
    """
    check_sizes(asked)
    if not isinstance(asked, Ladder):
        return _listed_sizes(asked)
    smallest = _size(asked.min)
    largest = max(smallest, auto_max_bytes) if asked.max == AUTO else _size(asked.max)
    if asked.step is not None:
        rungs = _steps(smallest, _size(asked.step, "step"))
    else:
        rungs = _powers(smallest, DEFAULT_FACTOR if asked.factor is None else asked.factor)
    sizes: list[int] = []
    for size in rungs:
        if size >= largest:
            break
        sizes.append(size)
        if len(sizes) >= MOST_SIZES:
            raise UsageError(
                f"more than {MOST_SIZES} sizes from {format_size(smallest)} to"
                f" {format_size(largest)}; take a larger factor (-f) or step (-i)"
            )
    return (*sizes, largest)


def _steps(smallest: int, step: int) -> Iterator[int]:
    size = smallest
    while True:
        yield size
        size += step


def _powers(smallest: int, factor: float) -> Iterator[int]:
    """Yields min x factor^k in whole bytes; a small factor's rungs that round alike come once."""
    exact, last = float(smallest), 0
    while True:
        size = round(exact)
        if size > last:
            yield size
            last = size
        exact *= factor


def _listed_sizes(asked: Sequence[int | str]) -> tuple[int, ...]:
    _some(asked, "8, 64K, 1M")
    return tuple(sorted({_size(size) for size in asked}))


def _size(value: int | str, what: str = "size") -> int:
    size = value if isinstance(value, int) else parse_size(value)
    if not 1 <= size <= _LARGEST_SIZE_BYTES:
        raise UsageError(f"{what} {value} is out of range; allowed: 1 byte to 1024T (1 PiB)")
    return size


def _seconds(text: str, least_s: float, allowed: str, most_s: float) -> float:
    seconds = parse_duration(text)
    if not least_s <= seconds <= most_s:
        raise UsageError(f"duration '{text}' is out of range; allowed: {allowed}")
    return seconds


def _within(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise UsageError(f"{value} is out of range; allowed: {least} to {most}")
    return value


def _some(values: Sequence[object], example: str) -> None:
    if not values:
        raise UsageError(f"the list is empty; write for instance {example}")


def _named_or_all(
    words: Sequence[str], everything: Iterable[str], named: Callable[[str], str]
) -> tuple[str, ...]:
    names = list(everything)
    _some(words, f"{names[0]}, or all")
    found = [names if word == "all" else [named(word)] for word in words]
    return _unique(name for part in found for name in part)


def _unique(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


_READERS: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        "sweep.collectives": read_collectives,
        "sweep.dtypes": read_dtypes,
        "sweep.redops": read_redops,
        "sweep.roots": read_roots,
        "sweep.sizes": check_sizes,
        "sweep.modes": read_modes,
        "sweep.pattern": read_pattern,
        "sweep.in_place": read_in_place,
        "sweep.algo": read_algorithms,
        "sweep.proto": read_protocols,
        "sweep.ib": read_ib,
        "sweep.net": read_networks,
        "sweep.env": read_variables,
        "sweep.alg_selection": read_selections,
        "sweep.settings": read_settings,
        "run.backend": read_backend,
        "run.via": read_via,
        "run.nccl": read_libraries,
        "run.fake_hosts": read_fake_hosts,
        "run.ranks": read_count,
        "run.gpus": read_count,
        "run.repeats": read_repeats,
        "run.seed": read_seed,
        "measure.precision": read_precision,
        "measure.max_time": read_max_time,
        "measure.samples": read_samples,
        "measure.warmup": read_count,
        "measure.walk": read_walk,
        "measure.deadline": read_deadline,
        "measure.init_deadline": read_deadline,
    }
)
"""Key -> what reads it. Keys that are a bool can be nothing else and are not here."""


def check_value(key: str, value: object) -> None:
    """Checks one value.

    Args:
        key: dotted, as in a suite file: ``sweep.dtypes``.
        value: of the type that the key has.

    Raises:
        UsageError: it cannot be.
    """
    if key in _READERS:
        _READERS[key](value)


def check_suite(suite: Suite) -> None:
    """Checks every value of a suite.

    Raises:
        UsageError: one cannot be; the text starts with its dotted key.
    """
    for key in _READERS:
        table, _, field = key.partition(".")
        try:
            check_value(key, getattr(getattr(suite, table), field))
        except UsageError as problem:
            raise UsageError(f"{key}: {problem}") from None
