"""Outputs of a launch that had other bits than were validated, judged where the kernel was never loaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from harness.config.plan import PlannedLaunch
from harness.isolate import Answer, Task
from harness.run.context import Context, checked
from harness.run.requests import files_of, workload_request
from harness.schema.records import Timing
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol, wire

REPLAYED = "replayed"
WORDS = {
    "before": "its output is not right",
    "after": "its output after the timed calls is not right",
    "exchanged": "its output does not follow its inputs: it is not computed from them at each call",
    "in a timed call": "its output in a timed call is not right",
}


def out_folder(context: Context, planned: PlannedLaunch) -> Path:
    """Where a launch leaves such outputs."""
    place = f"{planned.kernel}-{planned.device}-{planned.index:03d}.out"
    return context.run.folder / "scratch" / planned.environment / place


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def appraise(
    context: Context, planned: PlannedLaunch, workloads: list[WorkloadInfo], kept: list[wire.KeptOutput]
) -> Answer:
    plan, run = context.plan, context.run
    requests = [workload_request(context, workload) for workload in workloads]
    truths = {workload.id: run.folder / "scratch" / "truth" / f"{workload.id}-launches" for workload in workloads}
    for folder in truths.values():
        folder.mkdir(parents=True, exist_ok=True)
    place = f"{planned.kernel}-{planned.device}-{planned.index:03d}"
    out = out_folder(context, planned)
    return context.executor.run(
        Task(
            environment=planned.environment,
            name="appraise",
            request=wire.AppraiseRequest(
                workloads=requests,
                kept=kept,
                candidate_out=str(out),
                truth_dir={id: str(folder) for id, folder in truths.items()},
                limits={workload.id: plan.tolerances.limits(workload.dtype) for workload in workloads},
                decides=plan.tolerances.decides,
                precision=context.plan.kernel(planned.kernel).precision,
                device=planned.device,
                seed=plan.seed,
                threads=plan.threads_in(planned.environment),
            ),
            scratch=run.folder / "scratch" / planned.environment / place,
            log=run.folder / "logs" / planned.environment / f"appraise-{place}.log",
            timeout_s=plan.limits.validation_s,
            reads=(*files_of(None, *requests), out, *truths.values()),
            writes=tuple(truths.values()),
        )
    )


def appraised(timings: list[Timing], kept: list[wire.KeptOutput], answer: Answer) -> list[Timing]:
    """The timings, with what was found of the outputs that they left."""
    result = checked(wire.AppraiseResult, answer, "judging it")
    failed = wire.Appraised(None, "judging it failed")
    rows = result.rows if isinstance(result, wire.AppraiseResult) else [failed] * len(kept)
    found: dict[tuple[str, str], list[tuple[str, wire.Appraised]]] = {}
    for output, row in zip(kept, rows, strict=False):
        where = "exchanged" if output.trial else output.where
        found.setdefault((output.workload, output.target), []).append((where, row))
    return [_with(timing, found.get((timing.workload, timing.target), [])) for timing in timings]


def _with(timing: Timing, found: list[tuple[str, wire.Appraised]]) -> Timing:
    changes: dict[str, Any] = {}
    for where, row in found:
        passed, message = row.passed, row.message
        if passed:
            continue
        if where == REPLAYED:
            said = "a replay of its calls gives an output that is not right" if passed is False else message
            changes |= {
                "hot_us": [],
                "hot_sampled_s": [],
                "hot_message": f"{said}: {message}" if passed is False else said,
            }
        elif timing.target == protocol.KERNEL and timing.correct and "correct" not in changes:
            words = WORDS.get(where, WORDS["before"])
            changes |= {"correct": passed, "message": f"{words}: {message}" if passed is False else message}
    return timing.model_copy(update=changes) if changes else timing
