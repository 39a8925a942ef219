"""collbench: a benchmark suite for distributed collectives.

``load_run`` reads a stored run as pandas frames; everything else is behind
``python -m collbench``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collbench.version import __version__

if TYPE_CHECKING:
    from collbench.analyze.frames import load_run

__all__ = ["__version__", "load_run"]


def __getattr__(name: str) -> object:
    """Imports pandas only for those who load a run."""
    if name == "load_run":
        from collbench.analyze.frames import load_run

        return load_run
    raise AttributeError(f"module 'collbench' has no attribute '{name}'")
