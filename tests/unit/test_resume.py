"""Continuing a run: what is kept, what is run again, what is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from records import make_run

from collbench.cli.sweep_resume import continued, rest_of, settled_environment
from collbench.engine.simulated import Fabric, SimulatedEngine
from collbench.errors import CollbenchError, StoreError, UsageError
from collbench.model import Environment, LibraryVersion, Reason, ReasonCode, Status
from collbench.plan.sweep import Refused, plan_sweep
from collbench.store import RunWriter, StoredRun, list_runs, read_run, reopen_run
from collbench.store.lock import holder_of
from collbench.suite import load_suite, override, resolve, suite_as_dict

RUN_ID = "20261130-0412-7f3a"
TIMES_US = np.array([[10, 20, 30], [9, 18, 24]], dtype=np.float32)
TOPOLOGY = SimulatedEngine.topology_of(Fabric(ranks=2))
SUITE = resolve(
    override(load_suite("sweep"), sizes=("4", "8"), collectives=("all_reduce",), repeats=2),
    gpu=False,
)
PLAN = plan_sweep(SUITE, backend="simulated", world_size=2, seed=7)
ENVIRONMENT = Environment(
    collbench="0.1.0",
    python="3.11",
    torch="2.13.0",
    cuda="13.0",
    nccl=LibraryVersion(version="2.28.9", path="/a/libnccl.so.2"),
    driver="580.1",
    kernel="6",
    os="test",
    variables={"NCCL_IB_HCA": "mlx5", "CUDA_VISIBLE_DEVICES": "0,1"},
)
HEADER = make_run(
    run_id=RUN_ID,
    suite={"source": "sweep", **suite_as_dict(SUITE)},
    policy=SUITE.policy,
    repeats=2,
    seed=7,
    planned_trials=4,
    backend="simulated",
    environment=ENVIRONMENT,
)
TRIALS = tuple(
    outcome.trial
    for round_ in PLAN.rounds
    for outcome in SimulatedEngine(Fabric(ranks=2), SUITE.policy).run(round_)
)


def stored_run(trials=TRIALS, topology=TOPOLOGY, **changes) -> StoredRun:
    run = msgspec.structs.replace(HEADER, **changes)
    return StoredRun(folder=Path(), run=run, topology=topology, trials=tuple(trials), problems=())


def with_status(trial, status):
    return msgspec.structs.replace(trial, status=status)


def new_run(root: Path, trials=TRIALS[:3]) -> Path:
    """A run whose process ended after these trials, without a word."""
    writer = RunWriter.create(root, HEADER, TOPOLOGY)
    for number, trial in enumerate(trials):
        writer.append(trial, TIMES_US + number, "fake")
    writer.close()
    return writer.folder


class TestStore:
    def test_a_run_that_is_opened_again_grows_at_its_ends(self, tmp_path):
        folder = new_run(tmp_path)
        writer, stored = reopen_run(folder)
        writer.append(TRIALS[3], TIMES_US + 3, "fake")
        writer.close()

        assert [trial.trial_id for trial in stored.trials] == [t.trial_id for t in TRIALS[:3]]
        again = read_run(folder)
        assert [trial.trial_id for trial in again.trials] == [t.trial_id for t in TRIALS]
        for number, trial in enumerate(again.trials):
            assert again.times_us(trial).tolist() == (TIMES_US + number).tolist()
        assert again.problems == ()
        assert again.run == HEADER

    @pytest.mark.parametrize("torn", [b'{"schema":1,"tri', b"\0" * 70_000, b"x"])
    def test_a_torn_last_line_is_cut_off(self, tmp_path, torn):
        folder = new_run(tmp_path)
        whole = (folder / "trials.jsonl").read_bytes()
        with (folder / "trials.jsonl").open("ab") as stream:
            stream.write(torn)
        writer, stored = reopen_run(folder)
        writer.append(TRIALS[3], None, "")
        writer.close()

        assert (len(stored.trials), stored.problems) == (3, ())
        assert (folder / "trials.jsonl").read_bytes().startswith(whole + b'{"schema":1,')
        assert (len(read_run(folder).trials), read_run(folder).problems) == (4, ())

    def test_nothing_but_a_torn_line_leaves_an_empty_file(self, tmp_path):
        folder = new_run(tmp_path, trials=())
        (folder / "trials.jsonl").write_bytes(b'{"schema"')
        writer, stored = reopen_run(folder)
        writer.close()

        assert stored.trials == ()
        assert (folder / "trials.jsonl").read_bytes() == b""

    def test_samples_that_no_trial_refers_to_are_passed_over(self, tmp_path):
        folder = new_run(tmp_path)
        with (folder / "samples.bin").open("ab") as stream:
            stream.write(b"\7" * 13)
        writer, _ = reopen_run(folder)
        kept = writer.append(TRIALS[3], TIMES_US, "fake")
        writer.close()

        assert kept.samples.offset_bytes == 3 * 24 + 13
        assert read_run(folder).times_us(kept).tolist() == TIMES_US.tolist()

    def test_a_trial_whose_samples_were_cut_off_is_no_longer_final(self, tmp_path):
        folder = new_run(tmp_path)
        with (folder / "samples.bin").open("r+b") as stream:
            stream.truncate(2 * 24 + 5)
        writer, stored = reopen_run(folder)
        writer.append(TRIALS[3], TIMES_US + 3, "fake")
        writer.close()

        assert [str(trial.status) for trial in stored.trials] == ["ok", "ok", "skipped"]
        lost = stored.trials[2]
        assert lost.reason == Reason(
            code=ReasonCode.INTERRUPTED, text="samples.bin was cut off before its samples"
        )
        assert (lost.samples, lost.summary) == (None, None)
        again = read_run(folder)
        assert again.problems == ()
        assert again.times_us(again.trials[1]).tolist() == (TIMES_US + 1).tolist()
        assert again.times_us(again.trials[3]).tolist() == (TIMES_US + 3).tolist()

    def test_of_several_lines_of_a_trial_the_last_counts(self, tmp_path):
        folder = new_run(tmp_path, trials=(with_status(TRIALS[0], Status.HUNG), TRIALS[1]))
        writer, _ = reopen_run(folder)
        writer.append(TRIALS[0], TIMES_US + 7, "fake")
        writer.close()

        stored = read_run(folder)
        assert [trial.trial_id for trial in stored.trials] == [
            TRIALS[1].trial_id,
            TRIALS[0].trial_id,
        ]
        assert [str(trial.status) for trial in stored.trials] == ["ok", "ok"]
        assert stored.times_us(stored.trials[1]).tolist() == (TIMES_US + 7).tolist()
        assert [listed.kept_trials() for listed in list_runs(tmp_path)] == [2]

    def test_a_full_disk_counts_what_was_there_before(self, tmp_path, monkeypatch):
        writer, _ = reopen_run(new_run(tmp_path))

        def full(_descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StoreError) as caught:
            writer.sync()
        writer.close()
        assert str(caught.value).endswith("3 of 4 trials are kept and readable")

    def test_parts_do_not_write_over_each_other(self, tmp_path):
        folder = new_run(tmp_path)
        for number in (2, 3):
            writer, _ = reopen_run(folder)
            assert writer.new_part(TOPOLOGY) == folder / f"logs-{number}"
            writer.close()
        assert sorted(path.name for path in folder.glob("topology*")) == [
            "topology-1.json",
            "topology-2.json",
            "topology.json",
        ]


class TestLock:
    def test_two_cannot_write_one_run(self, tmp_path):
        writer = RunWriter.create(tmp_path, HEADER, TOPOLOGY)
        writer.update(HEADER, TOPOLOGY)  # run.json is another file now
        with pytest.raises(UsageError) as caught:
            reopen_run(writer.folder)
        assert str(caught.value).startswith(f"run '{RUN_ID}' is still being written by ")
        assert str(caught.value).endswith("; wait until that ends, or end it")

        writer.close()
        reopened, _ = reopen_run(writer.folder)
        with pytest.raises(UsageError, match="still being written"):
            reopen_run(writer.folder)
        reopened.close()

    def test_a_refusal_lets_go_of_the_lock(self, tmp_path):
        folder = new_run(tmp_path)
        run = (folder / "run.json").read_text()
        (folder / "run.json").write_text("{")
        with pytest.raises(CollbenchError, match="damaged"):
            reopen_run(folder)
        (folder / "run.json").write_text(run)
        reopen_run(folder)[0].close()

    @pytest.mark.parametrize(
        ("table", "who"),
        [
            ("1: FLOCK  ADVISORY  WRITE 9038 fe:00:77 0 EOF\n", "pid 9038"),
            ("1: POSIX  ADVISORY  WRITE 9038 fe:00:77 0 EOF\n", None),
            ("1: FLOCK  ADVISORY  WRITE 9038 fe:00:177 0 EOF\n", None),
            ("1: -> FLOCK  ADVISORY  WRITE 9038 fe:00:77 0 EOF\n", None),
            ("1: FLOCK  ADVISORY  WRITE 0 fe:00:77 0 EOF\n", None),
            ("nonsense\n\n", None),
        ],
    )
    def test_the_holder_is_named_where_the_kernel_knows_it(self, tmp_path, table, who):
        (tmp_path / "locks").write_text(table)
        found = holder_of(77, tmp_path / "locks")
        assert found == (who or "a process that is not seen from here")

    def test_without_the_kernels_table_nobody_is_named(self, tmp_path):
        assert holder_of(77, tmp_path / "none") == "a process that is not seen from here"


FINAL = {"ok", "data_wrong", "unsupported", "path_not_used"}


class TestRest:
    @pytest.mark.parametrize("status", list(Status))
    def test_what_is_final_is_kept(self, status):
        rest = rest_of(PLAN, [with_status(TRIALS[0], status)])
        assert rest.trials == (3 if str(status) in FINAL else 4)

    def test_the_rest_keeps_the_plans_order(self):
        kept = {TRIALS[0].trial_id, TRIALS[2].trial_id}
        rest = rest_of(PLAN, [trial for trial in TRIALS if trial.trial_id in kept])
        left = [
            case.trial_id(round_.repeat)
            for round_ in rest.rounds
            for group in round_.groups
            for case in group.cases
        ]
        assert left == [TRIALS[1].trial_id, TRIALS[3].trial_id]

    def test_a_round_that_is_whole_is_left_out(self):
        rest = rest_of(PLAN, TRIALS[:2])
        assert [round_.repeat for round_ in rest.rounds] == [1]
        assert rest_of(PLAN, TRIALS).rounds == ()

    def test_refused_cases_are_recorded_once(self):
        item = Refused(
            case=TRIALS[0].case, reason=Reason(code=ReasonCode.ILLEGAL, text="cannot be")
        )
        plan = msgspec.structs.replace(PLAN, refused=(item,))
        assert rest_of(plan, ()).refused == (item,)
        refused = with_status(TRIALS[0], Status.UNSUPPORTED)
        assert rest_of(plan, [refused]).refused == ()


SHAPE = "1 nodes, 2 ranks: 0xmodel+0rails"


class TestSameQuestion:
    def test_the_run_keeps_what_it_was(self):
        stored = stored_run(
            resumed_at=["2026-11-30T05:00:00.000+00:00"],
            ended_at="2026-11-30T05:01:00.000+00:00",
            exit_code=130,
        )
        other = msgspec.structs.replace(
            HEADER, run_id="new", argv=["other"], started_at="later", cluster="other"
        )
        run = continued(stored, other, PLAN, TOPOLOGY)
        assert len(run.resumed_at) == 2
        assert run.resumed_at[0] == "2026-11-30T05:00:00.000+00:00"
        expected = msgspec.structs.replace(
            stored.run, resumed_at=run.resumed_at, ended_at=None, exit_code=None
        )
        assert run == expected

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"seed": 8}, "seed was 7 and is 8"),
            ({"world_size": 4}, "world_size was 2 and is 4"),
            ({"planted": "late:rank=1"}, "planted was not set and is late:rank=1"),
            (
                {"policy": msgspec.structs.replace(SUITE.policy, samples=5)},
                "samples was not set and is 5",
            ),
            (
                {"suite": {**HEADER.suite, "sizes": [4096]}},
                "sizes was [4,8] and is [4096]",
            ),
            (
                {"seed": 8, "suite": {**HEADER.suite, "sizes": list(range(99))}},
                f"seed was 7 and is 8; sizes was [4,8] and is [{','.join(map(str, range(23)))},...",
            ),
        ],
    )
    def test_another_question_is_refused_by_name(self, changes, words):
        with pytest.raises(UsageError) as caught:
            continued(stored_run(), msgspec.structs.replace(HEADER, **changes), PLAN, TOPOLOGY)
        assert str(caught.value) == (
            f"run {RUN_ID} cannot be resumed: {words}; a run is one question in one environment:"
            " give the options of before, or --resume alone"
        )

    @pytest.mark.parametrize("name", ["name", "description", "source", "seed"])
    def test_what_a_suite_is_called_does_not_count(self, name):
        now = msgspec.structs.replace(HEADER, suite={**HEADER.suite, name: "other"})
        assert continued(stored_run(), now, PLAN, TOPOLOGY).suite == HEADER.suite

    def test_trials_that_the_plan_does_not_have_are_refused(self):
        foreign = msgspec.structs.replace(TRIALS[0], trial_id="x#1.0")
        with pytest.raises(UsageError, match=r"1 of its trials are not in the plan, first x#1\.0;"):
            continued(stored_run([*TRIALS, foreign]), HEADER, PLAN, TOPOLOGY)

    def test_other_nodes_of_the_same_kind_are_the_same_hardware(self):
        node = msgspec.structs.replace(TOPOLOGY.nodes[0], name="other")
        ranks = [msgspec.structs.replace(place, node="other") for place in TOPOLOGY.ranks]
        idle = msgspec.structs.replace(node, name="idle")
        now = msgspec.structs.replace(TOPOLOGY, nodes=[node, idle], ranks=ranks)
        assert continued(stored_run(), HEADER, PLAN, now).run_id == RUN_ID

    def test_other_hardware_is_refused(self):
        node = msgspec.structs.replace(TOPOLOGY.nodes[0], cpu_model="newer")
        now = msgspec.structs.replace(TOPOLOGY, nodes=[node])
        words = f"hardware was {SHAPE} and is 1 nodes, 2 ranks: 0xnewer+0rails;"
        with pytest.raises(UsageError) as caught:
            continued(stored_run(), HEADER, PLAN, now)
        assert words in str(caught.value)


def nccl(version: str) -> LibraryVersion:
    return LibraryVersion(version=version, path="/b/libnccl.so.2")


class TestSameEnvironment:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"collbench": "0.2.0"}, "collbench was 0.1.0 and is 0.2.0"),
            ({"torch": "2.11.0"}, "torch was 2.13.0 and is 2.11.0"),
            ({"cuda": "12.8"}, "cuda was 13.0 and is 12.8"),
            ({"nccl": nccl("2.29.2")}, "NCCL was 2.28.9 and is 2.29.2"),
            ({"driver": "570.2"}, "driver was 580.1 and is 570.2"),
            ({"variables": {}}, "NCCL_IB_HCA was mlx5 and is not set"),
            (
                {"variables": {"NCCL_ALGO": "Ring", "NCCL_IB_HCA": "mlx5"}},
                "NCCL_ALGO was not set and is Ring",
            ),
        ],
    )
    def test_another_environment_is_refused_by_name(self, changes, words):
        with pytest.raises(UsageError) as caught:
            settled_environment(stored_run(), msgspec.structs.replace(ENVIRONMENT, **changes))
        assert str(caught.value) == (
            f"run {RUN_ID} cannot be resumed: {words}; a run is one question in one environment:"
            " make them equal, or begin a new run"
        )

    @pytest.mark.parametrize(
        "changes",
        [
            {"nccl": nccl("2.28.9")},
            {"nccl": None},
            {"cuda": None},
            {"variables": {"NCCL_IB_HCA": "mlx5", "CUDA_VISIBLE_DEVICES": "4,5"}},
        ],
    )
    def test_what_says_where_or_is_not_known_does_not_count(self, changes):
        present = msgspec.structs.replace(ENVIRONMENT, **changes)
        assert settled_environment(stored_run(), present) == ENVIRONMENT

    @pytest.mark.parametrize("trials", [(), (with_status(TRIALS[0], Status.CRASHED),)])
    def test_a_run_that_keeps_nothing_has_no_environment_yet(self, trials):
        present = msgspec.structs.replace(ENVIRONMENT, torch="2.11.0")
        assert settled_environment(stored_run(trials), present) == present
