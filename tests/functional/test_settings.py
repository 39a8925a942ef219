"""Settings on real Gloo processes: what a variable makes fresh, and one that cannot work."""

QUICK = ("--max-time", "30ms", "--seed", "7", "--collective", "all_reduce", "--sizes", "1K,64K")
OURS = "COLLBENCH_NOTHING"
"""Nobody reads it; not known to anything, it takes a fresh zygote."""
GLOOS = "GLOO_COLLBENCH_NOTHING"
"""In Gloo's name, so taken for one that a process reads once: it takes fresh workers."""
INTERFACE = "GLOO_SOCKET_IFNAME"


def env(name, *values):
    return [word for value in values for word in ("--env", f"{name}={value}")]


def started(stored):
    run = stored.run
    return (run.zygotes, run.workers, run.communicators)


def settings_of(stored):
    return [trial.case.setting for trial in stored.trials]


def test_a_variable_that_nobody_knows_takes_a_zygote_for_each_value(collbench):
    done = collbench.run("sweep", *QUICK, *env(OURS, "a", "b"))

    assert done.returncode == 0, done.stdout + done.stderr
    stored = collbench.stored()
    assert started(stored) == (2, 4, 2)
    assert [str(trial.status) for trial in stored.trials] == ["ok"] * 4
    assert settings_of(stored) == [{OURS: "a"}] * 2 + [{OURS: "b"}] * 2
    names = [trial.case_id for trial in stored.trials]
    assert len({name.partition("#")[0] for name in names}) == 2
    assert len(set(names)) == 4
    assert "x 2 settings: 4 cases, 1 repeat" in done.stdout
    assert f"     size {OURS}=a {OURS}=b lowest" in done.stdout.splitlines()
    assert collbench.leftovers() == []


def test_a_variable_of_gloo_takes_fresh_workers_of_one_zygote(collbench):
    done = collbench.run("sweep", *QUICK, *env(GLOOS, "a", "b"))

    assert done.returncode == 0, done.stdout + done.stderr
    stored = collbench.stored()
    assert started(stored) == (1, 4, 2)
    assert [str(trial.status) for trial in stored.trials] == ["ok"] * 4
    assert settings_of(stored) == [{GLOOS: "a"}] * 2 + [{GLOOS: "b"}] * 2


def test_one_setting_stands_in_the_title_and_in_the_record(collbench):
    done = collbench.run("sweep", *QUICK, *env(INTERFACE, "lo"))

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"back to back  {INTERFACE}=lo  2 ranks" in done.stdout
    stored = collbench.stored()
    assert started(stored) == (1, 2, 1)
    assert settings_of(stored) == [{INTERFACE: "lo"}] * 2


def test_a_dry_run_tells_the_settings(here):
    done = here("sweep", "--dry-run", *QUICK, *env(OURS, "a", "b"))

    assert done.returncode == 0, done.stderr
    assert "x 2 settings: 4 cases" in done.stdout
    listed = [line for line in done.stdout.splitlines() if "all_reduce/float32/sum/" in line]
    assert len(set(listed)) == 4
    assert [sum(f"{OURS}={value}" in line for line in listed) for value in "ab"] == [2, 2]


def test_an_interface_that_is_not_there_fails_its_cases_and_says_so(collbench):
    done = collbench.run("sweep", *QUICK, *env(INTERFACE, "nosuch0"))

    assert done.returncode == 3, done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("collbench: ")]
    assert line.startswith("collbench: the ranks did not come together 3 times in a row: ")
    assert "Unable to find address for: nosuch0" in line
    stored = collbench.stored()
    assert [str(trial.status) for trial in stored.trials] == ["failed", "skipped"]
    assert "Unable to find address for: nosuch0" in stored.trials[0].reason.text
    assert stored.run.exit_code == 3
    assert collbench.leftovers() == []


def test_an_interface_that_is_not_there_leaves_the_other_setting_s_figures(collbench):
    done = collbench.run("sweep", *QUICK, *env(INTERFACE, "lo", "nosuch0"))

    stored = collbench.stored()
    ended = [(trial.case.setting[INTERFACE], str(trial.status)) for trial in stored.trials]
    assert ended == [("lo", "ok")] * 2 + [("nosuch0", "failed")] * 2
    assert done.returncode == 4, done.stdout
    assert f"failed: {INTERFACE}=nosuch0: rank" in done.stdout
    assert collbench.leftovers() == []
