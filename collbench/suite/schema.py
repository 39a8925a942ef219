"""The shape of a suite file: tables, keys, defaults."""

from __future__ import annotations

import msgspec

SUITE_SCHEMA = 1
AUTO = "auto"
IN_PLACE = ("natural", "yes", "no", "both")
BACKENDS = ("auto", "nccl", "gloo")
VIAS = ("torch", "native")
ALL_ROOTS = -1
"""nccl-tests' word for every rank in turn."""


class Ladder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes from ``min`` to ``max``, each ``factor`` times (or ``step`` more than) the last.

    A size is text as on the command line (``"64K"``) or a number of bytes.
    """

    min: int | str = "4"
    max: int | str = AUTO
    factor: float | None = None
    """4 where neither factor nor step is given."""
    step: int | str | None = None


class Questions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The axes: a sweep is their product."""

    collectives: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter")
    dtypes: tuple[str, ...] = ("float32",)
    redops: tuple[str, ...] = ("sum",)
    roots: tuple[int, ...] = (0,)
    sizes: Ladder | tuple[int | str, ...] = Ladder()
    modes: str | tuple[str, ...] = AUTO
    pattern: str = "back_to_back"
    in_place: str = "natural"
    algo: tuple[str, ...] = ()
    """NCCL_ALGO; ``default``: not set."""
    proto: tuple[str, ...] = ()
    ib: tuple[str, ...] = ()
    """``on``, ``off``."""
    net: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """``KEY=VALUE`` texts; several of one key are swept."""
    alg_selection: tuple[str, ...] = ()
    """NCCL's per-call choice (2.31 and newer, native back end)."""
    settings: tuple[str, ...] = ()
    """Whole settings, each ``KEY=VALUE KEY=VALUE`` or ``default``: an axis of its own."""
    reference: bool = False
    """Also each case with neither algorithm nor protocol set."""


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """On what, and how often."""

    backend: str = AUTO
    ranks: int | str = AUTO
    gpus: int | str = AUTO
    via: str = "torch"
    """``native``: straight on the NCCL library."""
    nccl: str | tuple[str, ...] = AUTO
    """Path of a libnccl.so.2, for the native back end; or several, each ``NAME=PATH``."""
    fake_hosts: int = 0
    """So many hosts emulated on this machine; 0: none."""
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
    proof: bool = True
    """Read back what ran from NCCL's log."""
    walk: int | str = AUTO
    """Size of the buffer that calls walk through without gaps, as in nccl-tests."""
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


TABLES: dict[str, type[msgspec.Struct]] = {
    "": Suite,
    "sweep": Questions,
    "sweep.sizes": Ladder,
    "run": Place,
    "measure": Measure,
}
"""Dotted name of a table -> what it may hold."""


def override(suite: Suite, **options: object) -> Suite:
    """Returns the suite with options laid over it; None is "not given".

    Args:
        suite: from a file.
        options: fields of ``Questions``, ``Place`` or ``Measure`` by name.

    Raises:
        TypeError: no part of a suite has a field of that name.
    """
    given = {name: value for name, value in options.items() if value is not None}
    parts: dict[str, msgspec.Struct] = {}
    for name in ("sweep", "run", "measure"):
        part = getattr(suite, name)
        mine = {key: given.pop(key) for key in part.__struct_fields__ if key in given}
        parts[name] = msgspec.structs.replace(part, **mine)
    if given:
        raise TypeError(f"a suite has no {', '.join(given)}")
    return msgspec.structs.replace(suite, **parts)
