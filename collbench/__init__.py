"""collbench: a benchmark suite for distributed collectives.

``load_run`` reads a stored run as pandas frames; everything else is behind
``python -m collbench``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collbench.analyze.frames import load_run

__all__ = ["load_run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Imports pandas only for those who load a run."""
    if name == "load_run":
        from collbench.analyze.frames import load_run

        return load_run
    raise AttributeError(f"module 'collbench' has no attribute '{name}'")
