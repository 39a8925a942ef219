"""``python -m collbench``."""

from __future__ import annotations

from collbench.cli.main import run

if __name__ == "__main__":
    run()
