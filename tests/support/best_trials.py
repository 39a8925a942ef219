"""Trials of a grid of settings x sizes x repeats with exact gaps: a repeat is slow for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from setting_trials import RING_LL, TREE, under

from collbench.model import Mode, Proof, Trial

SETTINGS: Mapping[str, dict[str, str]] = {
    "default": {},
    "Ring/LL": RING_LL,
    "Tree/Simple": TREE,
    "BUFFSIZE=8M": {"NCCL_BUFFSIZE": "8M"},
}
RAN = {
    "default": Proof(algorithm="Ring", protocol="Simple", channels=24, ranks=2, nodes=1),
    "Ring/LL": Proof(algorithm="Ring", protocol="LL", channels=24, ranks=2, nodes=1),
    "Tree/Simple": Proof(algorithm="Tree", protocol="Simple", channels=16, ranks=2, nodes=1),
    "BUFFSIZE=8M": Proof(algorithm="Ring", protocol="Simple", channels=24, ranks=2, nodes=1),
}
SIZES = tuple(2**power for power in range(10, 31, 2))
"""1 KiB to 1 GiB."""


def level(size: int) -> float:
    """Returns the default's time in us."""
    return 10 + size / 1e5


def grid(
    faster: Mapping[str, Sequence[int]],
    *,
    share: float = 0.08,
    sizes: Sequence[int] = SIZES,
    repeats: int = 3,
    settings: Sequence[str] = ("default", "Ring/LL", "Tree/Simple"),
    name: str = "all_reduce",
    mode: Mode = Mode.GRAPH,
    dtype: str = "float32",
    ran: Mapping[str, Proof | None] = RAN,
) -> list[Trial]:
    """Returns ok trials; a setting's time is the default's, 20 % more, or ``share`` less.

    Args:
        faster: by setting the sizes at which it saves that share.
        share: of the default's time.
        sizes: in bytes.
        repeats: of each.
        settings: by their words.
        name: of the collective.
        mode: of all.
        dtype: of all.
        ran: the proof of each setting.
    """
    trials = []
    for repeat in range(repeats):
        for setting in settings:
            for j, size in enumerate(sizes):
                factor = 1.0 if setting == "default" else 1.2
                if size in faster.get(setting, ()):
                    factor = 1 - share
                noise = 1 + 0.0005 * ((repeat + j) % 3 - 1)
                trials.append(
                    under(
                        SETTINGS[setting],
                        size,
                        level(size) * factor * noise,
                        name=name,
                        mode=mode,
                        dtype=dtype,
                        repeat=repeat,
                        proof=ran.get(setting),
                    )
                )
    return trials
