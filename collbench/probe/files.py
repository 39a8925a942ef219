"""Reading the kernel's small text files, of which any may be missing or refuse to be read."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str:
    """Returns a file's text without white space at its ends; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
