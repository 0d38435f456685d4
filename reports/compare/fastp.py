"""fast_p as KernelBench defines it (Ouyang et al. 2025): the share of problems whose kernel is correct and more than
p times as fast as the reference. A problem here is a workload of an attention kernel; the speed-up is the median over
launches of the reference's median over the kernel's within the same launch, so that a launch's luck cancels. Pure.
"""

from __future__ import annotations

import statistics

from harness.worker import protocol
from reports.compare.latency import Rows
from reports.compare.streams import escaping
from reports.load.evidence import Evidence
from reports.model import FastP


def fast_p(evidence: Evidence, rows: Rows) -> list[FastP]:
    """Per environment, kernel, device and reference. Workloads without times of both are left out, with the reason;
    a kernel that failed there counts as incorrect."""
    problems: dict[tuple[str, str, str], list[str]] = {}
    for cell in evidence.run.cells:
        problems.setdefault((cell.environment, cell.kernel, cell.device), []).append(cell.workload)
    results = []
    for (environment, kernel, device), workloads in problems.items():
        info = evidence.kernel(kernel)
        for reference in info.references_on(device) if info else []:
            if reference == protocol.MODEL:  # a problem file is one problem of many: `reports.compare.kernelbench`
                continue
            result = _one(evidence, rows, environment, kernel, device, reference, workloads)
            results += [result] if result else []
    return results


def _one(
    evidence: Evidence, rows: Rows, environment: str, kernel: str, device: str, reference: str, workloads: list[str]
) -> FastP | None:
    speedups: dict[str, float] = {}
    left_out: dict[str, str] = {}
    correct: set[str] = set()
    counted = 0
    for workload in workloads:
        record = evidence.validation(environment, kernel, workload, device)
        escaped = escaping(evidence, environment, kernel, workload, device)
        if record is not None and record.status == protocol.UNDECIDABLE:
            left_out[workload] = record.message
            continue
        if record is not None and record.status == "ok" and not escaped:
            correct.add(workload)
        mine = {
            row.block: row.median_us
            for row in rows.of(environment, kernel, device, workload, protocol.KERNEL)
            if row.status == "ok" and row.correct is not False
        }
        theirs = rows.of(environment, kernel, device, workload, reference)
        times = {row.block: row.median_us for row in theirs if row.status == "ok"}
        ratios = [times[block] / mine[block] for block in mine.keys() & times.keys()]
        if ratios:
            speedups[workload] = statistics.median(ratios)
            counted += 1
        elif times and record is not None and record.status != "ok":
            counted += 1
        else:
            said = next((row.message for row in theirs if row.message), "") if not times else "the kernel has no times"
            left_out[workload] = said or f"{reference} has no times"
    if not counted:
        return None
    shares = [
        sum(workload in correct and speedup > p for workload, speedup in speedups.items()) / counted for p in (0, 1, 2)
    ]
    return FastP(
        environment=environment,
        kernel=kernel,
        device=device,
        reference=reference,
        problems=counted,
        left_out=left_out,
        speedups=speedups,
        correct=len(correct & set(speedups)),
        fast_0=shares[0],
        fast_1=shares[1],
        fast_2=shares[2],
    )
