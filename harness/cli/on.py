"""`--on slurm` and `--on local` of `kernel-matrix matrix`: the same matrix in shards, on nodes or on all GPUs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from harness.cli.options import Options, at_least
from harness.cli.report import report_run
from harness.cluster.engine import Engine
from harness.cluster.local import Local
from harness.cluster.shards import Shard, digest_of, plan_shards
from harness.cluster.slurm import Slurm
from harness.config.indexes import choose_indexes
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import DONE, INFRASTRUCTURE, InputError, exit_code
from harness.progress import printable
from harness.run.folders import all_runs
from harness.schema.records import DEVICES
from harness.schema.run_records import Selection
from harness.schema.storage import Run
from harness.workflow.shards import Campaign, gather

SHARDS = Path("reports", "shards")
AS_GIVEN = ("launches", "trials", "executor", "base_image", "bundle", "explain")
IF_GIVEN = ("quick", "strict", "trust", "no_check", "profile")


def add_on(parser: Options) -> None:
    parser.add_argument("--on", choices=["slurm", "local"], help="each kernel as a job: of Slurm, or on a GPU here")
    parser.add_argument("--gpu", metavar="NAME", help="type of GPU that jobs of Slurm ask for")
    parser.add_argument("--partition", metavar="P", help="of Slurm")
    parser.add_argument("--time", type=at_least(1), metavar="MIN", help="limit of a job of Slurm, in minutes")
    parser.add_argument("--sbatch", action="append", default=[], metavar="NAME=VALUE", help="option of sbatch")
    parser.add_argument("--detach", action="store_true", help="queue and return; the same command gathers later")


def refuse_unused(options: argparse.Namespace) -> None:
    """InputError where an option would do nothing."""
    of_slurm = {f"--{name}": getattr(options, name) for name in ("gpu", "partition", "time", "sbatch", "detach")}
    given = [name for name, value in of_slurm.items() if value]
    if given and options.on != "slurm":
        raise InputError(f"{given[0]}: only with --on slurm", "add --on slurm, or leave it out")
    if options.on and options.fresh:
        raise InputError("--fresh: not with --on", f"to measure again, remove {SHARDS}")


def run_on(options: argparse.Namespace, selection: Selection, command: tuple[str, ...]) -> int:
    """Queue what is not queued, wait, gather, report."""
    root = options.matrix.resolve().parent
    matrix, text = load_matrix(options.matrix)
    if options.problems is not None:
        remedy = "list the pairs in matrix.yaml: problem, model_new"
        raise InputError("--on: not with --problems and --solutions", remedy)
    known = [kernel.name for kernel in matrix.kernels]
    if unknown := [name for name in options.kernel if name not in known]:
        raise InputError(f"--kernel {unknown[0]}: no such kernel", f"the matrix has {', '.join(known)}")
    if options.bundle is None and not options.list:
        pin(matrix, root, strict=options.strict)
    devices = options.device or (("cuda",) if options.gpu else DEVICES if options.on == "local" else ("cpu",))
    words = shard_words(options)
    digest = digest_of(matrix, text, root, [*words, *options.kernel, *devices])
    shards = plan_shards(matrix, root, root / SHARDS / digest[:12], options.kernel, devices, words)
    if options.list:
        for shard in shards:
            print(_listed(root, shard))
        return DONE
    campaign = Campaign(matrix, text, root, shards, engine_of(options))
    campaign.queue()
    if options.detach:
        print(f"{len(shards)} shards are queued or finished; the same command without --detach gathers them")
        return DONE
    campaign.wait(lambda line: print(printable(line), flush=True))
    made = gather(root, shards, command, selection, digest, options.gpu)
    lost = [shard.name for shard in shards if shard.run() is None]
    for name in lost:
        print(f"shard {name}: no result, so it is not on the page; its jobs' output: {SHARDS / digest[:12] / name}")
    print(f"records: {made.folder}", flush=True)
    codes = [INFRASTRUCTURE] if lost else []
    return exit_code(codes if options.no_report else [*codes, report_run(made.folder, options)])


def pin(matrix: Matrix, root: Path, *, strict: bool) -> None:
    """Resolve missing pins once, so that all shards have the same."""
    indexes, _ = choose_indexes(matrix, strict=strict)
    for spec in matrix.pinned_environments:
        ensure_pins(root, PlannedEnvironment(spec=spec, index=indexes.get(spec.id(), spec.wheel_index)), matrix)


def engine_of(options: argparse.Namespace) -> Engine:
    if options.on == "local":
        return Local()
    given = {}
    for each in options.sbatch:
        name, equals, value = each.partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z-]*", name):
            raise InputError(f"--sbatch {each}: is not NAME=VALUE", "such as --sbatch account=physics")
        given[name] = value
    own = {"partition": options.partition, "time": options.time}
    return Slurm(given | {name: str(value) for name, value in own.items() if value}, options.gpu)


def shard_words(options: argparse.Namespace) -> list[str]:
    """The options of each shard's own `kernel-matrix matrix`."""
    words = [word for name in options.workload for word in ("--workload", name)]
    for name in AS_GIVEN:
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value.resolve() if isinstance(value, Path) else value)]
    return words + [f"--{name.replace('_', '-')}" for name in IF_GIVEN if getattr(options, name)]


def _listed(root: Path, shard: Shard) -> str:
    expected = expected_s(root, shard)
    hours = f"about {expected / 3600:.2g} h, as in its newest run" if expected else "time not known: it never ran"
    return f"shard {shard.name}: {'finished' if shard.run() is not None else 'to run'}; {hours}"


def expected_s(root: Path, shard: Shard) -> float:
    """Seconds that its records took in the newest run that has some; 0 where none has."""
    for run in all_runs(root):
        if spent := _spent_s(run, shard):
            return spent
    return 0.0


def _spent_s(run: Run, shard: Shard) -> float:
    wanted = shard.kernel, shard.device
    validations = [each.duration_s for each in run.validations() if (each.kernel, each.device) == wanted]
    launches = [each.duration_s for each in run.launches() if (each.kernel, each.device) == wanted]
    return sum(each or 0.0 for each in (*validations, *launches))
