"""Workers wherever they are: which are kept, which are forked, and how they come together."""

from __future__ import annotations

import asyncio

import pytest
from fake_engine import STORE_PORT, Fails, FakeCluster, Stage, played
from msgspec.structs import replace

from collbench.engine.faults import Fault
from collbench.engine.lineup import Kind
from collbench.engine.orders import Died, Fork, Forked
from collbench.engine.wire import Done
from collbench.errors import NothingMeasured
from collbench.model import NodeState, Policy, ReasonCode, Status
from collbench.nccl.settings import Needs

PLAIN = Needs(zygote=(), worker=(), communicator=())
LARGE = replace(PLAIN, worker=(("NCCL_BUFFSIZE", "2"),))
OTHER_ZYGOTE = replace(PLAIN, zygote=(("PYTHONHASHSEED", "1"),))
TREE = replace(PLAIN, communicator=(("NCCL_ALGO", "Tree"),))


@pytest.fixture
def stage():
    return Stage()


def on_nodes(stage, work, *nodes, policy=None):
    """Runs work with the crew of so many ranks a node; returns what it returns."""

    async def with_crew():
        cluster = FakeCluster(stage, nodes=nodes, policy=policy)
        return await work(cluster, cluster.crew)

    return played(with_crew())


def numbers(seats):
    return [seat.number for seat in seats]


# Who is kept


def test_workers_are_forked_once_and_found_again(stage):
    async def work(cluster, crew):
        first = await crew.seated((0, 1, 2, 3), Kind.QUIET, 0, PLAIN)
        again = await crew.seated((3, 1), Kind.QUIET, 0, PLAIN)
        return first, again, crew.forked, crew.zygotes

    first, again, forked, zygotes = on_nodes(stage, work, 2, 2)
    assert [(seat.rank, seat.node, seat.local_rank) for seat in first] == [
        (0, "n0", 0),
        (1, "n0", 1),
        (2, "n1", 0),
        (3, "n1", 1),
    ]
    assert [seat.pid for seat in first] == [1000, 1001, 1002, 1003]
    assert again == [first[3], first[1]], "in the order asked for"
    assert (forked, zygotes) == (4, 2)


@pytest.mark.parametrize(
    ("kind", "repeat", "needs", "kept"),
    [
        (Kind.QUIET, 0, PLAIN, True),
        (Kind.QUIET, 0, TREE, True),
        (Kind.QUIET, 0, LARGE, False),
        (Kind.QUIET, 0, OTHER_ZYGOTE, False),
        (Kind.QUIET, 1, PLAIN, False),
        (Kind.LOGGED, 0, PLAIN, False),
    ],
    ids=["the same", "communicator", "variables", "zygote", "repeat", "kind"],
)
def test_what_makes_other_workers_necessary(stage, kind, repeat, needs, kept):
    async def work(cluster, crew):
        first = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        second = await crew.seated((0, 1), kind, repeat, needs)
        return numbers(first), numbers(second)

    first, second = on_nodes(stage, work, 2)
    assert second == (first if kept else [2, 3])


@pytest.mark.parametrize(
    ("needs", "ended"), [(PLAIN, []), (LARGE, [("quit", 1), ("quit", 2)])], ids=["same", "other"]
)
def test_both_kinds_of_workers_end_where_one_of_them_has_other_variables(stage, needs, ended):
    async def work(cluster, crew):
        await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        await crew.seated((0, 1), Kind.LOGGED, 0, PLAIN)
        await crew.seated((0, 1), Kind.QUIET, 0, needs)

    on_nodes(stage, work, 2)
    assert stage.happened("quit", "end") == ended


def test_a_worker_that_has_ended_is_replaced_and_the_others_stay(stage):
    async def work(cluster, crew):
        first = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        gone = Died(seat=first[1].number, exit_status=-9, calls=0, log_tail=[])
        crew.report(cluster.posts[0], gone)
        return first, await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)

    first, second = on_nodes(stage, work, 2)
    assert second[0] is first[0]
    assert second[1].number == 2


def test_news_of_workers_that_nobody_knows_any_more_are_ignored(stage):
    async def work(cluster, crew):
        seats = await crew.seated((0,), Kind.QUIET, 0, PLAIN)
        await crew.dismiss(seats, kill=True)
        late = Died(seat=seats[0].number, exit_status=-9, calls=0, log_tail=[])
        fresh = await crew.seated((0,), Kind.QUIET, 0, PLAIN)
        crew.report(cluster.posts[0], late)
        return fresh, await crew.seated((0,), Kind.QUIET, 0, PLAIN)

    fresh, again = on_nodes(stage, work, 1)
    assert again == fresh


def test_all_are_dismissed_at_the_end(stage):
    async def work(cluster, crew):
        await crew.seated((0, 1, 2), Kind.QUIET, 0, PLAIN)
        await crew.seated((0, 1, 2), Kind.LOGGED, 0, PLAIN)
        await crew.dismiss_all(kill=True)
        return [station.held for station in cluster.stations]

    assert on_nodes(stage, work, 2, 1) == [{}, {}]


# What goes wrong


def test_a_node_that_cannot_fork_is_lost_and_let_go_and_the_others_go_on(stage):
    stage.cannot_fork[1] = "no torch"
    became = []

    async def work(cluster, crew):
        crew.on_loss = lambda node, state: became.append((node, state))
        across = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        left = dict(cluster.stations[0].held)
        within = await crew.seated((0, 2), Kind.QUIET, 0, PLAIN)
        return across, left, within, [station.let_go for station in cluster.stations]

    across, left, within, let_go = on_nodes(stage, work, 1, 1, 1)
    assert across.status is Status.NODE_LOST
    assert across.reason.text == "n1 is lost: no torch; --exclude n1 begins without it"
    assert [(culprit.rank, culprit.node) for culprit in across.culprits] == [(1, "n1")]
    assert left == {}, "nobody is left who waits for it"
    assert [seat.rank for seat in within] == [0, 2]
    assert let_go == [None, "no torch", None]
    assert became == [("n1", NodeState.LOST)]


def test_node_0_itself_cannot_be_excluded_where_it_cannot_fork(stage):
    stage.cannot_fork[0] = "no torch"

    async def work(cluster, crew):
        across = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        return across, await crew.seated((1, 2), Kind.QUIET, 0, PLAIN)

    across, others = on_nodes(stage, work, 1, 1, 1)
    text = "n0 is lost: no torch; to begin without it, start node 0 elsewhere"
    assert across.reason.text == text
    assert [seat.rank for seat in others] == [1, 2]


@pytest.mark.parametrize("nodes", [(2,), (1, 1)], ids=["one node", "two nodes"])
def test_where_no_node_can_fork_nothing_is_measured(stage, nodes):
    stage.cannot_fork = {0: "no torch", 1: "no torch"}

    async def work(cluster, crew):
        with pytest.raises(NothingMeasured) as problem:
            await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        with pytest.raises(NothingMeasured):
            await crew.seated((0,), Kind.QUIET, 0, PLAIN)
        return str(problem.value)

    assert on_nodes(stage, work, *nodes) == f"n{len(nodes) - 1}: no torch"


def test_one_of_a_node_s_processes_that_cannot_fork_is_named_and_is_all_of_it(stage):
    stage.cannot_fork[1] = "no torch"

    async def work(cluster, crew):
        for number, post in enumerate(cluster.posts):
            post.node, post.process = "n", number
        with pytest.raises(NothingMeasured) as problem:
            await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        return str(problem.value)

    assert on_nodes(stage, work, 1, 1) == "process 1 on n: no torch"


def test_a_node_that_does_not_answer_an_order_to_fork_is_lost(stage):
    async def work(cluster, crew):
        cluster.posts[1].send = lambda order: None
        return await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)

    policy = Policy(init_deadline_s=0.02)
    fault = on_nodes(stage, work, 1, 1, policy=policy)
    assert fault.reason.text.startswith("n1 is lost: its workers were not forked in time; ")


def test_the_slowest_import_is_named_where_it_took_long(stage):
    async def work(cluster, crew):
        said = [crew.slowest_import()]
        for post, import_s in zip(cluster.posts, (9.9, 31.6, 12.0), strict=True):
            crew.report(post, Forked(pids=[], zygotes=1, import_s=import_s))
            said.append(crew.slowest_import())
        return said

    slowest = "imports took 32 s on n1, the slowest node"
    assert on_nodes(stage, work, 1, 1, 1) == [None, None, slowest, slowest]


def test_a_worker_that_ends_as_soon_as_it_is_forked_is_a_death_and_no_lost_node(stage):
    async def work(cluster, crew):
        def fork_and_lose(order):
            cluster.stations[0].send(order)
            if isinstance(order, Fork):
                gone = Died(seat=order.seats[1].seat, exit_status=127, calls=0, log_tail=[])
                asyncio.get_running_loop().call_soon(crew.report, cluster.posts[0], gone)

        cluster.posts[0].send = fork_and_lose
        seats = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        return await crew.join(seats)

    fault = on_nodes(stage, work, 2)
    assert fault.status is Status.CRASHED
    assert fault.reason.text == "rank 1 (pid 1001) dead: exit status 127 in call 0"


@pytest.mark.parametrize("when", ["before", "while forking"])
def test_a_lost_node_is_a_fault_of_groups_that_need_it(stage, when):
    async def work(cluster, crew):
        far = cluster.posts[1]
        if when == "before":
            crew.lose(far, "its connection ended")
        else:
            far.send = lambda order: crew.lose(far, "its connection ended")
        across = await crew.seated((0, 1, 2), Kind.QUIET, 0, PLAIN)
        within = await crew.seated((0,), Kind.QUIET, 0, PLAIN)
        crew.lose(far, "said again")
        return across, within, cluster.stations[0].held

    across, within, held = on_nodes(stage, work, 1, 2)
    assert isinstance(across, Fault)
    assert across.reason.text == "n1 is lost: its connection ended"
    assert [(culprit.rank, culprit.node) for culprit in across.culprits] == [(1, "n1"), (2, "n1")]
    assert list(held) == numbers(within), "nobody else is left"


def test_a_lost_node_ends_every_wait_for_it(stage):
    async def work(cluster, crew):
        far = cluster.posts[1]
        seats = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        far.send = lambda order: None
        dismissing = asyncio.ensure_future(crew.dismiss(seats, kill=True))
        await asyncio.sleep(0)
        crew.lose(far, "its connection ended")
        await asyncio.wait_for(dismissing, 1.0)

    on_nodes(stage, work, 1, 1)


def test_a_node_whose_workers_survive_sigkill_is_dropped_and_the_others_go_on(stage):
    stage.unkillable = {1}
    became = []

    async def work(cluster, crew):
        crew.on_loss = lambda node, state: became.append((node, state))
        seats = await crew.seated((0, 1, 2), Kind.QUIET, 0, PLAIN)
        await crew.dismiss(seats, kill=True)
        crew.require_somebody()
        return await crew.seated((1,), Kind.QUIET, 0, PLAIN), await crew.seated(
            (0, 2), Kind.QUIET, 0, PLAIN
        )

    gone, others = on_nodes(stage, work, 1, 1, 1)
    assert gone.reason.text == (
        "n1 is lost: rank 1 (pid 1001) is there 5 s after SIGKILL, which makes the node"
        " unkillable: look at dmesg, reset the GPU or restart the node; --exclude n1 begins"
        " without it"
    )
    assert [seat.rank for seat in others] == [0, 2]
    assert became == [("n1", NodeState.UNKILLABLE)]


def test_workers_of_another_setting_that_survive_cost_their_node_too(stage):
    stage.unkillable = {1}

    async def work(cluster, crew):
        await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        return await crew.seated((0, 1), Kind.QUIET, 0, LARGE)

    assert on_nodes(stage, work, 1, 1).status is Status.NODE_LOST


def test_where_the_only_node_is_unkillable_nothing_more_is_measured(stage):
    stage.unkillable = {0, 1}

    async def work(cluster, crew):
        seats = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        await crew.dismiss(seats, kill=True)
        with pytest.raises(NothingMeasured) as problem:
            crew.require_somebody()
        return str(problem.value)

    words = "n0: rank 0 (pid 1000), rank 1 (pid 1001) are there 5 s after SIGKILL"
    assert on_nodes(stage, work, 2).startswith(words)


# A hang


@pytest.mark.parametrize(
    ("stopped", "says", "asked", "evidence"),
    [
        ({0}, {1: ["rank 0 missing"]}, [1], ["rank 0 missing"]),
        ({1}, {2: ["rank 1 missing"]}, [0, 2], ["rank 1 missing"]),
        ({2}, {}, [0, 1, 3], []),
        ({0, 1, 2, 3, 4}, {0: ["never heard"]}, [], []),
    ],
    ids=["not where it is stopped", "the next, if one says nothing", "three at most", "nobody"],
)
def test_nccl_is_asked_where_no_worker_is_stopped(stage, stopped, says, asked, evidence):
    stage.stopped, stage.nccl_says = stopped, says

    async def work(cluster, crew):
        seats = await crew.seated((0, 1, 2, 3, 4), Kind.QUIET, 0, PLAIN)
        return await crew.gathered(Done, seats, 0.01, ReasonCode.NO_PROGRESS)

    fault = on_nodes(stage, work, 1, 1, 1, 1, 1)
    assert stage.happened("ask nccl") == [("ask nccl", rank) for rank in asked]
    assert fault.status is Status.HUNG
    assert {culprit.rank for culprit in fault.culprits} == stopped
    for culprit in fault.culprits:
        assert culprit.evidence[2:] == evidence


# Groups


def test_a_group_s_ranks_count_from_0_and_meet_at_the_address_of_the_first(stage):
    async def work(cluster, crew):
        seats = await crew.seated((3, 0), Kind.QUIET, 0, PLAIN)
        joined = await crew.join(seats)
        return joined, {seat.group for seat in seats}

    joined, groups = on_nodes(stage, work, 2, 2)
    assert len(joined) == 2
    assert groups == {1}
    first, second = stage.joins
    assert [(join.rank, join.world_size, join.store_port) for join in (first, second)] == [
        (0, 2, None),
        (1, 2, STORE_PORT),
    ]
    assert {join.store_host for join in stage.joins} == {"198.18.0.2"}, "of the node of rank 3"
    assert {join.prefix for join in stage.joins} == {"group1"}
    assert len({join.token for join in stage.joins}) == 1
    assert {join.ranks_on_device for join in stage.joins} == {2}


def test_groups_form_at_the_same_time_and_have_nothing_in_common(stage):
    async def work(cluster, crew):
        async def form(*ranks):
            return await crew.join(await crew.seated(ranks, Kind.QUIET, 0, PLAIN))

        return await asyncio.gather(form(0, 2), form(1, 3))

    formed = on_nodes(stage, work, 2, 2)
    assert [len(joined) for joined in formed] == [2, 2]
    by_prefix = {}
    for join in stage.joins:
        by_prefix.setdefault(join.prefix, []).append(join)
    assert {prefix: [join.rank for join in joins] for prefix, joins in by_prefix.items()} == {
        "group1": [0, 1],
        "group2": [0, 1],
    }
    assert len({join.token for join in stage.joins}) == 2


def test_a_group_that_joins_again_is_another_one(stage):
    async def work(cluster, crew):
        seats = await crew.seated((0, 1), Kind.QUIET, 0, PLAIN)
        await crew.join(seats)
        await crew.join(seats)
        return {seat.group for seat in seats}

    assert on_nodes(stage, work, 2) == {2}
    assert sorted({join.prefix for join in stage.joins}) == ["group1", "group2"]


def test_a_first_rank_that_cannot_host_is_asked_alone(stage):
    stage.faults[1, "join"] = Fails.DIED

    async def work(cluster, crew):
        return await crew.join(await crew.seated((0,), Kind.QUIET, 0, PLAIN))

    fault = on_nodes(stage, work, 1)
    assert fault.status is Status.CRASHED


def test_each_library_has_processes_of_its_own_and_its_path_is_in_the_order(stage):
    old, new = (replace(PLAIN, zygote=(("COLLBENCH_NCCL", name),)) for name in ("old", "new"))

    async def work(cluster, crew):
        for needs in (old, new, PLAIN):
            await crew.join(await crew.seated((0, 1), Kind.QUIET, 0, needs))
        return crew.zygotes

    assert on_nodes(stage, work, 2) == 3
    assert [join.library for join in stage.joins] == [
        *["/old/libnccl.so.2"] * 2,
        *["/new/libnccl.so.2"] * 2,
        *[None] * 2,
    ]


def test_orders_carry_the_variables_of_setting_and_kind(stage):
    async def work(cluster, crew):
        needs = replace(LARGE, communicator=TREE.communicator)
        await crew.seated((0,), Kind.QUIET, 0, needs)

    on_nodes(stage, work, 1)
    assert stage.happened("team") == [
        ("team", 1, False, {"NCCL_BUFFSIZE": "2", "NCCL_ALGO": "Tree"})
    ]
