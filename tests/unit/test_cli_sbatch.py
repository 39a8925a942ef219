"""``collbench sbatch``: where the script goes, and what is refused before it waits in a queue."""

import subprocess
import sys
from pathlib import Path

import pytest
from batch_files import directives
from click.testing import CliRunner

from collbench.cli import main
from collbench.report.slurm_script import SlurmRequest, slurm_script

RUNS = Path(__file__).parents[1] / "data/runs"
LIBRARIES = ("--nccl", "old=/a/libnccl.so.2", "--nccl", "new=/b/libnccl.so.2")


def written(*arguments):
    result = CliRunner().invoke(main.cli, ["sbatch", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main.run(["sbatch", *arguments])
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["-N", "4", "--", "sweep", "-b", "8"], {"command": ("sweep", "-b", "8")}),
        (["-N", "4", "sweep", "-b", "8"], {"command": ("sweep", "-b", "8")}),
        (["--nodes", "4"], {}),
        (["-N", "4", "--gpus-per-node", "0"], {"gpus_per_node": 0}),
        (["-N", "4", "--per-gpu"], {"per_gpu": True}),
        (["-N", "4", "--time", "90"], {"time_limit": "90"}),
        (["-N", "4", "-p", "gpu", "-A", "team"], {"partition": "gpu", "account": "team"}),
        (["-N", "4", "--container", "a.sqsh"], {"container": "a.sqsh", "python": "python"}),
    ],
)
def test_options_become_a_script(arguments, fields):
    base = {
        "command": ("sweep",),
        "nodes": 4,
        "gpus_per_node": 8,
        "time_limit": "1:00:00",
        "python": sys.executable,
    }

    assert written(*arguments) == slurm_script(SlurmRequest(**(base | fields)))


@pytest.mark.parametrize(
    "command",
    [
        ("sweep", "ib_on_off", "--min-busbw", "300", "--strict"),
        ("ab", "--ib", "on,off", "--fail-on", "slower", "--threshold", "5%"),
        ("ab", *LIBRARIES),
        ("pairwise", "--rounds", "all", "--min-of-limit", "80%", "--exclude", "n[1-3]"),
        ("scale", "--step", "2", "--max-oversubscription", "2:1", "--yes"),
        ("history", "run", *LIBRARIES, "--repeats", "3"),
        ("placement", "--json"),
        # Files that only the run reads are looked for where it runs.
        ("sweep", "--baseline", "there.json"),
        ("pairwise", "--topology", "/etc/slurm/topology.conf"),
        ("sweep", "--via", "native", "--nccl", "/image/libnccl.so.2"),
        ("sweep", "--resume", "20261130-0854-24d5", "--results", str(RUNS)),
    ],
    ids=" ".join,
)
def test_every_command_that_runs_on_nodes_is_taken_as_it_stands(command):
    script = written("-N", "4", "--", *command)

    fields = {"nodes": 4, "gpus_per_node": 8, "time_limit": "1:00:00", "python": sys.executable}
    assert script == slurm_script(SlurmRequest(command=command, **fields))


@pytest.mark.parametrize(
    "command",
    [
        ("sweep", "-b", "8MB"),
        ("sweep", "--algo", "Rng"),
        ("sweep", "nosuchsuite"),
        ("sweep", "--sizes", "8", "-f", "2"),
        ("sweep", "--wait", "soon"),
        ("sweep", "--tolerance", "3%"),
        ("sweep", "--min-busbw", "fast"),
        ("sweep", "--plant", "sleep:rank=1"),
        ("sweep", "--nccl", "/opt/libnccl.so.2"),
        ("sweep", "--alg-selection", "tree"),
        ("sweep", "--resume", "20000101-0000-0000"),
        ("ab", "--ib", "on"),
        ("ab", "--ib", "on,off", "--fail-on", "faster"),
        ("ab", "--ib", "on,off", "--threshold", "x"),
        ("pairwise", "--rounds", "many"),
        ("pairwise", "--inside", "--qualify", "n1"),
        ("scale", "--step", "0"),
        ("scale", "--topology", "a", "--from-pairwise", "last"),
        ("history", "run"),
        ("history", "run", "--nccl", "2.28.9,2.28.9"),
        ("placement", "--node-rank", "-1"),
    ],
    ids=" ".join,
)
def test_what_the_command_refuses_is_refused_in_its_words(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    error = refused(capsys, "-N", "2", "--", *command)

    with pytest.raises(SystemExit) as end:
        main.run([*command])
    assert end.value.code == 2
    assert capsys.readouterr().err == error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_and_nothing_printed(tmp_path):
    file = tmp_path / "sweep.sbatch"

    assert written("-N", "2", "-o", str(file)) == ""

    assert directives(file.read_text())["nodes"] == "2"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "missing option '-N' / '--nodes'"),
        (["-N", "2", "swep"], "command 'swep' is not started on nodes; did you mean 'sweep'?"),
        (["-N", "2", "show"], "command 'show' is not started on nodes"),
        (
            ["-N", "2", "history", "show"],
            (
                "command 'history show' is not started on nodes; did you mean 'history run'?"
                " allowed: sweep, ab, pairwise, scale, history run, placement"
            ),
        ),
        (["-N", "2", "sweep", "--precison", "1%"], "no such option --precison; did you mean"),
        (["-N", "0"], "--nodes: 0 must be at least 1"),
        (["-N", "x"], "'x' is not a valid integer"),
        (["-N", "2", "-o", "/"], "cannot write '/': Is a directory; give another file with -o"),
    ],
)
def test_what_could_not_run_is_one_line(capsys, arguments, words):
    error = refused(capsys, *arguments)

    assert words in error
    assert error.count("\n") == 1


def test_it_can_be_piped():
    done = subprocess.run(
        [sys.executable, "-m", "collbench", "sbatch", "-N", "2"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr == ""
    assert directives(done.stdout)["nodes"] == "2"
