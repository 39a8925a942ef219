"""The software a run stands on, and the variables that steer it, without importing torch."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from collbench.model import Environment
from collbench.nccl.variables import PREFIXES, SECRET_NAME
from collbench.probe.files import text_of
from collbench.version import __version__

_DRIVER_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


def recorded_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that may be recorded: by allow-list, and no secret among them."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIXES) and not SECRET_NAME.search(name)
    }


def read_environment(environ: Mapping[str, str], root: Path = Path("/")) -> Environment:
    """Returns the recorded software; what only a worker can know (CUDA, NCCL) is left open.

    Args:
        environ: this process's variables.
        root: where /etc, /proc and /sys are, for tests.
    """
    return Environment(
        collbench=__version__,
        python=platform.python_version(),
        torch=_installed("torch"),
        driver=driver_version(root),
        kernel=platform.release(),
        os=_os_name(root),
        variables=recorded_variables(environ),
        config_files=_config_files(environ, root),
    )


def driver_version(root: Path = Path("/")) -> str | None:
    """Returns the loaded NVIDIA driver's version, or None where none is loaded."""
    for path in ("proc/driver/nvidia/version", "sys/module/nvidia/version"):
        found = _DRIVER_VERSION.search(text_of(root / path))
        if found:
            return found[1]
    return None


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _os_name(root: Path) -> str:
    for line in text_of(root / "etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()


def _config_files(environ: Mapping[str, str], root: Path) -> dict[str, str]:
    """Returns what NCCL's configuration files set: without them "environment" is half the truth.

    By the same allow-list as the variables: NCCL takes any name from these files, and
    NCCL_CONF_FILE may be any file. A variable of the process wins over a file's.
    """
    paths = [root / "etc/nccl.conf"]
    if environ.get("NCCL_CONF_FILE"):
        paths.append(Path(environ["NCCL_CONF_FILE"]))
    elif environ.get("HOME"):
        paths.append(Path(environ["HOME"]) / ".nccl.conf")
    found = {}
    for path in paths:
        pairs = [line.partition("=") for line in text_of(path).splitlines() if "=" in line]
        kept = recorded_variables({name.strip(): value.strip() for name, _, value in pairs})
        if kept:
            found[str(path)] = "\n".join(f"{name}={value}" for name, value in kept.items())
    return found
