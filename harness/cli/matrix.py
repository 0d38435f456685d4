"""`kernel-matrix matrix`: every environment of matrix.yaml: build, validate, time in blocks, explain, report.

`eval` does it for one environment, against the baseline's stored validation, and `kernelbench` for KernelBench's
problems, each with its solution in place of a kernel.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from harness.cli.options import (
    Command,
    Parser,
    add_devices,
    add_executor,
    add_gates,
    add_list,
    add_matrix,
    add_names,
    add_strict,
    at_least,
)
from harness.cli.report import report_run
from harness.cli.shards import add_on, refuse_unused, run_on
from harness.config.kernelbench import Folders
from harness.config.pins import known_pins
from harness.config.plan import Plan
from harness.errors import DONE, UNDECIDED, InputError, exit_code
from harness.gpu import take
from harness.preflight.preflight import preflight
from harness.run.machine import Machine
from harness.run.prepare import Prepared, RunOptions, draft_plan, make_plan
from harness.schema.run_records import Selection
from harness.schema.storage import Run
from harness.typed import by_nox, without_option, words_of
from harness.workflow.matrix import run_matrix

UNNAMED = "DIR"  # stands in a recorded command for the folder of a bundle: records and pages are sent on


def add_matrix_options(parser: Parser) -> None:
    add_shared_options(parser)
    parser.add_argument("--problems", type=Path, metavar="DIR", help="KernelBench problems, in place of the kernels")
    parser.add_argument("--solutions", type=Path, metavar="DIR", help="their solutions: files of the same names")
    add_on(parser.add_argument_group("many machines"))


def add_eval_options(parser: Parser) -> None:
    parser.add_argument("--torch", required=True, metavar="V", help="a PyTorch version of matrix.yaml")
    add_shared_options(parser)


def add_kernelbench_options(parser: Parser) -> None:
    parser.add_argument("problems", type=Path, metavar="PROBLEMS", help="folder of problems, in KernelBench's form")
    parser.add_argument("solutions", type=Path, metavar="SOLUTIONS", help="their solutions: files of the same names")
    add_shared_options(parser)


def add_shared_options(parser: Parser) -> None:
    """Add the options of `matrix`, `eval` and `kernelbench`."""
    add_matrix(parser)
    add_list(parser, "the plan")
    what = parser.add_argument_group("what is measured")
    add_names(what, "kernel", "workload")
    add_devices(what)
    what.add_argument("--launches", type=at_least(1, 1000), metavar="N", help="of each environment and kernel")
    what.add_argument("--trials", type=at_least(1, 10_000), metavar="N", help="input sets of each workload")
    what.add_argument("--quick", action="store_true", help="few trials and launches, and short ones")
    what.add_argument("--no-check", action="store_true", help="start even if the check finds what cannot work")
    what.add_argument("--fresh", action="store_true", help="measure again what is already recorded")
    what.add_argument(
        "--explain",
        choices=["auto", "never"],
        default="auto",
        help="auto (the default): experiments follow where correctness moved or something is wrong",
    )
    what.add_argument("--sample", type=int, default=0, metavar="N", help="KernelBench's sample number; default: 0")
    dtypes = ["float16", "bfloat16", "float32"]
    what.add_argument("--dtype", choices=dtypes, default="float32", help="of KernelBench problems; default: float32")
    where = parser.add_argument_group("where")
    add_executor(where)
    add_strict(where, f"refuse every fallback; exit code {UNDECIDED} where what --fail-on names is undecided")
    report = parser.add_argument_group("report and exit code")
    report.add_argument("--no-report", action="store_true", help="record only: `kernel-matrix report` renders later")
    add_gates(report)


def run(options: argparse.Namespace) -> int:
    if options.verb == "matrix":
        refuse_unused(options)
        if options.gpu and not options.on:
            take(options.gpu[0])
    if getattr(options, "on", None):
        return run_on(options, selection(options), recorded_command(options))
    if options.list:
        prepared = make_plan(run_options(options), selection(options), write_pins=False)
        print_plan(prepared.plan)
        for line in unresolved(prepared, options.matrix.resolve().parent):
            print(line)
        return DONE
    made, codes = measure(options)
    return exit_code(codes if options.no_report else [*codes, report_run(made.folder, options)])


def measure(options: argparse.Namespace) -> tuple[Run, list[int]]:
    """Make the run, or finish it; return it, and the exit codes that hold of it."""
    how, what = run_options(options), selection(options)
    draft = draft_plan(how, what)
    if not options.no_check:
        check_first(how, draft)
    made, codes = run_matrix(how, what, draft)
    print(f"records: {made.folder}", flush=True)
    return made, codes


def check_first(how: RunOptions, draft: Prepared) -> None:
    """Stop what cannot work. Of a hundred solutions of KernelBench one that cannot is a result."""
    found = preflight(how, draft)
    refusal = found.refusal(how.root)
    if refusal is not None and how.kernelbench is None:
        remedy = f"{refusal.remedy}. Nothing was started; --no-check starts without this check"
        raise InputError(refusal.message, remedy)
    for problem in found.problems:
        print(f"{problem.where}: {problem.what}")
    for line in found.unchecked:
        print(f"not checked: {line}", flush=True)


def selection(options: argparse.Namespace) -> Selection:
    return Selection(
        mode="eval" if options.verb == "eval" else "matrix",
        torch=getattr(options, "torch", None),
        kernels=tuple(options.kernel),
        workloads=tuple(options.workload),
        devices=options.device,
        launches=options.launches,
        trials=options.trials,
        quick=options.quick,
    )


def run_options(options: argparse.Namespace) -> RunOptions:
    problems = _kernelbench(options)
    return replace(
        shared_options(options),
        fresh=options.fresh,
        explain=options.explain == "auto" and problems is None,  # a hundred solutions may be wrong
        kernelbench=problems,
    )


def shared_options(options: argparse.Namespace) -> RunOptions:
    """Return how runs are made, as `bisect` and `sweep` take it too."""
    return RunOptions(
        matrix_path=options.matrix,
        command=recorded_command(options),
        strict=options.strict,
        executor=options.executor,
        base_image=options.base_image,
        trust=options.trust,
        bundle=getattr(options, "bundle", None),
        machine=getattr(options, "machine", None) or Machine(),
    )


def _kernelbench(options: argparse.Namespace) -> Folders | None:
    problems, solutions = getattr(options, "problems", None), getattr(options, "solutions", None)
    if (problems is None) != (solutions is None):
        raise InputError("--problems and --solutions belong together", "give both folders")
    if problems is None or solutions is None:
        return None
    return Folders(problems=problems, solutions=solutions, sample=options.sample, dtype=options.dtype)


def recorded_command(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the command as it was typed, without this machine's folder of a bundle."""
    session, words, nox = options.verb, list(options.given), by_nox()
    if nox and session == "eval":
        session, words = f"eval(torch='{options.torch}')", without_option(words, "--torch")
    bundle = str(getattr(options, "bundle", None) or UNNAMED)
    words = [
        UNNAMED if word == bundle else f"--bundle={UNNAMED}" if word == f"--bundle={bundle}" else word
        for word in words
        if word
    ]
    return tuple(words_of(session, *words, nox=nox))


def unresolved(prepared: Prepared, root: Path) -> list[str]:
    """Find environments whose wheels nobody has asked the index for yet: it may have no such release."""
    return [
        f"pins     {each.id}: not resolved yet; the run asks {each.index}, and stops if that has no such release"
        for each in prepared.plan.environments
        if not each.spec.is_host and known_pins(root, each, prepared.matrix) is None
    ]


def print_plan(plan: Plan) -> None:
    more = ""
    if plan.most_launches != plan.launches_each:
        more = f", up to {plan.most_launches} instead of {plan.launches_each} of each row that stays undecided"
    print(f"executor: {plan.facts.executor_reason}")
    print(
        f"baseline {plan.baseline}; {len(plan.cells)} cells; {len(plan.launches)} launches{more}; "
        f"{plan.threads} threads; plan {plan.digest[:12]}"
    )
    for fallback in plan.fallbacks:
        print(f"fallback: {fallback.subject}: {fallback.got} instead of {fallback.wanted}")
    for build in plan.builds:
        compiled = "" if build.runnable else " (compile only)"
        print(f"build    {build.environment}/{build.kernel}/{build.device}{compiled}")
    for cell in plan.cells:
        trials = ", ".join(f"{count} {recipe}" for recipe, count in plan.workload(cell.workload).trials.items())
        alone = "" if cell.environment in plan.measured else " (stored validation)"
        print(f"cell     {cell.id}: {trials}{alone}")
    for launch in plan.launches:
        print(
            f"launch   {launch.position:3d} block {launch.index} {launch.environment}/{launch.kernel}/{launch.device}"
        )


COMMANDS = {
    "matrix": Command(add_matrix_options, run),
    "eval": Command(add_eval_options, run),
    "kernelbench": Command(add_kernelbench_options, run),
}
