"""Which workers time and prove a case, and how many processes that takes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from setting_cases import VARIABLES, made_case, swept_by

from collbench.engine.lineup import Kind, Starts, count_starts, has_twin, timed_in
from collbench.engine.protocol import Group, Round
from collbench.model import Mode, Policy
from collbench.nccl.settings import needs_of

RANKS = 2
RING, TREE = {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}


def rounds_of(*repeats):
    return [
        Round(repeat=number, groups=(Group(ranks=(0, 1), cases=tuple(cases)),))
        for number, cases in enumerate(repeats)
    ]


def counted(*repeats, policy=None):
    every = [case for cases in repeats for case in cases]
    return count_starts(rounds_of(*repeats), policy or Policy(), RANKS, swept_by(every))


def listed(*settings, mode=Mode.GRAPH, backend="nccl"):
    return [made_case(number, setting, mode, backend) for number, setting in enumerate(settings, 1)]


@pytest.mark.parametrize(
    ("backend", "mode", "proof", "kind", "twin"),
    [
        ("nccl", Mode.GRAPH, True, Kind.LOGGED, False),
        ("nccl", Mode.EAGER, True, Kind.QUIET, True),
        ("nccl", Mode.EAGER_DEVICE, True, Kind.QUIET, True),
        ("nccl", Mode.GRAPH, False, Kind.QUIET, False),
        ("nccl", Mode.EAGER, False, Kind.QUIET, False),
        ("gloo", Mode.EAGER, True, Kind.QUIET, False),
        ("simulated", Mode.EAGER, True, Kind.QUIET, False),
    ],
)
def test_where_a_case_is_timed_and_whether_it_is_proved_elsewhere(backend, mode, proof, kind, twin):
    case = made_case(1, {}, mode, backend)
    policy = Policy(proof=proof)

    assert (timed_in(case, policy), has_twin(case, policy)) == (kind, twin)


def test_nothing_starts_nothing():
    assert counted() == counted([]) == Starts()


@pytest.mark.parametrize(
    ("cases", "policy", "starts"),
    [
        (listed({}, {}), Policy(), Starts(zygotes=1, workers=2, communicators=1)),
        (
            listed({}, {}, mode=Mode.EAGER),
            Policy(),
            Starts(zygotes=1, workers=4, communicators=2, twins=2),
        ),
        (
            listed({}, {}, mode=Mode.EAGER),
            Policy(proof=False),
            Starts(zygotes=1, workers=2, communicators=1),
        ),
        (
            listed({}, {}, mode=Mode.EAGER, backend="gloo"),
            Policy(),
            Starts(zygotes=1, workers=2, communicators=1),
        ),
        (listed(RING, TREE, TREE), Policy(), Starts(zygotes=1, workers=2, communicators=2)),
        (listed(RING, TREE, RING), Policy(), Starts(zygotes=1, workers=2, communicators=3)),
        (
            listed({"NCCL_BUFFSIZE": "1"}, {"NCCL_BUFFSIZE": "2"}),
            Policy(),
            Starts(zygotes=1, workers=4, communicators=2),
        ),
        (
            listed({"LD_PRELOAD": "a.so"}, {}),
            Policy(),
            Starts(zygotes=2, workers=4, communicators=2),
        ),
    ],
    ids=["graph", "eager", "eager, no proof", "gloo", "two communicators", "back again",
         "two sets of workers", "two zygotes"],
)  # fmt: skip
def test_what_one_repeat_starts(cases, policy, starts):
    assert counted(cases, policy=policy) == starts


def test_an_eager_and_a_graph_case_share_the_logged_workers():
    cases = [*listed({}, mode=Mode.EAGER), *listed({}, mode=Mode.GRAPH)]

    assert counted(cases) == Starts(zygotes=1, workers=4, communicators=2, twins=1)


def test_repeats_never_share_a_process():
    cases = listed({}, {})

    assert counted(cases, cases, cases) == Starts(zygotes=3, workers=6, communicators=3)


class Living:
    """What lives while cases run, with every start written down: no reasoning, only events."""

    def __init__(self):
        self.zygote = None
        self.workers = {}
        self.communicators = {}
        self.events = []

    def run(self, place, needs, kind):
        if self.zygote != (place, needs.zygote):
            self.workers.clear()
            self.zygote = (place, needs.zygote)
            self.events.append("zygote")
        for other, part in list(self.workers.items()):
            if part != needs.worker:
                del self.workers[other]
        if kind not in self.workers:
            self.workers[kind] = needs.worker
            self.communicators[kind] = None
            self.events += ["worker"] * RANKS
        if self.communicators[kind] != needs.communicator:
            self.communicators[kind] = needs.communicator
            self.events.append("communicator")

    def starts(self, twins):
        counts = {name: self.events.count(name) for name in ("zygote", "worker", "communicator")}
        return Starts(
            zygotes=counts["zygote"],
            workers=counts["worker"],
            communicators=counts["communicator"],
            twins=twins,
        )


SETTINGS = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VARIABLES.items()}
)
CASES = st.lists(st.tuples(SETTINGS, st.sampled_from(Mode)), max_size=12).map(
    lambda pairs: [made_case(number, *pair) for number, pair in enumerate(pairs, 1)]
)


@given(st.lists(CASES, max_size=3), st.booleans())
def test_the_count_is_that_of_living_through_it(repeats, proof):
    policy = Policy(proof=proof)
    swept = swept_by(list(itertools.chain.from_iterable(repeats)))
    living, twins = Living(), 0
    for repeat, cases in enumerate(repeats):
        for case in cases:
            needs = needs_of(case.setting, swept)
            living.run(repeat, needs, timed_in(case, policy))
            if has_twin(case, policy):
                twins += 1
                living.run(repeat, needs, Kind.LOGGED)

    assert counted(*repeats, policy=policy) == living.starts(twins)
