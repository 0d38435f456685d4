"""Conditions on a real GPU: what is filled there reaches a kernel that reads what it never wrote, and no other."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from harness.experiments.condition_list import PATTERNS, conditions_of
from harness.experiments.probes import FOLDER
from harness.schema.experiment_records import Condition, ConditionResult
from harness.worker import machine_code
from tests.environments.verbs import ended_of, jobs_of
from tests.gpu.conftest import REFERENCES, Here, architecture, kernel_of, workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

LIMITS = {"rounding": 4.0, "strict": 1e-3, "kernelbench": 1e-2}
SHAPE = workload(seq_len=101)


@pytest.fixture(scope="module")
def probe(here: Here) -> str:
    out = here.work / "poison.so"
    request = {"source": str(FOLDER / "poison.cu"), "out": str(out), "architecture": architecture()}
    assert here.result("library", request)["status"] == "ok"
    return str(out)


def run(
    here: Here, probe: str, fault: str, conditions: list[Condition], variables: dict[str, str] | None = None
) -> list[ConditionResult]:
    """What the kernel of unwritten.cu with a fault gives under each condition."""
    out = here.work / "conditions.out"
    shutil.rmtree(out, ignore_errors=True)
    jobs = jobs_of(conditions, trials=2, repeats=2)
    kernel = kernel_of(here.build(f"unwritten-{fault}")["artifact"])
    common = {"workload": SHAPE, "seed": 0, "threads": 4}
    request = {**common, "kernel": kernel, "out": str(out), "jobs": jobs, "libraries": {"shared": probe}}
    assert here.result("conditions", request, variables=variables)["status"] == "ok"
    ended = ended_of(jobs, out)
    judging = {
        "candidate_out": str(out),
        "truth_dir": str(here.work / "truth"),
        "decides": "rounding",
        "device": "cuda",
        "precision": None,
    }
    weighed = here.result("weigh", {**common, **judging, "limits": LIMITS, "jobs": ended})
    return [ConditionResult(condition=conditions[row.pop("number")], **row) for row in weighed["results"]]


def everything(here: Here) -> list[Condition]:
    names = ("inputs", "predecessor", "poison", "repeat")
    listed = [c for e in names for c in conditions_of(e, "cuda", REFERENCES, problem=False)]  # type: ignore[arg-type]
    note = machine_code.runtime_note(here.build("unwritten-NONE")["artifact"])
    if note:
        print(f"strided inputs are left out, since the binding's refusal would crash: {note}")
    return [c for c in listed if c.before != "fresh" and not (note and c.layout == "strided")]


def test_a_right_kernel_is_right_under_every_condition(here: Here, probe: str) -> None:
    for result in run(here, probe, "NONE", everything(here)):
        allowed = {"ok", "unsupported"} if result.condition.layout == "strided" else {"ok"}
        if result.condition.before not in ("", "unrelated"):
            allowed |= {"not_run"}  # this PyTorch may lack a reference
        assert result.status in allowed, (result.condition.label, result.message)


@pytest.mark.parametrize(("fault", "site"), [("SHARED", "shared"), ("WORKSPACE", "workspace")])
def test_who_reads_what_nobody_wrote_depends_on_the_pattern(here: Here, probe: str, fault: str, site: Any) -> None:
    found = run(here, probe, fault, [Condition(label=p, site=site, pattern=p) for p in PATTERNS])
    by_pattern = {result.condition.pattern: result for result in found}
    assert by_pattern["zero"].passed == 4, by_pattern["zero"].message
    assert by_pattern["nan"].nonfinite == 4, by_pattern["nan"].message
    assert by_pattern["max"].passed == 0 and len({str(r.output_sha256) for r in found}) >= 3


def test_a_kernel_that_ignores_the_stream_is_wrong_on_another_alone(here: Here, probe: str) -> None:
    found = run(here, probe, "STREAM", [Condition(label="x"), Condition(label="side", stream="side")])
    assert [result.status for result in found] == ["ok", "wrong"]
