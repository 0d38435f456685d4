"""`python -m harness bisect`: options in, exit code out."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from harness.config import keys
from harness.config.matrix import Matrix, load_matrix
from harness.errors import UNDECIDED, InputError, exit_code
from harness.gpu import gpus
from harness.run.folders import held, now_utc
from harness.run.prepare import Options, Prepared, make_plan
from harness.schema.bisection_records import Question
from harness.schema.storage import load_record, save_record
from harness.search.bisect import plan as planning
from harness.search.bisect.answer import print_table
from harness.search.bisect.oracle import LEVEL, TRIAL_FACTORS, launch_counts
from harness.search.bisect.releases import fetch_listing, releases_between, supported_tags
from harness.search.bisect.run import Asked, Bisection
from harness.search.bisect.subject import Subject, cell_names, derived_matrix, selection_of
from harness.tools import cache_folder


def run_command(arguments: argparse.Namespace) -> int:
    subject = Subject(
        good=arguments.good,
        bad=arguments.bad,
        what=arguments.what,
        target=arguments.target,
        kernels=tuple(arguments.kernel),
        workloads=tuple(arguments.workload),
        devices=arguments.device or (("cpu", "cuda") if gpus() else ("cpu",)),
        trials=arguments.trials,
    )
    options = Options(
        matrix_path=arguments.matrix,
        command=("nox", "-s", "bisect", "--", *arguments.given),
        strict=arguments.strict,
        executor=arguments.executor,
        base_image=arguments.base_image,
    )
    folder, codes = run_bisection(
        Asked(subject=subject, options=options, keep=arguments.keep, every=arguments.every), list_only=arguments.list
    )
    if folder is not None:
        if arguments.run_path:
            arguments.run_path.write_text(str(folder))
        print(f"records: {folder}")
    return exit_code(codes)


def bisections_folder(root: Path) -> Path:
    return root / "reports" / "bisections"


def _question(asked: Asked, prepared: Prepared, matrix: Matrix, id: str) -> Question:
    subject, plan = asked.subject, prepared.plan
    base = plan.environment(plan.baseline)
    names = cell_names(plan, plan.baseline, subject.target)
    cells = len(names)
    if not cells:
        raise InputError(
            f"--target {subject.target}: no cell that is left has it", "see the matrix with: nox -s matrix -- --list"
        )
    releases = releases_between(
        fetch_listing(base.index), subject.good, subject.bad, base.spec, base.index, supported_tags(base.spec.python)
    )
    for end in (releases[0], releases[-1]):
        if end.skipped:
            raise InputError(f"PyTorch {end.version}: {end.skipped} on {base.index}", "choose another `python` for it")
    return Question(
        id=id,
        created_utc=now_utc(),
        command=list(asked.options.command),
        good=releases[0].version,
        bad=releases[-1].version,
        what=subject.what,
        target=subject.target,
        kernels=list(dict.fromkeys(kernel for kernel, _, _ in names.values())),
        workloads=list(dict.fromkeys(workload for _, workload, _ in names.values())),
        devices=list(dict.fromkeys(device for _, _, device in names.values())),
        executor=plan.facts.executor,
        index=base.index,
        fallbacks=list(plan.fallbacks),
        releases=releases,
        level=LEVEL,
        looks=list(launch_counts(cells) if subject.what == "latency" else TRIAL_FACTORS),
        min_effect={device: matrix.thresholds.min_effect(device) for device in ("cpu", "cuda")},
        every=asked.every,
    )


def run_bisection(asked: Asked, *, list_only: bool = False) -> tuple[Path | None, list[int]]:
    """Bisect, or go on with what was begun. The folder of the records, and the exit codes that hold."""
    subject, options = asked.subject, asked.options
    matrix, _ = load_matrix(options.matrix_path)
    if options.base_image:
        matrix = matrix.with_base(options.base_image)
    ends = derived_matrix(matrix, subject, [subject.good, subject.bad], 0, 1)
    prepared = make_plan(replace(options, derived=ends, explain=False), selection_of(subject), write_pins=False)
    plan = prepared.plan
    id = keys.of(
        "bisection",
        run=plan.digest,
        what=subject.what,
        target=subject.target,
        every=asked.every,
        thresholds=plan.thresholds.model_dump(),
        limits=plan.limits.model_dump(),
    )
    name = f"{subject.good}-{subject.bad}-{subject.what}-{subject.target}-{id[:12]}"
    if list_only:
        _print_question(_question(asked, prepared, matrix, name))
        return None, []
    folder = bisections_folder(options.root) / name
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with held(locks / f"bisect-{id[:16]}.lock", "another process is working on this very bisection; waiting for it"):
        for part in folder.rglob(".*.part"):  # of one that was killed while it wrote
            part.unlink()
        path = folder / "question.json"
        if not path.exists():
            save_record(path, _question(asked, prepared, matrix, name))
        bisection = Bisection(
            asked=asked, matrix=matrix, prepared=prepared, folder=folder, question=load_record(path, Question)
        )
        bisection.recall()
        _print_question(bisection.question)
        if bisection.seen:
            print(f"going on: {', '.join(bisection.seen)} recorded before")
        record = bisection.run()
    print_table(record)
    undecided = any(version.verdict == "undecided" for version in record.versions)
    return folder, [UNDECIDED] if options.strict and undecided else []


def _print_question(question: Question) -> None:
    usable = [release for release in question.releases if not release.skipped]
    print(
        f"{question.what} of {question.target} from {question.good} to {question.bad}, on "
        f"{', '.join(question.workloads)} ({', '.join(question.devices)}): {len(usable)} releases; where one step "
        f"explains it, at most {planning.most_environments(len(usable))} environments"
    )
    print("releases: " + " ".join(release.version for release in usable))
    for release in question.releases:
        if release.skipped:
            print(f"skipped: {release.version}: {release.skipped}")
