"""benchmarks/fastest.py: which reference is the fastest of all environments, the ratio to it, and what is refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import fastest
from harness.errors import BAD_INPUT
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

KERNEL, REFUSED = "attention_scalar", Case(status="unsupported", message="No available kernel.")
ON_GPU = Spec(
    device="cuda",
    workloads=("seed-fp16", "causal-fp16"),
    times_us={("kernel", "seed-fp16"): 100.0, ("flash", "seed-fp16"): 80.0, ("math", "seed-fp16"): 400.0},
    cases={
        (NEXT, "flash", "seed-fp16"): Case(slowdown=0.5),
        (BASE, "math", "seed-fp16"): Case(slowdown=0.05, hot_slowdown=1.0),
        **{(where, target, "causal-fp16"): REFUSED for where in (BASE, NEXT) for target in ("flash", "math")},
    },
)


Rows = Callable[..., list[list[str]]]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rows:
    def printed(spec: Spec, *options: str, kernel: str = KERNEL, code: int = 0) -> list[list[str]]:
        write_run(tmp_path, spec)
        monkeypatch.setattr(sys, "argv", ["fastest", str(tmp_path), "--kernel", kernel, *options])
        assert fastest.main() == code
        said = capsys.readouterr()
        assert (f"no hot times of {kernel}" in said.err) == (code == BAD_INPUT)
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in said.out.splitlines()]

    return printed


@pytest.mark.parametrize(
    ("options", "own_us", "best", "best_us"),
    [([], 97.4, f"flash of {NEXT}", 38.7), (["--times", "cold"], 100.0, f"math of {BASE}", 20.0)],
    ids=["replays", "cold calls"],
)
def test_a_row_names_the_fastest_reference_its_environment_and_the_ratio(
    rows: Rows, options: list[str], own_us: float, best: str, best_us: float
) -> None:
    """A workload on which no reference ran has no row."""
    head, _, (workload, own, fast, ratios) = rows(ON_GPU, *options)
    assert head == ["workload", f"{KERNEL}, us", "fastest reference, us", "ratio to it (95%)"]
    told = [part.split(": ") for part in own.split("; ")]
    assert workload == "seed-fp16" and [name for name, _ in told] == [BASE, NEXT]
    assert [float(us) for _, us in told] == pytest.approx([own_us, own_us], rel=0.03)
    name, us = fast.split(": ")
    assert name == best and float(us) == pytest.approx(best_us, rel=0.03)
    found = [tuple(map(float, each)) for each in re.findall(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)", ratios)]
    assert len(found) == 2 and all(low <= middle <= high for middle, low, high in found)
    assert [middle for middle, _, _ in found] == pytest.approx([own_us / best_us] * 2, rel=0.03)


def test_few_launches_give_a_ratio_without_an_interval(rows: Rows) -> None:
    ratios = rows(Spec(device="cuda", workloads=("seed-fp16",), launches=1))[2][3].split(", ")
    assert [float(ratio) for ratio in ratios] == pytest.approx([1.0, 1.0], rel=0.1)


@pytest.mark.parametrize(
    ("spec", "kernel"), [(ON_GPU, "attention_other"), (Spec(), KERNEL)], ids=["no such kernel", "a run without a GPU"]
)
def test_what_has_no_times_is_refused(rows: Rows, spec: Spec, kernel: str) -> None:
    assert rows(spec, kernel=kernel, code=BAD_INPUT) == []
