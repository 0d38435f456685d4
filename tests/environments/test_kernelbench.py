"""Problems in KernelBench's form on both real versions: a folder of them as a user starts it, and the ways to cheat."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.schema.storage import Run
from tests.candidates.cheats import CHEATS, check_cheat, run_cheats
from tests.conftest import ROOT
from tests.projects import head, make_project, report, start

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cheated(pinned_pythons: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """By version: what each was seen to do."""
    found = []
    for number, python in enumerate(pinned_pythons):
        found.append(run_cheats(python, tmp_path_factory.mktemp(f"ways{number}"), "cpu", CHEATS))
    return found


@pytest.mark.parametrize("name", CHEATS)
def test_a_way_to_cheat_is_found_out(cheated: list[dict[str, Any]], name: str) -> None:
    case = CHEATS[name]
    for version in cheated:
        check_cheat(case, version[name], "cpu")


def test_who_comes_later_cannot_slow_the_reference(cheated: list[dict[str, Any]]) -> None:
    for version in cheated:
        rows = {row["target"]: row for row in version["hooks_the_reference"]["timings"]}
        assert min(rows["model"]["samples_us"]) < 20_000, "its hook sleeps that long before every call of Model"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    text = head("2.1.0", "2.5.0") + "kernels:\n  - {name: not_asked_for, sources: {cpu: [csrc/none.cpp]}}\n"
    text += (
        "workloads:\n  - {name: w, shape: {batch: 1, heads: 1, seq_len: 8, head_dim: 8}, dtypes: {cpu: [float32]}}\n"
    )
    project = make_project(tmp_path_factory.mktemp("kernelbench") / "project", text)
    shutil.copytree(ROOT / "tests" / "candidates" / "kernelbench", project / "bench")
    folders = [f"--{name}={project / 'bench' / name}" for name in ("problems", "solutions")]
    code, printed, run = start(project, "matrix", *folders, "--device=cpu", "--launches=1")
    assert code == 0, printed
    return run


def test_a_folder_of_unmodified_files_runs_on_both_versions(finished: Run) -> None:
    record = finished.load().kernelbench
    assert record is not None and record.missing == ["level1/2_LayerNorm.py"] and not record.unused
    assert set(record.pairs.values()) == {
        "level1/1_Matrix_product.py",
        "level1/3_Embedding.py",
        "level3/7_Attention_with_dropout.py",
    }
    validations = finished.validations()
    assert len(validations) == 6 and {v.status for v in validations} == {"ok"}
    assert all(("held against Model" in v.message) == ("dropout" in v.kernel) for v in validations)
    for validation in validations:
        kernel = validation.recipes[0].targets[-1]
        # With dropout there is no truth: only the same draws can be compared, those of Model in the same version.
        first = "model" if "dropout" in validation.kernel else "truth"
        assert kernel.against[0].against == first and kernel.inputs_mutated == kernel.repeats_differ == 0
    by_workload: dict[str, set[tuple[str, ...]]] = {}
    for validation in validations:
        by_workload.setdefault(validation.workload, set()).add(tuple(validation.recipes[0].input_sha256))
    assert all(len(digests) == 1 for digests in by_workload.values()), "the same bytes go in everywhere"
    rows = [timing for launch in finished.launches() for timing in launch.timings]
    assert {(row.status, row.correct) for row in rows if row.target == "kernel"} == {("ok", True)}


def test_their_report_has_fast_p_per_version(finished: Run) -> None:
    code, printed = report(finished)
    assert code == 0, printed
    summary = json.loads((finished.folder / "summary.json").read_text())
    for line in summary["kernelbench"]:
        assert (line["problems"], line["missing"], line["fast"]["0"]) == (3, 1, 1.0)
        assert line["undecided"]["1"] == 3, "one launch supports no interval"
    assert len(summary["kernelbench"]) == 2
    assert report(finished, "--count-missing")[0] == 0
    summary = json.loads((finished.folder / "summary.json").read_text())
    assert [line["fast"]["0"] for line in summary["kernelbench"]] == [0.75, 0.75]
    page = (finished.folder / "index.html").read_text()
    assert "level1/3_Embedding.py" in page and "no solution" in page and "counted as not solved" in page
