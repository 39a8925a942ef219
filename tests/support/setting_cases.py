"""Cases of any settings, for tests of their order and of what they start."""

from __future__ import annotations

from collbench.model import Case, Mode
from collbench.nccl.settings import swept_variables

VARIABLES = {
    "PYTHONHASHSEED": ("1", "2"),
    "NCCL_BUFFSIZE": ("1048576", "4194304"),
    "NCCL_ALGO": ("Ring", "Tree"),
    "ib": ("on", "off"),
}
"""One that only a fresh zygote reads, one for workers, one for a communicator, one of two parts."""


def made_case(
    number: int, setting: dict[str, str], mode: Mode = Mode.EAGER, backend: str = "nccl"
) -> Case:
    """Returns a case that its size tells from others."""
    return Case(
        collective="all_gather",
        backend=backend,
        dtype="float32",
        size_bytes=8 * number,
        requested_bytes=8 * number,
        count=number,
        world_size=2,
        in_place=False,
        mode=mode,
        setting=setting,
    )


def swept_by(cases: list[Case]) -> list[str]:
    """Returns the variables that any case's setting touches."""
    return sorted(swept_variables(case.setting for case in cases))
