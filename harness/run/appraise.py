"""What is believed of a launch: its process had the code under test in it.

Its rows and times must be possible, and outputs that had other bits than were validated are judged where the kernel was
never loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.config.plan import PlannedLaunch
from harness.isolate import Answer
from harness.run.context import Context, answer_of, checked
from harness.run.requests import files_of, workload_request
from harness.schema.records import LaunchRecord, Timing
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol, wire

SHORTEST_US = 1e-3  # of a call: no clock here resolves less
REPLAYED = "replayed"
WORDS = {
    "before": "its output is not right",
    "after": "its output after the timed calls is not right",
    "exchanged": "its output does not follow its inputs: it is not computed from them at each call",
    "in a timed call": "its output in a timed call is not right",
}


def implausible(record: LaunchRecord, asked: set[tuple[str, str]]) -> str:
    """'' where a launch gave the rows of the request, in no more time than passed by our clock; else what is wrong."""
    given = [(timing.workload, timing.target) for timing in record.timings]
    if len(given) != len(asked) or set(given) != asked:
        return "the launch gave other rows than it was asked for"
    timed = [timing for timing in record.timings if timing.status == protocol.OK]
    samples_us = [(sample, timing.calls_per_sample) for timing in timed for sample in timing.samples_us]
    samples_us += [(sample, timing.hot_calls_per_sample) for timing in timed for sample in timing.hot_us]
    if any(sample < SHORTEST_US or calls < 1 for sample, calls in samples_us):
        return "the launch claims calls of less than a nanosecond"
    claimed_s = sum(sample * calls for sample, calls in samples_us) / 1e6
    if claimed_s > record.duration_s:
        return f"the launch claims {claimed_s:.3g} s of measured calls, and took {record.duration_s:.3g} s in all"
    return _untimely(record, timed)


def _untimely(record: LaunchRecord, timed: list[Timing]) -> str:
    """The same for the moments of a GPU's samples: one a sample, and all within the launch."""
    if record.device != "cuda":
        return ""
    for timing in record.timings:
        counts = [len(timing.sampled_s), len(timing.enqueue_us), len(timing.hot_sampled_s)]
        if counts != [len(timing.samples_us), len(timing.samples_us), len(timing.hot_us)]:
            return "the launch gives other numbers of samples and of their moments"
    moments = [moment for timing in timed for moment in (*timing.sampled_s, *timing.hot_sampled_s)]
    if moments and max(moments) - min(moments) > record.duration_s:
        return (
            f"the launch claims samples {max(moments) - min(moments):.3g} s apart, and took {record.duration_s:.3g} s"
        )
    return ""


def launch_name(planned: PlannedLaunch) -> str:
    return f"{planned.kernel}-{planned.device}-{planned.index:03d}"


def appraise(
    context: Context, planned: PlannedLaunch, out: Path, workloads: list[WorkloadInfo], kept: list[wire.KeptOutput]
) -> Answer:
    """Judge the outputs that a launch kept in `out`."""
    plan = context.plan
    requests = [workload_request(context, workload) for workload in workloads]
    truths = {workload.id: context.scratch("truth", f"{workload.id}-launches") for workload in workloads}
    for folder in truths.values():
        folder.mkdir(parents=True, exist_ok=True)
    request = wire.AppraiseRequest(
        workloads=requests,
        kept=kept,
        candidate_out=str(out),
        truth_dir={id: str(folder) for id, folder in truths.items()},
        limits={workload.id: plan.tolerances.limits(workload.dtype) for workload in workloads},
        decides=plan.tolerances.decides,
        precision=plan.kernel(planned.kernel).precision,
        device=planned.device,
        seed=plan.seed,
        threads=plan.threads_in(planned.environment),
    )
    return answer_of(
        context,
        context.task(
            "appraise", request, planned.environment, launch_name(planned), timeout_s=plan.limits.validation_s,
            reads=(*files_of(None, *requests), out, *truths.values()), writes=tuple(truths.values()),
        )
    )  # fmt: skip


def appraised(timings: list[Timing], kept: list[wire.KeptOutput], answer: Answer) -> list[Timing]:
    """The timings, with what is known of the outputs that they left."""
    result = checked(wire.AppraiseResult, answer, "judging it")
    failed = wire.Appraised(None, "judging it failed")
    rows = result.rows if isinstance(result, wire.AppraiseResult) else [failed] * len(kept)
    verdicts: dict[tuple[str, str], list[tuple[str, wire.Appraised]]] = {}
    for output, row in zip(kept, rows, strict=False):
        where = "exchanged" if output.trial else output.where
        verdicts.setdefault((output.workload, output.target), []).append((where, row))
    return [_with(timing, verdicts.get((timing.workload, timing.target), [])) for timing in timings]


def _with(timing: Timing, verdicts: list[tuple[str, wire.Appraised]]) -> Timing:
    changes: dict[str, Any] = {}
    for where, row in verdicts:
        passed, message = row.passed, row.message
        if passed:
            continue
        if where == REPLAYED:
            wrong = f"a replay of its calls gives an output that is not right: {message}"
            changes |= {"hot_us": [], "hot_sampled_s": [], "hot_message": message if passed is None else wrong}
        elif timing.target == protocol.KERNEL and timing.correct and "correct" not in changes:
            wrong = f"{WORDS.get(where, WORDS['before'])}: {message}"
            changes |= {"correct": passed, "message": message if passed is None else wrong}
    return timing.model_copy(update=changes) if changes else timing
