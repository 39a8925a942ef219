"""Where the processes meet, and that they do: over files, torchrun's store and MPI's broadcast."""

from __future__ import annotations

import re
import socket
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from collbench.errors import EngineError, NothingMeasured, UsageError
from collbench.launch.detect import Launch, Launcher
from collbench.launch.meeting import POD_PORTS, Meeting, MeetingKind, ports_of, where_to_meet
from collbench.launch.options import LaunchOptions, parse_rendezvous
from collbench.launch.rendezvous import Announcement, find, publish, withdraw

SRUN = {
    "launcher": Launcher.SRUN,
    "job": "7.3",
    "nodes": 4,
    "variables": {"SLURM_STEP_NODELIST": "node[0-3]"},
}
TORCHRUN = {
    "launcher": Launcher.TORCHRUN,
    "nodes": 4,
    "variables": {
        "MASTER_ADDR": "node0",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    },
}
KUBERNETES = {"launcher": Launcher.KUBERNETES, "job": "qualify", "nodes": 4}
PYTORCHJOB = {
    "launcher": Launcher.KUBEFLOW,
    "nodes": 4,
    "variables": {"MASTER_ADDR": "qualify-master-0", "MASTER_PORT": "23456"},
}
TRAINJOB = {
    "launcher": Launcher.KUBEFLOW,
    "nodes": 4,
    "variables": {"PET_MASTER_ADDR": "qualify-node-0-0.qualify", "PET_MASTER_PORT": "29500"},
}
MPIRUN = {"launcher": Launcher.MPIRUN, "job": "prterun-node0-1234@1"}
PLAIN = {"launcher": Launcher.PLAIN, "nodes": 4}
KNOWN = {"node0": "198.18.0.1", "own": "127.0.1.1", "198.18.0.1": "198.18.0.1"}


def resolve(host, port, **_):
    if host not in KNOWN:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (KNOWN[host], 0))]


def meeting_of(
    fields, *, environ=None, options=None, modules=(), process=1, processes=4, results="r"
):
    launch = Launch(**({"process": process, "processes": processes, "node_name": "here"} | fields))
    return where_to_meet(
        launch,
        environ or {},
        LaunchOptions(**(options or {})),
        Path(results),
        resolve=resolve,
        find_module=lambda name: name if name in modules else None,
    )


def place(meeting: Meeting) -> tuple:
    return meeting.kind.value, meeting.host, meeting.ports, meeting.key


def test_one_process_meets_nobody():
    met = meeting_of(SRUN, process=0, processes=1, options={"rendezvous": "nowhere:1"})

    assert met == Meeting(kind=MeetingKind.NONE, why="there is one process")


@pytest.mark.parametrize(
    ("fields", "more", "expected", "why"),
    [
        pytest.param(
            SRUN,
            {"options": {"rendezvous": "198.18.0.1:29400"}},
            ("address", "198.18.0.1", (29400,), ""),
            "--rendezvous 198.18.0.1:29400",
            id="--rendezvous comes first",
        ),
        pytest.param(
            TORCHRUN,
            {},
            ("torchrun_store", "node0", (29500,), "collbench/1"),
            "the store of torchrun's agents",
            id="torchrun",
        ),
        pytest.param(
            TORCHRUN
            | {"variables": TORCHRUN["variables"] | {"TORCHELASTIC_USE_AGENT_STORE": "False"}},
            {},
            ("address", "node0", (29500,), ""),
            "MASTER_ADDR and MASTER_PORT of torchrun",
            id="torchrun without a store",
        ),
        pytest.param(
            SRUN,
            {},
            ("address", "node0", (22849, 48537, 28462, 31074, 54262, 36706, 42462, 31194), ""),
            "the first host of Slurm's step 7.3",
            id="srun",
        ),
        pytest.param(
            KUBERNETES,
            {"environ": {"COLLBENCH_SERVICE": "collbench"}},
            ("address", "qualify-0.collbench", POD_PORTS, ""),
            "the Job's first pod in the Service COLLBENCH_SERVICE",
            id="indexed Job",
        ),
        pytest.param(
            KUBERNETES,
            {"environ": {"COLLBENCH_SERVICE": "qualify-0.collbench.lab.svc"}},
            ("address", "qualify-0.collbench.lab.svc", POD_PORTS, ""),
            "the Job's first pod in the Service COLLBENCH_SERVICE",
            id="indexed Job, the pod's whole name",
        ),
        pytest.param(
            PYTORCHJOB,
            {},
            ("address", "qualify-master-0", (23456,), ""),
            "MASTER_ADDR and MASTER_PORT (kubeflow)",
            id="PyTorchJob",
        ),
        pytest.param(
            PYTORCHJOB | {"variables": {"MASTER_ADDR": "localhost", "MASTER_PORT": "23456"}},
            {"process": 0},
            ("address", "here", (23456,), ""),
            "MASTER_ADDR and MASTER_PORT (kubeflow)",
            id="PyTorchJob calls its first pod localhost in it",
        ),
        pytest.param(
            TRAINJOB,
            {},
            ("address", "qualify-node-0-0.qualify", (29500,), ""),
            "MASTER_ADDR and MASTER_PORT (kubeflow)",
            id="TrainJob",
        ),
        pytest.param(
            MPIRUN,
            {"modules": ("mpi4py",)},
            ("mpi", None, (), ""),
            "a broadcast over MPI (mpi4py)",
            id="mpirun with mpi4py",
        ),
        pytest.param(
            MPIRUN,
            {},
            ("file", None, (), "prterun-node0-1234@1"),
            "the results folder r, which all nodes must share",
            id="mpirun without mpi4py",
        ),
        pytest.param(
            PLAIN | {"variables": {"MASTER_ADDR": "node0", "MASTER_PORT": "1"}},
            {},
            ("address", "node0", (1,), ""),
            "MASTER_ADDR and MASTER_PORT (plain)",
            id="torch's variables set by hand",
        ),
        pytest.param(
            PLAIN,
            {"options": {"rendezvous": "own:1"}, "process": 0},
            ("address", "own", (1,), ""),
            "--rendezvous own:1",
            id="node 0's own name may be loopback to itself",
        ),
        pytest.param(
            PLAIN | {"nodes": 1, "local_processes": 4},
            {"options": {"rendezvous": "own:1"}},
            ("address", "own", (1,), ""),
            "--rendezvous own:1",
            id="loopback for one node",
        ),
    ],
)
def test_where_each_launcher_lets_them_meet(fields, more, expected, why):
    met = meeting_of(fields, **more)

    assert place(met) == expected
    assert met.why == why


def test_the_file_in_the_results_folder_is_called_after_the_job(tmp_path):
    met = meeting_of(MPIRUN | {"job": "12.a"}, results=tmp_path)

    assert met.path == f"{tmp_path}/.meeting/12.a.json"


def test_a_job_that_cannot_be_a_file_name_is_made_one(tmp_path):
    one = meeting_of(MPIRUN | {"job": "../a b"}, results=tmp_path)
    other = meeting_of(MPIRUN | {"job": "../a_b"}, results=tmp_path)

    assert re.fullmatch(rf"{tmp_path}/\.meeting/job-\.\._a_b-[0-9a-f]{{8}}\.json", one.path)
    assert one.path != other.path


def test_a_file_by_option_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    met = meeting_of(PLAIN, options={"rendezvous": "file:here"})

    assert (met.kind, met.path) == (MeetingKind.FILE, f"{tmp_path}/here")


@pytest.mark.parametrize(
    ("fields", "more", "text"),
    [
        pytest.param(
            PLAIN,
            {},
            "4 processes started by plain have no place to meet (no store of torchrun, step of"
            " Slurm, COLLBENCH_SERVICE, MASTER_ADDR or mpi4py, and no job id to name a file by);"
            " give --rendezvous HOST:PORT with node 0's host, or file:PATH on a shared folder",
            id="nowhere",
        ),
        *(
            pytest.param(
                PLAIN,
                {"options": {"rendezvous": f"{written}:1"}, "process": 0},
                f"{host} is each node's own loopback address and cannot be the place where 4 nodes"
                " meet; give --rendezvous HOST:PORT with a name or address of node 0 that every"
                " node knows",
                id=written,
            )
            for written, host in (
                ("localhost", "localhost"),
                ("127.0.0.1", "127.0.0.1"),
                ("127.9.9.9", "127.9.9.9"),
                ("[::1]", "::1"),
            )
        ),
        pytest.param(
            MPIRUN,
            {"options": {"rendezvous": "own:1"}},
            "own (127.0.1.1) is each node's own loopback address and cannot be the place where"
            " several nodes meet; give --rendezvous HOST:PORT with a name or address of node 0"
            " that every node knows",
            id="a name for loopback",
        ),
        pytest.param(
            SRUN | {"variables": {"SLURM_STEP_NODELIST": "gpu[7-8]"}},
            {},
            "the host 'gpu7' to meet at does not resolve on here: Name or service not known; give"
            " --rendezvous HOST:PORT with a name or address of node 0 that every node knows",
            id="a name that does not resolve",
        ),
        pytest.param(
            PLAIN,
            {"options": {"rendezvous": "file:/no/such/folder/x"}},
            "--rendezvous file:/no/such/folder/x: there is no folder '/no/such/folder' on here;"
            " name a file in a folder that all nodes share",
            id="no folder",
        ),
        pytest.param(
            KUBERNETES | {"job": None},
            {"environ": {"COLLBENCH_SERVICE": "collbench"}},
            "COLLBENCH_SERVICE=collbench, but the Job's name is not known (the host name does not"
            " end in the pod's index); set JOB_NAME in the pods",
            id="a Service for what",
        ),
        pytest.param(
            PYTORCHJOB | {"variables": {"MASTER_ADDR": "a", "MASTER_PORT": "65536"}},
            {},
            "MASTER_PORT='65536' beside MASTER_ADDR=a is no port; allowed: 1 to 65535",
            id="no port",
        ),
    ],
)
def test_what_cannot_be_a_place_to_meet_is_refused(fields, more, text):
    with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
        meeting_of(fields, **more)


def test_ports_follow_from_the_job_and_differ_between_jobs():
    jobs = [f"{job}.{step}" for job in range(200) for step in range(2)]

    assert ports_of("1.0") == ports_of("1.0")
    for job in jobs:
        assert len(set(ports_of(job))) == 8
        assert all(20_000 <= port < 60_000 for port in ports_of(job))
    assert len({ports_of(job)[0] for job in jobs}) > 380


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node0:29400", ("node0", 29400)),
        ("[fd00::1]:1", ("fd00::1", 1)),
        ("file:/a/b", Path("/a/b")),
    ],
)
def test_a_rendezvous_is_an_address_or_a_file(text, expected):
    assert parse_rendezvous(text) == expected


@pytest.mark.parametrize("text", ["", "node0", "node0:", ":1", "a:0", "a:65536", "a:x", "file:"])
def test_what_is_no_rendezvous_is_refused(text):
    with pytest.raises(UsageError, match=re.escape(f"'{text}' is no place to meet")):
        parse_rendezvous(text)


def test_a_bare_ipv6_address_is_asked_for_with_brackets():
    with pytest.raises(UsageError, match=re.escape("write [fd00::1]:1")):
        parse_rendezvous("fd00::1:1")


# --- meeting


FIRST = Announcement(host="198.18.0.1", port=29400, token="t" * 64)
SECOND = Announcement(host="198.18.0.1", port=29401, token="u" * 64)


@pytest.fixture
def at_file(tmp_path) -> Meeting:
    return Meeting(
        kind=MeetingKind.FILE, path=str(tmp_path / ".meeting" / "7.json"), key="7", why="a test"
    )


def with_key(announcement: Announcement, key: str) -> Announcement:
    return msgspec.structs.replace(announcement, key=key)


def test_a_file_brings_them_together_and_nobody_else_reads_it(at_file):
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(find, at_file, 60.0)
        publish(at_file, FIRST)

        assert found.result(60) == with_key(FIRST, "7")
    path = Path(at_file.path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["7.json"]


def test_a_new_run_takes_the_place_of_what_an_ended_one_left(at_file):
    publish(at_file, FIRST)
    stale = find(at_file, 0)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(lambda: find(at_file, 60.0, not_this=stale))
        publish(at_file, SECOND)

        assert found.result(60) == with_key(SECOND, "7")


def test_process_0_removes_its_own_file_and_no_other(at_file):
    publish(at_file, FIRST)

    withdraw(at_file, SECOND)
    assert find(at_file, 0).token == FIRST.token

    withdraw(at_file, FIRST)
    withdraw(at_file, FIRST)
    assert list(Path(at_file.path).parent.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"host": 1}', b"[]", None])
def test_what_is_no_announcement_is_waited_out(at_file, content):
    path = Path(at_file.path)
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)

    text = f"process 0 has not said in '{path}' where it listens within 0 s"
    with pytest.raises(NothingMeasured, match=re.escape(text)):
        find(at_file, 0)


def test_another_jobs_announcement_is_not_taken(at_file):
    publish(msgspec.structs.replace(at_file, key="6"), FIRST)

    with pytest.raises(NothingMeasured, match="has not said"):
        find(at_file, 0)


def test_somebody_elses_file_is_not_taken(at_file, monkeypatch):
    publish(at_file, FIRST)
    monkeypatch.setattr("collbench.launch.private_files.os.geteuid", lambda: 4_000_000_000)

    with pytest.raises(NothingMeasured, match="has not said"):
        find(at_file, 0)


def test_a_link_is_not_followed(at_file, tmp_path):
    publish(at_file, FIRST)
    link = tmp_path / "link"
    link.symlink_to(at_file.path)

    with pytest.raises(NothingMeasured, match="has not said"):
        find(msgspec.structs.replace(at_file, path=str(link)), 0)


def test_a_folder_that_cannot_be_made_is_said(at_file, tmp_path):
    (tmp_path / ".meeting").write_text("in the way")

    with pytest.raises(UsageError, match="where the nodes are to meet, cannot be written: "):
        publish(at_file, FIRST)


@pytest.fixture
def store():
    """The store of an agent, as torchrun's workers find it."""
    distributed = pytest.importorskip("torch.distributed")
    return distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def at_store(port: int, key: str = "collbench/0") -> Meeting:
    return Meeting(
        kind=MeetingKind.TORCHRUN_STORE, host="127.0.0.1", ports=(port,), key=key, why="a test"
    )


def test_torchruns_store_brings_them_together(store):
    met = at_store(store.port)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(find, met, 60.0)
        publish(met, FIRST)

        assert found.result(120) == with_key(FIRST, "collbench/0")


def test_a_store_in_which_nobody_says_anything_is_given_up(store):
    text = f"torchrun's store at 127.0.0.1:{store.port} did not help to meet: DistStoreError: "
    with pytest.raises(NothingMeasured, match=re.escape(text)):
        find(at_store(store.port, "collbench/other"), 0.2)


def test_a_store_that_is_not_there_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = f"torchrun's store at 127.0.0.1:{port} did not help to meet: DistNetworkError: "
    with pytest.raises(NothingMeasured, match=re.escape(text)):
        publish(at_store(port), FIRST, 0.2)


class FakeMpi:
    """COMM_WORLD of two processes, which are threads here."""

    def __init__(self) -> None:
        self._both = threading.Barrier(2)
        self._sent = b""

    def Bcast(self, buffer, root):  # noqa: N802  MPI's name
        assert root == 0
        if any(buffer):
            self._sent = bytes(buffer)
        self._both.wait(60)
        buffer[:] = self._sent


def test_mpi_brings_them_together(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(COMM_WORLD=FakeMpi()))
    met = Meeting(kind=MeetingKind.MPI, why="a test")
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(find, met, 60.0)
        publish(met, FIRST)

        assert found.result(60) == FIRST


def test_where_all_know_the_address_nothing_is_announced():
    met = Meeting(kind=MeetingKind.ADDRESS, host="a", ports=(1,), why="a test")
    publish(met, FIRST)
    withdraw(met, FIRST)

    with pytest.raises(EngineError, match="nothing is announced at a meeting of kind address"):
        find(met, 0)
