"""Suites: what to ask, in TOML. Every key has a default, so a file says only what differs.

``load_suite`` reads one, ``override`` lays options over it, ``resolve`` fills what depends on the
machine (``"auto"``) and checks everything before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from collbench.collectives import (
    ITEM_BYTES,
    REDOPS,
    collective_named,
    dtype_named,
    redop_named,
)
from collbench.errors import SuiteError, UsageError, nearest
from collbench.model import Mode, Pattern, Policy
from collbench.units import format_size, parse_duration, parse_share, parse_size

T = TypeVar("T")
SUITE_SCHEMA = 1
AUTO = "auto"
IN_PLACE = ("natural", "yes", "no", "both")
BACKENDS = ("auto", "nccl", "gloo")
ALL_ROOTS = -1

_LARGEST = {True: 2**30, False: 16 * 2**20}
_MAX_TIME_S = {True: 1.0, False: 0.5}
_MODES = {True: (Mode.EAGER, Mode.GRAPH), False: (Mode.EAGER,)}
_MOST_SIZES = 1000


class Ladder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes from ``min`` to ``max``, each ``factor`` times (or ``step`` more than) the last."""

    min: str = "4"
    max: str = AUTO
    factor: float | None = None
    step: str | None = None


class Questions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The axes: a sweep is their product."""

    collectives: list[str] = msgspec.field(
        default_factory=lambda: ["all_reduce", "all_gather", "reduce_scatter"]
    )
    dtypes: list[str] = msgspec.field(default_factory=lambda: ["float32"])
    redops: list[str] = msgspec.field(default_factory=lambda: ["sum"])
    roots: list[int] = msgspec.field(default_factory=lambda: [0])
    sizes: Ladder | list[str] = Ladder()
    modes: str | list[str] = AUTO
    pattern: str = "back_to_back"
    in_place: str = "natural"


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """On what, and how often."""

    backend: str = AUTO
    ranks: int | str = AUTO
    gpus: int | str = AUTO
    repeats: int = 1
    seed: int = 0
    """0: drawn, and recorded."""


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How each case is measured."""

    precision: str = "2%"
    max_time: str = AUTO
    samples: int = 0
    """0: by precision."""
    warmup: int | str = AUTO
    check: bool = True
    deadline: str = "60s"
    init_deadline: str = "120s"


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite file's content."""

    schema: int = SUITE_SCHEMA
    name: str = "unnamed"
    description: str = ""
    sweep: Questions = Questions()
    run: Place = Place()
    measure: Measure = Measure()


class ResolvedSuite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite with nothing left to guess: what the plan and the record take."""

    name: str
    collectives: list[str]
    dtypes: list[str]
    redops: list[str]
    roots: list[int]
    sizes: list[int]
    """Bytes asked for."""
    modes: list[Mode]
    pattern: Pattern
    in_place: str
    repeats: int
    seed: int
    policy: Policy


def suite_folder() -> Path:
    """Returns where the shipped suites lie: beside the package's source, or in the wheel."""
    package = Path(__file__).parent
    inside = package / "suites"
    return inside if inside.is_dir() else package.parent / "suites"


def find_suite(name: str) -> Path:
    """Returns a suite's file by its path or by the name of a shipped one.

    Raises:
        SuiteError: neither.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = {file.stem: file for file in sorted(suite_folder().glob("*.toml"))}
    if name in shipped:
        return shipped[name]
    raise SuiteError(
        f"suite '{name}' is no file and no shipped suite{nearest(name, shipped) or ';'}"
        f" shipped: {', '.join(shipped)}"
    )


def load_suite(name: str) -> Suite:
    """Returns the suite in a file (path, or name of a shipped one).

    Raises:
        SuiteError: not found, not TOML, an unknown key, a value of the wrong type.
    """
    path = find_suite(name)
    try:
        raw = msgspec.toml.decode(path.read_bytes())
    except OSError as problem:
        raise SuiteError(f"{path} cannot be read: {problem.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise SuiteError(f"{path} is not TOML: {problem}") from None
    if (
        isinstance(raw, dict)
        and isinstance(raw.get("schema"), int)
        and raw["schema"] > SUITE_SCHEMA
    ):
        raise SuiteError(
            f"{path}: schema {raw['schema']} is newer than {SUITE_SCHEMA}; upgrade collbench"
        )
    _refuse_unknown_keys(path, raw, Suite, ())
    try:
        return msgspec.convert(raw, Suite)
    except msgspec.ValidationError as problem:
        what, _, where = str(problem).partition(" - at ")
        key = where.strip("`").removeprefix("$.") or "the file"
        raise SuiteError(f"{path}: {key}: {what}") from None


def _refuse_unknown_keys(
    path: Path, raw: object, kind: type[msgspec.Struct], trail: tuple[str, ...]
) -> None:
    """Refuses keys that no suite has, with their place in the file and the nearest known one."""
    if not isinstance(raw, dict):
        return
    tables: dict[str, type[msgspec.Struct]] = {
        "sweep": Questions,
        "run": Place,
        "measure": Measure,
        "sizes": Ladder,
    }
    for key, value in raw.items():
        known = kind.__struct_fields__
        if key not in known:
            place = ".".join((*trail, key))
            raise SuiteError(
                f"{path}: unknown key {place}{nearest(key, known) or ';'}"
                f" allowed: {', '.join(known)}"
            )
        if key in tables:
            _refuse_unknown_keys(path, value, tables[key], (*trail, key))


def override(suite: Suite, **options: object) -> Suite:
    """Returns the suite with options laid over it; None is "not given".

    Args:
        suite: from a file.
        options: fields of ``Questions``, ``Place`` or ``Measure`` by name.
    """
    given = {key: value for key, value in options.items() if value is not None}
    parts: dict[str, msgspec.Struct] = {}
    for name in ("sweep", "run", "measure"):
        part = getattr(suite, name)
        mine = {key: given.pop(key) for key in list(given) if key in part.__struct_fields__}
        parts[name] = msgspec.structs.replace(part, **mine)
    assert not given, given
    return msgspec.structs.replace(suite, **parts)


def resolve(suite: Suite, *, gpu: bool) -> ResolvedSuite:
    """Returns the suite with nothing left to guess.

    Args:
        suite: with all options laid over it.
        gpu: whether it runs on GPUs; decides what ``"auto"`` means.

    Raises:
        UsageError: a name, a size or a number that cannot be.
    """
    asked, place, measure = suite.sweep, suite.run, suite.measure
    _at_least("repeats", place.repeats, 1)
    _at_least("samples", measure.samples, 0)
    _at_least("seed", place.seed, 0)
    policy = Policy(
        precision=parse_share(measure.precision),
        max_time_s=_MAX_TIME_S[gpu] if measure.max_time == AUTO else _time(measure.max_time),
        samples=measure.samples or None,
        warmup=None if measure.warmup == AUTO else _whole("warmup", measure.warmup, 1),
        check=measure.check,
        deadline_s=_time(measure.deadline),
        init_deadline_s=_time(measure.init_deadline),
    )
    modes = _MODES[gpu] if asked.modes == AUTO else _modes(asked.modes)
    return ResolvedSuite(
        name=suite.name,
        collectives=_unique(collective_named(word).name for word in asked.collectives),
        dtypes=_unique(_expand(asked.dtypes, ITEM_BYTES, dtype_named)),
        redops=_unique(_expand(asked.redops, REDOPS, redop_named)),
        roots=_roots(asked.roots),
        sizes=_sizes(asked.sizes, gpu),
        modes=list(modes),
        pattern=Pattern(_one_of("pattern", asked.pattern, [str(p) for p in Pattern])),
        in_place=_one_of("in_place", asked.in_place, IN_PLACE),
        repeats=place.repeats,
        seed=place.seed,
        policy=policy,
    )


def _expand(
    words: Sequence[str], everything: Iterable[str], named: Callable[[str], str]
) -> list[str]:
    return list(everything) if "all" in words else [named(word) for word in words]


def _modes(words: str | list[str]) -> tuple[Mode, ...]:
    listed = [words] if isinstance(words, str) else words
    allowed = [str(mode) for mode in Mode]
    return tuple(Mode(word) for word in _unique(_one_of("mode", w, allowed) for w in listed))


def _roots(roots: Sequence[int]) -> list[int]:
    for root in roots:
        if root < ALL_ROOTS:
            raise UsageError(f"root {root} must be a rank from 0, or -1 for every rank in turn")
    return _unique(roots)


def _sizes(asked: Ladder | list[str], gpu: bool) -> list[int]:
    if isinstance(asked, list):
        sizes = [_size(text) for text in asked]
        if not sizes:
            raise UsageError("sizes: the list is empty; write for instance 8,64K,1M")
        return sorted(set(sizes))
    smallest = _size(asked.min)
    largest = max(_LARGEST[gpu], smallest) if asked.max == AUTO else _size(asked.max)
    if smallest > largest:
        raise UsageError(
            f"sizes: min {format_size(smallest)} is above max {format_size(largest)};"
            " give -b a smaller or -e a larger size"
        )
    if asked.step is not None and asked.factor is not None:
        raise UsageError("sizes: factor and step cannot both be; choose -f or -i")
    if asked.step is not None:
        return _ladder(smallest, largest, lambda size: size + _size(str(asked.step)))
    factor = 4.0 if asked.factor is None else asked.factor
    if factor <= 1:
        raise UsageError(f"sizes: factor {factor:g} must be above 1, for instance 2 or 4")
    return _ladder(smallest, largest, lambda size: max(size + 1, round(size * factor)))


def _ladder(smallest: int, largest: int, above: Callable[[int], int]) -> list[int]:
    """Returns sizes from the smallest on; the largest always ends it."""
    sizes, size = [], smallest
    while size < largest:
        sizes.append(size)
        if len(sizes) > _MOST_SIZES:
            raise UsageError(f"sizes: more than {_MOST_SIZES} sizes; take a larger -f or -i")
        size = above(size)
    return [*sizes, largest]


def _size(text: str) -> int:
    size = parse_size(str(text))
    if size == 0:
        raise UsageError("size 0 must be at least 1 byte; an empty message measures nothing")
    return size


def _time(text: str) -> float:
    return parse_duration(text)


def _at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"{what} {value} must be at least {least}")


def _whole(what: str, value: int | str, least: int) -> int:
    if not isinstance(value, int):
        raise UsageError(f"{what} '{value}' must be a whole number or 'auto'")
    _at_least(what, value, least)
    return value


def _one_of(what: str, word: str, allowed: Sequence[str]) -> str:
    if word not in allowed:
        raise UsageError(
            f"unknown {what} '{word}'{nearest(word, allowed) or ';'} allowed: {', '.join(allowed)}"
        )
    return word


def _unique(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
