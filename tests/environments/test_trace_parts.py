"""Parts of a script, traced under the real 2.1.0 and 2.5.0: a module in some steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.errors import DONE
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
