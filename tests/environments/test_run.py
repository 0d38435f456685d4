"""Whole runs, as a user starts them, in the real pinned environments: made on first use, kept in the user's cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.schema.records import ValidationRecord
from harness.schema.run_records import RunRecord
from harness.schema.storage import Run, load_record
from tests.candidates.hostile import PROBLEM
from tests.conftest import ROOT

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

VENV = "--executor=venv"  # tests/container has the other
HEAD = """\
schema_version: 1
baseline: "{baseline}"
environments:
{environments}
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
timing: {{warmup_s: 0.02, target_s: 0.03, min_samples: 3}}
launches: 2
most_launches: 2
"""
SHIPPED = """\
kernels:
  - name: attention_scalar
    sources: {cpu: [csrc/attention_scalar_cpu.cpp]}
    tunables: {BLOCK_M: 32, NUM_WARPS: 8, VEC_WIDTH: 4, SYNC_POLICY: 2, REDUCE: warp}
workloads:
  - name: small
    shape: {batch: 1, heads: 2, seq_len: 70, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 2
    extra_trials: 1
"""


def head(*versions: str) -> str:
    lines = [f'  - {{torch: "{version}", cuda: "12.1", python: "3.11"}}' for version in versions]
    return HEAD.format(baseline=versions[0], environments="\n".join(lines))


def make_project(folder: Path, matrix: str) -> Path:
    for name in ("csrc", "docker"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "matrix.yaml").write_text(matrix)
    return folder


def command(project: Path, verb: str, *arguments: str) -> list[str]:
    """Without experiments, which cost minutes of a project of faulty kernels, unless they are asked for."""
    silent = verb in ("matrix", "eval") and not any(word.startswith("--explain") for word in arguments)
    explain = ["--explain=never"] if silent else []
    explain += ["--no-report"] if verb in ("matrix", "eval") else []
    return [sys.executable, "-m", "harness", verb, f"--matrix={project / 'matrix.yaml'}", *explain, *arguments]


def start(project: Path, verb: str, *arguments: str) -> tuple[int, str, Run]:
    done = subprocess.run(command(project, verb, VENV, *arguments), cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr, Run((project / "reports" / "latest").resolve())


def report(run: Run, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "harness", "report", str(run.folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def files(run: Run) -> dict[str, float]:
    return {
        str(p.relative_to(run.folder)): p.stat().st_mtime
        for folder in ("launches", "validations", "builds") for p in (run.folder / folder).rglob("*.json")
    }  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"), head("2.1.0", "2.5.0") + SHIPPED)


@pytest.fixture(scope="module")
def finished(project: Path) -> tuple[int, str, Run]:
    return start(project, "matrix")


def test_two_real_versions_from_matrix_to_page(finished: tuple[int, str, Run]) -> None:
    code, printed, run = finished
    assert code == 0, printed
    observed = {e.torch: e.observed for e in run.environments()}
    for version in ("2.1.0", "2.5.0"):
        seen = observed[version]
        assert seen is not None and seen.torch.partition("+")[0] == version and seen.numpy == "1.26.4"
    record = run.load()
    cpu = [b for b in run.builds() if b.device == "cpu"]
    assert len(cpu) == 2 and all(b.status == "ok" and "build" in b.build_ninja and b.artifact_sha256 for b in cpu)
    validations = run.validations()
    assert {v.status for v in validations} == {"ok"} and len(validations) == len(record.cells) == 2
    first, second = ([r.input_sha256 for r in v.recipes] for v in validations)
    assert first == second, "the same bytes go in everywhere"
    operators = {t.target: t.operators for t in validations[1].recipes[0].targets}
    assert any("flash" in name for name in operators["flash"]) and any("math" in name for name in operators["math"])
    assert len(run.launches()) == 4
    for launch in run.launches():
        assert {t.target for t in launch.timings} == {"kernel", "flash", "math", "default"}
        assert all(t.samples_us and min(t.samples_us) > 0 for t in launch.timings if t.status == "ok")
        assert all(t.correct for t in launch.timings if t.target == "kernel")
    assert run.crossings()[0].inputs_identical

    code, printed = report(run)
    assert code == 0 and printed.strip().endswith("index.html")
    page = (run.folder / "index.html").read_text()
    assert "2.1.0" in page and "2.5.0" in page
    summary = json.loads((run.folder / "summary.json").read_text())
    assert "2.5.0" in json.dumps(summary)


def test_an_unchanged_run_does_nothing_and_says_so(project: Path, finished: tuple[int, str, Run]) -> None:
    before = files(finished[2])
    code, printed, run = start(project, "matrix")
    assert code == 0 and "nothing changed" in printed
    assert run.folder == finished[2].folder and files(run) == before


def test_a_run_goes_on_in_whole_blocks_up_to_its_limit_and_then_stays_ended(tmp_path: Path) -> None:
    """How far depends on how this machine's launches spread."""
    text = (head("2.1.0", "2.5.0") + SHIPPED).replace("most_launches: 2", "most_launches: 5")
    project = make_project(tmp_path, text)
    code, printed, run = start(project, "matrix")
    assert code == 0 and "launches: 2, while rows stay undecided up to 5 of each" in printed, printed
    first, second = (
        sorted(x.index for x in run.launches() if x.environment == name) for name in run.load().environments
    )
    assert first == second == list(range(len(first))) and len(first) in (2, 4, 5), printed
    assert ("launches more, up to 5" in printed) == (len(first) > 2)
    assert (run.load().launches, run.load().most_launches) == (2, 5)
    before = files(run)
    code, printed, again = start(project, "matrix")
    assert "nothing changed" in printed and again.folder == run.folder and files(again) == before


def test_eval_measures_one_version_against_the_stored_baseline(project: Path, finished: tuple[int, str, Run]) -> None:
    code, printed, run = start(project, "eval", "--torch=2.5.0")
    assert code == 0, printed
    assert run.load().mode == "eval"
    assert {launch.environment for launch in run.launches()} == {run.load().environments[1]}
    assert {v.status for v in run.validations()} == {"ok"} and len(run.validations()) == 2
    code, _ = report(run)
    assert code == 0
    assert "undecided" in (run.folder / "summary.md").read_text()


def test_eval_without_a_stored_baseline_says_what_to_start(tmp_path: Path, finished: tuple[int, str, Run]) -> None:
    alone = make_project(tmp_path, head("2.1.0", "2.5.0") + SHIPPED)
    code, printed, run = start(alone, "eval", "--torch=2.5.0", "--launches=1")
    assert code == 0, printed
    missing = [v for v in run.validations() if v.status == "not_run"]
    assert len(missing) == 1 and "nox -s matrix" in missing[0].message
    assert report(run)[0] == 0


def test_an_edited_record_is_refused_with_its_path(tmp_path: Path, finished: tuple[int, str, Run]) -> None:
    copy = Run(tmp_path / "run")
    shutil.copytree(finished[2].folder, copy.folder)
    path = min((copy.folder / "launches").rglob("000.json"))
    path.write_text(path.read_text().replace('"index": 0', '"index": 7'))
    code, printed = report(copy)
    assert code == 64 and str(path) in printed and "edited or damaged" in printed


FAULTS = {
    "crashes": ("crashed", "SIGABRT", "import os; os.abort()"),
    "hangs": ("timed_out", "limit", "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"),
    "raises": ("crashed", "no such luck", "raise RuntimeError('no such luck')"),
    "shape": ("wrong", "expected", "return x[:, :-1].exp() * 1e-5"),
    "dtype": ("wrong", "float64", "return x.double().exp() * 1e-5"),
    "nan": ("wrong", "", "return x.exp() * 1e-5 * float('nan')"),
    "wrong_value": ("wrong", "", "return x.exp() * 1.01e-5"),
    # Within KernelBench's tolerance of every element, which are about 1e-5 each.
    "zeros": ("wrong", "", "return torch.zeros_like(x)"),
    "not_a_tensor": ("wrong", "", "return 1.0"),
    "right": ("ok", "", "return x.exp() * 1e-5"),
}
SOLUTION = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
BROKEN_SOURCE = '#include "attention.h"\nint attention_forward(int) { return undeclared_name; }\n'


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Run]:
    kernels = "".join(
        f"  - {{name: {name}, problem: faults/problem.py, model_new: faults/{name}.py, devices: [cpu], trials: 2}}\n"
        for name in FAULTS
    )
    kernels += "  - {name: compile_error, sources: {cpu: [faults/broken.cpp]}}\n"
    kernels += "  - {name: attention_scalar, sources: {cpu: [csrc/attention_scalar_cpu.cpp]}}\n"
    tail = SHIPPED[SHIPPED.index("workloads:") :] + "limits: {validation_s: 20}\n"
    project = make_project(tmp_path_factory.mktemp("faulty"), head("2.5.0") + "kernels:\n" + kernels + tail)
    (project / "faults").mkdir()
    (project / "faults" / "problem.py").write_text(PROBLEM)
    (project / "faults" / "broken.cpp").write_text(BROKEN_SOURCE)
    for name, (_, _, body) in FAULTS.items():
        (project / "faults" / f"{name}.py").write_text(SOLUTION.format(body=body.replace("; ", "\n        ")))
    return start(project, "matrix", "--launches=1", "--device=cpu")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_row_with_its_status_and_message(faulty: tuple[int, str, Run], name: str) -> None:
    _, printed, run = faulty
    status, said, _ = FAULTS[name]
    validation = next(v for v in run.validations() if v.kernel == name)
    assert validation.status == status, (validation.message, printed)
    assert said in validation.message and (status == "ok" or validation.message)


def test_a_compile_error_shows_the_compilers_message_and_exits_20(faulty: tuple[int, str, Run]) -> None:
    code, _, run = faulty
    assert code == 20
    build = next(b for b in run.builds() if b.kernel == "compile_error")
    assert build.status == "build_failed" and "undeclared_name" in build.message + build.log_excerpt
    validation = next(v for v in run.validations() if v.kernel == "compile_error")
    assert validation.status == "build_failed"
    reference = {t.target: t.status for t in validation.recipes[0].targets}
    assert reference.get("flash") == "ok", "what the kernel does not take part in is still measured"


def test_a_fault_takes_no_other_row_with_it(faulty: tuple[int, str, Run]) -> None:
    _, _, run = faulty
    healthy = next(v for v in run.validations() if v.kernel == "attention_scalar")
    assert healthy.status == "ok"
    timed = {x.kernel: x for x in run.launches()}
    assert all(t.status == "ok" for t in timed["attention_scalar"].timings)
    crashed = {t.target: t.status for t in timed["crashes"].timings}
    assert crashed == {"kernel": "not_run", "model": "ok"}
    code, _ = report(run)
    assert code == 20
    page = (run.folder / "index.html").read_text()
    assert "undeclared_name" in page and "SIGABRT" in page


def test_the_run_record_is_complete(faulty: tuple[int, str, Run]) -> None:
    run = faulty[2]
    record = load_record(run.run_path(), RunRecord)
    assert record.command[:3] == ["nox", "-s", "matrix"] and record.matrix_text and record.sources_sha256
    for cell in record.cells:
        assert load_record(run.validation_path(cell), ValidationRecord).workload == cell.workload


def test_a_version_that_does_not_exist_exits_64(tmp_path: Path) -> None:
    project = make_project(tmp_path, (head("2.1.0", "2.5.99") + SHIPPED))
    done = subprocess.run(command(project, "matrix"), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 64 and "2.5.99 does not exist" in done.stderr


def test_a_version_without_a_wheel_for_this_python_exits_64(tmp_path: Path) -> None:
    text = (head("2.1.0", "2.5.0") + SHIPPED).replace('python: "3.11"', 'python: "3.13"', 1)
    project = make_project(tmp_path, text)
    done = subprocess.run(command(project, "matrix"), cwd=ROOT, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 64 and "has no wheel for Python 3.13" in done.stderr
