"""The batch script: golden files, quoting that survives bash, values that cannot be."""

from pathlib import Path

import pytest
from batch_files import directives, run_with_fakes

from collbench.errors import UsageError
from collbench.report.slurm_script import SlurmRequest, slurm_script

GOLDEN = Path(__file__).parents[1] / "data" / "slurm"

PER_NODE = SlurmRequest(
    command=("sweep", "-b", "8", "-e", "8G", "-f", "2"),
    nodes=16,
    gpus_per_node=8,
    time_limit="1:00:00",
)
PER_GPU = SlurmRequest(
    command=("sweep", "ib_on_off"),
    nodes=2,
    gpus_per_node=4,
    time_limit="20",
    partition="gpu,large",
    account="team-7",
    per_gpu=True,
    python="/shared/venv/bin/python",
)
CONTAINER = SlurmRequest(
    command=("sweep", "--env", "NCCL_NET=a b; echo $HOME 'c'"),
    nodes=1,
    gpus_per_node=8,
    time_limit="1-12",
    container="registry.example.com#team/collbench:0.1.0",
)
NO_GPU = SlurmRequest(command=("sweep",), nodes=8, gpus_per_node=0, time_limit="10:00")
PAIRWISE = SlurmRequest(
    command=("pairwise", "--min-of-limit", "80%"), nodes=500, gpus_per_node=8, time_limit="30"
)
HISTORY = SlurmRequest(
    command=("history", "run", "--nccl", "2.28.9,2.29.7", "--libraries", "/shared/nccl"),
    nodes=4,
    gpus_per_node=8,
    time_limit="2:00:00",
)
REQUESTS = {
    "pairwise.sbatch": PAIRWISE,
    "history_run.sbatch": HISTORY,
    "per_node.sbatch": PER_NODE,
    "per_gpu.sbatch": PER_GPU,
    "container.sbatch": CONTAINER,
    "no_gpu.sbatch": NO_GPU,
}


def changed(request, **fields):
    values = {name: getattr(request, name) for name in SlurmRequest.__slots__}
    return SlurmRequest(**{**values, **fields})


@pytest.mark.parametrize("name", REQUESTS)
def test_the_script_is_the_golden_one(name):
    assert slurm_script(REQUESTS[name]) == (GOLDEN / name).read_text()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "per_node.sbatch",
            {"nodes": "16", "ntasks-per-node": "1", "gpus-per-node": "8", "time": "1:00:00"},
        ),
        (
            "per_gpu.sbatch",
            {
                "nodes": "2",
                "ntasks": "8",
                "ntasks-per-node": "4",
                "gpus-per-task": "1",
                "time": "20",
                "partition": "gpu,large",
                "account": "team-7",
            },
        ),
        (
            "container.sbatch",
            {"nodes": "1", "ntasks-per-node": "1", "gpus-per-node": "8", "time": "1-12"},
        ),
        ("no_gpu.sbatch", {"nodes": "8", "ntasks-per-node": "1", "time": "10:00"}),
        (
            "pairwise.sbatch",
            {"nodes": "500", "ntasks-per-node": "1", "gpus-per-node": "8", "time": "30"},
        ),
        (
            "history_run.sbatch",
            {"nodes": "4", "ntasks-per-node": "1", "gpus-per-node": "8", "time": "2:00:00"},
        ),
    ],
)
def test_slurm_reads_these_directives(name, expected):
    always = {
        "job-name": "collbench",
        "exclusive": None,
        "no-requeue": None,
        "output": "collbench-%j.log",
    }

    assert directives(slurm_script(REQUESTS[name])) == always | expected


@pytest.mark.parametrize("name", REQUESTS)
def test_what_srun_gets_is_what_was_asked_for(name, tmp_path):
    request = REQUESTS[name]
    script = tmp_path / "script"
    script.write_text(slurm_script(request))

    started, secret = run_with_fakes(script, tmp_path)

    assert started[0] == "srun"
    assert {f"--nodes={request.nodes}", "--cpu-bind=none", "--export=ALL"} <= set(started)
    at = started.index(request.python)
    assert started[at:] == [request.python, "-m", "collbench", *request.command]
    assert len(bytes.fromhex(secret)) == 32
    assert secret not in " ".join(started)


def test_a_container_sees_the_folder_and_the_results(tmp_path):
    script = tmp_path / "script"
    script.write_text(slurm_script(CONTAINER))

    started, _ = run_with_fakes(script, tmp_path, COLLBENCH_RESULTS=str(tmp_path / "kept"))

    assert f"--container-image={CONTAINER.container}" in started
    assert f"--container-workdir={tmp_path}" in started
    assert f"--container-mounts={tmp_path}:{tmp_path},{tmp_path}/kept:{tmp_path}/kept" in started
    assert (tmp_path / "kept").is_dir()


def test_every_job_draws_its_own_secret(tmp_path):
    script = tmp_path / "script"
    script.write_text(slurm_script(PER_NODE))

    assert run_with_fakes(script, tmp_path)[1] != run_with_fakes(script, tmp_path)[1]


@pytest.mark.parametrize("text", ["1", "90", "10:30", "1:30:00", "2-0", "1-12:30", "1-12:30:00"])
def test_a_time_of_slurm_is_taken(text):
    script = slurm_script(changed(PER_NODE, time_limit=text))

    assert directives(script)["time"] == text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nodes": 0}, "--nodes: 0 must be at least 1"),
        ({"gpus_per_node": -1}, "--gpus-per-node: -1 must be at least 0"),
        ({"gpus_per_node": 0, "per_gpu": True}, "--per-gpu and --gpus-per-node 0 cannot both be"),
        ({"time_limit": "1h"}, "--time: '1h' is no time of Slurm; write minutes (90)"),
        ({"time_limit": "1:2:3"}, "--time: '1:2:3' is no time of Slurm"),
        ({"time_limit": ""}, "--time: '' is no time of Slurm"),
        ({"time_limit": "90\n#SBATCH --uid=0"}, "is no time of Slurm"),
        ({"partition": "a b"}, "--partition: 'a b' is no name of Slurm; allowed: letters"),
        ({"partition": "gpu\n"}, "is no name of Slurm"),
        ({"partition": ""}, "--partition: '' is no name of Slurm"),
        ({"account": "--uid"}, "--account: '--uid' is no name of Slurm"),
    ],
)
def test_what_slurm_could_not_read_is_refused(fields, words):
    with pytest.raises(UsageError) as problem:
        slurm_script(changed(PER_NODE, **fields))

    assert words in str(problem.value)
