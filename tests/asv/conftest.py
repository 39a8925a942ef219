"""A copy of the asv suite over made releases: wheels without NCCL, no index, an empty home."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from made_wheels import write_wheel

ROOT = Path(__file__).parents[2]
RELEASES = ("2.29.7", "2.30.3", "2.30.4", "2.30.7")

CASES = """
schema = 1
name = "asv"
[sweep]
collectives = ["all_reduce"]
sizes = ["1MiB", "4MiB"]
modes = ["eager", "graph"]
[measure]
samples = 3
warmup = 1
"""

LAUNCH = """
# Stands for a launcher, and for a release that made something slower: from 2.30.7 on (plant, over
# Gloo, one case), or 2.30.4 on (simulate, all cases, exact).
import os, subprocess, sys
from pathlib import Path

ASK = "from importlib.metadata import version; print(version('nvidia-nccl-cu13'))"
asked = subprocess.run(["python", "-c", ASK], stdout=subprocess.PIPE, text=True, check=True)
release = tuple(map(int, asked.stdout.split(".")))
words = sys.argv[1:]
if os.environ["LAUNCH_KIND"] == "plant":
    words += ["--plant", "late:rank=1,ms=1500,size=4MiB"] * (release == (2, 30, 7))
else:
    model = Path(__file__).with_name("model.toml")
    model.write_text(f"alpha_us = {13 if release >= (2, 30, 4) else 10}\\n")
    words = [word for word in words if word not in ("--backend", "gloo")]
    words += ["--simulate", str(model)]
os.execv(sys.executable, [sys.executable, "-m", *words])
"""


@dataclass(frozen=True)
class AsvSuite:
    """A copy of suites/asv in which asv can be called."""

    folder: Path
    environ: dict[str, str]

    def asv(self, *words: str, launch: str) -> tuple[int, str]:
        """Calls asv; returns its exit status and all that it wrote."""
        done = subprocess.run(
            [sys.executable, "-m", "asv", *words],
            cwd=self.folder,
            env={**self.environ, "LAUNCH_KIND": launch},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(done.stdout)
        return done.returncode, done.stdout


@pytest.fixture(scope="session")
def suite(tmp_path_factory) -> AsvSuite:
    """The suite with a small set of cases, its repository, and wheels of four releases."""
    if importlib.util.find_spec("asv") is None:
        pytest.skip("asv is not installed: pip install 'collbench[history]'")
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("asv") / "suite"
    shutil.copytree(ROOT / "suites/asv", folder)
    (folder / "cases.toml").write_text(CASES)
    (folder / "launch.py").write_text(LAUNCH)
    wheels = tmp_path_factory.mktemp("wheels")
    for version in RELEASES:
        write_wheel(wheels, "nvidia-nccl-cu13", version, {"nvidia/nccl/VERSION": version.encode()})
    # What asv puts into every environment; nothing here builds or weighs objects.
    for name in ("build", "pympler", "wheel"):
        write_wheel(wheels, name, "9999", {})
    for name in ("asv_runner", "importlib_metadata", "zipp"):
        pack_installed(wheels, name)

    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "COLLBENCH_", "GIT_"))
    }
    environ |= {
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "COLLBENCH_ASV_BACKEND": "gloo",
        "COLLBENCH_LAUNCH": shlex.join([sys.executable, str(folder / "launch.py")]),
    }
    made = AsvSuite(folder, environ)
    subprocess.run([sys.executable, "make_releases.py"], cwd=folder, check=True, env=environ)
    assert made.asv("machine", "--yes", "--machine", "lab", launch="plant")[0] == 0
    return made


def pack_installed(folder: Path, name: str) -> None:
    """Makes a wheel of a pure distribution as it is installed here."""
    found = metadata.distribution(name)
    assert found.files is not None
    left_out = ("RECORD", "INSTALLER", "REQUESTED")
    files = {
        str(path): Path(found.locate_file(path)).read_bytes()
        for path in found.files
        if ".." not in path.parts and path.suffix != ".pyc" and path.name not in left_out
    }
    write_wheel(folder, name, found.version, files)
