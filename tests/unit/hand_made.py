"""Single records, as right as can be but for what a test changes."""

from __future__ import annotations

from typing import Any

from harness.schema.environment_records import BINDING_OBJECT, BuildRecord
from harness.schema.records import (
    Agreement,
    LaunchRecord,
    Load,
    RecipeResult,
    TargetResult,
    TargetTiming,
    ValidationRecord,
)
from harness.schema.run_records import WorkloadInfo

PLACE: dict[str, Any] = {"environment": "e", "kernel": "mine", "device": "cpu", "key": "k", "status": "ok"}
WHEN: dict[str, Any] = {"started_utc": "2024-01-01T00:00:00+00:00", "duration_s": 1.5}


def agreement(passed: int, against: str = "truth", **changes: Any) -> Agreement:
    values: dict[str, Any] = {
        "passed": dict.fromkeys(("rounding", "kernelbench", "strict"), passed),
        "max_abs": 0.1,
        "mean_abs": 0.1,
        "nonfinite_trials": 0,
        "worst": None,
    }
    return Agreement(against=against, **values | changes)


def target(passed: int = 5, **changes: Any) -> TargetResult:
    return TargetResult(**{"target": "kernel", "status": "ok", "against": [agreement(passed)]} | changes)


def validation(*targets: TargetResult, trials: int = 5, inputs: str = "i", **changes: Any) -> ValidationRecord:
    """Of one recipe, or, without a target, of none."""
    digests = [f"{inputs}{trial}" for trial in range(trials)]
    recipe = RecipeResult(
        recipe="independent",
        trials=trials,
        input_sha256=digests,
        truth_sha256=[],
        rounding_cost=[],
        targets=list(targets),
    )
    rule: dict[str, Any] = {"workload": "w", "decides": "rounding", "limits": {"rounding": 4.0}}
    return ValidationRecord(**PLACE | WHEN | rule | {"recipes": [recipe] if targets else []} | changes)


def build(environment: str = "e", code: str = "same", **changes: Any) -> BuildRecord:
    objects = {"kernel.o": code, BINDING_OBJECT: environment} if code else {}
    return BuildRecord(**PLACE | {"environment": environment, "runnable": True, "objects": objects} | changes)


def timing(*samples_us: float, **changes: Any) -> TargetTiming:
    values = {"workload": "w", "target": "kernel", "order": 0, "status": "ok", "samples_us": list(samples_us)}
    return TargetTiming(**values | changes)


def launch(*timings: TargetTiming, **changes: Any) -> LaunchRecord:
    load = Load(load_average=0.5, busy_share_others=None, cpu_mhz=None, steal_share=0.0)
    order = {"index": 0, "position": 1, "load": load, "timings": list(timings)}
    return LaunchRecord(**PLACE | WHEN | order | changes)


def workload(batch: int = 1, heads: int = 1, seq_len: int = 8, head_dim: int = 64) -> WorkloadInfo:
    flops = 4.0 * batch * heads * seq_len**2 * head_dim
    return WorkloadInfo(
        id="w",
        name="w",
        dtype="float32",
        devices=["cpu"],
        batch=batch,
        heads=heads,
        seq_len=seq_len,
        head_dim=head_dim,
        causal=False,
        scale=0.125,
        trials={"independent": 1},
        flops=flops,
        bytes=1.0,
    )
