"""The whole command on the fake back end and clock: figures exact to the last digit."""

import msgspec
import pytest

from collbench.store import read_run


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "fabric.toml"
    path.write_text("ranks = 4\nalpha_us = 10.0\nbandwidth_gb_per_s = 100.0\n")
    return str(path)


def test_the_table_holds_the_models_figures(collbench, model):
    done = collbench.run(
        "sweep", "--simulate", model, "--collective", "all_reduce", "--sizes", "4K,1M,64M"
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SIMULATED: a model answered, no hardware was measured")
    # alpha + S x 2 (n - 1) / n / B = 10 + 4096 x 1.5 / 100e3 us, and so on.
    rows = [line.split() for line in done.stdout.splitlines() if "precise" in line]
    assert rows == [
        ["4", "KiB", "1024", "10.06", "10.06", "0.41", "0.61", "20", "precise", "0%", "0"],
        ["1", "MiB", "262144", "25.73", "25.73", "40.76", "61.13", "20", "precise", "0%", "0"],
        ["64", "MiB", "16777216", "1017", "1017", "66.01", "99.02", "20", "precise", "0%", "0"],
    ]


def test_every_collective_has_its_factor(here, collbench, model):
    names = {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
        "broadcast": 1.0,
        "reduce": 1.0,
        "all_to_all": 0.75,
        "gather": 0.75,
        "scatter": 0.75,
        "send_recv": 1.0,
    }
    done = here("sweep", "--simulate", model, "--collective", ",".join(names), "--sizes", "1M")

    assert done.returncode == 0, done.stderr
    stored = collbench.stored()
    assert stored.run.simulated
    for trial in stored.trials:
        factor = names[trial.case.collective]
        time_us = 10 + 2**20 * factor / 100e3
        assert trial.summary.median_us == pytest.approx(time_us, rel=1e-6)
        assert trial.summary.busbw_gb_per_s == pytest.approx(2**20 * factor / time_us / 1e3)
        assert trial.summary.ci95_us == pytest.approx((time_us, time_us))
        assert trial.stop_reason == "precise"


def test_noise_comes_from_the_seed(here, tmp_path):
    path = tmp_path / "noisy.toml"
    path.write_text("ranks = 2\nnoise = 0.05\nseed = 3\n")
    command = ("sweep", "--simulate", str(path), "--sizes", "1M", "--repeats", "2", "--json")
    first, second = (here(*command) for _ in range(2))

    def medians(text):
        import json

        return [t["summary"]["median_us"] for t in json.loads(text)["trials"]]

    assert sorted(medians(first.stdout)) == sorted(medians(second.stdout))
    assert len(set(medians(first.stdout))) == 6


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("ranks = 0", "ranks 0 must be 1 to 64"),
        ("rank = 2", "Object contains unknown field `rank`; allowed keys: ranks, alpha_us"),
        ("ranks = ", "allowed keys: ranks"),
        ("bandwidth_gb_per_s = 0", "bandwidth_gb_per_s must be above 0"),
    ],
)
def test_a_model_that_cannot_be_is_refused_in_a_line(here, collbench, tmp_path, content, text):
    path = tmp_path / "fabric.toml"
    path.write_text(content)
    done = here("sweep", "--simulate", str(path))

    assert done.returncode == 2
    assert done.stdout == ""
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not collbench.results.exists()


BARRED = ("--collective", "all_reduce", "--sizes", "1M,64M", "--repeats", "3")


@pytest.fixture
def slower(tmp_path):
    path = tmp_path / "slower.toml"
    path.write_text("ranks = 4\nalpha_us = 10.0\nbandwidth_gb_per_s = 80.0\n")
    return str(path)


def test_a_slower_fabric_is_below_the_baseline(here, collbench, model, slower, tmp_path):
    good = here("sweep", "--simulate", model, *BARRED)
    assert good.returncode == 0, good.stderr
    path = tmp_path / "b.json"
    kept = here("baseline", "last", "-o", str(path))
    assert kept.returncode == 0, kept.stderr
    assert kept.stdout.startswith("SIMULATED: 2 cases, 3 repeats, of ")

    again = here("sweep", "--simulate", model, *BARRED, "--baseline", str(path))
    assert again.returncode == 0, again.stderr
    assert again.stdout.endswith("    2 pass; tolerance 5 %\n  Every bar is met.\n")

    done = here("sweep", "--simulate", slower, *BARRED, "--baseline", str(path))
    assert done.returncode == 1, done.stderr
    # 64 MiB: 10 + 64 x 2**20 x 1.5 / 100e3 us, and / 80e3.
    assert "    BELOW   all_reduce float32 64 MiB eager  1017 -> 1268 us  +24.8%" in done.stdout
    header = next(
        stored
        for stored in map(read_run, collbench.folders())
        if stored.run.run_id in done.stdout.splitlines()[1]
    ).run
    assert (header.exit_code, header.findings[0].code) == (1, "below_baseline")


@pytest.mark.parametrize(
    ("bars", "status", "code", "line"),
    [
        (("--min-busbw", "99"), 0, "bars_met", "  Every bar is met."),
        (("--min-busbw", "all_reduce=120"), 1, "below_min_busbw", "  Bars missed: 1 below."),
        (("--min-of-limit", "85%"), 4, "bar_unclear", "  Cannot tell: 1 unclear."),
    ],
)
def test_bars_decide_the_exit_status(here, collbench, model, bars, status, code, line):
    done = here("sweep", "--simulate", model, *BARRED, *bars)

    assert done.returncode == status, done.stderr
    assert done.stdout.splitlines()[-1].startswith(line)
    stored = collbench.stored().run
    assert stored.exit_code == status
    verdict = next(finding for finding in stored.findings if finding.code == code)
    assert verdict.text not in done.stdout.partition("\nBars\n")[0]  # the section says it

    document = msgspec.json.decode(
        here("sweep", "--simulate", model, *BARRED, *bars, "--json").stdout
    )
    assert document["exit_code"] == status
    assert code in [found["code"] for found in document["verdicts"]]


def test_a_run_that_goes_on_is_held_against_the_bars_of_before(here, collbench, model):
    first = here("sweep", "--simulate", model, *BARRED, "--min-busbw", "120")
    assert first.returncode == 1, first.stderr

    done = here("sweep", "--resume", "last")
    assert done.returncode == 1, done.stderr
    assert "  Bars missed: 1 below." in done.stdout

    eased = here("sweep", "--resume", "last", "--min-busbw", "90")
    assert eased.returncode == 0, eased.stderr
    assert collbench.stored().run.exit_code == 0


def test_a_bar_for_other_hardware_stops_before_anything_is_measured(
    here, collbench, model, tmp_path
):
    assert here("sweep", "--simulate", model, *BARRED).returncode == 0
    path = tmp_path / "more.toml"
    path.write_text("ranks = 8\n")

    done = here("sweep", "--simulate", str(path), *BARRED, "--baseline", "last")

    assert done.returncode == 2
    assert "--baseline last is for other hardware: ranks 4 there and 8 here" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert len(collbench.folders()) == 1
