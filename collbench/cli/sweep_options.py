"""The options of ``sweep``: nccl-tests' letters and meanings, long names beside them.

An option is text until here, so that a wrong value gets this project's words. Its value goes over
the suite's; what the machine has to say to it comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from collbench.errors import UsageError
from collbench.suite import (
    ALL_ROOTS,
    AUTO,
    BACKENDS,
    IN_PLACE,
    Ladder,
    Suite,
    check_sizes,
    check_value,
    load_suite,
    override,
)
from collbench.units import parse_size

Command = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRequest:
    """What the user wants, before the machine is looked at."""

    suite: Suite
    """The file's, with the options over it; not yet resolved."""
    source: str
    """The suite's name or path as given."""
    results: str | None
    cluster: str | None
    as_json: bool
    dry_run: bool
    expect_gpus: int | None
    plant: str | None
    simulate: str | None


def _text(value: str) -> str:
    return value.strip()


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"'{value}' is no whole number; write for instance 5") from None


def _whole_from_1(value: str) -> int:
    number = _whole(value)
    if number < 1:
        raise UsageError(f"{number} must be at least 1")
    return number


def _whole_or_auto(value: str) -> int | str:
    return AUTO if value.strip() == AUTO else _whole(value)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"'{value}' is no number; write for instance 2") from None


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


def _sizes(value: str) -> tuple[str, ...]:
    words = _words(value)
    for word in words:
        parse_size(word)
    return words


def _roots(value: str) -> tuple[int, ...]:
    return tuple(ALL_ROOTS if word == "all" else _whole(word) for word in _words(value))


def _modes(value: str) -> str | tuple[str, ...]:
    words = _words(value)
    return AUTO if words == (AUTO,) else words


def _yes_or_no(value: str) -> bool:
    if value.strip() not in ("0", "1"):
        raise UsageError(f"'{value}' is not allowed; allowed: 0 (no check), 1 (check)")
    return value.strip() == "1"


def _graph(value: str) -> tuple[str, ...]:
    launches = _whole(value)
    if launches < 0:
        raise UsageError(f"{launches} must be 0 (eager only) or more (CUDA graph only)")
    return ("graph",) if launches else ("eager",)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Option:
    """An option: how it is spelt, read, and where in the suite it goes."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    """None: a flag."""
    key: str | None = None
    """The suite's key that it overrides; None: for the run alone, or with a rule of its own."""
    read: Callable[[str], object] = _text
    more: dict[str, Any] = field(default_factory=dict)
    """For click."""

    @property
    def param(self) -> str:
        """The name of its parameter."""
        return self.names[-1].lstrip("-").replace("-", "_")

    @property
    def label(self) -> str:
        """What errors call it: ``-d/--dtype``."""
        return "/".join(name for name in self.names if name.startswith("-"))


_OPTIONS = (
    _Option(
        names=("-b", "--min-size"),
        metavar="SIZE",
        read=parse_size,
        help="Smallest message, bytes: 8, 64K, 1M (binary) [4].",
    ),
    _Option(
        names=("-e", "--max-size"),
        metavar="SIZE",
        read=parse_size,
        help="Largest message, bytes; always measured [16M on a CPU, 1G on GPUs].",
    ),
    _Option(
        names=("-f", "--factor"),
        metavar="X",
        read=_number,
        help="Each size is X times the last [4].",
    ),
    _Option(
        names=("-i", "--step"),
        metavar="SIZE",
        read=parse_size,
        help="Each size is SIZE bytes more than the last, instead of -f.",
    ),
    _Option(
        names=("--sizes",),
        metavar="LIST",
        key="sweep.sizes",
        read=_sizes,
        help="These sizes and no others: 8,64K,1M.",
    ),
    _Option(
        names=("--collective",),
        metavar="LIST",
        key="sweep.collectives",
        read=_words,
        more={"multiple": True},
        help="all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather,"
        " scatter, send_recv; may be repeated [the first three].",
    ),
    _Option(
        names=("-d", "--dtype"),
        metavar="LIST",
        key="sweep.dtypes",
        read=_words,
        help="Element types: float32, bfloat16, int8, ..., or all [float32].",
    ),
    _Option(
        names=("-o", "--redop"),
        metavar="LIST",
        key="sweep.redops",
        read=_words,
        help="Operators of the reducing collectives: sum, prod, min, max, avg, or all [sum].",
    ),
    _Option(
        names=("-r", "--root"),
        metavar="LIST",
        key="sweep.roots",
        read=_roots,
        help="Root ranks of the rooted collectives; -1 for every rank in turn [0].",
    ),
    _Option(
        names=("--mode",),
        metavar="LIST",
        key="sweep.modes",
        read=_modes,
        help="eager (host included), graph (device time), eager_device"
        " [eager on a CPU, eager,graph on GPUs].",
    ),
    _Option(
        names=("-G", "--graph"),
        metavar="N",
        read=_graph,
        help="nccl-tests' spelling of --mode: 0 is eager, 1 or more is graph.",
    ),
    _Option(
        names=("--pattern",),
        metavar="WORD",
        key="sweep.pattern",
        help="back_to_back (a stream of calls) or isolated (each after a barrier) [back_to_back].",
    ),
    _Option(
        names=("--in-place",),
        metavar="WORD",
        key="sweep.in_place",
        help=f"{', '.join(IN_PLACE)}; natural is as programs call it [natural].",
    ),
    _Option(
        names=("--backend",),
        metavar="WORD",
        key="run.backend",
        help=f"{', '.join(BACKENDS)}; auto is gloo only where there is no GPU [auto].",
    ),
    _Option(
        names=("--ranks",),
        metavar="N",
        key="run.ranks",
        read=_whole_or_auto,
        help="Ranks [2 on a CPU, one a GPU].",
    ),
    _Option(
        names=("-g", "--gpus"),
        metavar="N",
        key="run.gpus",
        read=_whole_or_auto,
        help="GPUs to use [all].",
    ),
    _Option(
        names=("--expect-gpus",),
        metavar="N",
        read=_whole_from_1,
        help="Refuse to run (exit 3) unless so many GPUs can be used [no expectation].",
    ),
    _Option(
        names=("-N", "--repeats"),
        metavar="N",
        key="run.repeats",
        read=_whole,
        help="Starts of fresh processes; to compare, take 5 [1].",
    ),
    _Option(
        names=("--seed",),
        metavar="N",
        key="run.seed",
        read=_whole,
        help="Of the order of cases over repeats; 0 draws and records one [0].",
    ),
    _Option(
        names=("--precision",),
        metavar="SHARE",
        key="measure.precision",
        help="Stop a case when the median's 95 % interval is within so much of it [2%].",
    ),
    _Option(
        names=("--max-time",),
        metavar="TIME",
        key="measure.max_time",
        help="Stop a case after so long anyway: 0.5s, 200ms [0.5s on a CPU, 1s on GPUs].",
    ),
    _Option(
        names=("-n", "--samples"),
        metavar="N",
        key="measure.samples",
        read=_whole_from_1,
        help="Exactly so many samples a case, however long [until --precision or --max-time].",
    ),
    _Option(
        names=("-w", "--warmup"),
        metavar="N",
        key="measure.warmup",
        read=_whole_or_auto,
        help="So many warm-up samples a case [until times no longer fall].",
    ),
    _Option(
        names=("-c", "--check"),
        metavar="0|1",
        key="measure.check",
        read=_yes_or_no,
        help="Compare every element with the known answer [1].",
    ),
    _Option(
        names=("-T", "--deadline"),
        metavar="TIME",
        key="measure.deadline",
        help="A case without progress for so long is hung; seconds, or 500ms, 2m [60s].",
    ),
    _Option(
        names=("--init-deadline",),
        metavar="TIME",
        key="measure.init_deadline",
        help="The same for starting processes and communicators [120s].",
    ),
    _Option(
        names=("--cluster",),
        metavar="NAME",
        help="The folder that the run is kept under [Slurm's cluster name, else the host's].",
    ),
    _Option(
        names=("--results",),
        metavar="DIR",
        help="The folder of all runs [$COLLBENCH_RESULTS, else ./results].",
    ),
    _Option(
        names=("--json", "as_json"),
        help="Print JSON on stdout and nothing else there.",
        more={"is_flag": True},
    ),
    _Option(
        names=("--dry-run",),
        help="Print what would run and for how long; run nothing.",
        more={"is_flag": True},
    ),
    _Option(
        names=("--simulate",),
        metavar="FILE",
        help="Let a model in a TOML file answer instead of hardware.",
    ),
    _Option(
        names=("--plant",),
        metavar="SPEC",
        help="Plant a fault on purpose, to see it found: stop:rank=1,call=12.",
        more={"hidden": True},
    ),
)

_LADDER = {"min_size": "min", "max_size": "max", "factor": "factor", "step": "step"}
"""Parameter -> the ladder's field."""

_NEVER_TOGETHER = (
    ("factor", "step", "one makes sizes multiply, the other makes them add"),
    ("sizes", "min_size", "a list has no ladder"),
    ("sizes", "max_size", "a list has no ladder"),
    ("sizes", "factor", "a list has no ladder"),
    ("sizes", "step", "a list has no ladder"),
    ("graph", "mode", "both choose the mode"),
    ("samples", "precision", "a fixed number of samples does not stop by precision"),
    ("simulate", "backend", "a model answers, no back end"),
    ("simulate", "ranks", "the model's file says how many ranks"),
    ("simulate", "gpus", "a model answers, no GPU"),
    ("simulate", "expect_gpus", "a model answers, no GPU"),
)


def sweep_options(command: Command) -> Command:
    """Gives a command the suite argument and all options; it passes them to ``build_request``."""
    for option in reversed(_OPTIONS):
        names = [*option.names]
        command = click.option(*names, metavar=option.metavar, help=option.help, **option.more)(
            command
        )
    return click.argument("suite", default="sweep")(command)


def build_request(suite: str, **given: Any) -> SweepRequest:
    """Returns the request that the options make.

    Args:
        suite: a file, or the name of a shipped suite.
        given: the options' parameters as text, ``as_json`` and ``dry_run`` as bool; None or an
            empty tuple is "not given".

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
    """
    values = _read_values(given)
    _refuse_contradictions(values)
    loaded = load_suite(suite)
    changes = {
        option.key.rpartition(".")[2]: values[option.param]
        for option in _OPTIONS
        if option.key is not None and option.param in values
    }
    if any(param in values for param in _LADDER):
        changes["sizes"] = _ladder_over(loaded, values)
    if "graph" in values:
        changes["modes"] = values["graph"]
    if "precision" in values:
        changes["samples"] = 0  # over a suite that asks for a fixed number
    merged = override(loaded, **changes)
    with _named("sizes"):
        check_sizes(merged.sweep.sizes)
    return SweepRequest(
        suite=merged,
        source=suite,
        results=values.get("results"),
        cluster=values.get("cluster"),
        as_json=given.get("as_json", False),
        dry_run=given.get("dry_run", False),
        expect_gpus=values.get("expect_gpus"),
        plant=values.get("plant"),
        simulate=values.get("simulate"),
    )


def _read_values(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of the options that were given, by parameter."""
    values: dict[str, Any] = {}
    for option in _OPTIONS:
        text = given.get(option.param)
        if option.metavar is None or text is None or text == ():
            continue
        with _named(option.label):
            value = option.read(text if isinstance(text, str) else ",".join(text))
            if option.key is not None:
                check_value(option.key, value)
        values[option.param] = value
    return values


def _refuse_contradictions(values: dict[str, Any]) -> None:
    labels = {option.param: option.label for option in _OPTIONS}
    for one, other, why in _NEVER_TOGETHER:
        if one in values and other in values:
            raise UsageError(
                f"{labels[one]} and {labels[other]} cannot both be given: {why}; leave one out"
            )
    if values.get("backend") == "gloo" and "gpus" in values:
        raise UsageError(
            "--backend gloo and -g/--gpus cannot both be given: Gloo's ranks are on the CPU;"
            " say how many with --ranks"
        )


def _ladder_over(suite: Suite, values: dict[str, Any]) -> Ladder:
    """Returns the suite's ladder with options over it.

    A list of sizes gives way to a ladder from its smallest to its largest.
    """
    base = suite.sweep.sizes
    if not isinstance(base, Ladder):
        sizes = [size if isinstance(size, int) else parse_size(size) for size in base]
        base = Ladder(min=min(sizes), max=max(sizes))
    changes = {field: values[param] for param, field in _LADDER.items() if param in values}
    if "step" in changes:
        changes["factor"] = None
    elif "factor" in changes:
        changes["step"] = None
    return msgspec.structs.replace(base, **changes)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Puts what it is about in front of an error."""
    try:
        yield
    except UsageError as problem:
        raise UsageError(f"{what}: {problem}") from None
