"""The examples: shell files start what they say, manifests fit the schemas of who defines them."""

import copy
import subprocess
from pathlib import Path

import pytest
from batch_files import directives, run_with_fakes
from manifests import Mismatch, check, documents, pod_templates

from collbench.cli.main import cli
from collbench.launch.detect import detect
from collbench.launch.meeting import where_to_meet
from collbench.launch.options import LaunchOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
SHELL = sorted([*EXAMPLES.glob("*.sh"), *EXAMPLES.glob("slurm/*.sbatch")])
BATCH = [path for path in SHELL if path.suffix == ".sbatch"]
MANIFESTS = sorted(EXAMPLES.glob("kubernetes/*.yaml"))
OPTIONS = ["-b", "8", "--env", "A=b c"]
SWEEP = ["python", "-m", "collbench", "sweep", *OPTIONS]
OPEN_MPI = "mpirun (Open MPI) 4.1.4"


def named(path):
    return str(path.relative_to(EXAMPLES))


def kinds(path):
    return [document["kind"] for document in documents(path)]


def of_kind(kind):
    for path in MANIFESTS:
        for document in documents(path):
            if document["kind"] == kind:
                return document
    raise LookupError(kind)


def containers():
    """Yields file, pod and container of every container that runs collbench by itself."""
    for path in MANIFESTS:
        for document in documents(path):
            for template in pod_templates(document):
                for container in template["spec"]["containers"]:
                    yield path, template["spec"], container


def commands():
    """Yields every command line in the manifests."""
    found = [(path, container.get("command")) for path, _, container in containers()]
    found.append((EXAMPLES / "kubernetes/trainjob.yaml", of_kind("TrainJob")["spec"]["trainer"]))
    for path, command in found:
        if isinstance(command, dict):
            yield path, command["command"]
        elif command is not None:
            yield path, command


def refuse_unknown_options(command):
    """Raises click's error if ``sweep`` does not have an option of a command line."""
    root = cli.make_context("collbench", ["sweep"])
    arguments = command[command.index("sweep") + 1 :]
    cli.get_command(root, "sweep").make_context("sweep", arguments, parent=root)


def test_all_kinds_of_examples_are_there():
    assert [named(path) for path in SHELL] == [
        "mpirun.sh",
        "plain.sh",
        "slurm/sweep_container.sbatch",
        "slurm/sweep_per_gpu.sbatch",
        "slurm/sweep_per_node.sbatch",
        "torchrun.sh",
    ]
    assert {named(path): kinds(path) for path in MANIFESTS} == {
        "kubernetes/indexed_job.yaml": ["Service", "PersistentVolumeClaim", "Job"],
        "kubernetes/mpijob.yaml": ["MPIJob"],
        "kubernetes/pytorchjob.yaml": ["PyTorchJob"],
        "kubernetes/trainjob.yaml": ["TrainingRuntime", "TrainJob"],
    }


@pytest.mark.parametrize("path", SHELL, ids=named)
def test_a_shell_file_is_right_by_bash_and_shellcheck(path):
    for tool in (["bash", "-n"], ["shellcheck", "--norc"]):
        done = subprocess.run([*tool, path], capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("path", BATCH, ids=named)
def test_the_directives_are_ones_of_slurm(path):
    found = directives(path.read_text())

    nodes = int(found["nodes"])
    tasks = int(found["ntasks-per-node"])
    assert int(found.get("ntasks", nodes * tasks)) == nodes * tasks
    assert ("gpus-per-task" in found) == (tasks > 1)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#SBATCH --nodes=2\n", "line 1: no interpreter"),
        ("#!/bin/bash\n# SBATCH --nodes=2\n", "line 2: misspelt"),
        ("#!/bin/bash\n#SBTACH --nodes=2\n", "line 2: misspelt"),
        ("#!/bin/bash\n#SBATCH\t--nodes=2\n", "line 2: misspelt"),
        ("#!/bin/bash\n#SBATCH--nodes=2\n", "line 2: misspelt"),
        ("#!/bin/bash\n#SBATCH --nodes 2\n", "line 2: misspelt"),
        ("#!/bin/bash\n#SBATCH --nodes=2 \n", "line 2: misspelt"),
        ("#!/bin/bash\n\ntrue\n#SBATCH --nodes=2\n", "line 4: after the first command"),
        ("#!/bin/bash\n#SBATCH --node=2\n", "line 2: unknown option --node"),
        ("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --nodes=3\n", "line 3: a second --nodes"),
        ("#!/bin/bash\n#SBATCH --nodes\n", "line 2: --nodes has the wrong form"),
        ("#!/bin/bash\n#SBATCH --exclusive=2\n", "line 2: --exclusive has the wrong form"),
    ],
)
def test_a_directive_that_slurm_would_not_read_is_found(script, words):
    with pytest.raises(ValueError, match=words):
        directives(script)


@pytest.mark.parametrize(
    ("name", "arguments", "version", "expected"),
    [
        (
            "slurm/sweep_per_node.sbatch",
            [],
            "",
            "srun -N 4 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --export=ALL",
        ),
        (
            "slurm/sweep_per_gpu.sbatch",
            [],
            "",
            (
                "srun -N 4 --ntasks-per-node=8 --gpus-per-task=1 --cpu-bind=none"
                " --kill-on-bad-exit=0 --export=ALL"
            ),
        ),
        (
            "slurm/sweep_container.sbatch",
            ["image.sqsh"],
            "",
            (
                "srun -N 4 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --export=ALL"
                " --container-image=image.sqsh --container-mounts={here}:{here},{here}/results:"
                "{here}/results --container-workdir={here}"
            ),
        ),
        (
            "mpirun.sh",
            ["hosts"],
            OPEN_MPI,
            (
                "mpirun --hostfile hosts -n 2 --map-by ppr:1:node --bind-to none"
                " -x COLLBENCH_SECRET -x PATH"
            ),
        ),
        (
            "mpirun.sh",
            ["hosts"],
            "HYDRA build details:",
            "mpirun -f hosts -n 2 -ppn 1 -bind-to none -genvlist COLLBENCH_SECRET,PATH",
        ),
    ],
)
def test_a_launcher_gets_its_options_and_a_fresh_secret(
    name, arguments, version, expected, tmp_path
):
    (tmp_path / "hosts").write_text("# two hosts\ngpu001\n\n  gpu002\n")

    def started():
        return run_with_fakes(
            EXAMPLES / name,
            tmp_path,
            *arguments,
            *OPTIONS,
            version=version,
            SLURM_JOB_NUM_NODES="4",
        )

    (first, secret), (_, other_secret) = started(), started()

    assert first == [*expected.format(here=tmp_path).split(), *SWEEP]
    refuse_unknown_options(first)
    assert len(bytes.fromhex(secret)) == 32
    assert secret != other_secret


def test_mpirun_keeps_a_secret_that_is_set(tmp_path):
    (tmp_path / "hosts").write_text("gpu001\n")

    _, secret = run_with_fakes(
        EXAMPLES / "mpirun.sh", tmp_path, "hosts", version=OPEN_MPI, COLLBENCH_SECRET="my own"
    )

    assert secret == "my own"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "torchrun.sh",
            ["4", "gpu001:29400"],
            (
                "torchrun --nnodes=4 --nproc-per-node=1 --max-restarts=0 --rdzv-backend=c10d"
                " --rdzv-endpoint=gpu001:29400 --rdzv-id=collbench-gpu001:29400 -m collbench sweep"
            ),
        ),
        (
            "plain.sh",
            ["2", "1", "gpu001:29400", "secret"],
            (
                "python -m collbench sweep --nodes 2 --node-rank 1 --rendezvous gpu001:29400"
                " --secret-file secret"
            ),
        ),
    ],
)
def test_a_script_for_every_node_starts_one_process(name, arguments, expected, tmp_path):
    started, secret = run_with_fakes(EXAMPLES / name, tmp_path, *arguments, *OPTIONS)

    assert started == [*expected.split(), *OPTIONS]
    assert secret == ""
    refuse_unknown_options(started)


@pytest.mark.parametrize("path", [path for path in SHELL if path.suffix == ".sh"], ids=named)
def test_a_script_without_its_words_says_what_is_missing(path):
    done = subprocess.run(["bash", path], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert ": give " in done.stderr


@pytest.mark.parametrize("path", MANIFESTS, ids=named)
def test_a_manifest_fits_the_schemas_of_its_kinds(path):
    for document in documents(path):
        check(document)


@pytest.mark.parametrize(
    ("kind", "keys", "value"),
    [
        ("Service", ("spec", "clusterIp"), "None"),
        ("PersistentVolumeClaim", ("spec", "accessMode"), "ReadWriteMany"),
        ("Job", ("spec", "completion"), 2),
        ("Job", ("spec", "completions"), "two"),
        ("Job", ("spec", "template", "spec", "restartpolicy"), "Never"),
        ("PyTorchJob", ("spec", "runPolicy", "backofLimit"), 0),
        ("PyTorchJob", ("spec", "runPolicy", "backoffLimit"), "none"),
        ("PyTorchJob", ("spec", "pytorchReplicaSpecs", "Worker", "replica"), 1),
        ("PyTorchJob", ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "x"), 1),
        ("TrainJob", ("spec", "trainer", "numNode"), 2),
        ("TrainJob", ("spec", "trainer", "numNodes"), "two"),
        ("TrainingRuntime", ("spec", "template", "spec", "failPolicy"), {}),
        ("MPIJob", ("spec", "slotPerWorker"), 1),
        ("MPIJob", ("spec", "launcherCreationPolicy"), "Later"),
        ("MPIJob", ("spec", "mpiReplicaSpecs", "Worker", "template", "spec", "subDomain"), "a"),
    ],
)
def test_a_field_or_value_that_a_kind_does_not_have_is_found(kind, keys, value):
    document = copy.deepcopy(of_kind(kind))
    *parents, last = keys
    place = document
    for key in parents:
        place = place[key]
    place[last] = value

    with pytest.raises(Mismatch):
        check(document)


@pytest.mark.parametrize("kind", ["TrainingRuntime", "MPIJob"])
def test_a_field_that_a_container_does_not_have_is_found(kind):
    document = copy.deepcopy(of_kind(kind))
    template = next(pod_templates(document))
    template["spec"]["containers"][0]["images"] = "x"

    with pytest.raises(Mismatch):
        check(document)


def test_a_pod_that_failed_is_never_started_again():
    training = of_kind("PyTorchJob")["spec"]
    mpi = of_kind("MPIJob")["spec"]
    (node,) = of_kind("TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    replicas = [*training["pytorchReplicaSpecs"].values(), *mpi["mpiReplicaSpecs"].values()]
    job = of_kind("Job")["spec"]

    limits = [job, training["runPolicy"], mpi["runPolicy"], node["template"]["spec"]]
    assert [place["backoffLimit"] for place in limits] == [0, 0, 0, 0]
    assert job["completionMode"] == "Indexed"
    policies = [job["template"]["spec"], node["template"]["spec"]["template"]["spec"], *replicas]
    assert {place["restartPolicy"] for place in policies} == {"Never"}


def test_the_counts_and_names_of_the_indexed_job_agree():
    job, service = of_kind("Job"), of_kind("Service")
    pod = job["spec"]["template"]["spec"]
    variables = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}

    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    assert variables["COLLBENCH_NODES"] == str(job["spec"]["completions"])
    assert pod["subdomain"] == service["metadata"]["name"] == variables["COLLBENCH_SERVICE"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert service["spec"]["clusterIP"] == "None"


def test_the_pods_of_the_indexed_job_meet_at_the_first(tmp_path):
    job = of_kind("Job")
    entries = job["spec"]["template"]["spec"]["containers"][0]["env"]
    given = {entry["name"]: entry["value"] for entry in entries if "value" in entry}
    name = f"{job['metadata']['name']}-1"
    environ = given | {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": name}

    launch = detect(environ, LaunchOptions(), name)
    meeting = where_to_meet(launch, environ, LaunchOptions(), tmp_path)

    assert (launch.process, launch.processes) == (1, job["spec"]["completions"])
    assert meeting.host == "collbench-0.collbench"


def test_pods_with_gpus_have_shared_memory_and_may_pin_it():
    workers = [
        (path, pod, container)
        for path, pod, container in containers()
        if container["name"] != "launcher"
    ]

    assert len(workers) == 5
    for path, pod, container in workers:
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory", path
        assert "IPC_LOCK" in container["securityContext"]["capabilities"]["add"], path


def test_no_secret_stands_in_a_manifest():
    secrets = [
        entry
        for path in MANIFESTS
        for document in documents(path)
        for entry in _variables(document)
        if entry["name"] == "COLLBENCH_SECRET"
    ]

    assert len(secrets) == 5
    for entry in secrets:
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "collbench", "key": "secret"}}
        assert "value" not in entry
    assert all("Secret" not in kinds(path) for path in MANIFESTS)


def _variables(document):
    """Yields the entries of every ``env`` in a document."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from value if key == "env" else _variables(value)
    elif isinstance(document, list):
        for value in document:
            yield from _variables(value)


def test_commands_in_manifests_have_options_of_sweep():
    found = list(commands())

    assert len(found) == 5
    for path, command in found:
        at = command.index("collbench")
        assert command[at - 2 : at + 2] == ["python", "-m", "collbench", "sweep"], path
        refuse_unknown_options(command)
