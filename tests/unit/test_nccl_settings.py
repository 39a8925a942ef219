"""Settings: the variables they set, what must be fresh for them, how they are called."""

from __future__ import annotations

import pytest

from collbench.nccl.settings import (
    Needs,
    needs_of,
    setting_order,
    setting_text,
    settings_text,
    swept_variables,
    variables_of,
)


def needs(*, zygote=(), worker=(), communicator=()):
    return Needs(zygote=zygote, worker=worker, communicator=communicator)


@pytest.mark.parametrize(
    ("setting", "variables"),
    [
        ({}, {}),
        ({"NCCL_ALGO": "Ring", "X": "a=b,c"}, {"NCCL_ALGO": "Ring", "X": "a=b,c"}),
        ({"X": ""}, {"X": ""}),
        ({"ib": "off"}, {"NCCL_NET": "Socket"}),
        ({"ib": "on"}, {"NCCL_NET": None, "NCCL_IB_DISABLE": "0"}),
        ({"alg_selection": "tree,ring"}, {}),
    ],
    ids=str,
)
def test_the_variables_of_a_setting(setting, variables):
    assert variables_of(setting) == variables


def test_swept_is_every_variable_that_some_setting_touches():
    assert swept_variables([{}, {"alg_selection": "ring"}]) == frozenset()
    assert swept_variables([{}, {"ib": "on"}, {"ib": "off", "NCCL_PROTO": "LL"}]) == {
        "NCCL_NET",
        "NCCL_IB_DISABLE",
        "NCCL_PROTO",
    }


@pytest.mark.parametrize(
    ("setting", "swept", "expected"),
    [
        ({}, (), needs()),
        (
            {"PYTHONHASHSEED": "1", "NCCL_BUFFSIZE": "2", "NCCL_PROTO": "LL", "NCCL_ALGO": "Tree"},
            (),
            needs(
                zygote=(("PYTHONHASHSEED", "1"),),
                worker=(("NCCL_BUFFSIZE", "2"),),
                communicator=(("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL")),
            ),
        ),
        (
            {},
            ("PYTHONHASHSEED", "NCCL_BUFFSIZE", "NCCL_ALGO"),
            needs(
                zygote=(("PYTHONHASHSEED", None),),
                worker=(("NCCL_BUFFSIZE", None),),
                communicator=(("NCCL_ALGO", None),),
            ),
        ),
        (
            {"NCCL_ALGO": "Ring"},
            ("NCCL_PROTO", "NCCL_ALGO"),
            needs(communicator=(("NCCL_ALGO", "Ring"), ("NCCL_PROTO", None))),
        ),
        (
            {"ib": "off"},
            ("NCCL_NET", "NCCL_IB_DISABLE"),
            needs(
                worker=(("NCCL_IB_DISABLE", None),),
                communicator=(("NCCL_NET", "Socket"),),
            ),
        ),
        (
            {"ib": "on"},
            ("NCCL_NET", "NCCL_IB_DISABLE"),
            needs(worker=(("NCCL_IB_DISABLE", "0"),), communicator=(("NCCL_NET", None),)),
        ),
        ({"alg_selection": "ring"}, (), needs()),
    ],
    ids=str,
)
def test_what_must_be_fresh_for_a_setting(setting, swept, expected):
    assert needs_of(setting, swept) == expected


def test_needs_do_not_depend_on_the_order_of_words():
    one = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}
    other = dict(reversed(one.items()))

    assert needs_of(one, ("X", "NCCL_BUFFSIZE")) == needs_of(other, ("NCCL_BUFFSIZE", "X"))


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({}, "default"),
        ({"NCCL_ALGO": "Ring"}, "Ring"),
        ({"NCCL_PROTO": "LL"}, "LL"),
        ({"NCCL_PROTO": "LL", "ib": "off", "NCCL_ALGO": "Ring"}, "Ring/LL, ib off"),
        ({"ib": "on"}, "ib on"),
        ({"NCCL_NET": "IB"}, "NET=IB"),
        ({"NCCL_BUFFSIZE": "1", "GLOO_X": "a,b"}, "GLOO_X=a,b, BUFFSIZE=1"),
        ({"alg_selection": "ring"}, "alg_selection=ring"),
    ],
    ids=str,
)
def test_a_setting_in_a_few_words(setting, text):
    assert setting_text(setting) == text


def choices(algorithm, *protocols, **rest):
    return [{"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol, **rest} for protocol in protocols]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ([], ""),
        ([{}], "default"),
        ([{"NCCL_ALGO": "Tree"}, {"NCCL_ALGO": "PAT"}, {"NCCL_ALGO": "Tree"}], "Tree; PAT"),
        (choices("Tree", "LL", "Simple"), "Tree/LL; Tree/Simple"),
        (choices("Tree", "LL", "LL128", "Simple"), "Tree"),
        (
            [
                *choices("Ring", "LL"),
                *choices("Tree", "Simple", "LL", "LL128"),
                *choices("PAT", "LL", "LL128"),
            ],
            "Ring/LL; Tree; PAT/LL; PAT/LL128",
        ),
        (
            [
                *choices("Tree", "LL", "LL128", "Simple", ib="on"),
                *choices("Tree", "LL", "LL128", ib="off"),
            ],
            "Tree, ib on; Tree/LL, ib off; Tree/LL128, ib off",
        ),
        (
            [
                *choices("Tree", "LL", "LL128", "Simple", ib="on"),
                *choices("Tree", "LL", "LL128", "Simple", ib="off"),
            ],
            "Tree, ib on; Tree, ib off",
        ),
    ],
    ids=["none", "default", "each once", "two protocols", "all protocols", "several algorithms",
         "all with a rest", "all with two rests"],
)  # fmt: skip
def test_settings_in_words_leave_out_the_protocols_where_all_are_there(settings, text):
    assert settings_text(settings) == text


def test_settings_stand_by_all_else_then_algorithm_then_protocol():
    ordered = [
        {},
        {"NCCL_PROTO": "Simple"},
        {"NCCL_ALGO": "Ring"},
        {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
        {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL128"},
        {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"},
        {"NCCL_ALGO": "^Ring"},
        {"NCCL_ALGO": "^Tree"},
        {"ib": "off"},
        {"NCCL_ALGO": "Ring", "ib": "off"},
        {"ib": "on"},
    ]

    mixed = [*ordered[1::2], *ordered[::2]]

    assert sorted(mixed, key=setting_order) == ordered
