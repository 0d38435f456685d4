"""A matrix on many machines: `--on slurm` and `--on local` of `kernel-matrix matrix`, in shards, on nodes or on all
GPUs; and `kernel-matrix collect`, what the shards have so far, as one run and its page, with nothing queued.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.cli.options import Command, Options, Parser, at_least
from harness.cli.report import MACHINES, add_judging, report_run, report_side_by_side
from harness.cluster.campaign import ASKED, Campaign, CampaignRequest, JobState, ShardJob, describe_unfinished, gather
from harness.cluster.collect import LostShard, describe_lost
from harness.cluster.local import Local
from harness.cluster.shards import Shard, digest_of, plan_shards
from harness.cluster.slurm import Option, Slurm
from harness.config.indexes import choose_indexes
from harness.config.matrix import Matrix, load_matrix, without_slurm
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.config.planner import with_groups
from harness.errors import DONE, INFRASTRUCTURE, InputError, exit_code, refuse_unknown
from harness.progress import printable
from harness.run.folders import held
from harness.schema.records import DEVICES
from harness.schema.run_records import Selection
from harness.typed import typed

SHARDS = Path("reports", "shards")
AS_GIVEN = ("launches", "trials", "executor", "base_image", "bundle", "explain")
IF_GIVEN = ("quick", "strict", "trust", "no_check")


def add_on(parser: Options) -> None:
    parser.add_argument("--on", choices=["slurm", "local"], help="each kernel as a job: of Slurm, or on a GPU here")
    parser.add_argument("--gpu", action="append", default=[], metavar="NAME", help="on a GPU whose name holds this")
    parser.add_argument("--partition", metavar="P", help="of Slurm")
    parser.add_argument("--time", type=at_least(1), metavar="MIN", help="limit of a job of Slurm, in minutes")
    parser.add_argument("--sbatch", action="append", default=[], metavar="NAME=VALUE", help="option of sbatch")
    parser.add_argument("--detach", action="store_true", help="queue and return; the same command gathers later")


def refuse_unused(options: argparse.Namespace) -> None:
    """Raise InputError where an option would do nothing."""
    of_slurm = {f"--{name}": getattr(options, name) for name in ("partition", "time", "sbatch", "detach")}
    given = [name for name, value in of_slurm.items() if value]
    if given and options.on != "slurm":
        raise InputError(f"{given[0]}: only with --on slurm", "add --on slurm, or leave it out")
    if len(options.gpu) > 1 and not options.on:
        raise InputError("--gpu: one alone, without --on", "a run measures on one GPU; --on takes several")
    if options.gpu and options.device and "cuda" not in options.device:
        raise InputError(f"--gpu {options.gpu[0]}: with --device cpu nothing runs on it", "leave one of the two out")
    if options.on and options.fresh:
        raise InputError("--fresh: not with --on", f"to measure again, remove {SHARDS}")


def run_on(options: argparse.Namespace, selection: Selection, command: tuple[str, ...]) -> int:
    """Queue what is not queued, wait, gather, report."""
    root = options.matrix.resolve().parent
    matrix, text = load_matrix(options.matrix)
    text = without_slurm(text, matrix)
    if options.problems is not None:
        remedy = "list the pairs in matrix.yaml: problem, model_new"
        raise InputError("--on: not with --problems and --solutions", remedy)
    known = [*matrix.groups, *(kernel.name for kernel in matrix.kernels)]
    kernels = with_groups(options.kernel, matrix)
    refuse_unknown("kernel", kernels, known)
    if options.bundle is None and not options.list:
        pin(matrix, root, strict=options.strict)
    options.gpu = list(dict.fromkeys(options.gpu))
    devices = options.device or (("cuda",) if options.gpu else DEVICES if options.on == "local" else ("cpu",))
    words = shard_words(options)
    digest = digest_of(matrix, text, root, [*words, *options.workload, *kernels, *devices, *options.gpu])
    folder = root / SHARDS / digest[:12]
    planned = plan_shards(matrix, root, folder, kernels, devices, words, options.gpu, options.workload)
    refuse_one_page(options, planned)
    if options.list:
        print("\n".join(listed(planned)))
        return DONE
    engine = Local() if options.on == "local" else Slurm(sbatch_options(options, matrix))
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder / "wait.lock", "another process waits for these very shards; waiting for it"):
        asked = CampaignRequest(command=command, selection=selection, digest=digest, shards=tuple(planned))
        asked.save(folder)
        campaign = Campaign(matrix, text, root, asked.shards, engine)
        campaign.queue()
        if options.detach:
            print(f"{len(asked.shards)} shards are queued or finished; this shows what there is, and what is missing:")
            print(f"  {typed('collect', str(folder.relative_to(root)))}")
            return DONE
        campaign.wait(lambda name, state: print(printable(f"shard {name}: {state}"), flush=True))
    lost = campaign.list_lost(selection)
    for each in lost:
        print(printable(f"shard {each.shard.name}: {each.why}; all that it printed: {each.shard.folder}"))
    return exit_code([*deliver(root, asked, lost, options), *([INFRASTRUCTURE] if lost else [])])


def refuse_one_page(options: argparse.Namespace, shards: Sequence[Shard]) -> None:
    """Raise InputError where several pages were to be one file."""
    if options.out and len(groups_of(shards)) > 1:
        raise InputError("--out: not with several GPUs", "each has its own page, in the folder of its run")


def deliver(root: Path, asked: CampaignRequest, lost: Sequence[LostShard], options: argparse.Namespace) -> list[int]:
    """Make one run, with its page, of all shards that finished; of several models of GPU one each. Return the exit
    codes."""
    codes, runs = list[int](), list[Path]()
    groups = groups_of(asked.shards)
    for group in groups:
        rows = [each for each in lost if each.shard in group]
        if not any(shard.run() is not None for shard in group) and len(groups) > 1:
            print(printable(f"{group[0].gpu or group[0].device}: no shard has finished"))
            continue
        made = gather(root, asked, group, rows)
        print(f"records: {made.folder}", flush=True)
        codes += [] if options.no_report else [report_run(made.folder, options)]
        runs.append(made.folder)
    if len(runs) > 1 and not options.no_report:
        report_side_by_side(runs, root / "reports" / MACHINES)
    return codes


def groups_of(shards: Sequence[Shard]) -> list[list[Shard]]:
    """Return what is one run: all shards, or where several models of GPU were asked for, those of each. Times of
    different models are never compared."""
    models = {shard.gpu: shard.device for shard in shards}
    if sum(device == "cuda" for device in models.values()) < 2:
        return [list(shards)]
    return [[shard for shard in shards if shard.gpu == model] for model in models]


def pin(matrix: Matrix, root: Path, *, strict: bool) -> None:
    """Resolve missing pins once, so that all shards have the same."""
    indexes, _ = choose_indexes(matrix, strict=strict)
    for spec in matrix.pinned_environments:
        ensure_pins(root, PlannedEnvironment(spec=spec, index=indexes.get(spec.id(), spec.wheel_index)), matrix)


def sbatch_options(options: argparse.Namespace, matrix: Matrix) -> dict[str, Option]:
    """Return those of matrix.yaml, and the command line's, which win: by their long names."""
    given: dict[str, Option] = {name.replace("_", "-"): value for name, value in matrix.slurm.items()}
    for each in options.sbatch:
        name, equals, value = each.partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z-]*", name):
            raise InputError(f"--sbatch {each}: is not NAME=VALUE", "such as --sbatch account=physics")
        given[name] = value
    own = {"partition": options.partition, "time": options.time}
    return given | {name: str(value) for name, value in own.items() if value}


def shard_words(options: argparse.Namespace) -> list[str]:
    """Return the options of each shard's own `kernel-matrix matrix`."""
    words: list[str] = []
    for name in AS_GIVEN:
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value.resolve() if isinstance(value, Path) else value)]
    return words + [f"--{name.replace('_', '-')}" for name in IF_GIVEN if getattr(options, name)]


def listed(shards: Sequence[Shard]) -> list[str]:
    """Return a line for each shard."""
    lines = []
    for shard in shards:
        place = shard.gpu or ("any GPU" if shard.device == "cuda" else "CPU")
        part = f"; of its workloads {', '.join(shard.workloads)}" if shard.workloads else ""
        lines.append(f"shard {shard.name}: {'finished' if shard.run() else 'to run'}; {place}{part}")
    return lines


# -- collect ----------------------------------------------------------------------------------------------------


def add_collect_options(parser: Parser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="RUN",
        help=f"folder that the shards were queued in; default: the newest below {SHARDS}",
    )
    parser.add_argument("--no-report", action="store_true", help="record only: `kernel-matrix report` renders later")
    add_judging(parser)


def collect(options: argparse.Namespace) -> int:
    folder = (options.folder or newest(SHARDS)).resolve()
    asked = CampaignRequest.load(folder)
    if asked is None:
        problem = "no such folder" if not folder.is_dir() else f"it holds no {ASKED}, so no shards were queued there"
        raise InputError(f"{folder}: {problem}", f"name a folder below {SHARDS}, or queue: {typed('matrix', '--on')}")
    refuse_one_page(options, asked.shards)
    missing = [shard for shard in asked.shards if shard.run() is None]
    print(f"{len(asked.shards) - len(missing)} of {len(asked.shards)} shards have finished")
    states = states_of(missing)
    for shard in missing:
        print(printable(f"shard {shard.name}: {describe_unfinished(shard, states)}"))
    sealed = [describe_lost(shard, asked.selection) for shard in missing if shard.project.is_dir()]
    return exit_code(deliver(folder.parents[2], asked, sealed, options))


def states_of(shards: Sequence[Shard]) -> Mapping[str, JobState]:
    """Return the states of their jobs, where Slurm is here; of those of --on local nothing is known outside of their
    command."""
    jobs = [job.id for job in map(ShardJob.load, shards) if job.engine == Slurm.name]
    return Slurm({}).look(jobs) if jobs and shutil.which("squeue") else {}


def newest(shards: Path) -> Path:
    """Return the folder of shards that something was asked of last. InputError where there is none."""
    found = sorted(shards.glob(f"*/{ASKED}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise InputError(f"{shards}: there are no shards", f"queue some: {typed('matrix', '--on slurm --detach')}")
    return found[-1].parent


COMMANDS = {"collect": Command(add_collect_options, collect)}
