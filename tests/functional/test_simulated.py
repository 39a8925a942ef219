"""The whole command on the fake back end and clock: figures exact to the last digit."""

import pytest


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


def test_every_collective_has_its_factor(collbench, model):
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
    done = collbench.run(
        "sweep", "--simulate", model, "--collective", ",".join(names), "--sizes", "1M"
    )

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


def test_noise_comes_from_the_seed(collbench, tmp_path):
    path = tmp_path / "noisy.toml"
    path.write_text("ranks = 2\nnoise = 0.05\nseed = 3\n")
    command = ("sweep", "--simulate", str(path), "--sizes", "1M", "--repeats", "2", "--json")
    first, second = (collbench.run(*command) for _ in range(2))

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
def test_a_model_that_cannot_be_is_refused_in_a_line(collbench, tmp_path, content, text):
    path = tmp_path / "fabric.toml"
    path.write_text(content)
    done = collbench.run("sweep", "--simulate", str(path))

    assert done.returncode == 2
    assert done.stdout == ""
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not collbench.results.exists()
