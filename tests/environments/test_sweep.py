"""A sweep with a real PyTorch: what is not clean is rejected, the faster setting confirmed and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import main
from harness.config.matrix import load_matrix
from harness.schema.storage import Run, load_record
from harness.schema.sweep_records import SweepRecord
from harness.search.sweep import space
from tests.candidates.faulty import SOURCE
from tests.projects import WORKLOADS, head, make_project

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

MATRIX = """\
kernels:
  - name: tuned
    sources: {cpu: [csrc/tuned.cpp]}
    tunables: {WORK: often}  # as it came
    search: {WORK: [often, once, unclean]}
"""
LONGER = WORKLOADS.replace("heads: 2, seq_len: 70", "heads: 4, seq_len: 130")
# Sums in memory that nobody cleared, which is right wherever the heap is fresh. Four times the work shows through the
# noise of any machine.
TUNED = f"""\
#ifdef WORK_UNCLEAN
#define FAULT_HEAP 1
#endif
#define attention_forward attention_once
{SOURCE}
#undef attention_forward
extern "C" int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v, void* o,
                                 void* stream) {{
#ifdef WORK_OFTEN
    for (int more = 0; more < 3; ++more) attention_once(problem, q, k, v, o, stream);
#endif
    return attention_once(problem, q, k, v, o, stream);
}}
"""


def test_the_fastest_right_setting_is_found_confirmed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(space, "FINAL_LAUNCHES", 1)
    project = make_project(tmp_path / "project", head("2.5.0") + MATRIX + LONGER, {"csrc/tuned.cpp": TUNED})
    path = project / "matrix.yaml"
    command = ["sweep", f"--matrix={path}", "--executor=venv", "--kernel=tuned", "--workload=small", "--write"]
    assert main(command) == 0, capfd.readouterr().out
    [folder] = (project / "reports" / "sweeps").glob("*")
    record = load_record(folder / "sweep.json", SweepRecord)
    trials = {str(trial.setting["WORK"]): trial for batch in record.batches for trial in batch.trials}
    assert trials["once"].status == "ok" and trials["once"].score is not None and trials["once"].score < 0.8
    assert trials["unclean"].stage in ("correctness", "poison") and not trials["unclean"].compared
    assert record.exhausted and record.verdict == "confirmed" and record.winner == {"WORK": "once"}
    assert record.confirmation is not None
    for each in record.confirmation.trial.compared:
        assert each.high is not None and each.high < 1 and len(each.this_us) == space.CONFIRMING_LAUNCHES
    run = Run(project / "reports" / "runs" / record.batches[0].run)
    assert {launch.kernel for launch in run.launches() if launch.status == "ok"} == {"tuned", trials["once"].kernel}
    assert load_matrix(path)[0].kernels[0].tunables == {"WORK": "once"}
    assert "tunables: {WORK: once}  # as it came" in path.read_text()
    assert main(["report", str(folder)]) == 0 and (folder / "index.html").is_file()
