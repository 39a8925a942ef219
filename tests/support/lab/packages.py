"""Launchers that do not come with Python: without them a test is skipped, in CI it fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

import pytest


def require(programs: Mapping[str, str]) -> None:
    """Skips the running test, or fails it where ``CI`` is ``true``, if a program is missing.

    Args:
        programs: Each program and the Debian package that brings it.
    """
    missing = [package for program, package in programs.items() if shutil.which(program) is None]
    if not missing:
        return
    text = f"needs the Debian packages {' '.join(missing)}"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)
