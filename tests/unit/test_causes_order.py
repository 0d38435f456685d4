"""What stands first on a page: kernels, by their own faults, what broke, what became slower, what improved and what is
well; then references in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.attribute import explained
from reports.attribute.causes import CORRECTNESS, LATENCY, NOTHING_MOVED, UNINITIALISED_HOST
from reports.render.explanations import Explanation, explanations
from tests.unit.committed import committed
from tests.unit.experiments import FOLLOWS, STILL, poison
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

WRONG = Case(passed=1, units=400.0)


def cards(folder: Path) -> list[Explanation]:
    return explanations(explained(folder))


def test_own_faults_then_what_broke_then_times_by_size_then_what_improved(tmp_path: Path) -> None:
    kernels = ("quicker", "slow", "slower", "fixed", "attention_scalar")
    cases: dict[Any, Any] = {(NEXT, "math", "*"): Case(slowdown=9.0), (NEXT, "flash", "*"): Case(slowdown=0.5)}
    run = write_run(tmp_path, Spec(trials=5, kernels=kernels, cases=cases, spread=0.002, workloads=("seed-fp16",)))
    poison(run, {"output": FOLLOWS, "heap": STILL, "stack": STILL})
    found = explained(tmp_path)
    assert (found[0].cause, found[0].subject) == (UNINITIALISED_HOST, "attention_scalar")
    assert [c.subject for c in found if c.about == LATENCY] == ["math", "flash"]
    assert [c.cause for c in found][1:-2] == [NOTHING_MOVED] * 4, "a kernel that is well precedes every reference"


@pytest.mark.parametrize("name", ["h200-2.1.0-2.5.0-2.11.0", "h200-always-wrong"])
def test_on_an_h200_nothing_that_improved_comes_before_what_did_not(name: str, tmp_path: Path) -> None:
    [folder] = committed(tmp_path, name)
    every = [card.lead for card in cards(folder)]
    of_references = [bool(lead.reference) for lead in every]
    assert of_references == sorted(of_references), "references come after the kernels"
    for kind in (False, True):
        found = [lead for lead in every if bool(lead.reference) is kind and lead.cause != NOTHING_MOVED]
        better = [lead.improved for lead in found]
        assert found and better == sorted(better)
        slower = [lead.ratio for lead in found if lead.reference and lead.about == LATENCY and lead.ratio > 1]
        assert slower == sorted(slower, reverse=True)


def test_what_broke_precedes_a_slow_down_and_a_fix_comes_after(tmp_path: Path) -> None:
    cases = {
        (NEXT, "kernel", "seed-fp16"): Case(passed=1, bits="new", units=400.0),
        (NEXT, "kernel", "seed-fp32"): Case(slowdown=1.5),
        (BASE, "kernel", "causal-fp16"): WRONG,
        (NEXT, "kernel", "causal-fp16"): Case(bits="new"),
    }
    built: dict[str, Any] = {"machine_code": {NEXT: "new"}, "flags": {NEXT: ("-O1",)}}
    workloads = ("seed-fp16", "seed-fp32", "causal-fp16")
    write_run(tmp_path, Spec(trials=5, cases=cases, workloads=workloads, spread=0.002, **built))
    leads = [card.lead for card in cards(tmp_path) if card.lead.kernel and card.lead.cause != NOTHING_MOVED]
    assert [(lead.about, lead.improved) for lead in leads][:2] == [(CORRECTNESS, False), (LATENCY, False)]
