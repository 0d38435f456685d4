"""`kernel-matrix explain`: the experiments that a finished run calls for, then its report."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import cast

from harness.cli.options import Command, Parser, add_devices, add_gates, add_matrix, add_names
from harness.cli.report import report_run
from harness.cluster.collect import link_records, parts_of
from harness.config.kernelbench import Folders
from harness.errors import InputError, exit_code, refuse_unknown
from harness.executors.choose import Wanted
from harness.experiments.plan import Focus
from harness.run.prepare import RunOptions
from harness.schema.run_records import RunRecord
from harness.schema.storage import Run
from harness.typed import typed
from harness.workflow.matrix import run_explain


def add_options(parser: Parser) -> None:
    add_matrix(parser)
    parser.add_argument("run_folder", nargs="?", type=Path, metavar="RUN", help="default: reports/latest")
    add_names(parser, "kernel", "workload", "torch", default="what moved or is wrong")
    add_devices(parser)
    parser.add_argument("--all", action="store_true", help="every suspect, not the smallest of each kernel alone")
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="where the run's bundle is unpacked")
    add_gates(parser)
    parser.set_defaults(strict=False)


def run(options: argparse.Namespace) -> int:
    root = options.matrix.resolve().parent
    run = Run((options.run_folder or root / "reports" / "latest").resolve())
    if not run.run_path().exists():
        remedy = f"start `{typed('matrix')}` first, or name the folder of a run"
        raise InputError(f"{run.run_path()}: no such file", remedy)
    record = run.load()
    workloads = [name for each in record.workloads for name in (each.name, each.id)]
    torches = [name for each in run.environments() for name in (each.torch, each.id)]
    refuse_unknown("kernel", options.kernel, [kernel.name for kernel in record.kernels], "this run")
    refuse_unknown("workload", options.workload, workloads, "this run")
    refuse_unknown("torch", options.torch, torches, "this run")
    bundle = bundle_of(options.bundle, run.folder) if record.executor == "bundle" else None
    focus = Focus(
        kernels=tuple(options.kernel),
        workloads=tuple(options.workload),
        torches=tuple(options.torch),
        devices=options.device,
        everything=options.all,
    )
    codes, parts = [], parts_of(run)
    for own in parts or [run]:
        made = own.load()
        if parts and not is_meant(made, focus):
            continue
        path = own.folder.parents[2] / "matrix.yaml" if parts else options.matrix
        codes += run_explain(recorded_options(made, path, bundle), made.selection, own, focus)
        if parts:
            link_records(own, run, ("experiments",))
    print(f"records: {run.folder}", flush=True)
    return exit_code([*codes, report_run(run.folder, options)])


def is_meant(record: RunRecord, focus: Focus) -> bool:
    """Return whether a shard's run has a kernel and a workload that were chosen; all are where none was."""
    chosen = not focus.kernels or any(kernel.name in focus.kernels for kernel in record.kernels)
    named = set(focus.workloads)
    chosen &= not named or any({workload.id, workload.name} & named for workload in record.workloads)
    return chosen and (not focus.devices or any(cell.device in focus.devices for cell in record.cells))


def recorded_options(record: RunRecord, matrix_path: Path, bundle: Path | None) -> RunOptions:
    """Return how the run was made."""
    folders, root, pairs = None, matrix_path.resolve().parent, record.kernelbench
    if pairs is not None:
        problems, solutions = root / pairs.problems, root / pairs.solutions
        folders = Folders(problems=problems, solutions=solutions, sample=pairs.sample, dtype=pairs.dtype)
    return RunOptions(
        matrix_path=matrix_path,
        command=tuple(record.command),
        executor=cast(Wanted, record.executor),
        base_image=record.base_image,
        trust="--trust" in record.command,
        bundle=bundle,
        kernelbench=folders,
    )


def bundle_of(given: Path | None, run: Path) -> Path:
    """Return where the bundle that a run used lies now: its record does not say."""
    named = given or os.environ.get("KERNEL_MATRIX_BUNDLE")
    if not named:
        raise InputError(f"{run}: it used a bundle", "say where that is unpacked: --bundle DIR")
    return Path(named)


COMMANDS = {"explain": Command(add_options, run)}
