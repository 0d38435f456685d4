"""`python -m harness sweep`: options in, exit code out."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.config import keys
from harness.config.matrix import Matrix, load_matrix
from harness.config.plan import kernel_sources
from harness.errors import UNDECIDED, InputError, exit_code
from harness.gpu import gpus, models
from harness.run.folders import held, now_utc
from harness.run.prepare import Options, Prepared, folder_files, make_plan
from harness.schema.storage import load_record, save_record
from harness.schema.sweep_records import SweepQuestion, SweepRecord
from harness.search.sweep import space
from harness.search.sweep.answer import print_table, setting_text
from harness.search.sweep.measure import LEVEL
from harness.search.sweep.run import Asked, Sweep
from harness.search.sweep.write import with_setting
from harness.tools import cache_folder
from harness.worker import protocol


def run_command(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    options = Options(
        matrix_path=arguments.matrix,
        command=tuple(command),
        strict=arguments.strict,
        executor=arguments.executor,
        base_image=arguments.base_image,
        bundle=arguments.bundle,
    )
    matrix, _ = load_matrix(options.matrix_path)
    if options.base_image:
        matrix = matrix.with_base(options.base_image)
    kernel = space.searched_kernel(matrix, arguments.kernel)
    sources = kernel_sources(kernel, folder_files(matrix, options.root))
    device = space.choose_device(kernel, arguments.device, list(sources), len(gpus()))
    capabilities = {capability for _, capability, _ in models()} if device == "cuda" else set()
    capability = capabilities.pop() if len(capabilities) == 1 else ""
    subject = space.Subject(kernel=kernel, workloads=tuple(arguments.workload), device=device, capability=capability)
    asked = Asked(subject=subject, options=options, budget_s=arguments.budget)
    folder, record = run_sweep(asked, matrix, list_only=arguments.list, write=arguments.write)
    if folder is None or record is None:
        return 0
    if arguments.write:
        write_winner(options.matrix_path, record)
    if arguments.run_path:
        arguments.run_path.write_text(str(folder))
    print(f"records: {folder}")
    return exit_code([UNDECIDED] if options.strict and record.verdict != "confirmed" else [])


def sweeps_folder(root: Path) -> Path:
    return root / "reports" / "sweeps"


def batch_size() -> int:
    """Settings that are built and judged together: enough for the machine, few enough that a batch is soon done."""
    return max(4, min(8, os.cpu_count() or 1))


def _question(asked: Asked, prepared: Prepared, matrix: Matrix, id: str) -> SweepQuestion:
    plan, kernel = prepared.plan, asked.subject.kernel
    return SweepQuestion(
        id=id,
        created_utc=now_utc(),
        kernel=kernel.name,
        device=asked.subject.device,
        workloads=[workload.id for workload in plan.workloads_of(kernel.name, asked.subject.device)],
        environments=list(plan.measured),
        search={name: list(values) for name, values in kernel.search.items()},
        incumbent=space.incumbent_of(kernel),
        settings=kernel.settings,
        executor=plan.facts.executor,
        fallbacks=list(plan.fallbacks),
        seed=matrix.seed,
        batch=batch_size(),
        level=LEVEL,
        search_trials=space.SEARCH_TRIALS,
        search_launches=space.launches_of(matrix, "search"),
        final_launches=space.launches_of(matrix, "final"),
        confirming_launches=space.launches_of(matrix, "confirm"),
        finalists=space.FINALISTS,
    )


def run_sweep(
    asked: Asked, matrix: Matrix, *, list_only: bool = False, write: bool = False
) -> tuple[Path | None, SweepRecord | None]:
    """Sweep, or go on with what was begun. The folder of the records, and what they say."""
    subject, options = asked.subject, asked.options
    derived = space.derived_matrix(matrix, subject, [], "search")
    prepared = make_plan(
        replace(options, derived=derived, explain=False), space.selection_of(subject), write_pins=not list_only
    )
    plan, kernel = prepared.plan, subject.kernel
    if not all(build.runnable for build in plan.builds):
        raise InputError(f"--device {subject.device}: there is none here to run on", "give another --device")
    search = {name: list(values) for name, values in kernel.search.items()}
    phases = [space.launches_of(matrix, phase) for phase in ("search", "final", "confirm")]
    id = keys.of(
        "sweep", run=plan.digest, search=search, launches=phases, finalists=space.FINALISTS,
        limits=plan.limits.model_dump(),
    )  # fmt: skip
    question = _question(asked, prepared, matrix, f"{kernel.name}-{subject.device}-{id[:12]}")
    if list_only:
        _print_question(question)
        return None, None
    folder = sweeps_folder(options.root) / question.id
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with held(locks / f"sweep-{id[:16]}.lock", "another process is working on this very sweep; waiting for it"):
        for part in folder.rglob(".*.part"):  # of one that was killed while it wrote
            part.unlink()
        path = folder / "question.json"
        if not path.exists():
            save_record(path, question)
        sweep = Sweep(asked=asked, matrix=matrix, folder=folder, question=load_record(path, SweepQuestion))
        sweep.recall()
        _print_question(sweep.question)
        if sweep.batches:
            print(f"going on: {len(sweep.trials)} settings recorded before, in {sweep.spent_s:.0f} s")
        record = sweep.run(write=write)
    print_table(record)
    return folder, record


def write_winner(path: Path, record: SweepRecord) -> None:
    """A confirmed winner into matrix.yaml; nothing where none is."""
    if record.verdict != "confirmed" or record.winner is None:
        print(f"--write: {path} stays as it is, for nothing is confirmed")
        return
    _, text = load_matrix(path)
    changed = with_setting(text, record.question.kernel, record.winner, str(path))
    protocol.write_atomically(str(path), changed.encode())
    print(f"--write: {path} has {setting_text(record.winner)} for {record.question.kernel}; commit it")


def _print_question(question: SweepQuestion) -> None:
    values = "; ".join(f"{name} {', '.join(map(str, each))}" for name, each in question.search.items())
    print(f"{question.kernel} on {', '.join(question.workloads)} ({question.device}): {question.settings} settings")
    print(f"values: {values}")
    print(f"incumbent: {setting_text(question.incumbent)}")
    print(f"environments: {', '.join(question.environments)}")
    print(
        "minimised: the geometric mean, over environments and workloads, of the time over the incumbent's in the same "
        "blocks"
    )
