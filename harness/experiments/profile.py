"""Profile: where one target's time goes in one environment, by operator and device function.

What differs between environments, `reports` says, which compares the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.experiments.base import CellExperiment
from harness.run.context import checked, fields_of
from harness.run.device import run_task
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.experiment_records import ProfileRecord
from harness.worker import protocol, wire

CALLS = 20
MOST_S = 5.0  # of profiled calls


@dataclass(frozen=True, kw_only=True)
class ProfileExperiment(CellExperiment):
    """A profile of `target`: the kernel, or a reference by name."""

    target: str
    record = ProfileRecord

    @property
    def name(self) -> str:
        return f"profile-{self.target}"

    @property
    def key(self) -> str:
        kind = "profile" if self.target == protocol.KERNEL else "profile_of_reference"
        return self.context.key(kind, **vars(self.cell), asked=self.target)

    def measure(self) -> dict[str, Any]:
        context, cell, plan = self.context, self.cell, self.context.plan
        if reason := self.find_unavailable(self.target):
            return {"target": self.target, "status": protocol.NOT_RUN, "message": reason, "duration_s": 0.0}
        workload, kernel = workload_request(context, plan.workload(cell.workload)), None
        if self.target == protocol.KERNEL:
            kernel = kernel_request(context, cell.kernel, cell.device, self.build)
        request = wire.ProfileRequest(
            kernel=kernel,
            workload=workload,
            target=self.target,
            seed=plan.seed,
            device=cell.device,
            threads=plan.threads_in(cell.environment),
            calls=CALLS,
            most_s=MOST_S,
        )
        reads, about = files_of(kernel, workload), f"{self.about}-{self.target}"
        limit_s = plan.limits.launch_s
        task = context.task("profile", request, cell.environment, about, timeout_s=limit_s, reads=reads)
        answer = run_task(context, task, cell.device)
        result = checked(wire.ProfileResult, answer, "the profiled process")
        fields = {"target": self.target, "duration_s": round(answer.ended.duration_s, 3)}
        if isinstance(result, wire.ProfileResult):
            # Its process had the kernel in it: operators must fit into the time that passed by our own clock.
            own_us = sum(row.self_us for row in result.operators if row.kind == "operator") * result.profiled_calls
            took_s = answer.ended.duration_s
            if own_us > took_s * 1e6:
                message = f"the profile claims {own_us / 1e6:.3g} s of calls, and took {took_s:.3g} s in all"
                return {**fields, "status": protocol.WRONG, "message": message, "log_excerpt": answer.ended.log}
        return fields | fields_of(result)
