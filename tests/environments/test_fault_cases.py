"""Fault cases on both real versions: an environment's flags and variables arrive, are recorded, and show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.schema.storage import Run
from tests.conftest import ROOT

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Two cases by name, run as a user runs them; what each must show, it showed."""
    out, names = tmp_path_factory.mktemp("cases"), ("fast_math_by_version", "precision_from_a_variable")
    command = [sys.executable, "-m", "tests.fault_cases", "--no-causes", "--executor=venv", f"--out={out}"]
    done = subprocess.run([*command, "--only", *names], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((out / "results.json").read_text())["cases"]
    assert [(row["name"], row["missing"], row["shown"]["statuses"]) for row in rows] == [
        (name, [], ["ok", "wrong"]) for name in names
    ]
    return {row["name"]: Run(out / row["project"] / "reports" / "runs" / row["run"]) for row in rows}


def test_flags_of_an_environment_reach_its_build_alone(shown: dict[str, Run]) -> None:
    before, after = (build.flags for build in shown["fast_math_by_version"].builds())
    assert "cxx: -ffast-math" in after and "cxx: -ffast-math" not in before
    assert [flag for flag in after if flag != "cxx: -ffast-math"] == before


def test_variables_of_an_environment_are_observed_inside(shown: dict[str, Run]) -> None:
    before, after = shown["precision_from_a_variable"].environments()
    assert (before.variables, after.variables) == ({}, {"ATTENTION_EXP": "fast"})
    assert before.observed is not None and after.observed is not None
    assert "env.ATTENTION_EXP" not in before.observed.settings
    assert after.observed.settings["env.ATTENTION_EXP"] == "fast"
    objects = [
        {name: value for name, value in build.objects.items() if "binding" not in name}
        for build in shown["precision_from_a_variable"].builds()
    ]
    assert objects[0] and objects[0] == objects[1], "the machine code is the same: it is the variable"


def test_nothing_of_the_truth_or_of_this_machine_is_recorded(shown: dict[str, Run]) -> None:
    for name, run in shown.items():
        text = run.run_path().read_text()
        for telling in (name, "fault_case", "build_moved", "environment_confounder", str(ROOT), str(Path.home())):
            assert telling not in text, telling
