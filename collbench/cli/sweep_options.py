"""The options of ``sweep``: nccl-tests' letters and meanings, long names beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from collbench.errors import UsageError
from collbench.suite import AUTO, BACKENDS, IN_PLACE, Ladder, Suite, load_suite, override
from collbench.units import parse_duration

Command = Callable[..., Any]

_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("-b", "--min-size"), {"metavar": "SIZE", "help": "Smallest size (8, 64K, 1M) [4]."}),
    (("-e", "--max-size"), {"metavar": "SIZE", "help": "Largest size [16M on a CPU, 1G on GPUs]."}),
    (("-f", "--factor"), {"type": float, "help": "From size to size [4]."}),
    (("-i", "--step"), {"metavar": "SIZE", "help": "Added from size to size, instead of -f."}),
    (("--sizes",), {"metavar": "LIST", "help": "These sizes and no others: 8,64K,1M."}),
    (
        ("--collective",),
        {"multiple": True, "metavar": "LIST", "help": "all_reduce, all_gather, ... [the three]."},
    ),
    (("-d", "--dtype"), {"metavar": "LIST", "help": "float32, bfloat16, ... or all [float32]."}),
    (("-o", "--redop"), {"metavar": "LIST", "help": "sum, prod, min, max, avg or all [sum]."}),
    (("-r", "--root"), {"metavar": "LIST", "help": "Root rank; -1 for each in turn [0]."}),
    (
        ("-n", "--samples"),
        {"type": int, "help": "So many samples a case, instead of --precision."},
    ),
    (
        ("-w", "--warmup"),
        {"type": int, "help": "So many warm-up samples [detected]."},
    ),
    (
        ("-c", "--check"),
        {"type": click.Choice(["0", "1"]), "help": "Check every element of the data [1]."},
    ),
    (("-g", "--gpus"), {"type": int, "help": "GPUs to use [all]."}),
    (
        ("-G", "--graph"),
        {"type": int, "help": "0: eager only; 1 or more: CUDA graph only, as --mode graph."},
    ),
    (("--mode",), {"metavar": "LIST", "help": "eager, graph, eager_device [eager,graph on GPUs]."}),
    (("--pattern",), {"metavar": "WORD", "help": "back_to_back or isolated [back_to_back]."}),
    (("--in-place",), {"metavar": "WORD", "help": f"{', '.join(IN_PLACE)} [natural]."}),
    (("-T", "--deadline"), {"metavar": "TIME", "help": "No progress for so long is hung [60s]."}),
    (("--init-deadline",), {"metavar": "TIME", "help": "The same for starting up [120s]."}),
    (("-N", "--repeats"), {"type": int, "help": "Starts of fresh processes [1]."}),
    (("--ranks",), {"type": int, "help": "Ranks [2 on a CPU, one a GPU]."}),
    (("--backend",), {"metavar": "WORD", "help": f"{', '.join(BACKENDS)} [auto]."}),
    (("--expect-gpus",), {"type": int, "help": "End with 3 if there are not so many GPUs."}),
    (
        ("--precision",),
        {"metavar": "SHARE", "help": "Half-width of the median's interval to stop at [2%]."},
    ),
    (("--max-time",), {"metavar": "TIME", "help": "A case's time at most [0.5s CPU, 1s GPUs]."}),
    (("--seed",), {"type": int, "help": "Of the order of cases; 0 draws one [0]."}),
    (("--cluster",), {"metavar": "NAME", "help": "Folder of the run [Slurm's, else the host]."}),
    (
        ("--results",),
        {"metavar": "DIR", "help": "All runs' folder [$COLLBENCH_RESULTS, results]."},
    ),
    (("--json", "as_json"), {"is_flag": True, "help": "JSON on stdout and nothing else."}),
    (("--dry-run",), {"is_flag": True, "help": "Say what would run, and how long; run nothing."}),
    (("--simulate",), {"metavar": "FILE", "help": "Answer by a model instead of hardware."}),
    (("--plant",), {"metavar": "SPEC", "hidden": True, "help": "Plant a fault; see docs."}),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRequest:
    """What the user wants, before the machine is looked at."""

    suite: Suite
    source: str
    """The suite's name or path as given."""
    results: str | None
    cluster: str | None
    as_json: bool
    dry_run: bool
    expect_gpus: int | None
    plant: str | None
    simulate: str | None


def sweep_options(command: Command) -> Command:
    """Gives a command the suite argument and all options."""
    for names, settings in reversed(_OPTIONS):
        command = click.option(*names, **settings)(command)
    return click.argument("suite", default="sweep")(command)


def build_request(suite: str, **given: Any) -> SweepRequest:
    """Returns the request that the options make.

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
    """
    _refuse_pairs(given)
    loaded = load_suite(suite)
    sizes: Any = None
    ladder = {
        "min": given["min_size"],
        "max": given["max_size"],
        "factor": given["factor"],
        "step": given["step"],
    }
    if given["sizes"] is not None:
        sizes = _words(given["sizes"])
    elif any(value is not None for value in ladder.values()):
        sizes = _ladder_over(loaded, ladder)
    roots = [_root(word) for word in _words(given["root"]) or []] or None
    collectives = _words(",".join(given["collective"])) or None
    merged = override(
        loaded,
        sizes=sizes,
        collectives=collectives,
        dtypes=_words(given["dtype"]),
        redops=_words(given["redop"]),
        roots=roots,
        modes=_modes(given),
        pattern=given["pattern"],
        in_place=given["in_place"],
        backend=given["backend"],
        ranks=given["ranks"],
        gpus=given["gpus"],
        repeats=given["repeats"],
        seed=given["seed"],
        precision=given["precision"],
        max_time=given["max_time"],
        samples=given["samples"],
        warmup=given["warmup"],
        check=None if given["check"] is None else given["check"] == "1",
        deadline=_deadline(given["deadline"]),
        init_deadline=_deadline(given["init_deadline"]),
    )
    return SweepRequest(
        suite=merged,
        source=suite,
        results=given["results"],
        cluster=given["cluster"],
        as_json=given["as_json"],
        dry_run=given["dry_run"],
        expect_gpus=given["expect_gpus"],
        plant=given["plant"],
        simulate=given["simulate"],
    )


_NEVER_TOGETHER = (
    ("factor", "step", "-f and -i"),
    ("sizes", "min_size", "--sizes and -b"),
    ("sizes", "max_size", "--sizes and -e"),
    ("sizes", "factor", "--sizes and -f"),
    ("sizes", "step", "--sizes and -i"),
    ("graph", "mode", "-G and --mode"),
    ("samples", "precision", "-n and --precision"),
)


def _refuse_pairs(given: dict[str, Any]) -> None:
    for one, other, words in _NEVER_TOGETHER:
        if given[one] is not None and given[other] is not None:
            raise UsageError(f"{words} cannot both be given; leave one out")
    if given["samples"] is not None and given["samples"] < 1:
        raise UsageError(f"-n {given['samples']} must be at least 1")
    if given["backend"] is not None and given["backend"] not in BACKENDS:
        raise UsageError(f"--backend '{given['backend']}' is not one of {', '.join(BACKENDS)}")


def _ladder_over(suite: Suite, given: dict[str, Any]) -> Ladder:
    """Returns the suite's ladder with options over it; a list of sizes gives way to a ladder."""
    base = suite.sweep.sizes if isinstance(suite.sweep.sizes, Ladder) else Ladder()
    if given["step"] is not None:
        base = msgspec.structs.replace(base, factor=None)
    if given["factor"] is not None:
        base = msgspec.structs.replace(base, step=None)
    return msgspec.structs.replace(base, **{k: v for k, v in given.items() if v is not None})


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _root(word: str) -> int:
    try:
        return -1 if word == "all" else int(word)
    except ValueError:
        raise UsageError(
            f"--root '{word}' is no rank; give 0, 1, ... or -1 for each in turn"
        ) from None


def _modes(given: dict[str, Any]) -> list[str] | None:
    if given["graph"] is not None:
        if given["graph"] < 0:
            raise UsageError(f"-G {given['graph']} must be 0 (eager) or 1 and more (CUDA graph)")
        return ["graph"] if given["graph"] else ["eager"]
    words = _words(given["mode"])
    return None if words == [AUTO] else words


def _deadline(text: str | None) -> str | None:
    if text is not None:
        parse_duration(text)
    return text
