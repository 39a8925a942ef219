"""The suite's one benchmark without asv: what it runs, what it reads, what it refuses."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "suites/asv/benchmarks"
SWEEP = ROOT / "results/2xh200/20261130-0635-3947"  # loaded 2.28.9, 20 repeats

# Keeps its words, and gives a stored run instead of measuring.
RECORDER = """
import json, shutil, sys
from pathlib import Path

here, words = Path(__file__).parent, sys.argv[1:]
(here / "words.json").write_text(json.dumps(words))
results = Path(words[words.index("--results") + 1])
shutil.copytree(here / "run", results / "lab" / "run")
sys.exit(int((here / "status").read_text()))
"""


@pytest.fixture
def launcher(tmp_path):
    """The folder of a launcher that ends with 0 and gives the committed sweep."""
    (tmp_path / "launch.py").write_text(RECORDER)
    (tmp_path / "status").write_text("0")
    (tmp_path / "run").mkdir()
    for name in ("run.json", "trials.jsonl"):
        (tmp_path / "run" / name).write_bytes((SWEEP / name).read_bytes())
    return tmp_path


@pytest.fixture
def benchmark_file(tmp_path, monkeypatch, launcher):
    """Imports the benchmark as asv does, in an environment that holds a release."""

    def load(release: str = "2.28.9", backend: str = "nccl"):
        info = tmp_path / "site" / f"nvidia_nccl_cu13-{release}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: nvidia-nccl-cu13\nVersion: {release}\n")
        monkeypatch.syspath_prepend(info.parent)
        monkeypatch.setenv("COLLBENCH_ASV_BACKEND", backend)
        monkeypatch.setenv(
            "COLLBENCH_LAUNCH", f"'{sys.executable}' '{launcher / 'launch.py'}' -N 2"
        )
        spec = importlib.util.spec_from_file_location(
            "nccl_release", BENCHMARKS / "nccl_release.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
        return module

    return load


def test_a_release_is_measured_natively_on_its_own_library(benchmark_file, launcher):
    times = benchmark_file().Collective().setup_cache()

    words = json.loads((launcher / "words.json").read_text())
    assert words[:5] == ["-N", "2", "collbench", "sweep", str(ROOT / "suites/asv/cases.toml")]
    library = launcher / "site/nvidia/nccl/lib/libnccl.so.2"
    assert words[-4:] == ["--via", "native", "--nccl", str(library)]
    assert words[words.index("--backend") + 1] == "nccl"
    # The median over 20 repeats of the medians that stand in trials.jsonl, in seconds.
    assert times["all_reduce", 2**30, "graph"] == pytest.approx(3.2603839721679685e-3)
    assert times["all_gather", 65536, "graph"] == pytest.approx(6.211749911308288e-6)


def test_over_gloo_no_library_is_named(benchmark_file, launcher, capfd):
    benchmark_file("2.31.2", backend="gloo").Collective().setup_cache()

    words = json.loads((launcher / "words.json").read_text())
    assert words[words.index("--backend") + 1] == "gloo"
    assert "--nccl" not in words
    assert "Over gloo no NCCL is loaded: no time shows 2.31.2." in capfd.readouterr().err


def test_another_nccl_than_the_installed_one_is_refused(benchmark_file):
    with pytest.raises(RuntimeError, match=r"loaded .*'2\.28\.9'.* environment holds 2\.30\.7"):
        benchmark_file("2.30.7").Collective().setup_cache()


def test_a_rebuild_counts_as_its_release(benchmark_file):
    assert benchmark_file("2.25.1.post1").installed_nccl()[0] == "2.25.1"


@pytest.mark.parametrize("status", [2, 3, 70])
def test_a_sweep_that_measured_nothing_fails_the_release(benchmark_file, launcher, status):
    (launcher / "status").write_text(str(status))

    with pytest.raises(RuntimeError, match=rf"collbench sweep .* ended with {status}$"):
        benchmark_file().Collective().setup_cache()


def test_a_case_with_a_failed_repeat_fails_alone(benchmark_file, launcher):
    (launcher / "status").write_text("4")
    trials = launcher / "run/trials.jsonl"
    lines = [json.loads(line) for line in trials.read_text().splitlines()]
    first = lines[0]["case"]
    lines[0] |= {"status": "hung", "summary": None}
    trials.write_text("".join(json.dumps(line) + "\n" for line in lines))
    benchmark = benchmark_file().Collective()

    times = benchmark.setup_cache()

    failed = (first["collective"], first["requested_bytes"], first["mode"])
    assert [key for key, time_s in times.items() if time_s is None] == [failed]
    with pytest.raises(RuntimeError, match="a repeat of this case failed"):
        benchmark.track_time(times, failed[0], str(failed[1]), failed[2])


def test_what_was_not_run_is_skipped(benchmark_file):
    benchmark = benchmark_file().Collective()

    benchmark.setup({("all_reduce", 2**20, "eager"): 1e-6}, "all_reduce", "1MiB", "eager")
    with pytest.raises(NotImplementedError, match="nccl has no graph all_reduce here"):
        benchmark.setup({("all_reduce", 2**20, "eager"): 1e-6}, "all_reduce", "1MiB", "graph")


def test_another_axis_in_the_cases_is_refused(benchmark_file):
    matrix = ROOT / "results/2xh200/20261130-0929-1943"

    with pytest.raises(RuntimeError, match=r"cases\.toml may vary collectives, sizes and modes"):
        benchmark_file().times_of(matrix)


@pytest.mark.parametrize(
    ("label", "size_bytes"), [("8", 8), ("64K", 65536), ("1MiB", 2**20), ("2GiB", 2**31)]
)
def test_labels_of_sizes_are_binary(benchmark_file, label, size_bytes):
    assert benchmark_file().size_bytes(label) == size_bytes


def test_the_tracked_value_is_a_time_over_the_cases_of_the_suite(benchmark_file):
    collective = benchmark_file().Collective

    assert collective.track_time.unit == "seconds"
    assert collective.param_names == ("collective", "size", "mode")
    assert collective.params[1] == ["8", "64KiB", "1MiB", "16MiB", "256MiB"]


def test_discovery_needs_nothing_but_python():
    """Without site-packages: neither torch nor collbench is there in asv's environment."""
    code = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import nccl_release"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60)
