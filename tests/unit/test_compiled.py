"""What compiles at run time, and what was generated for it: compared by environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.matrix import Matrix
from harness.config.plan import Facts
from harness.config.planner import plan_run
from harness.experiments.compiled import find_cells
from harness.schema.compiled_records import Compilation, CompiledRecord, GeneratedFile
from harness.schema.run_records import Selection
from harness.schema.storage import from_json_value, save_record
from reports.compare.compiled import Compiled, compiled
from reports.compare.factors import DIFFERS, SAME, UNKNOWN
from reports.load.evidence import Evidence, load_evidence
from reports.render.page import render_page
from reports.render.report import Report
from tests.unit.spec import Spec
from tests.unit.synthetic import write_run

BASE, THIS = Spec().environments


def output(text: str, kind: str = "inductor", name: str = "graph 0") -> GeneratedFile:
    return GeneratedFile(kind=kind, name=name, size_bytes=len(text), sha256=f"digest of {text}", text=text)


def record(environment: str, **given: object) -> CompiledRecord:
    values: dict[str, object] = {
        "environment": environment,
        "kernel": "pytorch",
        "workload": "gelu.compiled-fp32",
        "device": "cpu",
        "key": "k",
        "started_utc": "2026-01-01T00:00:00Z",
        "duration_s": 1.0,
        "status": "ok",
        "samples": [Compilation(generated_sha256="same")] * 2,
        "generated": [output("a\nb\nc\n")],
    }
    return from_json_value(CompiledRecord, {**values, **given})


def told(evidence: Evidence, base: CompiledRecord, this: CompiledRecord) -> Compiled:
    keyed = {(r.environment, r.kernel, r.workload, r.device): (r, "a/path.json") for r in (base, this)}
    (found,) = compiled(replace(evidence, compiled=keyed))
    return found


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    write_run(tmp_path)
    return load_evidence(tmp_path)


def test_a_side_that_failed_says_why(evidence: Evidence) -> None:
    found = told(evidence, record(BASE), record(THIS, status="crashed", message="it died"))
    assert "it died" in found.failed


def test_a_record_of_an_earlier_version_is_read_without_its_times() -> None:
    sample = {"block": 0, "cold_s": 20.0, "warm_s": 3.0, "later_us": 50.0, "generated_sha256": "same"}
    assert record(BASE, samples=[sample]).samples == [Compilation(generated_sha256="same")]


@pytest.mark.parametrize(("text", "compiles"), [("torch.compile(f)", True), ("import triton", True), ("", False)])
def test_cells_are_of_compiled_operators_and_files_that_name_a_compiler(
    tmp_path: Path, text: str, compiles: bool
) -> None:
    (tmp_path / "new.py").write_text(text)
    (tmp_path / "p.py").write_text("")
    kernel = {"name": "mine", "problem": "p.py", "model_new": "new.py", "devices": ["cpu"]}
    operator = {"operator": "torch.topk", "shapes": [[4, 8]], "compile": True, "devices": ["cpu"]}
    matrix = Matrix.model_validate({"kernels": [kernel], "operators": [operator]})
    plan = plan_run(matrix, Selection(devices=("cpu",)), Facts(executor="venv", executor_reason="a test"))
    found = list(find_cells(tmp_path, matrix, plan))
    assert {cell.workload for cell in found} == {"topk.compiled-fp32"} | ({"mine"} if compiles else set())
    assert {cell.environment for cell in found} == set(plan.measured)


def test_what_was_generated_is_the_same_or_differs(evidence: Evidence) -> None:
    assert told(evidence, record(BASE), record(THIS)).state == SAME
    other = told(evidence, record(BASE), record(THIS, generated=[output("a\nB\nc\n")]))
    diff = other.diffs["inductor graph 0"]
    assert other.state == DIFFERS and "+B" in diff and "-b" in diff
    more = told(evidence, record(BASE), record(THIS, generated=[output("a\nb\nc\n"), output("x", "so", "cpp_fused_0")]))
    assert more.kinds == {"inductor": SAME, "so": DIFFERS} and more.state == DIFFERS


def test_what_a_process_generates_otherwise_each_time_says_nothing(evidence: Evidence) -> None:
    wavering = [Compilation(generated_sha256=str(number)) for number in range(2)]
    found = told(evidence, record(BASE, samples=wavering), record(THIS, generated=[output("other")]))
    assert found.state == UNKNOWN and "from process to process" in found.generated_text
    assert told(evidence, record(BASE, generated=[]), record(THIS, generated=[])).state == UNKNOWN


def test_bytes_that_nothing_disassembles_are_no_difference(evidence: Evidence) -> None:
    one, two = (
        record(name, generated=[GeneratedFile(kind="cubin", name="add", size_bytes=1, sha256=f"raw:{name}")])
        for name in (BASE, THIS)
    )
    found = told(evidence, one, two)
    assert found.state == UNKNOWN and found.generated_text == "cubin cannot be compared"


def test_the_page_has_what_was_generated(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    cell = next(cell for cell in run.load().cells if cell.environment == THIS)
    place = {"kernel": cell.kernel, "workload": cell.workload, "device": cell.device}
    for environment, text in ((BASE, "a\n"), (THIS, "<b>\n")):
        path = run.experiment_path(environment, cell.kernel, cell.device, cell.workload, "compiled")
        save_record(path, record(environment, **{**place, "generated": [output(text)]}))
    page = render_page(Report(load_evidence(tmp_path)))
    assert "Compiled at run time" in page and "Inductor&#39;s output code differs" in page
    assert "+&lt;b&gt;" in page and "+<b>" not in page
