"""Where a change sits: alpha, B, both, the switch between laws, or not located."""

from __future__ import annotations

import pytest
from law_curves import SIZES, SWITCHES, curve, side

from collbench.analyze.compare import Verdict, compare_cases
from collbench.analyze.located import Kind, locate
from collbench.model import Mode


def located(base, new, **changes):
    comparison = compare_cases(side(base, **changes), side(new, **changes))
    return comparison, locate(comparison)


def texts(found):
    return list(dict.fromkeys(place.text for place in found.places.values()))


@pytest.mark.parametrize(
    ("mode", "cause"),
    [
        (Mode.GRAPH, "a protocol or launch choice, not the wire"),
        (Mode.EAGER, "the host's launch or a protocol, not the wire"),
    ],
)
def test_alpha(mode, cause):
    base = [10 + size / 100e3 for size in SIZES]
    new = [11.6 + size / 100e3 for size in SIZES]
    comparison, found = located(base, new, mode=mode)

    assert texts(found) == [f"alpha +1.6 us, B the same: {cause}"]
    assert {place.kind for place in found.places.values()} == {Kind.ALPHA}
    assert set(found.places) == {case.key for case in comparison.of(Verdict.SLOWER)}
    assert len(found.places) == 10


@pytest.mark.parametrize(("share", "words"), [(0.88, "B -12 %"), (1.25, "B +25 %")])
def test_bandwidth(share, words):
    base = [10 + size / 100e3 for size in SIZES]
    new = [10 + size / (share * 100e3) for size in SIZES]
    comparison, found = located(base, new)

    assert texts(found) == [f"{words}, alpha the same: the wire, or the channels used"]
    verdict = Verdict.SLOWER if share < 1 else Verdict.FASTER
    assert set(found.places) == {case.key for case in comparison.of(verdict)}


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (
            lambda size: 13 + size / 50e3,
            "alpha +3.0 us and B -50 %: another protocol or algorithm, or fewer channels",
        ),
        (
            lambda size: 30 + size / 400e3,
            "alpha +20.0 us and B +300 %: latency traded for bandwidth",
        ),
    ],
)
def test_both(new, words):
    base = [10 + size / 100e3 for size in SIZES]
    _, found = located(base, [new(size) for size in SIZES])

    assert [text for text in texts(found) if text.startswith(words)]


def test_a_part_without_weight_at_a_size_is_no_cause_there():
    base = [10 + size / 100e3 for size in SIZES]
    _, found = located(base, [20 + size / 50e3 for size in SIZES])
    by_size = {key.size_bytes: place for key, place in found.places.items()}

    assert by_size[8].kind is Kind.ALPHA
    assert by_size[8].text.startswith("alpha +10.0 us, B of no weight at such sizes: ")
    assert by_size[SIZES[-1]].kind is Kind.BANDWIDTH
    assert by_size[SIZES[-1]].text.startswith("B -50 %, alpha +10.0 us (little at such sizes): ")


def test_each_law_has_its_own_change():
    # The middle protocol alone: its alpha.
    base, new = curve(), curve()
    for k in range(*SWITCHES):
        new[k] += 7.0
    _, found = located(base, new)

    assert texts(found) == ["alpha +7.0 us, B the same: a protocol or launch choice, not the wire"]
    assert [law.base.switches_bytes for law in found.curves] == [(SIZES[5], SIZES[9])]
    assert [law.new.switches_bytes for law in found.curves] == [(SIZES[5], SIZES[9])]


def test_a_switch_that_moved():
    _, found = located(curve(), curve(switches=(5, 11)))

    (text,) = texts(found)
    assert text.startswith("the switch between two laws moved from 2 MiB to 32 MiB: a protocol")
    assert {key.size_bytes for key in found.places} == {SIZES[9], SIZES[10]}


@pytest.mark.parametrize("place", range(14))
@pytest.mark.parametrize("factor", [1.1, 1.3])
def test_one_size_alone_is_not_located(place, factor):
    base = [10 + size / 100e3 for size in SIZES]
    new = [time * (factor if k == place else 1) for k, time in enumerate(base)]
    comparison, found = located(base, new)

    assert len(comparison.of(Verdict.SLOWER)) == 1
    assert [place.kind for place in found.places.values()] == [Kind.NOT_LOCATED]


@pytest.mark.parametrize("place", range(14))
def test_one_size_alone_is_not_located_among_several_laws(place):
    base = curve()
    new = [time * (1.15 if k == place else 1) for k, time in enumerate(base)]
    _, found = located(base, new)

    assert [place.kind for place in found.places.values()] == [Kind.NOT_LOCATED]


@pytest.mark.parametrize(("count", "words"), [(1, "1 size"), (2, "2 sizes")])
def test_too_few_sizes_are_said(count, words):
    _, found = located([10.0] * count, [20.0] * count, sizes=SIZES[:count])

    assert texts(found) == [f"not located ({words})"]
    assert found.curves == ()


def test_a_law_of_few_sizes_on_one_side_is_said():
    base = [10 + size / 100e3 for size in SIZES[:8]]
    new = [*base[:5], *(time + 90 for time in base[5:])]
    _, found = located(base, new, sizes=SIZES[:8])

    assert texts(found) == ["not located (3 sizes)"]
    assert [law.new.switches_bytes for law in found.curves] == [(SIZES[5],)]


def test_what_is_the_same_has_laws_and_no_place():
    _, found = located(curve(), curve())

    assert found.places == {}
    assert [len(law.base.segments) for law in found.curves] == [3]


@pytest.mark.parametrize(
    ("alpha", "bandwidth", "kind"), [(1.2, 1.0, Kind.ALPHA), (1.0, 0.88, Kind.BANDWIDTH)]
)
def test_noise_leaves_changes_unlocated_rather_than_wrong(alpha, bandwidth, kind):
    kinds = []
    for seed in range(15):
        base = side(curve(), noise=0.01, seed=seed)
        new = side(curve(alpha, bandwidth), noise=0.01, seed=1000 + seed)
        found = locate(compare_cases(base, new))
        kinds += [place.kind for place in found.places.values()]

    right = sum(one is kind for one in kinds)
    assert len(kinds) > 60
    assert right >= 0.9 * len(kinds)
    assert set(kinds) <= {kind, Kind.NOT_LOCATED}
