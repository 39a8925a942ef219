"""What is wrong with the ``#SBATCH`` lines of a batch script, and fakes of the launchers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

KNOWN = {
    "account",
    "exclusive",
    "gpus-per-node",
    "gpus-per-task",
    "job-name",
    "no-requeue",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "output",
    "partition",
    "time",
}
"""The options of sbatch that this project uses; all but the flags take ``=value``."""

FLAGS = {"exclusive", "no-requeue"}

_DIRECTIVE = re.compile(r"#SBATCH --(?P<name>[a-z-]+)(?:=(?P<value>\S+))?")
_MEANT = re.compile(r"#\s*S[A-Z]{4,6}\b")

_FAKE = """\
#!/bin/bash
if [ "$*" = --version ]; then echo "$FAKE_VERSION"; exit; fi
printf '%s\\0' "${0##*/}" "$@" > "$FAKE_FOLDER/arguments"
printf '%s' "${COLLBENCH_SECRET:-}" > "$FAKE_FOLDER/secret"
"""


def directives(script: str) -> dict[str, str | None]:
    """Returns the options of a script's ``#SBATCH`` lines.

    Raises:
        ValueError: a line that Slurm would ignore, refuse or read otherwise.
    """
    lines = script.splitlines()
    if not lines or not lines[0].startswith("#!"):
        raise ValueError("line 1: no interpreter")
    found: dict[str, str | None] = {}
    in_head = True
    for number, line in enumerate(lines, start=1):
        in_head = in_head and (line.startswith("#") or not line.strip())
        if not _MEANT.match(line):
            continue
        match = _DIRECTIVE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: misspelt: {line!r}")
        name, value = match["name"], match["value"]
        if not in_head:
            raise ValueError(f"line {number}: after the first command: {line!r}")
        if name not in KNOWN:
            raise ValueError(f"line {number}: unknown option --{name}")
        if name in found:
            raise ValueError(f"line {number}: a second --{name}")
        if (value is None) != (name in FLAGS):
            raise ValueError(f"line {number}: --{name} has the wrong form")
        found[name] = value
    return found


def run_with_fakes(
    script: Path, folder: Path, *arguments: str, version: str = "", **variables: str
) -> tuple[list[str], str]:
    """Runs a script with fake launchers; returns what it started, and the secret that this got."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("srun", "mpirun", "torchrun", "python"):
        (tools / name).write_text(_FAKE)
        (tools / name).chmod(0o755)
    environ = {
        "PATH": f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "FAKE_FOLDER": str(folder),
        "FAKE_VERSION": version,
        **variables,
    }
    subprocess.run(
        ["/bin/bash", str(script), *arguments], check=True, cwd=folder, env=environ, timeout=60
    )
    started = (folder / "arguments").read_text().split("\0")[:-1]
    return started, (folder / "secret").read_text()
