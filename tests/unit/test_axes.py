"""The axes of NCCL's settings: what their words mean, and their product."""

from __future__ import annotations

import re

import pytest

from collbench.errors import UsageError
from collbench.nccl.grammar import ALGORITHMS, PROTOCOLS
from collbench.suite import read_libraries, read_plugins
from collbench.suite.axes import (
    MOST_SETTINGS,
    one_of,
    product_of_axes,
    read_algorithms,
    read_ib,
    read_networks,
    read_protocols,
    read_selections,
    read_settings,
    read_variables,
)

NO_AXES = {
    "algorithms": (),
    "protocols": (),
    "ib": (),
    "networks": (),
    "variables": {},
    "selections": (),
    "reference": False,
}


def product(**axes):
    return product_of_axes(**{**NO_AXES, **axes})


def says(text):
    return f"^{re.escape(text)}$"


# Readers


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ((), ()),
        (("ring,TREE",), ("Ring", "Tree")),
        (("ring", "tree", "Ring"), ("Ring", "Tree")),
        (("default,nvls",), ("default", "NVLS")),
        (("all",), ALGORITHMS),
        (("tree, All",), ("Tree", *(name for name in ALGORITHMS if name != "Tree"))),
        (("^tree,nvls",), ("^Tree,NVLS",)),
        (("allreduce:tree,ring;broadcast:ring", "ring"),
         ("allreduce:Tree,Ring;broadcast:Ring", "Ring")),
    ],
    ids=str,
)  # fmt: skip
def test_algorithms(words, values):
    assert read_algorithms(words) == values


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ((), ()),
        (("ll,ll128", "LL"), ("LL", "LL128")),
        (("all",), PROTOCOLS),
        (("DEFAULT", "^ll"), ("default", "^LL")),
    ],
    ids=str,
)
def test_protocols(words, values):
    assert read_protocols(words) == values


@pytest.mark.parametrize(
    ("reader", "words", "values"),
    [
        (read_ib, (), ()),
        (read_ib, ("off", "default", "on", "off"), ("off", "default", "on")),
        (read_networks, ("IB", "Socket", "AWS Libfabric", "IB", "default"),
         ("IB", "Socket", "AWS Libfabric", "default")),
        (read_selections, ("ring", "tree,ring", "ring"), ("ring", "tree,ring")),
    ],
)  # fmt: skip
def test_words_that_are_taken_as_they_stand_each_once(reader, words, values):
    assert reader(words) == values


def test_variables_by_name_each_value_once_and_whole():
    pairs = (
        "NCCL_BUFFSIZE=8388608",
        "X=a,b=c",
        "NCCL_BUFFSIZE=4194304",
        "NCCL_BUFFSIZE=8388608",
        "EMPTY=",
        "SPACED= x ",
    )

    assert read_variables(pairs) == {
        "NCCL_BUFFSIZE": ("8388608", "4194304"),
        "X": ("a,b=c",),
        "EMPTY": ("",),
        "SPACED": (" x ",),
    }


@pytest.mark.parametrize("name", ["NCCL_IB_PKEY", "KEYBOARD", "NCCL_SOCKET_IFNAME", "_x1"])
def test_names_that_are_no_secret_are_set(name):
    assert read_variables([f"{name}=1"]) == {name: ("1",)}


SECRET = (
    "looks like a secret, and settings are stored with the results; set it in the environment of"
    " the command instead"
)


@pytest.mark.parametrize(
    ("reader", "word", "text"),
    [
        (
            read_algorithms,
            "tre",
            (
                "unknown algorithm 'tre'; did you mean 'Tree'? allowed: Ring, Tree, NVLS, NVLSTree,"
                " CollNetDirect, CollNetChain, PAT, or default alone"
            ),
        ),
        (
            read_algorithms,
            "ring,",
            (
                "algorithm value '' has an empty name; allowed: Ring, Tree, NVLS, NVLSTree,"
                " CollNetDirect, CollNetChain, PAT, or default alone"
            ),
        ),
        (
            read_protocols,
            "ring",
            "unknown protocol 'ring'; allowed: LL, LL128, Simple, or default alone",
        ),
        (read_ib, "On", "'On' is not allowed; allowed: on, off, on,off for both, or default"),
        (
            read_networks,
            "",
            "'' names no network; write for instance IB, Socket or default",
        ),
        (
            read_networks,
            "IB\nX=1",
            "'IB\nX=1' names no network; write for instance IB, Socket or default",
        ),
        (read_selections, " ", "an empty choice; write for instance ring, or tree,ring"),
        *(
            (
                read_variables,
                pair,
                f"'{pair}' is no KEY=VALUE; write for instance NCCL_BUFFSIZE=8388608",
            )
            for pair in ("NCCL_BUFFSIZE", "=1", "1X=1", "A B=1", "A-B=1")
        ),
        *(
            (read_variables, f"{name}=1", f"{name} {SECRET}")
            for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_KEY", "my_password")
        ),
        *(
            (
                read_variables,
                f"{name}=1",
                (
                    f"{name} cannot be set so: it is set by the proof of what ran; read the log in"
                    " the run's folder"
                ),
            )
            for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
        ),
        (
            read_variables,
            "NCCL_HOSTID=a",
            "NCCL_HOSTID cannot be set so: say how many hosts to emulate with --fake-hosts",
        ),
        (
            read_variables,
            "CUDA_VISIBLE_DEVICES=0",
            (
                "CUDA_VISIBLE_DEVICES cannot be set so: set it for the whole command, or say how"
                " many GPUs with --gpus"
            ),
        ),
        *(
            (
                read_variables,
                f"{name}=x",
                f"{name} has an option of its own; write {option} x",
            )
            for name, option in (
                ("NCCL_ALGO", "--algo"),
                ("NCCL_PROTO", "--proto"),
                ("NCCL_NET", "--net"),
            )
        ),
        (
            read_variables,
            "X=a\0b",
            "the value of X holds a null byte, which no variable can",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(reader, word, text):
    with pytest.raises(UsageError, match=says(text)):
        reader([word])


def test_a_secrets_value_is_not_repeated():
    with pytest.raises(UsageError) as refused:
        read_variables(["HF_TOKEN=hf_abcdef"])

    assert "hf_abcdef" not in str(refused.value)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("tosch", "unknown way 'tosch'; did you mean 'torch'? allowed: torch, native"),
        ("mpi", "unknown way 'mpi'; allowed: torch, native"),
    ],
)
def test_a_word_that_is_not_allowed_gets_the_nearest(word, text):
    assert one_of("way", "native", ("torch", "native")) == "native"
    with pytest.raises(UsageError, match=says(text)):
        one_of("way", word, ("torch", "native"))


# Their product


def test_without_axes_there_is_the_empty_setting_alone():
    assert product() == ({},)
    assert product(reference=True) == ({},)


def test_the_algorithm_turns_slower_than_the_protocol_and_all_else_slower_still():
    assert product(
        algorithms=("Ring", "Tree"), protocols=("LL", "Simple"), ib=("on", "off")
    ) == tuple(
        {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol, "ib": ib}
        for ib in ("on", "off")
        for algorithm in ("Ring", "Tree")
        for protocol in ("LL", "Simple")
    )


def test_every_axis_has_its_word():
    assert product(
        networks=("IB",), variables={"A": ("1",), "B": ("2", "3")}, selections=("ring",)
    ) == (
        {"NCCL_NET": "IB", "alg_selection": "ring", "A": "1", "B": "2"},
        {"NCCL_NET": "IB", "alg_selection": "ring", "A": "1", "B": "3"},
    )


@pytest.mark.parametrize(
    ("axes", "settings"),
    [
        ({"algorithms": ("default",)}, ({},)),
        ({"algorithms": ("default", "Ring")}, ({}, {"NCCL_ALGO": "Ring"})),
        ({"ib": ("default", "off")}, ({}, {"ib": "off"})),
        ({"networks": ("IB", "default")}, ({"NCCL_NET": "IB"}, {})),
    ],
    ids=str,
)
def test_default_is_a_variable_that_is_not_set(axes, settings):
    assert product(**axes) == settings


def test_of_any_other_variable_default_is_a_value_like_others():
    assert product(variables={"X": ("1", "default")}) == ({"X": "1"}, {"X": "default"})


def test_a_reference_stands_before_each_combination_of_the_others():
    assert product(algorithms=("Ring",), protocols=("LL",), ib=("on", "off"), reference=True) == (
        {"ib": "on"},
        {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "ib": "on"},
        {"ib": "off"},
        {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "ib": "off"},
    )


def test_a_setting_that_several_axes_make_comes_once():
    assert product(algorithms=("default", "Ring"), protocols=("default",), reference=True) == (
        {},
        {"NCCL_ALGO": "Ring"},
    )


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (
            {"ib": ("on",), "networks": ("IB",)},
            "--ib and --net cannot both be given: --ib sets NCCL_NET itself; leave one out",
        ),
        (
            {"ib": ("off",), "variables": {"NCCL_IB_DISABLE": ("1",)}},
            "--ib and NCCL_IB_DISABLE cannot both be given; leave one out",
        ),
    ],
)
def test_axes_that_contradict_each_other_are_refused(axes, text):
    with pytest.raises(UsageError, match=says(text)):
        product(**axes)


def test_too_many_settings_are_refused():
    values = tuple(map(str, range(MOST_SETTINGS // 2)))

    assert len(product(variables={"A": values}, ib=("on", "off"))) == MOST_SETTINGS
    with pytest.raises(
        UsageError, match=says("more than 1024 settings; take fewer values an axis")
    ):
        product(variables={"A": (*values, "x")}, ib=("on", "off"))


# Whole settings and libraries


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("default", {}),
        ("NCCL_ALGO=tree  NCCL_PROTO=simple", {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}),
        ("ib=off", {"ib": "off"}),
        ("NCCL_NET=Socket", {"NCCL_NET": "Socket"}),
        ("A='two words' B=c,d", {"A": "two words", "B": "c,d"}),
    ],
)
def test_a_whole_setting(text, setting):
    assert read_settings([text, text]) == (setting, setting)


@pytest.mark.parametrize(
    ("text", "says_what"),
    [
        (" ", "an empty setting; write for instance NCCL_ALGO=Tree, or default"),
        ("A=1 A=2", "'A=1 A=2' sets A twice; leave one out"),
        ("Tree", "'Tree' is no KEY=VALUE; write for instance NCCL_BUFFSIZE=8388608"),
        ("A='x", "'A='x' is no setting: No closing quotation; close the quotes"),
        ("ib=maybe", "'maybe' is not allowed; allowed: on, off, on,off for both, or default"),
        ("NCCL_HOSTID=a", "NCCL_HOSTID cannot be set so: say how many hosts to emulate with"),
    ],
)
def test_a_whole_setting_that_cannot_be(text, says_what):
    with pytest.raises(UsageError, match=f"^{re.escape(says_what)}"):
        read_settings([text])


def test_whole_settings_and_libraries_are_axes():
    assert product(whole=({}, {"A": "1"}), libraries=("old", "new")) == (
        {"nccl": "old"},
        {"nccl": "new"},
        {"A": "1", "nccl": "old"},
        {"A": "1", "nccl": "new"},
    )
    with pytest.raises(UsageError, match="--setting and an option of its own both say NCCL_ALGO"):
        product(whole=({"NCCL_ALGO": "Tree"},), algorithms=("Ring",))


def test_a_plug_in_goes_with_its_library_and_with_no_other():
    found = product(libraries=("old", "new"), plugins={"new": "/opt/ofi/libnccl-net.so"})

    assert found == (
        {"nccl": "old"},
        {"nccl": "new", "NCCL_NET_PLUGIN": "/opt/ofi/libnccl-net.so"},
    )


def test_a_plug_in_is_said_in_one_place():
    with pytest.raises(UsageError, match=r"plugin=\.\.\. and --env NCCL_NET_PLUGIN both say it"):
        product(libraries=("a", "b"), plugins={"a": "/x"}, variables={"NCCL_NET_PLUGIN": ("none",)})


def test_a_librarys_plug_in_stands_behind_its_path():
    texts = ("a=/opt/libnccl.so.2,plugin=/opt/net.so", "b=/opt/b/libnccl.so.2")

    assert read_libraries(texts) == {"a": "/opt/libnccl.so.2", "b": "/opt/b/libnccl.so.2"}
    assert read_plugins(texts) == {"a": "/opt/net.so"}
    for wrong in ("/opt/libnccl.so.2,plugin=/opt/net.so", "a=/opt/libnccl.so.2,plugin="):
        with pytest.raises(UsageError, match="a plug-in belongs to a library with a name"):
            read_libraries((wrong,))
