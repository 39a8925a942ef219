"""The text of a pairwise run: the answer first, figures exact, at most 120 columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pair_states import Pairs, about_of, made_node, slow_uplinks, with_values

from collbench.analyze.pair_state import Reference
from collbench.analyze.pair_types import PairKind, PairValue
from collbench.analyze.pairwise import judge
from collbench.model import Gpu, Nic, RankPlace, Topology
from collbench.report.pairwise import pairwise_text

GOLDEN = Path(__file__).parents[1] / "data/pairwise/slow_node_8.txt"
PAGE = Path(__file__).parents[2] / "docs/pairwise_reading.md"
LONG = tuple(f"cluster-partition-a-rack{n // 8:02d}-node{n:04d}.example.com" for n in range(32))


def text_of(state, topology=None, **changes):
    return pairwise_text(state, judge(state), about_of(state, topology, **changes))


def said(text: str) -> str:
    """Returns a text without its line ends."""
    return " ".join(text.split())


def test_one_slow_node_of_eight_is_the_first_thing_said():
    state = Pairs(leaf=4, line=0.024, slow={5: 0.25}, round_trips=1000).state()

    text = text_of(state, share_tried=1.0, next_commands=("collbench pairwise --rounds all",))

    assert text + "\n" == GOLDEN.read_text()
    assert text in PAGE.read_text()


@pytest.mark.parametrize(
    "pairs",
    [
        Pairs(32, leaf=8, slow={5: 0.7}, names=LONG),
        Pairs(32, leaf=8, slow={5: 0.7}, line=0.187, names=LONG),
        Pairs(1000, leaf=50, slow={20 * n: 0.8 for n in range(30)}),
        Pairs(5, rails=4, slow_rails={(3, 1): 0.8}),
        Pairs(2),
    ],
    ids=["long-names", "long-names-slow-links", "thousand", "rails", "two"],
)
def test_no_line_is_longer_than_120_columns(pairs):
    state = pairs.state()

    text = text_of(state, absent={f"gone{n}": "" for n in range(300)})

    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) < 120


def test_of_a_thousand_nodes_only_the_bad_ones_are_named():
    bad = {20 * n: 0.8 for n in range(30)}

    answer = text_of(Pairs(1000, leaf=50, slow=bad).state()).partition("\n\n")[0]

    assert "\nFAIL           30  node0  node_slow: 38.4 of 48.0 GB/s: 20.0 % slower" in answer
    # Three met slow partners alone, and were fine with others.
    assert "\nSUSPECT         3  node230  node_slow: stood out at first; " in answer
    assert "\nPASS          967  within 0 % of each other" in answer
    assert answer.count(" 20.0 % slower [") == 20
    assert "and node400 node_slow, node420 node_slow, node440 node_slow," in said(answer)
    assert "27 more: collbench drain 20261130-0412-7f3a" in answer
    assert "node7 " not in answer
    assert "send_recv in" not in text_of(Pairs(1000, leaf=50).state())


def test_who_did_not_answer_is_counted_and_told_by_reason():
    state = Pairs(leaf=4).state(not_tested={7: "node lost in round 0"})
    names = (*state.names, "gpu0044", "gpu0045", "gpu0391")

    text = text_of(
        state,
        asked=names,
        answered=state.names,
        absent={"gpu0044": "", "gpu0045": ""},
        excluded={"gpu0391": "driver 570 against 575"},
    )

    assert text.startswith("11 asked, 8 answered: 2 absent, 1 excluded | ")
    assert said(text).count("NOT TESTED 4 gpu0044, gpu0045 absent gpu0391 excluded (driver 570 ag")
    assert "node7  node lost in round 0" in text


def test_a_lost_node_that_was_judged_before_has_its_verdict_alone():
    state = Pairs(leaf=4, slow={5: 0.5}).state()

    text = text_of(state, lost={"node5": "in round 9"})

    assert "FAIL            1  node5  node_slow" in text
    assert "NOT TESTED" not in text


def test_lost_nodes_are_told_with_their_reason():
    state = Pairs(leaf=4, slow={5: 0.5}).state()

    text = text_of(state, lost={"node5": "no torch; --exclude node5 begins without it"})

    assert "LOST            1  node5  no torch; --exclude node5 begins without it" in text
    assert "LOST" not in text_of(state)


def test_a_suspect_that_was_fine_again_is_told_apart_from_an_open_one():
    slow, fine = Pairs(leaf=4, slow={5: 0.9}), Pairs(leaf=4)
    opened = slow.state(confirm=False)
    again = [
        value
        for number, (a, b) in enumerate([(5, 6), (5, 7), (0, 1), (2, 3)], start=20)
        for value in fine.values(a, b, number, True)
    ]
    cleared = with_values(opened, *again)
    object.__setattr__(cleared, "confirming", frozenset(range(20, 24)))

    assert "SUSPECT         1  node5  node_slow: 43.2 of 48.0 GB/s: 10.0 % slower" in text_of(
        opened
    )
    assert "; not yet run again" in said(text_of(opened))
    assert "NEXT" not in text_of(opened)
    assert "node5 node_slow: stood out at first; over all its pairs" in said(text_of(cleared))
    assert "; fine when it was run again alone with node6, node7" in said(text_of(cleared))


def test_one_way_rates_tell_the_direction():
    state = Pairs(leaf=4, slow={5: 0.5}).state()
    ways = [(5, 0, 24.0), (0, 5, 48.0), (1, 2, 48.0), (2, 3, 48.0), (3, 1, 48.0)]
    state = with_values(
        state,
        *(PairValue(a=a, b=b, kind=PairKind.SEND, round=40, value=rate) for a, b, rate in ways),
    )

    text = text_of(state)

    assert "node5  slow_send: 24.0 of 48.0 GB/s: 50.0 % slower" in text
    assert "; sends at 24.0, receives at 48.0 GB/s; " in said(text)


def rails_topology(names):
    nodes, places = [], []
    for n, name in enumerate(names):
        # NICs are listed in another order than that of their slots.
        nics = [
            Nic(
                name=f"mlx5_{r}",
                kind="infiniband",
                state="ACTIVE",
                pci_bus_id=f"0000:{9 - r}a:00.0",
            )
            for r in range(2)
        ]
        gpus = [
            Gpu(index=r, name="H", uuid=f"GPU-{n}-{r}", pci_bus_id=f"00000000:{r + 1}0:00.0",
                memory_bytes=1)
            for r in range(2)
        ]  # fmt: skip
        nodes.append(made_node(name, gpus=gpus, nics=nics))
        places += [RankPlace(rank=2 * n + r, node=name, local_rank=r, gpu=r) for r in range(2)]
    return Topology(nodes=nodes, ranks=places)


def test_a_slow_rail_is_named_with_its_nic():
    state = Pairs(8, leaf=4, rails=2, slow_rails={(3, 1): 0.8}).state()

    text = text_of(state, rails_topology(state.names))

    assert (
        "node3  rail_slow rail 1 (mlx5_0, 0000:9a:00.0): 38.4 of 48.0 GB/s: 20.0 % slower" in text
    )
    assert 'reason="collbench 20261130-0412 rail_slow rail 1 -20%"' in text
    assert (
        "on node3: ibstat mlx5_0; ethtool -S $(ls /sys/class/infiniband/mlx5_0/device/net);"
        " nvidia-smi -q -i 1" in said(text)
    )
    assert "send_recv in GB/s, the slowest rail of each pair; bars part leaves" in text
    assert "\nnode3 1    38.4   80.0 %     7 fail" in text


def test_faults_between_nodes_are_told_under_fabric():
    text = text_of(Pairs(leaf=4, paths={(1, 6): 0.5}).state())

    assert "FABRIC          1  slow_path node1-node6: 24.0 of 48.0 GB/s: 50.0 % slower" in text
    assert "; both nodes give full rate with others;" in said(text)
    assert "at the switches between node1, node6: routes" in said(text)
    assert "\nPASS            8  " in text


@pytest.mark.parametrize(
    ("share", "collisions", "words"),
    [
        (0.98, 0.0, "got 98 % of what pairs inside got; no collisions seen"),
        (0.98, 0.1, "got 98 % of what pairs inside got; collisions: 10 % of pairs across fell"),
        (
            0.5,
            0.0,
            (
                "got 50 % of what pairs inside got; all of them alike: the uplinks are shared out,"
                " which is no node's fault; no collisions seen"
            ),
        ),
        (
            0.5,
            0.4,
            (
                "got 50 % of what pairs inside got; most flows collide or the uplinks are shared"
                " out, which is no node's fault (collbench scale tells which); collisions: 40 % of"
                " pairs across fell behind the others"
            ),
        ),
    ],
    ids=["full", "few-collide", "shared", "collide-or-shared"],
)
def test_of_pairs_across_leaves_no_more_is_said_than_is_known(share, collisions, words):
    state = Pairs(leaf=4).state()
    result = replace(judge(state), across_share=share, collisions=collisions)

    assert words in said(pairwise_text(state, result, about_of(state)))


def test_slow_uplinks_are_neither_shared_out_nor_collisions():
    text = said(text_of(Pairs(12, leaf=3, paths=slow_uplinks(12, 3, 1, 0.4)).state()))

    assert "FABRIC 1 leaf_uplink_slow leaf1: 19.2 of 48.0 GB/s: 60.0 % slower" in text
    assert "; those over the uplinks of leaf1 among them; no collisions seen" in text
    assert "shared out" not in text


def test_of_few_nodes_a_bad_one_does_not_become_what_is_usual():
    lines = text_of(Pairs(4, slow={2: 0.7}).state()).splitlines()

    ranked = [
        line.split() for line in lines[lines.index("node  GB/s relative pairs verdict") + 1 :]
    ]
    assert ranked == [
        ["node2", "33.6", "70.0", "%", "3", "fail"],
        *([f"node{n}", "48.0", "100.0", "%", "3"] for n in (0, 1, 3)),
    ]


def test_hangs_and_loss_are_no_slow_nodes():
    hung = text_of(
        Pairs(leaf=4, hung=tuple((min(2, n), max(2, n)) for n in range(8) if n != 2)).state()
    )
    lossy = text_of(Pairs(leaf=4, lossy=(6,), round_trips=1000, retransmits=0).state())

    assert "FAIL            1  node2  hangs: hung 7 times, with 7 of 7 partners" in hung
    assert "on node2: dmesg | tail -n 50; ibstat" in hung
    assert "\n  H hung" in hung
    assert "FAIL            1  node6  lossy: 2 % of round trips above 100 ms; " in lossy
    assert "smallest loss that could be seen 0.3 %\n" in lossy


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"simulated": True}, "SIMULATED: a model answered, no hardware was measured"),
        ({"emulated": True}, "EMULATED: the nodes are fake hosts on one machine, no network was"),
        ({"planted": "stop:5"}, "PLANTED FAULT (stop:5): this shows the tool, not the hardware"),
    ],
)
def test_what_is_not_hardware_is_said_first_and_drains_nothing(changes, first):
    text = text_of(Pairs(leaf=4, slow={5: 0.5}).state(), **changes)

    assert text.startswith(first)
    drains = [line.strip() for line in text.splitlines() if "scontrol" in line]
    assert len(drains) == 1
    assert drains[0].startswith("# scontrol update nodename=node5")


def test_a_bar_is_named():
    bar = Reference(source="baseline h100-ndr", at_least={(PairKind.SEND_RECV, None): 40.0})

    assert "within 0 % of each other; held against baseline h100-ndr" in text_of(
        Pairs(leaf=4).state(reference=bar)
    )
    below = text_of(Pairs(leaf=4, line=30.0).state(reference=bar))
    assert "FAIL            8  node0  node_slow" in below
    assert "30.0 of 40.0 GB/s: 25.0 % slower" in below
    assert "low with 7 of 7 partners" in below
    assert (
        "below 40 GB/s (baseline h100-ndr); no node is known to be good, to run it again with"
    ) in said(below)
    assert 'reason="collbench 20261130-0412 node_slow -25% against baseline h100-ndr"' in below


def test_where_all_are_below_the_bar_nobody_waits_to_be_run_again():
    bar = Reference(source="--min-busbw", at_least={(PairKind.SEND_RECV, None): 60.0})

    text = said(text_of(Pairs(leaf=4, slow={5: 0.5}).state(reference=bar)))

    assert "node5 node_slow: 24.0 of 48.0 GB/s: 50.0 % slower" in text
    assert "node0 node_slow: 48.0 of 60.0 GB/s: 20.0 % slower" in text
    assert text.count("no node is known to be good, to run it again with") == 8
    assert "not yet run again" not in text


def test_a_long_name_keeps_its_drain_line_whole_over_two_lines():
    state = Pairs(32, leaf=8, slow={5: 0.7}, names=LONG).state()

    lines = [line.strip() for line in text_of(state).splitlines()]

    at = lines.index(f"scontrol update nodename={LONG[5]} state=drain \\")
    assert lines[at + 1] == 'reason="collbench 20261130-0412 node_slow -30%"'


def test_two_nodes_cannot_be_told_apart():
    text = text_of(Pairs(2).state())

    assert (
        "INCONCLUSIVE    2  node0  of two alone nobody can tell which would be the slow one" in text
    )


def test_config_that_differs_is_told_with_what_differs():
    text = text_of(Pairs(leaf=4).state(config_differs={3: "NVLS off, 7 nodes have it"}))

    assert "FAIL            1  node3  config_differs: NVLS off, 7 nodes have it" in text
    assert "on node3: make it like the others (NVLS off, 7 nodes have it)" in text


def test_without_a_value_nothing_is_drawn_or_ranked():
    state = Pairs(leaf=4).state(confirm=False)
    object.__setattr__(state, "values", state.values[:0])

    text = text_of(state)

    assert "NOT TESTED      8  " in text
    assert "PASS            0  no absolute reference" in text
    assert "The lowest" not in text
