"""`kernel-matrix collect`: what the shards of `matrix --on` have so far, as one run and its page. Nothing is queued."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.cli.on import SHARDS, deliver, refuse_one_page
from harness.cli.options import Parser, add_gates, add_strict
from harness.cluster.engine import State
from harness.cluster.lost import lost
from harness.cluster.shards import Shard
from harness.cluster.slurm import Slurm
from harness.errors import UNDECIDED, InputError, exit_code
from harness.progress import printable
from harness.typed import typed
from harness.workflow.shards import ASKED, UNFINISHED, Asked, job_of, unfinished


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="RUN",
        help=f"folder that the shards were queued in; default: the newest below {SHARDS}",
    )
    parser.add_argument("--no-report", action="store_true", help="record only: `kernel-matrix report` renders later")
    add_gates(parser)
    add_strict(parser, f"exit code {UNDECIDED} where what --fail-on names is undecided")


def run(options: argparse.Namespace) -> int:
    folder = (options.folder or newest(SHARDS)).resolve()
    asked = Asked.load(folder)
    if asked is None:
        problem = "no such folder" if not folder.is_dir() else f"it holds no {ASKED}, so no shards were queued there"
        raise InputError(f"{folder}: {problem}", f"name a folder below {SHARDS}, or queue: {typed('matrix', '--on')}")
    refuse_one_page(options, asked.shards)
    missing = [shard for shard in asked.shards if shard.run() is None]
    print(f"{len(asked.shards) - len(missing)} of {len(asked.shards)} shards have finished")
    states = states_of(missing)
    for shard in missing:
        print(printable(f"shard {shard.name}: {unfinished(shard, states)}"))
    sealed = [lost(shard, asked.selection, UNFINISHED) for shard in missing if shard.project.is_dir()]
    return exit_code(deliver(folder.parents[2], asked, sealed, options))


def states_of(shards: Sequence[Shard]) -> dict[str, State]:
    """Of their jobs, where Slurm is here; of those of --on local nothing is known outside of their command."""
    jobs = [job.id for shard in shards if (job := job_of(shard)).engine == Slurm.name]
    return Slurm({}).look(jobs)[0] if jobs and shutil.which("squeue") else {}


def newest(shards: Path) -> Path:
    """The folder of shards that something was asked of last. InputError where there is none."""
    found = sorted(shards.glob(f"*/{ASKED}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise InputError(f"{shards}: there are no shards", f"queue some: {typed('matrix', '--on slurm --detach')}")
    return found[-1].parent
