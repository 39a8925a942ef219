"""Each finding has a case that it must name and one that it must leave alone."""

import msgspec
import numpy as np
import pytest
from records import make_run, make_trial

from collbench.analyze.findings import sweep_findings
from collbench.model import Culprit, Mode, Reason, ReasonCode, Status

RUN = make_run()


def faulty(trial, status, code, text, culprits=()):
    return msgspec.structs.replace(
        trial,
        status=status,
        reason=Reason(code=code, text=text),
        summary=None,
        culprits=list(culprits),
    )


def find(trials, code, run=RUN, times=lambda _trial: None):
    return [finding for finding in sweep_findings(run, trials, times) if finding.code == code]


def repeated(count):
    return msgspec.structs.replace(RUN, repeats=count)


def test_a_hung_case_names_the_culprit_its_evidence_and_its_log():
    culprit = Culprit(
        rank=5,
        node="node02",
        local_rank=1,
        pid=4711,
        calls=812,
        what="behind",
        evidence=["process state S"],
        log_tail=["last words"],
    )
    hung = faulty(
        make_trial(2**26, 1.0, name="all_gather"),
        Status.HUNG,
        ReasonCode.NO_PROGRESS,
        "rank 5 (pid 4711) behind; no progress for 60 s",
        [culprit],
    )

    findings = sweep_findings(RUN, [make_trial(4, 5.0), hung], lambda _trial: None)

    first = findings[0]
    assert (first.code, first.severity) == ("hung", "bad")
    assert first.text == (
        "all_gather 64 MiB eager, repeat 0: hung. rank 5 (pid 4711) behind; no progress for 60 s."
    )
    assert first.evidence == ["process state S", "last words"]
    assert first.next_step == "read logs/rank5.log"


def test_a_good_trial_is_no_fault():
    findings = sweep_findings(repeated(2), [make_trial(4, 5.0)], lambda _trial: None)

    assert findings == []


@pytest.mark.parametrize(
    ("backend", "next_step"),
    [
        (
            "nccl",
            (
                "do not train on this; run it again; if it stays, try NCCL_ALGO=Ring and"
                " NCCL_PROTO=Simple"
            ),
        ),
        ("gloo", "do not train on this; run it again"),
    ],
)
def test_wrong_data_are_bad_and_advice_fits_the_back_end(backend, next_step):
    trial = make_trial(4, 1.0)
    trial = msgspec.structs.replace(
        trial, case=msgspec.structs.replace(trial.case, backend=backend)
    )
    text = "rank 1, element 5, last call: expected 3.0, got 7.0"
    wrong = faulty(trial, Status.DATA_WRONG, ReasonCode.WRONG_ELEMENT, text)

    (finding,) = find([wrong], "data_wrong")

    assert finding.severity == "bad"
    assert finding.text == f"all_reduce 4 B eager, repeat 0: data_wrong. {text}."
    assert finding.next_step == next_step


def test_many_faults_of_a_kind_are_named_three_times_and_then_counted():
    trials = [
        faulty(make_trial(4 << k, 1.0), Status.CRASHED, ReasonCode.KILLED, "rank 0 was killed")
        for k in range(8)
    ]

    texts = [finding.text for finding in find(trials, "crashed")]

    assert texts[2] == "all_reduce 16 B eager, repeat 0: crashed. rank 0 was killed."
    assert texts[3:] == ["5 more trials are crashed: the tables hold the reason of each."]
    assert len(find(trials[:3], "crashed")) == 3


def test_refusals_are_counted_by_reason():
    trials = [
        faulty(make_trial(size, 1.0), Status.UNSUPPORTED, ReasonCode.NO_SUCH_DTYPE, "no float8")
        for size in (4, 16)
    ]

    (finding,) = find(trials, "no_such_dtype")

    assert finding.text == "2 cases unsupported (no_such_dtype): no float8."


def test_one_repeat_is_told_what_it_cannot_say():
    assert find([make_trial(4, 5.0)], "one_repeat")[0].next_step.endswith("--repeats 5")
    assert not find([make_trial(4, 5.0)], "one_repeat", repeated(2))
    assert not find(
        [make_trial(4, 5.0)], "one_repeat", msgspec.structs.replace(RUN, simulated=True)
    )


def test_repeats_that_disagree_are_counted_and_the_worst_is_named():
    apart = [make_trial(4, t, repeat=r) for r, t in enumerate((10.0, 12.0))]
    alike = [make_trial(64, t, repeat=r) for r, t in enumerate((10.0, 10.5))]

    (finding,) = find(apart + alike, "repeats_disagree", repeated(2))

    assert finding.text == (
        "Repeats disagree by more than 10 % in 1 of 2 rows; most in all_reduce 4 B eager:"
        " 18% between fastest and slowest."
    )
    assert not find(alike, "repeats_disagree", repeated(2))


def test_two_kinds_of_samples_are_told_from_noise():
    random = np.random.default_rng(1)
    two = np.concatenate([random.normal(100, 1, 60), random.normal(400, 4, 40)])
    one = random.normal(100, 10, 100)

    (finding,) = find([make_trial(4, 100.0)], "bimodal", times=lambda _t: two[None].astype("f4"))

    assert finding.text.startswith("1 of 1 trials has two kinds of samples")
    assert not find([make_trial(4, 100.0)], "bimodal", times=lambda _t: one[None].astype("f4"))


def test_a_late_rank_is_named_and_mere_skew_is_not():
    late = make_trial(4, 5.0, skew=0.5, late_rank=1, late_share=0.93)
    skewed = make_trial(4, 5.0, skew=0.5)

    assert find([late], "late_rank")[0].text == (
        "Rank 1 enters late in 1 of 1 trials: in all_reduce 4 B eager it has the shortest time in"
        " 93% of the samples and the others wait 50% of theirs for it."
    )
    assert not find([late], "skew")
    assert "not attributable" in find([skewed], "skew")[0].text
    assert not find([make_trial(4, 5.0, skew=0.09)], "skew")


def test_eager_bound_by_the_host_is_set_beside_the_graph():
    trials = [
        make_trial(4, 39.0),
        make_trial(4, 11.0, mode=Mode.GRAPH),
        make_trial(2**23, 52.0),
        make_trial(2**23, 50.0, mode=Mode.GRAPH),
    ]

    assert find(trials, "host_bound")[0].text == (
        "Up to 4 B eager is bound by the host (all_reduce: 39.00 us a call at the smallest size);"
        " captured in a CUDA graph the same calls take 11.00 us."
    )
    assert not find(trials[2:], "host_bound")


def test_a_graph_that_is_faster_at_large_sizes_points_at_registration():
    def pair(size):
        name = "all_gather"
        return [
            make_trial(size, 291.0, name=name),
            make_trial(size, 230.0, name=name, mode=Mode.GRAPH),
        ]

    assert find(pair(2**27), "graph_registers")[0].text == (
        "all_gather is 27% faster in a graph at 128 MiB: capture registers the buffers."
    )
    assert not find(pair(2**25), "graph_registers")


def test_a_curve_that_still_climbs_says_how_to_go_on():
    (finding,) = find([make_trial(2**29, 2000.0), make_trial(2**30, 3300.0)], "not_at_plateau")

    assert finding.next_step == "-e 8G"
    assert not find([make_trial(2**29, 1640.0), make_trial(2**30, 3300.0)], "not_at_plateau")


def test_hardware_events_are_counted():
    trial = make_trial(4, 5.0, events=["GPU 1: power capped for 12 ms"])

    (finding,) = find([trial], "hardware_events")

    assert "GPU 1: power capped (1 x)" in finding.text
    assert finding.severity == "warning"
    assert not find([make_trial(4, 5.0)], "hardware_events")


@pytest.mark.parametrize("code", ["gloo_reduce_scatter_sends_all_reduce", "few_samples"])
def test_notes_are_told_once_with_their_number(code):
    (finding,) = find([make_trial(size, 5.0, notes=[code]) for size in (4, 16)], code)

    assert finding.text.endswith("(2 trials).")


def test_one_rank_is_told_that_it_measures_no_network():
    def alone(trial):
        case = msgspec.structs.replace(trial.case, world_size=1)
        return msgspec.structs.replace(trial, case=case)

    trials = [
        alone(make_trial(size, time_us, mode=mode))
        for size in (2**27, 2**28)
        for mode, time_us in ((Mode.EAGER, 30.0), (Mode.GRAPH, 1.0))
    ]
    run = msgspec.structs.replace(RUN, world_size=1)

    codes = [finding.code for finding in sweep_findings(run, trials, lambda _trial: None)]

    assert codes == ["one_rank", "one_repeat"]
    assert not find([make_trial(4, 5.0)], "one_rank")
