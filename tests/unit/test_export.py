"""A run's metrics for services of continuous benchmarking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.cli.report import FORMATS
from harness.errors import BAD_INPUT
from reports.render.export import Format
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

KERNEL = f"attention_scalar seed-fp16 cuda {BASE}"
GPU = Spec(workloads=("seed-fp16",), device="cuda", times_us={("kernel", "seed-fp16"): 40.0})


def export(capsys: pytest.CaptureFixture[str], folder: Path, spec: Spec, format: str) -> Any:
    write_run(folder, spec)
    capsys.readouterr()
    assert main(["export", str(folder), "--format", format]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_offers_every_format() -> None:
    assert [format.value for format in Format] == list(FORMATS)


def test_bencher_reads_medians_with_their_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = export(capsys, tmp_path, GPU, "bencher")
    latency = found[KERNEL]["latency"]
    assert 35_000 < latency["lower_value"] <= latency["value"] <= latency["upper_value"] < 45_000, "in nanoseconds"
    assert found[KERNEL]["graph-replay"]["value"] > 0
    assert {name.rpartition(" ")[2] for name in found} == {BASE, NEXT}
    assert {name.partition(" ")[0] for name in found} >= {"attention_scalar", "flash"}


def test_github_action_benchmark_reads_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = export(capsys, tmp_path, GPU, "github-action-benchmark")
    entry = next(each for each in found if each["name"] == f"{KERNEL} latency")
    assert entry["unit"] == "ns" and 35_000 < entry["value"] < 45_000 and entry["range"].startswith("± ")
    assert all(set(each) <= {"name", "unit", "value", "range"} for each in found)


def test_few_launches_have_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = export(capsys, tmp_path, Spec(launches=3), "bencher")
    assert found and all(set(values) == {"value"} for each in found.values() for values in each.values())


def test_a_wrong_kernel_has_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Spec(cases={(NEXT, "kernel", "*"): Case(passed=0, units=400.0)})
    found = export(capsys, tmp_path, wrong, "bencher")
    kernels = [name for name in found if name.startswith("attention_scalar")]
    assert kernels and all(name.endswith(BASE) for name in kernels)


@pytest.mark.parametrize("words", [["."], ["--format", "csv"], ["nowhere", "--format", "bencher"]])
def test_bad_input_is_refused(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == BAD_INPUT
