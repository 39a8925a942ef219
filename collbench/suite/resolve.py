"""A suite with nothing left to guess."""

from __future__ import annotations

from typing import Any

import msgspec

from collbench.model import Mode, Pattern, Policy
from collbench.nccl.settings import swept_variables
from collbench.suite.axes import (
    product_of_axes,
    read_algorithms,
    read_ib,
    read_networks,
    read_protocols,
    read_selections,
    read_settings,
    read_variables,
)
from collbench.suite.schema import Suite
from collbench.suite.values import (
    check_suite,
    read_backend,
    read_collectives,
    read_count,
    read_deadline,
    read_dtypes,
    read_fake_hosts,
    read_in_place,
    read_libraries,
    read_max_time,
    read_modes,
    read_pattern,
    read_plugins,
    read_precision,
    read_redops,
    read_repeats,
    read_roots,
    read_samples,
    read_seed,
    read_sizes,
    read_via,
    read_walk,
)

_AUTO_MAX_BYTES = {True: 2**30, False: 16 * 2**20}
_AUTO_MAX_TIME_S = {True: 1.0, False: 0.5}
_AUTO_MODES = {True: (Mode.EAGER, Mode.GRAPH), False: (Mode.EAGER,)}


class ResolvedSuite(msgspec.Struct, frozen=True, kw_only=True):
    """What the plan and the record take.

    Back end, ranks and GPUs stay as they were asked for: what came of them is in the run's record.
    """

    name: str
    description: str
    collectives: tuple[str, ...]
    dtypes: tuple[str, ...]
    redops: tuple[str, ...]
    roots: tuple[int, ...]
    sizes: tuple[int, ...]
    """Bytes asked for, rising."""
    modes: tuple[Mode, ...]
    pattern: Pattern
    in_place: str
    settings: tuple[dict[str, str], ...]
    """The swept variables; a single empty one where none is swept."""
    swept: tuple[str, ...]
    """The variables that any axis touches: without them in a setting they are not set at all."""
    backend: str
    via: str
    nccl: str | None
    """Path of an NCCL library; None: the installed one."""
    libraries: dict[str, str | None]
    """Paths of NCCL libraries by the names that settings call them by; empty: there is one."""
    fake_hosts: int | None
    ranks: int | None
    """None: all that are here."""
    gpus: int | None
    repeats: int
    seed: int
    """0: to be drawn."""
    policy: Policy


def resolve(suite: Suite, *, gpu: bool) -> ResolvedSuite:
    """Returns the suite with nothing left to guess.

    Args:
        suite: with all options laid over it.
        gpu: whether it runs on GPUs; decides what ``"auto"`` means.

    Raises:
        UsageError: a value that cannot be (one that came from neither a file nor an option), or
            more sizes than make sense.
    """
    check_suite(suite)
    asked, place, measure = suite.sweep, suite.run, suite.measure
    max_time_s = read_max_time(measure.max_time)
    settings = settings_of(suite)
    libraries = read_libraries(place.nccl)
    return ResolvedSuite(
        name=suite.name,
        description=suite.description,
        collectives=read_collectives(asked.collectives),
        dtypes=read_dtypes(asked.dtypes),
        redops=read_redops(asked.redops),
        roots=read_roots(asked.roots),
        sizes=read_sizes(asked.sizes, _AUTO_MAX_BYTES[gpu]),
        modes=read_modes(asked.modes) or _AUTO_MODES[gpu],
        pattern=read_pattern(asked.pattern),
        in_place=read_in_place(asked.in_place),
        settings=settings,
        swept=_swept(suite, settings),
        backend=read_backend(place.backend),
        via=read_via(place.via),
        nccl=libraries.pop("", None),
        libraries=libraries,
        fake_hosts=read_fake_hosts(place.fake_hosts),
        ranks=read_count(place.ranks),
        gpus=read_count(place.gpus),
        repeats=read_repeats(place.repeats),
        seed=read_seed(place.seed),
        policy=Policy(
            precision=read_precision(measure.precision),
            max_time_s=_AUTO_MAX_TIME_S[gpu] if max_time_s is None else max_time_s,
            samples=read_samples(measure.samples),
            warmup=read_count(measure.warmup),
            check=measure.check,
            proof=measure.proof,
            walk_bytes=read_walk(measure.walk),
            deadline_s=read_deadline(measure.deadline),
            init_deadline_s=read_deadline(measure.init_deadline),
        ),
    )


def settings_of(suite: Suite) -> tuple[dict[str, str], ...]:
    """Returns all settings that the axes make.

    Raises:
        UsageError: a value that cannot be, or axes that contradict each other.
    """
    asked = suite.sweep
    return product_of_axes(
        algorithms=read_algorithms(asked.algo),
        protocols=read_protocols(asked.proto),
        ib=read_ib(asked.ib),
        networks=read_networks(asked.net),
        variables=read_variables(asked.env),
        selections=read_selections(asked.alg_selection),
        libraries=[name for name in read_libraries(suite.run.nccl) if name],
        plugins=read_plugins(suite.run.nccl),
        whole=read_settings(asked.settings),
        reference=asked.reference,
    )


def _swept(suite: Suite, settings: tuple[dict[str, str], ...]) -> tuple[str, ...]:
    """``default`` alone is an axis too: it takes the environment's value away."""
    asked = suite.sweep
    axes = {"NCCL_ALGO": asked.algo, "NCCL_PROTO": asked.proto, "NCCL_NET": asked.net}
    named = {name for name, values in axes.items() if values}
    named |= {"NCCL_NET", "NCCL_IB_DISABLE"} if asked.ib else set()
    return tuple(sorted(named | swept_variables(settings)))


def suite_as_dict(suite: ResolvedSuite) -> dict[str, Any]:
    """Returns the suite for the record, in the types of JSON."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(suite))
    return plain
