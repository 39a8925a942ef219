"""The loop of a command, and what every kind of end leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable

import msgspec
import pytest
from records import make_run

from collbench.engine.protocol import Facts, Group, Round
from collbench.engine.simulated import Fabric, SimulatedEngine
from collbench.errors import ExitCode, NothingMeasured
from collbench.model import (
    Case,
    Finding,
    Mode,
    Policy,
    Reason,
    ReasonCode,
    Run,
    Status,
    Topology,
    Trial,
)
from collbench.plan.sweep import Refused
from collbench.session import Interrupted, SessionEnd, exit_code_of, interruptible, run_session
from collbench.store import RunWriter, read_run

FINDING = Finding(code="seen", severity="info", text="something was seen")


def a_case(size_bytes: int, mode: Mode = Mode.EAGER) -> Case:
    return Case(
        collective="broadcast",
        backend="simulated",
        dtype="float32",
        root=0,
        size_bytes=size_bytes,
        requested_bytes=size_bytes,
        count=size_bytes // 4,
        world_size=2,
        in_place=True,
        mode=mode,
    )


CASES = (a_case(4), a_case(8), a_case(16))
ROUNDS = tuple(
    Round(repeat=repeat, groups=(Group(ranks=(0, 1), cases=CASES),)) for repeat in range(2)
)


def a_run() -> Run:
    return make_run(repeats=2, seed=7, planned_trials=6, backend="simulated", simulated=True)


class Engine(SimulatedEngine):
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        super().close()
        self.closed += 1


class Watcher:
    """An observer that keeps what it is told, and can do something at a moment."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.at: dict[str, Callable[[], None]] = {}

    def running(self, case: Case) -> None:
        self._tell(f"running {case.size_bytes}")

    def finished(self, trial: Trial) -> None:
        self._tell(f"finished {trial.case.size_bytes} in {trial.repeat}")

    def _tell(self, words: str) -> None:
        self.told.append(words)
        self.at.get(words, lambda: None)()


@pytest.fixture
def topology() -> Topology:
    return SimulatedEngine.topology_of(Fabric())


@pytest.fixture
def writer(tmp_path, topology):
    made = RunWriter.create(tmp_path, a_run(), topology)
    yield made
    made.close()


def hold(writer: RunWriter, watcher: Watcher | None = None, **changes) -> SessionEnd:
    fields = {
        "run": a_run(),
        "rounds": ROUNDS,
        "executor": Engine(Fabric(), Policy(samples=10)),
        "writer": writer,
        "observer": watcher or Watcher(),
        "judge": lambda run, topology, trials: [FINDING],
    }
    return run_session(**{**fields, **changes})


def interrupt(exit_code: ExitCode) -> Callable[[], None]:
    def raise_it() -> None:
        raise Interrupted(exit_code)

    return raise_it


def test_all_rounds_run_and_are_stored(writer):
    engine, watcher = Engine(Fabric(), Policy(samples=10)), Watcher()
    end = hold(writer, watcher, executor=engine)

    assert (end.exit_code, end.kept, end.error) == (ExitCode.FINE, 6, None)
    assert watcher.told == [
        f"{what} {size}{where}"
        for repeat in range(2)
        for size in (4, 8, 16)
        for what, where in (("running", ""), ("finished", f" in {repeat}"))
    ]
    assert engine.closed == 1
    stored = read_run(writer.folder)
    assert stored.trials == end.trials
    assert [trial.status for trial in stored.trials] == [Status.OK] * 6
    assert (stored.run.exit_code, stored.run.findings) == (0, [FINDING])
    assert stored.run == end.run
    assert stored.run.ended_at > "2026"


def test_each_trial_is_on_disk_before_the_next_begins(writer):
    watcher, seen = Watcher(), []

    def look() -> None:
        lines = (writer.folder / "trials.jsonl").read_text().splitlines()
        seen.append([json.loads(line)["case"]["size_bytes"] for line in lines])

    watcher.at = {f"running {size}": look for size in (4, 8, 16)}
    hold(writer, watcher, rounds=ROUNDS[:1])

    assert seen == [[], [4], [4, 8]]


def test_the_judge_sees_the_trials_as_they_were_stored(writer, topology):
    calls = []

    def judge(run, place, trials):
        calls.append((run.run_id, place, list(trials)))
        return []

    end = hold(writer, judge=judge)

    assert calls == [("20261130-0412-7f3a", topology, list(end.trials))]
    assert all(trial.samples is not None for trial in calls[0][2])


@pytest.mark.parametrize(
    ("moment", "kept"),
    [("finished 8 in 0", 2), ("running 16", 2), ("running 4", 0), ("finished 16 in 1", 6)],
)
@pytest.mark.parametrize("exit_code", [ExitCode.INTERRUPTED, ExitCode.TERMINATED])
def test_an_interruption_keeps_what_was_measured_and_records_the_rest(
    writer, moment, kept, exit_code
):
    engine, watcher = Engine(Fabric(), Policy(samples=10)), Watcher()
    watcher.at = {moment: interrupt(exit_code)}
    end = hold(writer, watcher, executor=engine)

    assert end.exit_code is exit_code
    assert end.kept == kept
    assert end.error == f"interrupted; kept {kept} of 6 trials"
    assert engine.closed == 1
    stored = read_run(writer.folder)
    assert stored.run.exit_code == exit_code
    assert [trial.status for trial in stored.trials] == (
        [Status.OK] * kept + [Status.SKIPPED] * (6 - kept)
    )
    planned = {(case.case_id, round_.repeat) for round_ in ROUNDS for case in CASES}
    assert {(trial.case_id, trial.repeat) for trial in stored.trials} == planned
    for trial in stored.trials[kept:]:
        assert trial.reason.code is ReasonCode.INTERRUPTED
        assert trial.reason.text == f"interrupted; kept {kept} of 6 trials"
        assert trial.trial_id == f"{trial.case_id}.{trial.repeat}"
        assert trial.samples is None


def full_disk(writer: RunWriter) -> RunWriter:
    """The same run on a disk that has no room for a trial."""
    writer.close()
    return RunWriter(
        writer.folder,
        writer.run,
        trials=open("/dev/full", "ab", buffering=0),  # noqa: PTH123  closed by the writer
        samples=(writer.folder / "samples.bin").open("ab", buffering=0),
    )


def test_a_full_disk_stops_the_run_and_says_so(writer):
    engine, watcher = Engine(Fabric(), Policy(samples=10)), Watcher()
    end = hold(full_disk(writer), watcher, executor=engine)

    assert end.exit_code is ExitCode.NOTHING_MEASURED
    assert (end.kept, end.trials) == (0, ())
    assert end.error.startswith(f"results can no longer be written: {writer.folder}: No space left")
    assert end.error.endswith("0 of 6 trials are kept and readable")
    assert watcher.told == ["running 4"], "nothing more is run"
    assert engine.closed == 1
    assert read_run(writer.folder).run.exit_code == 3


def test_an_interruption_on_a_full_disk_is_still_one(writer):
    watcher = Watcher()
    watcher.at = {"running 4": interrupt(ExitCode.INTERRUPTED)}
    end = hold(full_disk(writer), watcher)

    assert end.exit_code is ExitCode.INTERRUPTED
    assert (end.kept, end.trials) == (0, ())
    assert end.error == "interrupted; kept 0 of 6 trials"


def test_a_run_header_that_cannot_be_written_at_the_end_is_told(writer):
    watcher = Watcher()

    def take_away_the_folder() -> None:
        for path in writer.folder.iterdir():
            if path.is_file():
                path.unlink()
        (writer.folder / "logs").rmdir()
        writer.folder.rmdir()

    watcher.at = {"finished 16 in 1": take_away_the_folder}
    end = hold(writer, watcher)

    assert end.exit_code is ExitCode.NOTHING_MEASURED
    assert end.kept == 6
    assert "results can no longer be written" in end.error


def test_hardware_that_fails_in_the_middle_ends_the_run_with_its_own_status(writer):
    class Failing(Engine):
        def run(self, round_):
            yield next(super().run(round_))
            raise NothingMeasured("GPU 1 has fallen off the bus")

    engine = Failing(Fabric(), Policy(samples=10))
    end = hold(writer, executor=engine)

    assert end.exit_code is ExitCode.NOTHING_MEASURED
    assert (end.kept, end.error) == (1, "GPU 1 has fallen off the bus")
    assert engine.closed == 1
    trials = read_run(writer.folder).trials
    assert [trial.status for trial in trials] == [Status.OK] + [Status.SKIPPED] * 5
    assert {trial.reason.text for trial in trials[1:]} == {"GPU 1 has fallen off the bus"}


def test_an_error_of_collbench_itself_is_not_swallowed_and_closes_the_engine(writer):
    engine, watcher = Engine(Fabric(), Policy(samples=10)), Watcher()
    watcher.at = {"finished 8 in 0": lambda: {}["missing"]}

    with pytest.raises(KeyError, match="missing"):
        hold(writer, watcher, executor=engine)
    assert engine.closed == 1
    assert len(read_run(writer.folder).trials) == 2


def test_nothing_but_unsupported_cases_is_nothing_measured(writer):
    group = Group(ranks=(0, 1), cases=(a_case(4, Mode.GRAPH), a_case(8, Mode.GRAPH)))
    end = hold(writer, rounds=(Round(repeat=0, groups=(group,)),))

    assert [trial.status for trial in end.trials] == [Status.UNSUPPORTED] * 2
    assert end.exit_code is ExitCode.NOTHING_MEASURED
    assert end.error is None


WHY = Reason(code=ReasonCode.ILLEGAL, text="broadcast has no Tree in NCCL 2.28.9")
REFUSED = tuple(Refused(case=a_case(size), reason=WHY) for size in (32, 64))


def with_refused() -> Run:
    return msgspec.structs.replace(a_run(), planned_trials=8)


def test_refused_cases_are_recorded_first_and_never_run(writer):
    watcher, seen = Watcher(), []
    watcher.at = {"running 4": lambda: seen.append(len(read_run(writer.folder).trials))}
    end = hold(writer, watcher, run=with_refused(), refused=REFUSED)

    assert seen[0] == 2, "they stand before the first case begins"
    assert watcher.told[:3] == ["finished 32 in 0", "finished 64 in 0", "running 4"]
    assert not {"running 32", "running 64"} & set(watcher.told)
    assert [(trial.case.size_bytes, trial.status) for trial in end.trials[:3]] == [
        (32, Status.UNSUPPORTED),
        (64, Status.UNSUPPORTED),
        (4, Status.OK),
    ]
    first = end.trials[0]
    assert (first.reason, first.repeat, first.trial_id) == (WHY, 0, f"{first.case_id}.0")
    assert (first.summary, first.samples, first.check, first.duration_s) == (None, None, None, 0)
    assert read_run(writer.folder).trials == end.trials


def test_refused_cases_count_and_are_no_fault(writer):
    end = hold(writer, run=with_refused(), refused=REFUSED)

    assert (end.exit_code, end.kept, end.error) == (ExitCode.FINE, 8, None)


def test_an_interruption_keeps_the_refused_cases_and_skips_none_of_them(writer):
    watcher = Watcher()
    watcher.at = {"running 8": interrupt(ExitCode.INTERRUPTED)}
    end = hold(writer, watcher, run=with_refused(), refused=REFUSED)

    assert (end.kept, end.error) == (3, "interrupted; kept 3 of 8 trials")
    assert [trial.status for trial in end.trials] == (
        [Status.UNSUPPORTED] * 2 + [Status.OK] + [Status.SKIPPED] * 5
    )


def test_a_signal_while_refused_cases_are_recorded_waits_until_all_are(writer, monkeypatch):
    append = writer.append

    def interrupted_append(trial, times_us, clock):
        if trial.case.size_bytes == 32:
            os.kill(os.getpid(), signal.SIGINT)
        return append(trial, times_us, clock)

    monkeypatch.setattr(writer, "append", interrupted_append)
    with interruptible():
        end = hold(writer, run=with_refused(), refused=REFUSED)

    assert (end.exit_code, end.kept) == (ExitCode.INTERRUPTED, 2)
    assert [trial.case.size_bytes for trial in read_run(writer.folder).trials] == [
        *(32, 64),
        *(4, 8, 16) * 2,
    ]


def test_refused_cases_alone_are_nothing_measured(writer):
    end = hold(writer, rounds=(), refused=REFUSED)

    assert [trial.status for trial in end.trials] == [Status.UNSUPPORTED] * 2
    assert end.exit_code is ExitCode.NOTHING_MEASURED


def test_what_was_started_and_what_proving_took_stand_in_the_run(writer, topology):
    class Counting(Engine):
        def facts(self) -> Facts:
            return Facts(topology=topology, zygotes=2, workers=8, communicators=6, proof_s=1.25)

    hold(writer, executor=Counting(Fabric(), Policy(samples=10)))

    run = read_run(writer.folder).run
    assert (run.zygotes, run.workers, run.communicators, run.proof_s) == (2, 8, 6, 1.25)


@pytest.mark.parametrize(
    ("statuses", "exit_code"),
    [
        (["ok", "ok"], ExitCode.FINE),
        (["ok", "unsupported", "skipped"], ExitCode.FINE),
        (["path_not_used"], ExitCode.FINE),
        (["ok", "data_wrong", "hung"], ExitCode.CONFIRMED_BAD),
        (["data_wrong"], ExitCode.CONFIRMED_BAD),
        (["ok", "hung"], ExitCode.INCOMPLETE),
        (["ok", "crashed"], ExitCode.INCOMPLETE),
        (["ok", "failed"], ExitCode.INCOMPLETE),
        (["ok", "node_lost"], ExitCode.INCOMPLETE),
        (["failed"], ExitCode.INCOMPLETE),
        (["unsupported", "skipped"], ExitCode.NOTHING_MEASURED),
        ([], ExitCode.NOTHING_MEASURED),
    ],
)
def test_how_a_command_ends_follows_from_its_trials(statuses, exit_code):
    trials = [
        Trial(
            trial_id=str(number),
            case_id=CASES[0].case_id,
            case=CASES[0],
            repeat=number,
            status=Status(status),
            started_at="2026-11-30T04:12:00.000+00:00",
            duration_s=0.1,
        )
        for number, status in enumerate(statuses)
    ]

    assert exit_code_of(trials) is exit_code
    assert exit_code_of(trials[::-1]) is exit_code


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
)
def test_a_signal_interrupts_once_and_the_handlers_come_back(number, exit_code):
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with interruptible():
        with pytest.raises(Interrupted) as interrupted:
            os.kill(os.getpid(), number)
        # An impatient second one, of whatever kind, does not break off the tidying up.
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)

    assert interrupted.value.exit_code == exit_code
    after = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert after == before


def test_handlers_come_back_after_an_error_too():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), interruptible():
        raise KeyError

    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_while_a_trial_is_stored_waits_until_it_is(writer, monkeypatch):
    append = writer.append

    def interrupted_append(trial, times_us, clock):
        if trial.case.size_bytes == 8:
            # From outside, as Ctrl-C: the kernel gives it to any thread that does not block it.
            subprocess.run(["kill", "-INT", str(os.getpid())], check=True)
        return append(trial, times_us, clock)

    monkeypatch.setattr(writer, "append", interrupted_append)
    over = threading.Event()
    another = threading.Thread(target=over.wait)
    another.start()
    try:
        with interruptible():
            end = hold(writer)
    finally:
        over.set()
        another.join()

    assert (end.exit_code, end.kept) == (ExitCode.INTERRUPTED, 2)
    assert len(read_run(writer.folder).trials) == 6, "none is missing, none stands twice"


def test_a_real_signal_in_the_middle_of_a_session(writer):
    watcher = Watcher()
    watcher.at = {"running 8": lambda: os.kill(os.getpid(), signal.SIGTERM)}
    with interruptible():
        end = hold(writer, watcher)

    assert (end.exit_code, end.kept) == (ExitCode.TERMINATED, 1)
    assert end.run.exit_code == 143
    assert len(read_run(writer.folder).trials) == 6


def test_the_next_round_is_asked_for_when_the_last_one_is_stored_and_told(writer):
    watcher, kept = Watcher(), []

    def rounds():
        for round_ in ROUNDS:
            lines = (writer.folder / "trials.jsonl").read_text().splitlines()
            kept.append((len(lines), len(watcher.told)))
            yield round_

    end = hold(writer, watcher, rounds=rounds())

    assert kept == [(0, 0), (3, 6)]
    assert (end.exit_code, end.kept) == (ExitCode.FINE, 6)


def test_groups_that_run_at_once_are_told_and_stored_apart(writer):
    groups = tuple(Group(ranks=(0, 1), cases=CASES[:2], name=name) for name in ("a", "b"))
    watcher = Watcher()
    end = hold(writer, watcher, rounds=(Round(repeat=0, groups=groups, number=3),))

    assert watcher.told[:2] == ["running 4", "running 4"]
    assert {trial.trial_id.partition("@")[2] for trial in end.trials} == {"3:a", "3:b"}
    assert len(end.trials) == 4


def test_what_an_interruption_leaves_out_of_begun_rounds_is_recorded(writer):
    groups = tuple(Group(ranks=(0, 1), cases=CASES[:1], name=name) for name in ("a", "b"))
    watcher = Watcher()
    watcher.at["finished 4 in 0"] = interrupt(ExitCode.INTERRUPTED)
    rounds = (Round(repeat=0, groups=groups, number=number) for number in range(5))
    end = hold(writer, watcher, rounds=rounds)

    statuses = {trial.trial_id.partition("@")[2]: trial.status for trial in end.trials}
    assert statuses == {"0:a": Status.OK, "0:b": Status.SKIPPED}
