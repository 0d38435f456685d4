"""What takes several runs, and then its report: `kernel-matrix bisect`, the first release between two at which
something differs; and `sweep`, the fastest setting of a kernel's tunables that is correct everywhere."""

from __future__ import annotations

import argparse

from harness.cli.matrix import shared_options
from harness.cli.options import (
    Command,
    Parser,
    add_devices,
    add_executor,
    add_list,
    add_matrix,
    add_names,
    add_strict,
    at_least,
    duration_s,
)
from harness.cli.report import report_search
from harness.errors import DONE, UNDECIDED
from harness.gpu import gpus
from harness.schema.bisection_records import Aspect, ProbeVerdict
from harness.search.bisect.run import run_bisection
from harness.search.bisect.subject import BisectSubject
from harness.search.sweep import run_sweep
from harness.worker import protocol


def add_bisect_options(parser: Parser) -> None:
    parser.add_argument("--good", required=True, metavar="V", help="the earlier release, such as 2.1.0")
    parser.add_argument("--bad", required=True, metavar="V", help="the later one")
    parser.add_argument(
        "--what", choices=[aspect.value for aspect in Aspect], default="correctness", help="default: correctness"
    )
    parser.add_argument(
        "--target", default=protocol.KERNEL, metavar="NAME", help="kernel (the default), or a reference such as math"
    )
    add_matrix(parser)
    add_list(parser, "the releases between")
    add_names(parser, "kernel", "workload")
    add_devices(parser)
    trials = "input sets of each workload; more of them tell smaller differences"
    parser.add_argument("--trials", type=at_least(1, 10_000), metavar="N", help=trials)
    parser.add_argument("--every", action="store_true", help="try every release, not only the middle ones")
    parser.add_argument("--keep", action="store_true", help="keep the environments of the releases between")
    add_executor(parser, bundle=False)
    add_strict(parser, "refuse every fallback; exit code 40 where a version is inconclusive")


def bisect(options: argparse.Namespace) -> int:
    subject = BisectSubject(
        good=options.good,
        bad=options.bad,
        what=Aspect(options.what),
        target=options.target,
        kernels=tuple(options.kernel),
        workloads=tuple(options.workload),
        devices=options.device or (("cpu", "cuda") if gpus() else ("cpu",)),
        trials=options.trials,
    )
    how = shared_options(options)
    found = run_bisection(subject, how, every=options.every, keep=options.keep, list_only=options.list)
    if found is None:
        return DONE
    folder, record = found
    print(f"records: {folder}", flush=True)
    report_search(folder)
    is_open = any(probe.verdict is ProbeVerdict.INCONCLUSIVE for probe in record.probes)
    return UNDECIDED if options.strict and is_open else DONE


def add_sweep_options(parser: Parser) -> None:
    parser.add_argument("--kernel", required=True, metavar="NAME", help="a kernel of matrix.yaml with a `search`")
    several = "a name or an id; may be repeated"
    parser.add_argument("--workload", action="append", required=True, metavar="NAME", help=several)
    budget = "of the search, such as 90s, 10m (the default) or 2h; confirming its result takes more"
    parser.add_argument("--budget", type=duration_s, default=600.0, metavar="TIME", help=budget)
    add_matrix(parser)
    add_list(parser, "what would be searched")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="auto: cuda where it can be")
    add_executor(parser)
    add_strict(parser, "refuse every fallback; exit code 40 where nothing is confirmed")


def sweep(options: argparse.Namespace) -> int:
    how = shared_options(options)
    found = run_sweep(
        how, options.kernel, options.workload, options.device, budget_s=options.budget, list_only=options.list
    )
    if found is None:
        return DONE
    folder, record = found
    print(f"records: {folder}", flush=True)
    report_search(folder)
    return UNDECIDED if options.strict and record.winner is None else DONE


COMMANDS = {"bisect": Command(add_bisect_options, bisect), "sweep": Command(add_sweep_options, sweep)}
