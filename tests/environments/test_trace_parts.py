"""Parts of a script, traced under the real 2.1.0 and 2.5.0: a module in some steps, and a region by itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.config.matrix import load_matrix
from harness.errors import DONE
from harness.trace.factors import EXPLAINS, NOTHING
from tests.conftest import ROOT

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]
STEPS = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"


class Leaky(nn.Module):
    def forward(self, x):
        return F.leaky_relu(x, 0.02 if LATER else 0.01)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), Leaky()

    def forward(self, x):
        return self.second(self.first(x)).sum()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = net(torch.randn(4, 8))
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
WIDER = """
import torch

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
x, w = torch.randn(128, 256), torch.randn(256, 256) / 16
for _ in range(40):
    x = torch.tanh((x.double() @ w.double()).float() if LATER else x @ w)
print(x.sum().item())
"""
ATTENTION = """
import torch

torch.manual_seed(0)
query = torch.randn(2, 4, 64, 32)
print(torch.nn.functional.scaled_dot_product_attention(query, query, query).norm().item())
"""
CALL = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import mm
print(hashlib.sha256(mm.Model(*mm.get_init_inputs())(*mm.get_inputs()).numpy().tobytes()).hexdigest())
"""


def traced(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["trace", "--good", "2.1.0", "--bad", "2.5.0", f"--matrix={ROOT / 'matrix.yaml'}", "--out=out", *options]
    assert main.main([*words, "--", "python", "mine.py"]) == DONE
    found: dict[str, Any] = json.loads((tmp_path / "out" / "summary.json").read_text())
    return found


def test_a_module_in_a_step_is_recorded_alone_and_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = traced(STEPS, tmp_path, monkeypatch, "--only", "second", "--steps", ":1")
    assert found["verdict"] == "proven" and found["part"] == "second in step 0", found["answer"]
    assert [cause["kind"] for cause in found["causes"]] == ["leaky_relu", "leaky_relu_backward"]
    assert [cost["operators"] for cost in found["cost"].values()] == [2, 2]
    assert float(found["elsewhere"]) > 0 and not found["entry"][1], "the losses of the steps are numbers elsewhere"
    assert "of the rest nothing is said" in (tmp_path / "out" / "index.html").read_text()


def test_a_region_is_timed_and_is_a_problem_file(
    pinned_pythons: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = traced(WIDER, tmp_path, monkeypatch, "--time", "--extract")
    row = found["times"]["rows"][0]
    assert row["kind"] == "mm -> _to_copy, mm" and row["calls"] == [40, 40]
    assert row["seconds"]["difference"] > 0 and row["alone"]["ratio"] > 1
    assert row["peak_bytes"] == [128 * 256 * 4, 256 * 256 * 8], "of one call each: the product, and the largest cast"
    assert (tmp_path / "out" / "timed" / "mm.py").exists() and "timed/matrix.yaml" in found["times"]["command"]
    assert found["times"]["memory"]["good"] > found["times"]["start_bytes"][0] > 0
    alone = tmp_path / "out" / "alone"
    matrix, _ = load_matrix(alone / "matrix.yaml")
    assert [operator.problem for operator in matrix.operators] == ["mm.py"], "the origin"
    assert [spec.torch for spec in matrix.environments] == ["2.1.0", "2.5.0"]
    calls = [[str(python), "-c", CALL, str(alone)] for python in pinned_pythons]
    digests = [subprocess.run(call, capture_output=True, text=True, check=True).stdout for call in calls]
    assert len(digests[0]) > 64 and digests[0] != digests[1]


def test_an_operator_runs_again_with_one_factor_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = traced(ATTENTION, tmp_path, monkeypatch)
    (cause,) = [cause for cause in found["causes"] if "attention" in cause["kind"]]
    factors = cause["judged"]["factors"]
    assert factors["math"] == EXPLAINS and factors["onednn"] == factors["denormals"] == NOTHING
    assert factors["vector"] != NOTHING and "threads" not in factors, "the script has one thread"
    assert "With attention's math backend both versions give the same bits" in cause["judged"]["text"]
