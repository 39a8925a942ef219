"""How long collectives take with the NCCL that asv installed: one `collbench sweep` a release.

The asv environment contributes the NCCL release and nothing else: collbench is the one on the
PATH, and it measures straight on the environment's library (`--via native --nccl PATH`), so no
torch decides which releases can be loaded. Only the standard library is imported here, because asv
imports this file in environments that hold nothing else. See docs/asv.md.

COLLBENCH_LAUNCH         words before `collbench sweep`: srun -N 4 --ntasks-per-node=1 [none]
COLLBENCH_ASV_BACKEND    nccl or gloo [gloo where this machine has no NVIDIA driver]
"""

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

SUITE = Path(__file__).resolve().parents[1]
CASES = SUITE / "cases.toml"
RUNS = SUITE / "runs"
PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")

LAUNCH = os.environ.get("COLLBENCH_LAUNCH", "")
_DRIVER = Path("/dev/nvidiactl")
BACKEND = os.environ.get("COLLBENCH_ASV_BACKEND") or ("nccl" if _DRIVER.exists() else "gloo")

with CASES.open("rb") as _stream:
    _SWEEP = tomllib.load(_stream)["sweep"]


def installed_nccl():
    """Returns the release in this environment, and where its library lies."""
    for package in PACKAGES:
        try:
            found = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            continue
        library = Path(found.locate_file("nvidia/nccl/lib/libnccl.so.2"))
        return re.sub(r"\.post\d+$", "", found.version), library
    raise RuntimeError(f"none of {', '.join(PACKAGES)} is installed in asv's environment")


def measured(release, library):
    """Runs the sweep and returns the folder of its run."""
    RUNS.mkdir(exist_ok=True)
    results = tempfile.mkdtemp(prefix=f"{release}-", dir=RUNS)
    command = [*shlex.split(LAUNCH), "collbench", "sweep", str(CASES)]
    command += ["--backend", BACKEND, "--results", results]
    if BACKEND == "nccl":
        command += ["--via", "native", "--nccl", str(library)]
    else:
        sys.stderr.write(f"Over {BACKEND} no NCCL is loaded: no time shows {release}.\n")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    runs = [path.parent for path in Path(results).glob("*/*/run.json")]
    # 1: data wrong, 4: a case hung, crashed or failed. The others stand, those fail by themselves.
    if done.returncode not in (0, 1, 4) or len(runs) != 1:
        sys.stderr.write(done.stdout)
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}")
    return runs[0]


def times_of(run):
    """Returns the median over repeats of each case, in seconds; None for one that failed."""
    times, case_ids = {}, {}
    for line in (run / "trials.jsonl").read_text().splitlines():
        trial = json.loads(line)
        case = trial["case"]
        key = (case["collective"], case["requested_bytes"], case["mode"])
        if case_ids.setdefault(key, trial["case_id"]) != trial["case_id"]:
            raise RuntimeError(f"{CASES} may vary collectives, sizes and modes, nothing else")
        if trial["status"] != "unsupported":
            median_us = trial["summary"]["median_us"] if trial["status"] == "ok" else None
            times.setdefault(key, []).append(median_us)
    return {
        key: None if None in medians_us else statistics.median(medians_us) * 1e-6
        for key, medians_us in times.items()
    }


def size_bytes(label):
    """Returns the bytes of a size: 8, 64K, 1MiB."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?)(?:iB)?", label).groups()
    return int(number) * 1024 ** " KMG".index(unit or " ")


class Collective:
    """One series a case; the launch is in setup_cache, once for each release."""

    params = (_SWEEP["collectives"], _SWEEP["sizes"], _SWEEP["modes"])
    param_names = ("collective", "size", "mode")
    # What was measured in another way is another series.
    version = f"1 {BACKEND} {LAUNCH}".rstrip()

    def setup_cache(self):
        """Measures all cases of this release."""
        release, library = installed_nccl()
        run = measured(release, library)
        loaded = json.loads((run / "run.json").read_text())["environment"]["nccl"]
        if BACKEND == "nccl" and (loaded is None or loaded["version"] != release):
            raise RuntimeError(f"{run} loaded {loaded}, but asv's environment holds {release}")
        return times_of(run)

    setup_cache.timeout = 7200

    def setup(self, times, collective, size, mode):
        """Skips what this machine cannot run, graphs over Gloo for one."""
        if (collective, size_bytes(size), mode) not in times:
            raise NotImplementedError(f"{BACKEND} has no {mode} {collective} here")

    def track_time(self, times, collective, size, mode):
        """Returns seconds a call: the slowest rank's, the median over samples, then repeats."""
        time_s = times[collective, size_bytes(size), mode]
        if time_s is None:
            raise RuntimeError("a repeat of this case failed; `collbench show` of its run says why")
        return time_s

    # asv takes larger as worse, everywhere: a time, never a bandwidth.
    track_time.unit = "seconds"
