"""The grammar of NCCL_ALGO and NCCL_PROTO."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.nccl.grammar import (
    ALGORITHMS,
    PROTOCOLS,
    canonical_choice,
    chosen,
    ignores_choice,
    split_choices,
)

NAMES = {"algorithm": ALGORITHMS, "protocol": PROTOCOLS}
NCCL_FUNCTIONS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}


@st.composite
def values(draw):
    """A kind and a well formed value for it, in any case."""
    kind = draw(st.sampled_from(sorted(NAMES)))
    names = st.lists(st.sampled_from(NAMES[kind]), min_size=1, unique=True).map(",".join)
    lists = st.tuples(st.sampled_from(["", "^"]), names).map("".join)
    functions = st.sampled_from(sorted(NCCL_FUNCTIONS.values()))
    entries = st.tuples(functions, lists).map(":".join)
    first = draw(st.one_of(lists, entries))
    text = ";".join([first, *draw(st.lists(entries, max_size=3))])
    upper = draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
    mixed = (c.upper() if up else c.lower() for c, up in zip(text, upper, strict=True))
    return kind, "".join(mixed)


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("ring", ("ring",)),
        ("ring, tree", ("ring", "tree")),
        ("default,LL", ("default", "LL")),
        ("ring,,tree", ("ring", "", "tree")),
        ("allreduce:tree,ring", ("allreduce:tree,ring",)),
        ("allreduce:tree,ring;allgather:ring", ("allreduce:tree,ring;allgather:ring",)),
        (" ^ll128,ll ", ("^ll128,ll",)),
    ],
)
def test_commas_split_plain_names_alone(text, choices):
    assert split_choices(text) == choices


@pytest.mark.parametrize(
    ("kind", "text", "canonical"),
    [
        ("algorithm", "RING", "Ring"),
        ("algorithm", "nvlstree", "NVLSTree"),
        ("algorithm", "collnetdirect,pat", "CollNetDirect,PAT"),
        ("algorithm", "allreduce:tree,ring", "allreduce:Tree,Ring"),
        ("algorithm", "Ring ; AllReduce : ^ tree, ring", "Ring;allreduce:^Tree,Ring"),
        ("algorithm", "ring,RING", "Ring"),
        ("algorithm", "Default", "default"),
        ("protocol", "^ll128", "^LL128"),
        ("protocol", "simple", "Simple"),
        ("protocol", "^LL128;allreduce:LL128", "^LL128;allreduce:LL128"),
    ],
)
def test_a_value_is_spelled_as_nccl_spells_it(kind, text, canonical):
    assert canonical_choice(kind, text) == canonical


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (
            "algorithm",
            "rign",
            (
                "unknown algorithm 'rign'; did you mean 'Ring'? allowed: Ring, Tree, NVLS,"
                " NVLSTree, CollNetDirect, CollNetChain, PAT, or default alone"
            ),
        ),
        (
            "protocol",
            "ring",
            "unknown protocol 'ring'; allowed: LL, LL128, Simple, or default alone",
        ),
        (
            "algorithm",
            "allredue:ring",
            (
                "unknown function 'allredue'; did you mean 'allreduce'? allowed: allreduce,"
                " allgather, reducescatter, broadcast, reduce"
            ),
        ),
        (
            "protocol",
            "alltoall:ll",
            (
                "unknown function 'alltoall'; allowed: allreduce,"
                " allgather, reducescatter, broadcast, reduce"
            ),
        ),
        (
            "protocol",
            "allreduce:ll;simple",
            (
                "protocol value 'allreduce:ll;simple' has 'simple' without a function; only the"
                " first entry may lack it: write FUNCTION:simple, with FUNCTION one of allreduce,"
                " allgather, reducescatter, broadcast, reduce"
            ),
        ),
    ],
)
def test_a_value_that_nccl_would_refuse_is_refused_with_what_is_allowed(kind, text, words):
    with pytest.raises(UsageError) as caught:
        canonical_choice(kind, text)

    assert str(caught.value) == words


@pytest.mark.parametrize(
    "text",
    ["", " ", ",", "^", "ring,", "ring,,tree", "allreduce:", "allreduce:^", ";ring", "ring;"],
)
def test_an_empty_name_is_refused(text):
    with pytest.raises(UsageError, match=r"has an empty name|without a function"):
        canonical_choice("algorithm", text)


@pytest.mark.parametrize(
    "text", ["default,ring", "allreduce:default", "^default", "^ring,^tree", "^allreduce:ring"]
)
def test_a_word_in_the_wrong_place_is_refused(text):
    with pytest.raises(UsageError, match="unknown"):
        canonical_choice("algorithm", text)


@given(values())
def test_a_canonical_value_stays_what_it_is(kind_and_text):
    kind, text = kind_and_text
    canonical = canonical_choice(kind, text)

    assert canonical_choice(kind, canonical) == canonical


@given(values())
def test_case_does_not_matter(kind_and_text):
    kind, text = kind_and_text

    assert canonical_choice(kind, text) == canonical_choice(kind, text.swapcase())
    assert canonical_choice(kind, text).lower() == text.lower()


@given(
    st.sampled_from(sorted(NAMES)).flatmap(
        lambda kind: st.tuples(
            st.just(kind), st.lists(st.sampled_from(NAMES[kind]), min_size=1, unique=True)
        )
    ),
    st.sampled_from(sorted(NCCL_FUNCTIONS)),
)
def test_a_negated_list_leaves_the_others_on(kind_and_names, collective):
    kind, names = kind_and_names
    plain = ",".join(names)

    assert chosen(kind, plain, collective) == frozenset(names)
    assert chosen(kind, f"^{plain}", collective) == frozenset(NAMES[kind]) - frozenset(names)


@pytest.mark.parametrize("collective", sorted(NCCL_FUNCTIONS))
def test_a_list_with_a_function_is_for_its_collective_alone(collective):
    value = f"{NCCL_FUNCTIONS[collective]}:Tree,NVLS"
    left_on = {name: chosen("algorithm", value, name) for name in NCCL_FUNCTIONS}

    assert left_on.pop(collective) == {"Tree", "NVLS"}
    assert set(left_on.values()) == {frozenset(ALGORITHMS)}


@pytest.mark.parametrize(
    ("value", "collective", "left_on"),
    [
        (
            "Ring,CollNetDirect;allreduce:Tree,CollNetDirect",
            "all_reduce",
            {"Tree", "CollNetDirect"},
        ),
        ("Ring,CollNetDirect;allreduce:Tree,CollNetDirect", "reduce", {"Ring", "CollNetDirect"}),
        ("allreduce:Tree;allreduce:Ring", "all_reduce", {"Ring"}),
        ("Ring;allgather:^Ring,Tree,NVLS,NVLSTree", "all_gather", set(ALGORITHMS[4:])),
        ("default", "all_reduce", set(ALGORITHMS)),
        ("Ring", "all_to_all", set(ALGORITHMS)),
    ],
)
def test_a_later_entry_replaces_what_an_earlier_one_set(value, collective, left_on):
    assert chosen("algorithm", value, collective) == left_on


def test_ll128_counts_as_on_by_default():
    assert chosen("protocol", "default", "all_reduce") == {"LL", "LL128", "Simple"}


def test_collectives_made_of_sends_and_receives_ignore_both_variables():
    assert {name for name in COLLECTIVES if ignores_choice(name)} == {
        "all_to_all",
        "gather",
        "scatter",
        "send_recv",
    }
