"""benchmarks/fastest.py: which reference is the fastest of all environments, the ratio to it, and what is refused."""

from __future__ import annotations

import re
import sys
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


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fastest", str(folder), *options])
    return fastest.main()


def rows(folder: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
         *options: str) -> list[list[str]]:  # fmt: skip
    write_run(folder, spec)
    assert asked(folder, monkeypatch, "--kernel", KERNEL, *options) == 0
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("options", "own_us", "best", "best_us", "ratio"),
    [
        ((), 97.4, f"flash of {NEXT}", 38.7, 97.4 / 38.7),
        (("--times", "cold"), 100.0, f"math of {BASE}", 20.0, 5.0),
    ],
    ids=["replays", "cold calls"],
)
def test_a_row_names_the_fastest_reference_its_environment_and_the_ratio(
    options: tuple[str, ...],
    own_us: float,
    best: str,
    best_us: float,
    ratio: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A workload on which no reference ran has no row."""
    head, _, row = rows(tmp_path, ON_GPU, monkeypatch, capsys, *options)
    assert head == ["workload", f"{KERNEL}, us", "fastest reference, us", "ratio to it (95%)"]
    workload, own, fast, ratios = row
    assert workload == "seed-fp16"
    told = [part.split(": ") for part in own.split("; ")]
    assert [name for name, _ in told] == [BASE, NEXT]
    assert [float(us) for _, us in told] == pytest.approx([own_us, own_us], rel=0.03)
    name, us = fast.split(": ")
    assert name == best and float(us) == pytest.approx(best_us, rel=0.03)
    found = re.findall(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)", ratios)
    assert len(found) == 2
    for middle, low, high in found:
        assert float(low) <= float(middle) <= float(high)
        assert float(middle) == pytest.approx(ratio, rel=0.03)


def test_few_launches_give_a_ratio_without_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Spec(device="cuda", workloads=("seed-fp16",), launches=1)
    ratios = rows(tmp_path, few, monkeypatch, capsys)[2][3].split(", ")
    assert [float(ratio) for ratio in ratios] == pytest.approx([1.0, 1.0], rel=0.1)


@pytest.mark.parametrize(
    ("spec", "kernel"),
    [(ON_GPU, "attention_other"), (Spec(), KERNEL)],
    ids=["no such kernel", "a run without a GPU"],
)
def test_what_has_no_times_is_refused(
    spec: Spec, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, spec)
    assert asked(tmp_path, monkeypatch, "--kernel", kernel) == BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and f"no hot times of {kernel}" in said.err
