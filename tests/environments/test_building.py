"""The shipped binding in both real versions: compiled once for an environment, linked into each kernel's extension."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.config.plan import PlannedBuild
from harness.run.build import SHIPPED_BINDING
from harness.run.context import Context
from harness.schema.environment_records import BINDING_OBJECT
from tests.conftest import ROOT
from tests.projects import BROKEN_SOURCE, SHIPPED, built_context, head, make_project

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]

TWO = """\
  - name: narrow
    sources: {cpu: [csrc/attention_scalar_cpu.cpp]}
    tunables: {BLOCK_M: 16, NUM_WARPS: 8, VEC_WIDTH: 4, SYNC_POLICY: 2, REDUCE: warp}
  - {name: compile_error, sources: {cpu: [faults/broken.cpp]}}
workloads:
"""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """Of a project whose binding nobody has compiled yet."""
    sources = {
        "faults/broken.cpp": BROKEN_SOURCE,
        SHIPPED_BINDING: f"{(ROOT / SHIPPED_BINDING).read_text()}// {uuid.uuid4().hex}\n",
    }
    text = head("2.1.0", "2.5.0") + SHIPPED.replace("workloads:\n", TWO)
    project = make_project(tmp_path_factory.mktemp("building") / "project", text, sources)
    context = built_context(project)
    kept = {context.build_folder(record, record.key) for record in context.builds.values()}
    yield context
    for folder in kept | {binding(context, id).parent.parent for id in context.environments}:
        shutil.rmtree(folder, ignore_errors=True)


def binding(context: Context, environment: str) -> Path:
    """The object that an environment's kernels are linked with."""
    key = context.key("binding", environment=environment, kernel="narrow", device="cpu")
    part = PlannedBuild(environment=environment, kernel="attention_binding", device="cpu", runnable=False)
    return context.build_folder(part, key) / "out" / BINDING_OBJECT


def binding_logs(context: Context) -> list[Path]:
    return sorted((context.run.folder / "logs").glob("*/build-*-binding.log"))


def test_one_compile_serves_every_kernel_of_an_environment(context: Context) -> None:
    assert len(context.builds) == 2 * 3
    assert [path.parent.name for path in binding_logs(context)] == sorted(context.environments)
    for environment in context.environments:
        first, second = (context.builds[environment, name, "cpu"] for name in ("attention_scalar", "narrow"))
        assert first.status == second.status == "ok", (first.message, second.message)
        assert first.objects[BINDING_OBJECT] == second.objects[BINDING_OBJECT]
        assert first.artifact_sha256 != second.artifact_sha256
        assert first.binding_s == second.binding_s and first.binding_s and first.build_s
        for record in (first, second):
            assert record.build_ninja.count("$ROOT/csrc/attention_binding.cpp") == 1
            assert f"-shared {BINDING_OBJECT} " in record.build_ninja
        assert binding(context, environment).is_file()


def test_a_kernels_error_is_named_as_before(context: Context) -> None:
    for environment in context.environments:
        failed = context.builds[environment, "compile_error", "cpu"]
        assert failed.status == "build_failed" and failed.message.startswith("broken.cpp:2:"), failed.message
        assert "undeclared_name" in failed.message and "attention_binding" not in failed.message + failed.log_excerpt
