"""An executor that a model answers."""

from __future__ import annotations

import msgspec
import pytest

from collbench.engine.protocol import Group, Round
from collbench.engine.simulated import Fabric, SimulatedEngine, read_fabric
from collbench.errors import UsageError
from collbench.measure import fake
from collbench.measure.protocols import Verified
from collbench.model import Case, Mode, Policy, ReasonCode, Status


def a_case(size_bytes: int = 10**6, **changes) -> Case:
    fields = {
        "collective": "broadcast",
        "backend": "simulated",
        "dtype": "float32",
        "root": 0,
        "size_bytes": size_bytes,
        "requested_bytes": size_bytes,
        "count": size_bytes // 4,
        "world_size": 2,
        "in_place": True,
    }
    return Case(**{**fields, **changes})


def a_round(*cases: Case, repeat: int = 0) -> Round:
    return Round(repeat=repeat, groups=(Group(ranks=(0, 1), cases=cases),))


def outcomes(fabric: Fabric, round_: Round, policy: Policy | None = None):
    engine = SimulatedEngine(fabric, policy or Policy())
    engine.start(round_)
    found = list(engine.run(round_))
    engine.close()
    return found


def test_every_case_is_answered_by_the_model_in_order():
    cases = [a_case(10**6), a_case(2 * 10**6), a_case(4)]
    found = outcomes(Fabric(alpha_us=10, bandwidth_gb_per_s=100), a_round(*cases))

    assert [outcome.trial.case for outcome in found] == cases
    assert [outcome.trial.summary.median_us for outcome in found[:2]] == [20, 30]
    assert found[2].trial.summary.median_us == pytest.approx(10.00004)
    assert [outcome.trial.summary.busbw_gb_per_s for outcome in found[:2]] == pytest.approx(
        [50, 2000 / 30]
    )
    assert {outcome.clock for outcome in found} == {"fake"}
    assert all(outcome.times_us.shape == (2, 20) for outcome in found)


def test_noise_is_the_same_for_the_same_seed_and_repeat_only():
    noisy = Fabric(noise=0.1, seed=3)
    policy = Policy(samples=30)

    def times(fabric: Fabric, repeat: int) -> list[list[float]]:
        (outcome,) = outcomes(fabric, a_round(a_case(), repeat=repeat), policy)
        return outcome.times_us.tolist()

    assert times(noisy, 0) == times(noisy, 0)
    assert times(noisy, 0) != times(noisy, 1)
    assert times(noisy, 0) != times(msgspec.structs.replace(noisy, seed=4), 0)


def test_noise_is_as_large_as_asked_for():
    fabric = Fabric(noise=0.05, alpha_us=20, bandwidth_gb_per_s=1e9)
    (outcome,) = outcomes(fabric, a_round(a_case(4)), Policy(samples=2000))

    # Every rank draws for itself: 2 x 2,000 calls of 20 us, give or take 5 %.
    calls_us = outcome.times_us.reshape(-1)
    assert calls_us.mean() == pytest.approx(20, rel=0.05)
    assert 0.03 < calls_us.std() / 20 < 0.09


def test_what_a_cpu_cannot_do_is_a_record():
    (outcome,) = outcomes(Fabric(), a_round(a_case(mode=Mode.GRAPH)))

    assert outcome.trial.status is Status.UNSUPPORTED
    assert outcome.trial.reason.code is ReasonCode.NO_SUCH_MODE


def test_the_place_is_one_node_with_all_ranks():
    topology = SimulatedEngine(Fabric(ranks=3), Policy()).facts().topology

    assert [node.name for node in topology.nodes] == ["simulated"]
    assert [(place.rank, place.local_rank) for place in topology.ranks] == [(0, 0), (1, 1), (2, 2)]


def test_an_error_of_one_rank_leaves_no_thread_waiting(monkeypatch):
    def broken(self, slot, when):
        if self._rank == 0:
            raise MemoryError("of rank 0")
        return Verified(checked_elements=1, wrong_elements=0)

    monkeypatch.setattr(fake.FakeBuffers, "verify", broken)
    with pytest.raises(MemoryError, match="of rank 0"):
        outcomes(Fabric(), a_round(a_case()))


def test_a_file_is_read_with_its_defaults(tmp_path):
    path = tmp_path / "fabric.toml"
    path.write_text("ranks = 8\nalpha_us = 12.5\n")

    assert read_fabric(path) == Fabric(
        ranks=8, alpha_us=12.5, bandwidth_gb_per_s=100, noise=0, seed=1
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("ranks = 65", "ranks 65 must be 1 to 64"),
        (
            "ranks = 'two'",
            "Expected `int`, got `str` - at `$.ranks`; allowed keys: ranks, alpha_us",
        ),
        ("nodes = 2", "Object contains unknown field `nodes`; allowed keys"),
        ("alpha_us = -1", "alpha_us and noise not below 0, all finite"),
        ("noise = -0.1", "alpha_us and noise not below 0, all finite"),
        ("bandwidth_gb_per_s = 0", "bandwidth_gb_per_s must be above 0"),
        ("bandwidth_gb_per_s = nan", "all finite"),
        ("alpha_us = inf", "all finite"),
        ("noise = nan", "all finite"),
        ("= 3", "allowed keys"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_a_line(tmp_path, content, text):
    path = tmp_path / "fabric.toml"
    path.write_text(content)

    with pytest.raises(UsageError) as refused:
        read_fabric(path)
    assert str(refused.value).startswith(f"--simulate {path}: ")
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"), [("missing", "No such file or directory"), ("", "Is a directory")]
)
def test_a_file_that_is_none_is_refused_in_a_line(tmp_path, name, text):
    with pytest.raises(UsageError, match=f"{text}; give a TOML file"):
        read_fabric(tmp_path / name)
