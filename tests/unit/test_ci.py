"""action.yml and ci/gitlab.yml: their steps, as far as they can run here. No GitHub and no GitLab saw them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

pytestmark = pytest.mark.process

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
GITLAB: dict[str, Any] = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())[".kernel-matrix"]

# Stands for the command: makes a run as that does, and ends with the code that it is told.
COMMAND = """#!/bin/sh
echo "$@" >>"$SAID"
mkdir -p reports/runs/one && ln -sfn runs/one reports/latest
for name in index.html summary.md comment.md junit.xml codequality.json; do echo "the $name" >reports/latest/$name; done
exit $CODE
"""
GITLAB_MODULE = """
import json, os, types
PATH = os.environ["NOTES"]
class Note(types.SimpleNamespace):
    def save(self): json.dump([*filter(lambda body: not body.startswith("<!--"), read()), self.body], open(PATH, "w"))
def read(): return json.load(open(PATH)) if os.path.exists(PATH) else ["a person's"]
class Notes:
    def list(self, iterator): return [Note(body=body) for body in read()]
    def create(self, made): json.dump([*read(), made["body"]], open(PATH, "w"))
def Gitlab(server, private_token):
    assert (server, private_token) == ("https://gitlab.example", "secret")
    get = lambda one: types.SimpleNamespace(get=lambda id, lazy: one)
    return types.SimpleNamespace(projects=get(types.SimpleNamespace(mergerequests=get(
        types.SimpleNamespace(notes=Notes())))))
"""


def commanded(folder: Path, code: int) -> tuple[Path, dict[str, str]]:
    binaries = folder / "temp" / "kernel-matrix" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "kernel-matrix").write_text(COMMAND)
    (binaries / "kernel-matrix").chmod(0o755)
    said = {"SAID": str(folder / "said"), "CODE": str(code), "PATH": os.environ["PATH"]}
    return binaries, said


def shell(script: str, folder: Path, variables: dict[str, str]) -> int:
    """As a runner starts a step: bash --noprofile --norc -eo pipefail."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True).returncode


@pytest.mark.parametrize(("code", "fail_on", "typed"), [(0, "latency", "--fail-on=latency"), (10, "", "--quick")])
def test_the_actions_step_runs_the_matrix_and_hands_its_code_on(
    tmp_path: Path, code: int, fail_on: str, typed: str
) -> None:
    _, variables = commanded(tmp_path, code)
    variables |= {
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "FAIL_ON": fail_on,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "shown"),
        "ARGUMENTS": "--quick --kernel mine",
    }
    matrix = next(step for step in STEPS if step.get("id") == "matrix")
    assert shell(matrix["run"], tmp_path, variables) == 0, "the page is uploaded whatever it found"
    words = (tmp_path / "said").read_text().split()
    assert words[:4] == ["matrix", "--quick", "--kernel", "mine"] and typed in words
    assert ("--fail-on" in " ".join(words)) is bool(fail_on)
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert outputs == {"exit-code": str(code), "report": str(tmp_path / "reports" / "runs" / "one")}
    assert (tmp_path / "shown").read_text() == "the comment.md\n"
    assert shell(STEPS[-1]["run"], tmp_path, {"CODE": outputs["exit-code"]}) == code


def test_what_the_action_names_is_there() -> None:
    text = (ROOT / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    ids = {step["id"] for step in STEPS if "id" in step}
    assert set(re.findall(r"steps\.([a-z-]+)\.", text)) == ids
    assert ACTION["runs"]["using"] == "composite" and all("shell" in step for step in STEPS if "run" in step)
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in STEPS if "uses" in step)
    assert "${{" not in "".join(step.get("run", "") for step in STEPS), "text of a pull request is never a script's"


@pytest.mark.parametrize("code", [0, 11])
def test_gitlabs_job_keeps_the_page_and_edits_its_one_comment(tmp_path: Path, code: int) -> None:
    binaries, variables = commanded(tmp_path, code)
    venv = tmp_path / ".cache" / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "kernel-matrix").symlink_to(binaries / "kernel-matrix")
    (venv / "python").write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {sys.executable} "$@"\n')  # installs nothing
    (venv / "python").chmod(0o755)
    (tmp_path / "gitlab.py").write_text(GITLAB_MODULE)
    variables |= {
        "PYTHONPATH": str(tmp_path),
        "NOTES": str(tmp_path / "notes"),
        "KERNEL_MATRIX": "package",
        "KERNEL_MATRIX_OPTIONS": "--quick",
        "KERNEL_MATRIX_FAIL_ON": "latency",
        "KERNEL_MATRIX_TOKEN": "secret",
        "CI_MERGE_REQUEST_IID": "3",
        "CI_PROJECT_ID": "7",
        "CI_SERVER_URL": "https://gitlab.example",
    }
    script = [line for line in GITLAB["script"] if "-m venv" not in line]
    for _ in range(2):
        assert shell("\n".join(script), tmp_path, variables) == code
    assert (tmp_path / "said").read_text().split() == ["matrix", "--quick", "--fail-on=latency"] * 2
    kept = {path.name for path in (tmp_path / "kernel-matrix-page").iterdir()}
    assert kept == {"index.html", "summary.md", "comment.md", "junit.xml", "codequality.json"}
    assert (tmp_path / "notes").read_text().count("<!-- kernel-matrix -->") == 1, "a later pipeline edits it"
    assert "a person's" in (tmp_path / "notes").read_text()
