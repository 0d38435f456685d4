"""Packages exchanged between the two real versions: stand-ins that compute something else, or take longer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from harness.experiments.packages import exchange_packages
from harness.experiments.plan import Focus
from harness.run.prepare import RunOptions, make_plan
from harness.schema.experiment_records import FactorRecord
from harness.schema.run_records import Selection
from harness.schema.storage import Run
from harness.tools import cache_folder
from harness.workflow.matrix import measure
from reports.attribute import Cause, explained
from reports.attribute.causes import About, Grade, Kind
from tests.projects import HEAD, make_project
from tests.wheels import write_wheel

pytestmark = [
    pytest.mark.environments,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("KERNEL_MATRIX_COMPONENTS"),
        reason="it makes six environments, in some ten minutes: KERNEL_MATRIX_COMPONENTS=1 runs it",
    ),
]
OWN = "  - {{torch: '{0}', cuda: '12.1', python: '3.11', packages: [matrixdemo=={1}, matrixother=={1}]}}"
DEMO = "import time\ndef scaled(x):\n    return x * {0}\ndef waited(x):\n    time.sleep({1})\n    return x * 2.0\n"
PROBLEM = """\
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x * 2.0)
def get_inputs():
    return [torch.randn(64, 64)]
def get_init_inputs():
    return []
"""
SOLUTION = """\
import torch, matrixdemo, matrixother
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh({0})
"""
KERNELS = {
    "follows": "matrixdemo.scaled(x)",
    "slower": "matrixdemo.waited(x)",
    "pytorch": "x * (2.0 if torch.__version__ < '2.2' else 2.01)",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("components")
    for version, source in (("1.0", DEMO.format("2.0", 0)), ("2.0", DEMO.format("2.01", 0.02))):
        write_wheel(folder / "wheels", "matrixdemo", version, {"matrixdemo.py": source})
        write_wheel(folder / "wheels", "matrixother", version, {"matrixother.py": f"VERSION = {version}\n"})
    line = "  - {{name: {0}, problem: p.py, model_new: {0}.py, devices: [cpu], trials: 2}}\n"
    environments = "\n".join(OWN.format(*each) for each in (("2.1.0", "1.0"), ("2.5.0", "2.0")))
    text = HEAD.format(baseline="2.1.0", environments=environments).replace("unches: 2", "unches: 3")
    files = {"p.py": PROBLEM, **{f"{name}.py": SOLUTION.format(code) for name, code in KERNELS.items()}}
    project = make_project(folder / "project", text + "kernels:\n" + "".join(map(line.format, KERNELS)), files)
    before = set((cache_folder() / "environments").glob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_FIND_LINKS", str(folder / "wheels"))
        options = RunOptions(matrix_path=project / "matrix.yaml", command=("matrix",), executor="venv", explain=False)
        made = measure(options, Selection())
        prepared = make_plan(options, Selection(), write_pins=True)
        exchange_packages(options, Selection(), prepared, made, Focus(), measure)
    left = set((cache_folder() / "environments").glob("*")) - before
    yield made
    for path in (cache_folder() / "environments").glob("*-matrixdemo-*"):
        shutil.rmtree(path)
    assert {path.name.rpartition("-")[0] for path in left} <= set(made.load().environments), "exchanged ones are left"


def records_of(run: Run, kernel: str) -> list[FactorRecord]:
    return [record for record in run.experiments(FactorRecord) if record.kernel == kernel and record.package]


def causes_of(run: Run, kernel: str, about: str) -> list[Cause]:
    return [cause for cause in explained(run.folder) if cause.kernel == kernel and cause.about == about]


def test_what_follows_the_package_is_proven_and_the_other_package_blamed_for_nothing(run: Run) -> None:
    (lead,) = causes_of(run, "follows", About.CORRECTNESS)
    assert (lead.cause, lead.grade) == (Kind.COMPONENT_MOVED, Grade.PROVEN), lead.statement
    assert "matrixdemo" in lead.statement and "matrixother" not in lead.statement
    records = records_of(run, "follows")
    assert [record.package for record in records] == ["matrixdemo", "matrixother"]
    for record in records:
        assert list(record.versions.values()) == ["1.0", "2.0"] and record.status == "ok"
        assert len({(each.home, each.level) for each in record.results}) == 4


def test_a_time_follows_the_package(run: Run) -> None:
    (lead,) = causes_of(run, "slower", About.LATENCY)
    assert (lead.cause, lead.grade) == (Kind.COMPONENT_MOVED, Grade.PROVEN), lead.statement
    assert "matrixdemo" in lead.statement and all(record.timed for record in records_of(run, "slower"))


def test_what_pytorch_moves_is_not_blamed_on_a_package(run: Run) -> None:
    (lead,) = causes_of(run, "pytorch", About.CORRECTNESS)
    assert Kind.COMPONENT_MOVED not in lead.causes, lead.statement
    assert any("matrixdemo, matrixother of the other environment" in each.how for each in lead.excluded)
