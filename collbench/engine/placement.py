"""What runs here: the back end, the ranks, their GPUs and cores. No silent stand-in.

Gloo takes the place of NCCL only where there is no NVIDIA GPU at all and nothing promised one. A
GPU that is promised, or on PCI, and cannot be used is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from collbench.engine.place_notes import emulation_note, loopback_note
from collbench.errors import NothingMeasured, UsageError
from collbench.model import Gpu, RankPlace
from collbench.probe.cores import format_cores
from collbench.probe.gpu import GpuSurvey, visible_gpus

DEFAULT_CPU_RANKS = 2
_PROMISING_LISTS = (
    "CUDA_VISIBLE_DEVICES",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "NVIDIA_VISIBLE_DEVICES",
)
_NO_LIST = ("", "-1", "void", "none", "NoDevFiles")
_PROMISING_COUNTS = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS")
_NO_COUNT = ("", "0")


class GpuMissing(NothingMeasured):
    """A GPU that is promised, or on PCI, cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What this machine offers a run."""

    backend: str
    world_size: int
    gpus: tuple[Gpu, ...] = ()
    """One a rank; empty on a CPU."""
    cpusets: tuple[str, ...] = ()
    """Cores of each rank; empty text: not bound."""
    note: str | None = None
    """What the first line must say before everything else."""
    fake_hosts: tuple[str, ...] = ()
    """The emulated host of each rank; empty: none is emulated."""

    @property
    def hosts(self) -> int:
        """Hosts as NCCL sees them."""
        return len(set(self.fake_hosts)) or 1

    def cuda_index(self, rank: int) -> int | None:
        """Returns the number that CUDA gives to a rank's GPU.

        CUDA numbers the visible GPUs, and they were chosen in that order.
        """
        if not self.gpus:
            return None
        return list(dict.fromkeys(gpu.index for gpu in self.gpus)).index(self.gpus[rank].index)

    def places(self, node: str) -> list[RankPlace]:
        """Returns where each rank runs."""
        return [
            RankPlace(
                rank=rank,
                node=node,
                local_rank=rank,
                gpu=self.gpus[rank].index if self.gpus else None,
                cpuset=self.cpusets[rank] if self.cpusets else "",
                fake_host=f"{node}-{self.fake_hosts[rank]}" if self.fake_hosts else None,
            )
            for rank in range(self.world_size)
        ]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the user asked for; None is "whatever is here"."""

    backend: str = "auto"
    ranks: int | None = None
    gpus: int | None = None
    expect_gpus: int | None = None
    default_ranks: int = DEFAULT_CPU_RANKS
    """On a CPU, where nobody says."""
    fake_hosts: int | None = None
    """So many hosts emulated by this process; 1: it is one of several that share GPUs."""
    alone: bool = True
    """Whether no other process was started with this one."""


def choose_slots(
    wanted: Wanted,
    survey: GpuSurvey,
    environ: Mapping[str, str],
    cores: frozenset[int],
    numa: Mapping[int, frozenset[int]],
    own: Callable[[tuple[Gpu, ...]], tuple[Gpu, ...]] = tuple,
) -> Slots:
    """Returns what runs here.

    Args:
        wanted: by the user.
        survey: the GPUs found.
        environ: this process's variables: promises of a launcher, CUDA_VISIBLE_DEVICES.
        cores: that this process may use.
        numa: cores of each NUMA node.
        own: takes this process's share of the GPUs that it sees.

    Raises:
        UsageError: more than there is, or a back end without its hardware, was asked for.
        GpuMissing: a GPU that is promised or present cannot be used.
        NothingMeasured: there are not as many as expected.
    """
    _refuse_impossible(wanted)
    usable = own(visible_gpus(survey.gpus, environ))
    if wanted.expect_gpus is not None and len(usable) != wanted.expect_gpus:
        raise NothingMeasured(
            f"--expect-gpus {wanted.expect_gpus}, but {len(usable)} can be used:"
            f" {_state_of(survey, environ)}; nvidia-smi on this node says which open, the job's"
            " request which it has"
        )
    has_gpus = bool(survey.on_pci or survey.gpus)
    if wanted.backend == "gloo":
        return _on_cpu(wanted, cores, has_gpus=has_gpus)
    if usable:
        _refuse_partial(survey, environ)
        return _on_gpus(wanted, usable, cores, numa)
    promise = _promise(environ)
    if has_gpus or promise:
        raise GpuMissing(
            f"a GPU is {'present' if has_gpus else 'promised'} but none can be used:"
            f" {_state_of(survey, environ)}; look at nvidia-smi on this node; to measure the CPU on"
            " purpose: --backend gloo"
        )
    if wanted.backend == "nccl" or wanted.gpus is not None:
        asked = "--backend nccl" if wanted.backend == "nccl" else f"--gpus {wanted.gpus}"
        raise UsageError(
            f"{asked} needs an NVIDIA GPU and none is on PCI here; leave it out to measure the CPU"
            " over Gloo"
        )
    return _on_cpu(wanted, cores, has_gpus=False)


def _refuse_impossible(wanted: Wanted) -> None:
    """Refuses what cannot be on any machine."""
    for what, value, least in (
        ("--ranks", wanted.ranks, 1),
        ("--gpus", wanted.gpus, 1),
        ("--expect-gpus", wanted.expect_gpus, 0),
    ):
        if value is not None and value < least:
            raise UsageError(f"{what} {value} is too few; it must be at least {least}")
    if wanted.backend == "gloo" and wanted.gpus is not None:
        raise UsageError(
            f"--gpus {wanted.gpus} and --backend gloo exclude each other: Gloo runs on the CPU;"
            " leave out one of them (--ranks sets the number of ranks)"
        )
    if wanted.fake_hosts == 1 and wanted.alone:
        raise UsageError(
            "--fake-hosts 1 is what there is; emulate 2 or more, or none (0). 1 is for several"
            " processes started as nodes that share GPUs"
        )
    if wanted.fake_hosts:
        return
    if wanted.gpus and wanted.ranks and wanted.gpus != wanted.ranks:
        raise UsageError(
            f"--gpus {wanted.gpus} and --ranks {wanted.ranks} differ, and NCCL takes one rank a"
            " GPU; leave out one of them"
        )


def _refuse_partial(survey: GpuSurvey, environ: Mapping[str, str]) -> None:
    """Refuses to leave out a broken GPU in silence; whoever names the GPUs has left it out."""
    if survey.error and "CUDA_VISIBLE_DEVICES" not in environ:
        others = "1 other opens" if len(survey.gpus) == 1 else f"{len(survey.gpus)} others open"
        raise GpuMissing(
            f"{survey.error}, while {others}; to measure without it name those by UUID in"
            " CUDA_VISIBLE_DEVICES"
        )


def _promise(environ: Mapping[str, str]) -> str | None:
    """Returns the variable by which a launcher, or the user, says that there is a GPU."""
    for names, nothing in ((_PROMISING_LISTS, _NO_LIST), (_PROMISING_COUNTS, _NO_COUNT)):
        for name in names:
            if environ.get(name, "") not in nothing:
                return f"{name}={environ[name]}"
    return None


def _state_of(survey: GpuSurvey, environ: Mapping[str, str]) -> str:
    parts = [f"on PCI: {', '.join(survey.on_pci) or 'none'}"]
    if survey.on_pci and survey.driver is None:
        parts.append("the NVIDIA driver is not loaded")
    if survey.error:
        parts.append(survey.error)
    promise = _promise(environ)
    if promise:
        parts.append(f"promised by {promise}")
    if "CUDA_VISIBLE_DEVICES" in environ and survey.gpus:
        parts.append(
            f"CUDA_VISIBLE_DEVICES='{environ['CUDA_VISIBLE_DEVICES']}' leaves"
            f" {len(visible_gpus(survey.gpus, environ))} of {len(survey.gpus)}"
        )
    return "; ".join(parts)


def _on_cpu(wanted: Wanted, cores: frozenset[int], *, has_gpus: bool) -> Slots:
    if wanted.fake_hosts:
        raise UsageError(
            f"--fake-hosts {wanted.fake_hosts} works through NCCL_HOSTID, which Gloo does not know;"
            " it needs an NVIDIA GPU"
        )
    ranks = wanted.ranks or wanted.default_ranks
    what = "GPUs NOT USED, as asked" if has_gpus else "NO GPU"
    return Slots(
        backend="gloo",
        world_size=ranks,
        cpusets=_split(cores, ranks),
        note=loopback_note(what, ranks),
    )


def _on_gpus(
    wanted: Wanted,
    usable: tuple[Gpu, ...],
    cores: frozenset[int],
    numa: Mapping[int, frozenset[int]],
) -> Slots:
    if wanted.fake_hosts:
        return _on_fake_hosts(wanted, wanted.fake_hosts, usable, cores)
    count = wanted.gpus or wanted.ranks or len(usable)
    if count > len(usable):
        option = "--gpus" if wanted.gpus else "--ranks"
        raise UsageError(
            f"{option} {count} is more than the GPUs that can be used here ({len(usable)}), and"
            f" NCCL takes one rank a GPU; ask for at most {len(usable)}"
        )
    chosen = usable[:count]
    cpusets = [""] * count
    for node in {gpu.numa_node for gpu in chosen}:
        ranks = [rank for rank, gpu in enumerate(chosen) if gpu.numa_node == node]
        near = cores & numa.get(node, cores) if node is not None else cores
        for rank, cpuset in zip(ranks, _split(near or cores, len(ranks)), strict=True):
            cpusets[rank] = cpuset
    return Slots(backend="nccl", world_size=count, gpus=chosen, cpusets=tuple(cpusets))


def _on_fake_hosts(
    wanted: Wanted, hosts: int, usable: tuple[Gpu, ...], cores: frozenset[int]
) -> Slots:
    """Spreads the ranks over hosts that NCCL takes for different ones; GPUs may be shared.

    Two ranks of one host never share a GPU: NCCL refuses that.
    """
    gpus = usable[: wanted.gpus] if wanted.gpus else usable
    if wanted.gpus and wanted.gpus > len(usable):
        raise UsageError(
            f"--gpus {wanted.gpus} is more than the GPUs that can be used here ({len(usable)});"
            f" ask for at most {len(usable)}"
        )
    ranks = wanted.ranks or hosts * max(1, len(gpus) // hosts)
    if ranks % hosts or ranks // hosts > len(gpus):
        raise UsageError(
            f"{ranks} ranks on {hosts} fake hosts over {len(gpus)} GPUs do not go: every host has"
            f" the same number of ranks, each on a GPU of its own; allowed: --ranks"
            f" {', '.join(str(hosts * k) for k in range(1, len(gpus) + 1))}"
        )
    a_host = ranks // hosts
    return Slots(
        backend="nccl",
        world_size=ranks,
        gpus=tuple(gpus[rank % len(gpus)] for rank in range(ranks)),
        cpusets=_split(cores, ranks),
        fake_hosts=tuple(f"fake-host-{rank // a_host}" for rank in range(ranks)),
        note=emulation_note(hosts, ranks, gpus),
    )


def _split(cores: frozenset[int], ranks: int) -> tuple[str, ...]:
    """Returns an even share of the cores for each rank, or no binding if there are too few."""
    ordered = sorted(cores)
    share = len(ordered) // ranks
    if share == 0:
        return ("",) * ranks
    return tuple(format_cores(ordered[r * share : (r + 1) * share]) for r in range(ranks))
