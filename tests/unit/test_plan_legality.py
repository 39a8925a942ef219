"""What NCCL cannot run is refused before anything starts."""

from __future__ import annotations

import re

import msgspec
import pytest

from collbench.errors import UsageError
from collbench.model import Reason, ReasonCode
from collbench.plan.legality import NcclPlace
from collbench.plan.sweep import Refused, plan_sweep
from collbench.suite import Suite, override, resolve

HERE = NcclPlace(version=(2, 28, 9), nodes=1, ranks=2, compute_capability=(9, 0))
EIGHT = msgspec.structs.replace(HERE, ranks=8)


def plan(place=HERE, *, collectives=("all_reduce",), **options):
    asked = {"sizes": ("64",), "modes": ("graph",), **options}
    suite = resolve(override(Suite(), collectives=collectives, **asked), gpu=True)
    return plan_sweep(suite, backend="nccl", world_size=place.ranks, seed=1, refusal=place.refusal)


def algorithms(cases):
    return [case.setting.get("NCCL_ALGO") for case in cases]


def run_by(found):
    """The cases of all rounds."""
    return [case for round_ in found.rounds for group in round_.groups for case in group.cases]


def illegal(text):
    return Reason(code=ReasonCode.ILLEGAL, text=text)


def test_what_cannot_be_is_kept_apart_with_its_reason_and_not_run():
    found = plan(algo=("Ring", "NVLSTree", "Tree"), repeats=3)

    assert algorithms(found.cases) == ["Ring", "Tree"]
    assert sorted(algorithms(run_by(found))) == ["Ring"] * 3 + ["Tree"] * 3
    (refused,) = found.refused
    assert refused == Refused(
        case=msgspec.structs.replace(found.cases[0], setting={"NCCL_ALGO": "NVLSTree"}),
        reason=illegal(
            "NVLSTree needs at least 2 nodes; here NCCL 2.28.9, 2 ranks on 1 node, sm_90, float32,"
            " sum; legal: Ring, Tree, NVLS"
        ),
    )


def test_a_refused_case_counts_once_and_a_planned_one_in_every_repeat():
    found = plan(algo=("Ring", "NVLSTree"), repeats=3)

    assert found.trials == 1 * 3 + 1


def test_what_is_refused_starts_nothing_and_costs_no_time():
    both, alone = plan(algo=("Ring", "NVLSTree")), plan(algo=("Ring",))

    assert (both.starts, both.estimate_s) == (alone.starts, alone.estimate_s)


def test_without_a_judge_nothing_is_refused():
    suite = resolve(override(Suite(), algo=("PAT",)), gpu=True)
    found = plan_sweep(suite, backend="nccl", world_size=2, seed=1)

    assert found.refused == ()
    assert set(algorithms(found.cases)) == {"PAT"}


def test_a_setting_may_be_for_one_collective_and_not_for_another():
    found = plan(collectives=("all_reduce", "all_gather", "all_to_all"), algo=("Tree",))

    assert [case.collective for case in found.cases] == ["all_reduce"]
    assert [item.case.collective for item in found.refused] == ["all_gather", "all_to_all"]


@pytest.mark.parametrize("collective", ["all_to_all", "gather", "scatter", "send_recv"])
@pytest.mark.parametrize(
    ("setting", "without_effect"),
    [
        ({"algo": ("Ring",)}, "NCCL_ALGO does nothing"),
        ({"proto": ("LL",)}, "NCCL_PROTO does nothing"),
        ({"algo": ("Ring",), "proto": ("LL",)}, "NCCL_ALGO and NCCL_PROTO do nothing"),
    ],
    ids=str,
)
def test_a_choice_for_what_is_made_of_sends_and_receives_is_refused(
    collective, setting, without_effect
):
    with pytest.raises(UsageError, match=f"for which {without_effect}"):
        plan(collectives=(collective,), **setting)

    found = plan(collectives=(collective,), reference=True, **setting)
    assert [case.setting for case in found.cases] == [{}]
    assert [item.reason for item in found.refused] == [
        illegal(f"NCCL builds {collective} of sends and receives, for which {without_effect}")
    ]


def test_nothing_left_is_an_error_that_says_why():
    with pytest.raises(
        UsageError,
        match=re.escape(
            "nothing of what is asked can be: NVLSTree: NVLSTree needs at least 2 nodes; here NCCL"
            " 2.28.9, 2 ranks on 1 node, sm_90, float32, sum; legal: Ring, Tree, NVLS"
        )
        + "$",
    ):
        plan(algo=("NVLSTree",), sizes=("8", "64", "1K"))


def test_of_many_reasons_for_nothing_three_are_shown_and_the_rest_counted():
    with pytest.raises(UsageError) as refused:
        plan(collectives=("broadcast",), algo=("Tree", "NVLS", "PAT", "NVLSTree", "CollNetChain"))

    text = str(refused.value)
    assert text.startswith("nothing of what is asked can be: Tree: broadcast has no Tree")
    assert "; NVLS: broadcast has no NVLS" in text
    assert "; PAT: broadcast has no PAT" in text
    assert text.endswith("; and 2 more like it")


@pytest.mark.parametrize(
    ("version", "refused"),
    [((2, 28, 9), True), ((2, 30, 7), True), ((2, 31, 0), False), ((2, 32, 3), False)],
)
def test_a_choice_per_call_needs_nccl_2_31(version, refused):
    place = msgspec.structs.replace(HERE, version=version)
    found = plan(place, alg_selection=("tree", "default"))
    text = f"alg_selection needs NCCL 2.31 or newer, not {'.'.join(map(str, version))}"

    assert [item.reason for item in found.refused] == (
        [Reason(code=ReasonCode.NEEDS_NEWER_NCCL, text=text)] if refused else []
    )


@pytest.mark.parametrize(
    ("place", "settings", "left"),
    [
        ({}, {}, ["NVLS"]),
        ({"variables": {"NCCL_NVLS_ENABLE": "0"}}, {}, []),
        ({"variables": {"NCCL_NVLS_ENABLE": "1"}}, {}, ["NVLS"]),
        ({}, {"env": ("NCCL_NVLS_ENABLE=0",)}, []),
        ({}, {"env": ("NCCL_NVLS_ENABLE=2",)}, ["NVLS"]),
        ({"variables": {"NCCL_NVLS_ENABLE": "0"}}, {"env": ("NCCL_NVLS_ENABLE=1",)}, ["NVLS"]),
        ({"variables": {"NCCL_NVLS_ENABLE": "1"}}, {"env": ("NCCL_NVLS_ENABLE=0",)}, []),
        ({"compute_capability": (8, 0)}, {}, []),
        ({"compute_capability": None}, {}, ["NVLS"]),
        ({"ranks": 2, "version": (2, 28, 3)}, {}, []),
        ({}, {"redops": ("prod",)}, []),
        ({}, {"dtypes": ("float64",), "redops": ("max",)}, []),
        ({}, {"dtypes": ("bfloat16",), "redops": ("max",)}, ["NVLS"]),
    ],
    ids=str,
)
def test_nvls_is_there_where_the_gpus_the_variables_and_the_data_let_it(place, settings, left):
    where = msgspec.structs.replace(EIGHT, **place)
    found = plan(where, algo=("NVLS", "Ring"), **settings)

    assert algorithms(found.cases) == [*left, "Ring"]


@pytest.mark.parametrize(
    ("variables", "env", "left"),
    [
        ({}, (), []),
        ({"NCCL_COLLNET_ENABLE": "1"}, (), ["CollNetChain"]),
        ({}, ("NCCL_COLLNET_ENABLE=1",), ["CollNetChain"]),
        ({"NCCL_COLLNET_ENABLE": "1"}, ("NCCL_COLLNET_ENABLE=0",), []),
    ],
    ids=str,
)
def test_collnet_is_there_where_it_is_turned_on(variables, env, left):
    where = msgspec.structs.replace(EIGHT, nodes=2, variables=variables)
    found = plan(where, algo=("CollNetChain", "Ring"), env=env)

    assert algorithms(found.cases) == [*left, "Ring"]


def test_hosts_count_as_nodes():
    spread = msgspec.structs.replace(HERE, nodes=2)

    assert algorithms(plan(spread, collectives=("all_gather",), algo=("PAT",)).cases) == ["PAT"]
    with pytest.raises(UsageError, match="PAT needs one GPU a node"):
        plan(collectives=("all_gather",), algo=("PAT",))


def test_a_protocol_that_the_algorithm_has_not_is_refused():
    found = plan(EIGHT, algo=("NVLS", "Ring"), proto=("LL", "Simple"))

    assert [item.case.setting for item in found.refused] == [
        {"NCCL_ALGO": "NVLS", "NCCL_PROTO": "LL"}
    ]
    assert found.refused[0].reason.text.startswith("NVLS runs Simple only, not LL; legal: ")


def test_other_variables_alone_are_never_refused():
    found = plan(
        collectives=("all_to_all", "all_reduce"),
        env=("NCCL_BUFFSIZE=1",),
        ib=("on", "off"),
    )

    assert found.refused == ()
    assert len(found.cases) == 4


def test_each_library_is_judged_by_its_own_release():
    place = msgspec.structs.replace(HERE, versions={"old": (2, 28, 9), "new": (2, 32, 3)})
    found = plan(place, nccl=("old=/a", "new=/b"), via="native", alg_selection=("ring",))

    assert [case.setting["nccl"] for case in found.cases] == ["new"]
    assert [item.reason.text for item in found.refused] == [
        "alg_selection needs NCCL 2.31 or newer, not 2.28.9"
    ]


def test_libraries_take_turns_within_each_repeat_and_start_processes_of_their_own():
    found = plan(nccl=("old=/a", "new=/b"), via="native", repeats=6)

    orders = [
        tuple(case.setting["nccl"] for group in round_.groups for case in group.cases)
        for round_ in found.rounds
    ]
    assert set(orders) == {("old", "new"), ("new", "old")}
    assert found.starts.zygotes == 12
