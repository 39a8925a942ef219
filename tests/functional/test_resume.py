"""``sweep --resume`` after a kill, an interruption and a crash, with real workers."""

import shutil
import signal

import pytest

from collbench.store import read_run

QUESTION = ("--collective", "all_reduce,all_gather,reduce_scatter", "--sizes", "64K")
SLOW = (*QUESTION, "-n", "100", "-w", "1", "-T", "20s", "--plant", "late:rank=1,ms=10")
"""A trial takes a second or more, whatever the machine: time to end the run in its midst."""
SHORT = (*QUESTION, "-n", "20")


def assert_whole(collbench, parts):
    """Every trial is there once, measured, with its samples."""
    stored = collbench.stored()
    assert [str(trial.status) for trial in stored.trials] == ["ok"] * 3
    assert len({trial.trial_id for trial in stored.trials}) == 3
    assert stored.problems == ()
    for trial in stored.trials:
        assert stored.times_us(trial).shape == (2, trial.summary.samples)
    assert (stored.run.exit_code, len(stored.run.resumed_at)) == (0, parts)
    assert collbench.leftovers() == []


@pytest.fixture(scope="module")
def killed(sandboxes, wait):
    """The results of a run whose supervisor was killed after one trial of three."""
    shared = sandboxes()
    process = shared.start("sweep", *SLOW)
    wait(lambda: shared.trials_kept() == 1, "the first trial kept")
    process.kill()
    process.communicate()
    wait(lambda: shared.leftovers() == [], "all processes ended")
    return shared.results


@pytest.fixture(scope="module")
def whole(sandboxes):
    """The results of a run that ended well."""
    shared = sandboxes()
    assert shared.run("sweep", *SHORT).returncode == 0
    return shared.results


@pytest.mark.parametrize("given", [(), SLOW], ids=["alone", "with the options"])
def test_a_run_whose_supervisor_was_killed_goes_on(collbench, killed, given):
    shutil.copytree(killed, collbench.results)
    before = collbench.stored()
    assert before.run.exit_code is None

    done = collbench.run("sweep", *given, "--resume", "last")

    assert done.returncode == 0, done.stderr
    assert f"resuming {before.run.run_id}: 1 of 3 trials are there, 2 to go" in done.stdout
    assert_whole(collbench, 1)
    after = collbench.stored()
    assert after.trials[0] == before.trials[0]
    assert after.run.started_at == before.run.started_at
    assert after.run.environment == before.run.environment
    assert sorted(path.name for path in (after.folder / "logs-2").iterdir()) == [
        "rank0.log",
        "rank1.log",
        "zygote.log",
    ]


def test_an_interrupted_run_goes_on_and_again(collbench, wait):
    process = collbench.start("sweep", *SLOW)
    wait(lambda: collbench.trials_kept() == 1, "the first trial kept")
    process.send_signal(signal.SIGINT)
    assert collbench.finish().returncode == 130
    # The first trial and two that the interruption left out.
    assert collbench.trials_kept() == 3

    process = collbench.start("sweep", "--resume", "last")
    wait(lambda: collbench.trials_kept() == 4, "the second trial kept")
    process.send_signal(signal.SIGTERM)
    done = collbench.finish()
    assert done.returncode == 143
    assert "collbench: interrupted; kept 2 of 3 trials" in done.stderr

    done = collbench.run("sweep", "--resume", "last")
    assert done.returncode == 0, done.stderr
    assert "2 of 3 trials are there, 1 to go" in done.stdout
    assert_whole(collbench, 2)


def test_a_crashed_trial_is_run_again(collbench, wait):
    collbench.start("sweep", *SLOW)
    wait(lambda: collbench.trials_kept() == 1, "the first trial kept")
    collbench.workers()[1].kill()
    assert collbench.finish().returncode == 4

    done = collbench.run("sweep", "--resume", "last")

    assert done.returncode == 0, done.stderr
    assert "2 of 3 trials are there, 1 to go" in done.stdout
    assert_whole(collbench, 1)


def test_a_torn_last_line_is_measured_again(collbench, whole):
    shutil.copytree(whole, collbench.results)
    path = collbench.stored().folder / "trials.jsonl"
    path.write_bytes(path.read_bytes()[:-40])

    done = collbench.run("sweep", "--resume", "last")

    assert done.returncode == 0, done.stderr
    assert "2 of 3 trials are there, 1 to go" in done.stdout
    assert_whole(collbench, 1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--ranks", "3"), "world_size was 2 and is 3"),
        (("--sizes", "4K"), "sizes was [65536] and is [4096]"),
        (("--seed", "0"), None),
    ],
)
def test_only_the_same_question_goes_on(collbench, whole, more, words):
    shutil.copytree(whole, collbench.results)
    (folder,) = collbench.folders()
    run = (folder / "run.json").read_bytes()

    done = collbench.run("sweep", *SHORT, *more, "--resume", "last")

    if words is None:
        assert done.returncode == 0, done.stderr
        assert_whole(collbench, 1)
        return
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert (folder / "run.json").read_bytes() == run


def test_another_environment_is_refused_and_leaves_the_run_as_it_was(collbench, whole, monkeypatch):
    shutil.copytree(whole, collbench.results)
    path = collbench.stored().folder / "trials.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    run = (path.parent / "run.json").read_bytes()

    monkeypatch.setenv("GLOO_TEST", "1")
    done = collbench.run("sweep", "--resume", "last")

    assert done.returncode == 2
    assert "GLOO_TEST was not set and is 1" in done.stderr
    assert (path.parent / "run.json").read_bytes() == run
    assert len(read_run(path.parent).trials) == 2
    assert collbench.leftovers() == []


def test_a_run_that_still_goes_on_is_left_alone(collbench, wait):
    # The second case takes 50 s and is not waited for: far longer than the other command.
    late = ("--plant", "late:rank=1,ms=500,collective=all_gather")
    first = collbench.start("sweep", *QUESTION, "-n", "100", *late)
    try:
        wait(lambda: collbench.trials_kept() == 1, "the first trial kept")
        done = collbench.run("sweep", "--resume", "last")
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate()

    assert done.returncode == 2
    run_id = collbench.stored().run.run_id
    assert done.stderr == (
        f"collbench: run '{run_id}' is still being written by pid {first.pid};"
        " wait until that ends, or end it\n"
    )
    assert first.returncode == 130
