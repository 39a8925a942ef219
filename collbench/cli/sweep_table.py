"""The table of ``sweep``'s options: nccl-tests' letters and meanings, long names beside them."""

from __future__ import annotations

from collbench.cli.option import (
    Option,
    as_bool,
    as_graph_modes,
    as_modes,
    as_number,
    as_roots,
    as_sizes,
    as_whole,
    as_whole_from_1,
    as_whole_or_auto,
    as_whole_text,
    as_words,
)
from collbench.suite import BACKENDS, IN_PLACE
from collbench.units import parse_size

OPTIONS = (
    Option(
        names=("-b", "--min-size"),
        metavar="SIZE",
        read=parse_size,
        help="Smallest message, bytes: 8, 64K, 1M (binary) [4].",
    ),
    Option(
        names=("-e", "--max-size"),
        metavar="SIZE",
        read=parse_size,
        help="Largest message, bytes; always measured [16M on a CPU, 1G on GPUs].",
    ),
    Option(
        names=("-f", "--factor"),
        metavar="X",
        read=as_number,
        help="Each size is X times the last [4].",
    ),
    Option(
        names=("-i", "--step"),
        metavar="SIZE",
        read=parse_size,
        help="Each size is SIZE bytes more than the last, instead of -f.",
    ),
    Option(
        names=("--sizes",),
        metavar="LIST",
        key="sweep.sizes",
        read=as_sizes,
        help="These sizes and no others: 8,64K,1M.",
    ),
    Option(
        names=("--collective",),
        metavar="LIST",
        key="sweep.collectives",
        read=as_words,
        more={"multiple": True},
        help="all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather,"
        " scatter, send_recv; may be repeated [the first three].",
    ),
    Option(
        names=("-d", "--dtype"),
        metavar="LIST",
        key="sweep.dtypes",
        read=as_words,
        help="Element types: float32, bfloat16, int8, ..., or all [float32].",
    ),
    Option(
        names=("-o", "--redop"),
        metavar="LIST",
        key="sweep.redops",
        read=as_words,
        help="Operators of the reducing collectives: sum, prod, min, max, avg, or all [sum].",
    ),
    Option(
        names=("-r", "--root"),
        metavar="LIST",
        key="sweep.roots",
        read=as_roots,
        help="Root ranks of the rooted collectives; -1 for every rank in turn [0].",
    ),
    Option(
        names=("--mode",),
        metavar="LIST",
        key="sweep.modes",
        read=as_modes,
        help="eager (host included), graph (device time), eager_device"
        " [eager on a CPU, eager,graph on GPUs].",
    ),
    Option(
        names=("-G", "--graph"),
        metavar="N",
        read=as_graph_modes,
        help="nccl-tests' spelling of --mode: 0 is eager, 1 or more is graph.",
    ),
    Option(
        names=("--pattern",),
        metavar="WORD",
        key="sweep.pattern",
        help="back_to_back (a stream of calls) or isolated (each after a barrier) [back_to_back].",
    ),
    Option(
        names=("--in-place",),
        metavar="WORD",
        key="sweep.in_place",
        help=f"{', '.join(IN_PLACE)}; natural is as programs call it [natural].",
    ),
    Option(
        names=("--algo",),
        metavar="LIST",
        key="sweep.algo",
        read=as_whole_text,
        more={"multiple": True},
        help="NCCL_ALGO: Ring, Tree, NVLS, ..., all, default (not set); NCCL's grammar with ':',"
        " ';' or '^' is one value; may be repeated [not set].",
    ),
    Option(
        names=("--proto",),
        metavar="LIST",
        key="sweep.proto",
        read=as_whole_text,
        more={"multiple": True},
        help="NCCL_PROTO: LL, LL128, Simple, all, default; as --algo [not set].",
    ),
    Option(
        names=("--reference",),
        key="sweep.reference",
        help="Also each case with neither algorithm nor protocol set.",
    ),
    Option(
        names=("--ib", "--rdma", "ib"),
        metavar="LIST",
        key="sweep.ib",
        read=as_words,
        help="on (IB or RoCE must carry the data), off (sockets), or on,off [as it comes].",
    ),
    Option(
        names=("--net",),
        metavar="LIST",
        key="sweep.net",
        read=as_words,
        help="NCCL_NET: IB, Socket, a plug-in's name, default [not set].",
    ),
    Option(
        names=("--env",),
        metavar="KEY=VALUE",
        key="sweep.env",
        read=as_whole_text,
        more={"multiple": True},
        help="A variable for the measured processes; the value is taken whole, repeat to sweep.",
    ),
    Option(
        names=("--alg-selection",),
        metavar="TEXT",
        key="sweep.alg_selection",
        read=as_whole_text,
        more={"multiple": True},
        help="NCCL's choice per call (2.31 and newer, --via native); repeat to sweep.",
    ),
    Option(
        names=("--setting", "settings"),
        metavar="TEXT",
        key="sweep.settings",
        read=as_whole_text,
        more={"multiple": True},
        help="A whole setting: 'NCCL_ALGO=Tree NCCL_PROTO=Simple', or default; repeat to compare.",
    ),
    Option(
        names=("--backend",),
        metavar="WORD",
        key="run.backend",
        help=f"{', '.join(BACKENDS)}; auto is gloo only where there is no GPU [auto].",
    ),
    Option(
        names=("--ranks",),
        metavar="N",
        key="run.ranks",
        read=as_whole_or_auto,
        help="Ranks [2 on a CPU, one a GPU].",
    ),
    Option(
        names=("-g", "--gpus"),
        metavar="N",
        key="run.gpus",
        read=as_whole_or_auto,
        help="GPUs to use [all].",
    ),
    Option(
        names=("--via",),
        metavar="WORD",
        key="run.via",
        help="torch (as programs call it) or native (straight on the NCCL library) [torch].",
    ),
    Option(
        names=("--nccl",),
        metavar="[NAME=]PATH",
        key="run.nccl",
        read=as_whole_text,
        more={"multiple": True},
        help="The libnccl.so.2 to measure, for --via native; repeat with names to compare"
        " [the installed one].",
    ),
    Option(
        names=("--fake-hosts",),
        metavar="N",
        key="run.fake_hosts",
        read=as_whole,
        help="Let NCCL take this machine for N hosts, to exercise the network code [none].",
    ),
    Option(
        names=("--expect-gpus",),
        metavar="N",
        read=as_whole_from_1,
        help="Refuse to run (exit 3) unless so many GPUs can be used [no expectation].",
    ),
    Option(
        names=("-N", "--repeats"),
        metavar="N",
        key="run.repeats",
        read=as_whole,
        help="Starts of fresh processes; to compare, take 5 [1].",
    ),
    Option(
        names=("--seed",),
        metavar="N",
        key="run.seed",
        read=as_whole,
        help="Of the order of cases over repeats; 0 draws and records one [0].",
    ),
    Option(
        names=("--precision",),
        metavar="SHARE",
        key="measure.precision",
        help="Stop a case when the median's 95 % interval is within so much of it [2%].",
    ),
    Option(
        names=("--max-time",),
        metavar="TIME",
        key="measure.max_time",
        help="Stop a case after so long anyway: 0.5s, 200ms [0.5s on a CPU, 1s on GPUs].",
    ),
    Option(
        names=("-n", "--samples"),
        metavar="N",
        key="measure.samples",
        read=as_whole_from_1,
        help="Exactly so many samples a case, however long [until --precision or --max-time].",
    ),
    Option(
        names=("-w", "--warmup"),
        metavar="N",
        key="measure.warmup",
        read=as_whole_or_auto,
        help="So many warm-up samples a case [until times no longer fall].",
    ),
    Option(
        names=("-c", "--check"),
        metavar="0|1",
        key="measure.check",
        read=as_bool,
        help="Compare every element with the known answer [1].",
    ),
    Option(
        names=("--walk",),
        metavar="SIZE",
        key="measure.walk",
        help="Let calls go one behind the other through a buffer of so many bytes, as nccl-tests"
        " (its -e) [spread over twice the cache].",
    ),
    Option(
        names=("--proof",),
        metavar="0|1",
        key="measure.proof",
        read=as_bool,
        help="Read back from NCCL's log what ran [1].",
    ),
    Option(
        names=("-T", "--deadline"),
        metavar="TIME",
        key="measure.deadline",
        help="A case without progress for so long is hung; seconds, or 500ms, 2m [60s].",
    ),
    Option(
        names=("--init-deadline",),
        metavar="TIME",
        key="measure.init_deadline",
        help="The same for starting processes and communicators [120s].",
    ),
    Option(
        names=("--cluster",),
        metavar="NAME",
        help="The folder that the run is kept under [Slurm's cluster name, else the host's].",
    ),
    Option(
        names=("--results",),
        metavar="DIR",
        help="The folder of all runs [$COLLBENCH_RESULTS, else ./results].",
    ),
    Option(
        names=("--json", "as_json"),
        help="Print JSON on stdout and nothing else there.",
    ),
    Option(
        names=("--dry-run",),
        help="Print what would run and for how long; run nothing.",
    ),
    Option(
        names=("--resume",),
        metavar="RUN",
        help="Run what RUN (a folder, an id, last) left out, in its folder: with the options of"
        " before, or alone.",
    ),
    Option(
        names=("--simulate",),
        metavar="FILE",
        help="Let a model in a TOML file answer instead of hardware.",
    ),
    Option(
        names=("--plant",),
        metavar="SPEC",
        help="Plant a fault on purpose, to see it found: stop:rank=1,call=12.",
        more={"hidden": True},
    ),
)

LADDER = {"min_size": "min", "max_size": "max", "factor": "factor", "step": "step"}
"""Parameter -> the ladder's field."""

NEVER_TOGETHER = (
    ("factor", "step", "one makes sizes multiply, the other makes them add"),
    ("sizes", "min_size", "a list has no ladder"),
    ("sizes", "max_size", "a list has no ladder"),
    ("sizes", "factor", "a list has no ladder"),
    ("sizes", "step", "a list has no ladder"),
    ("graph", "mode", "both choose the mode"),
    ("samples", "precision", "a fixed number of samples does not stop by precision"),
    ("ib", "net", "--ib sets NCCL_NET itself"),
    ("simulate", "backend", "a model answers, no back end"),
    ("simulate", "ranks", "the model's file says how many ranks"),
    ("simulate", "gpus", "a model answers, no GPU"),
    ("simulate", "expect_gpus", "a model answers, no GPU"),
    *(
        ("simulate", param, "a model answers, no NCCL")
        for param in ("algo", "proto", "ib", "net", "env", "via", "nccl", "fake_hosts")
    ),
)
