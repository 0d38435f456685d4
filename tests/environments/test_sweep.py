"""A sweep with a real PyTorch: what is not clean is rejected, the faster setting confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import main
from harness.schema.storage import Run, load_record
from harness.schema.sweep_records import SweepRecord
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


def test_the_fastest_correct_setting_is_found_and_confirmed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    project = make_project(tmp_path / "project", head("2.5.0") + MATRIX + LONGER, {"csrc/tuned.cpp": TUNED})
    command = ["sweep", f"--matrix={project / 'matrix.yaml'}", "--executor=venv", "--kernel=tuned", "--workload=small"]
    assert main(command) == 0, capfd.readouterr().out
    [path] = (project / "reports" / "sweeps").glob("*/sweep.json")
    record = load_record(path, SweepRecord)
    trials = {str(trial.setting["WORK"]): trial for trial in record.trials if not trial.confirms}
    assert trials["once"].score < 0.8 and not trials["once"].rejected
    assert trials["unclean"].rejected.startswith(("correctness", "poison")) and not trials["unclean"].ratios
    assert record.winner is not None and record.winner.setting == {"WORK": "once"}
    for each in record.winner.ratios:
        assert each.high is not None and each.high < 1 and each.replicates >= 6
    run = Run(project / "reports" / "runs" / trials["once"].run)
    assert len({launch.kernel for launch in run.launches() if launch.status == "ok"}) == 2
    assert (path.parent / "index.html").is_file()
