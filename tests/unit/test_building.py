"""Builds, and the shipped binding, which is compiled once for an environment and linked into each."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.kernels import Flags, Kernel
from harness.config.matrix import Limits, Matrix
from harness.config.plan import Facts, PlannedBuild
from harness.errors import Interrupted
from harness.executors import Answer, Task
from harness.run.build import BINDING_FILES, build, kernel_files
from harness.run.context import Context
from harness.schema.environment_records import BINDING_OBJECT, BuildRecord
from harness.schema.records import Device
from harness.schema.storage import Run
from harness.worker import protocol
from reports.render.reproduce import COMPILED
from tests.conftest import ROOT
from tests.messages import answered
from tests.unit.contexts import ended

BINDING, KERNEL = "binding", "kernel"
FAILED = {"status": "build_failed", "message": "attention_binding.cpp:7:3: error: no", "flags": ["cxx: -O3"]}


class Builder:
    """Stands in for an executor: leaves what the verb leaves, and remembers what it was asked for."""

    def __init__(self, root: Path) -> None:
        self.root, self.tasks, self.busy = root, list[Task](), threading.Lock()
        self.binding_result: dict[str, Any] | None = {"status": "ok"}
        self.binding_s = 0.0

    def folder(self, environment: Any) -> Path:
        return self.root / "environment"

    @property
    def asked(self) -> list[str]:
        return [BINDING if task.request.artifact == BINDING_OBJECT else KERNEL for task in self.tasks]

    def run(self, task: Task) -> Answer:
        self.tasks.append(task)
        out, request = Path(task.request.build_dir), task.request
        assert task.name == "build" and not list(out.iterdir()) and task.writes == (out,)
        assert all(path.is_file() for path in task.reads)
        is_binding = request.artifact == BINDING_OBJECT
        if is_binding:
            assert self.busy.acquire(blocking=False), "two compile the binding at once"
            time.sleep(self.binding_s)
            self.busy.release()
            if self.binding_result is None:
                raise Interrupted()
        artifact = out / (request.artifact or f"{request.name}.so")
        artifact.write_bytes(b"".join(Path(path).read_bytes() for path in request.objects) or b"object")
        source = Path(request.sources[0])
        result = {
            "status": "ok",
            "flags": ["cxx: -O3", "ld: -pthread"],
            "build_s": 9.0 if is_binding else 2.0,
            "artifact_sha256": protocol.sha256_file(str(artifact)),
            "objects": {f"{source.stem}.o": "code"},
            "build_ninja": f"build {source.stem}.o: compile {source}\n",
            "compiler": "c++ 12",
            **((self.binding_result or {}) if is_binding else {}),
        }
        return Answer(result=answered(**result), ended=ended())


def kernel(name: str = "k", **changes: Any) -> Kernel:
    return Kernel(**{"name": name, "sources": {"cpu": ["csrc/k.cpp"], "cuda": ["csrc/k.cu"]}, **changes})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "csrc").mkdir()
    for name in (*BINDING_FILES, "csrc/k.cpp", "csrc/k.cu", "csrc/k.h"):
        (tmp_path / name).write_text(name)
    return tmp_path


def context_of(project: Path, *kernels: Kernel, key: str = "one") -> Context:
    """A context of one environment, whose key is `key`."""
    files = {name: "0" for name in (*BINDING_FILES, "csrc/k.cpp", "csrc/k.cu", "csrc/k.h")}
    spec = SimpleNamespace(flags=Flags(cxx=[], nvcc=[]), variables={}, is_host=False)
    plan: Any = SimpleNamespace(
        environment=lambda id: SimpleNamespace(id=id, spec=spec),
        facts=Facts(
            executor="venv",
            executor_reason="",
            sources_sha256=files,
            files={each.name: {device: list(files) for device in ("cpu", "cuda")} for each in kernels},
            binding_files=BINDING_FILES,
            host={"compiler": "c++ 12"},
        ),
        limits=Limits(build_s=60),
    )
    matrix = Matrix.model_construct(kernels=kernels)
    executor: Any = Builder(project)
    environment: Any = SimpleNamespace(id="e", key=key, status="ok")
    return Context(
        root=project,
        cache=project / "cache",
        matrix=matrix,
        plan=plan,
        run=Run(project / "run"),
        executor=executor,
        sources={each.name: {"cpu": ["csrc/k.cpp"], "cuda": ["csrc/k.cu"]} for each in kernels},
        environments={"e": environment},
    )


def built(context: Context, name: str = "k", device: Device = "cpu") -> BuildRecord:
    return build(context, PlannedBuild(environment="e", kernel=name, device=device, runnable=device == "cpu"))


def asked(context: Context) -> list[str]:
    executor: Any = context.executor
    return list(executor.asked)


def objects_kept(project: Path) -> list[Path]:
    return sorted(project.glob(f"cache/builds/e-attention_binding-*/out/{BINDING_OBJECT}"))


@pytest.mark.parametrize("kind", ["build", "binding"])
def test_an_environment_s_key_is_in_those_of_what_is_built_in_it(project: Path, kind: str) -> None:
    """All other inputs: tests/unit/test_keys.py."""
    contexts = [context_of(project, kernel(), key=key) for key in ("one", "two")]
    assert len({context.key(kind, environment="e", kernel="k", device="cpu") for context in contexts}) == 2


def test_what_a_source_includes_is_one_of_its_files_whatever_its_name(project: Path) -> None:
    (project / "csrc" / "k.cpp").write_text('#include "parts/body.cpp"\n#include <vector>\n#include "nowhere.h"\n')
    (project / "csrc" / "parts").mkdir()
    (project / "csrc" / "parts" / "body.cpp").write_text('  # include "table.txt"\n#include "../k.cpp"\n')
    (project / "csrc" / "parts" / "table.txt").write_text('#include "../../../outside.h"')
    (project.parent / "outside.h").write_text("")
    found = kernel_files(project, kernel(binding="own"), {"cpu": ["csrc/k.cpp"]}, "cpu")
    assert sorted(found) == [
        "csrc/attention.h",
        "csrc/k.cpp",
        "csrc/k.h",
        "csrc/parts/body.cpp",
        "csrc/parts/table.txt",
    ]


def test_the_binding_includes_no_other_file_of_ours() -> None:
    seen, left = set[str](), [BINDING_FILES[0]]
    while left:
        seen.add(name := left.pop())
        text = (ROOT / name).read_text()
        left += [f"csrc/{found}" for found in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE)]
    assert seen == set(BINDING_FILES)


def test_a_second_kernel_s_build_compiles_no_binding(project: Path) -> None:
    context = context_of(project, kernel(), kernel("other", tunables={"BLOCK_M": 64}))
    first, second = built(context), built(context, "other")
    assert first.status == second.status == "ok" and asked(context) == [BINDING, KERNEL, KERNEL]
    executor: Any = context.executor
    of_binding, *of_kernels = executor.tasks
    assert "BLOCK_M" not in str(of_binding.request) and not of_binding.request.load
    assert set(of_binding.reads) == {project / name for name in BINDING_FILES}
    [made] = objects_kept(project)
    for task in of_kernels:
        assert task.request.objects == [str(made)] and made in task.reads and made not in task.writes
        assert task.request.sources == [str(project / "csrc" / "k.cpp")]
        assert task.request.name == "attention", "the module's name is the shipped binding's"
    assert not first.reused and built(context).reused and asked(context) == [BINDING, KERNEL, KERNEL]
    for record in (first, second):  # which tells of both
        assert record.objects == {"k.o": "code", BINDING_OBJECT: "code"}
        assert (record.build_s, record.binding_s, record.artifact) == (2.0, 9.0, "attention.so")
        assert COMPILED.findall(record.build_ninja) == ["$ROOT/csrc/k.cpp", "$ROOT/csrc/attention_binding.cpp"]


def test_a_project_elsewhere_shares_the_binding_and_not_the_path(project: Path, tmp_path: Path) -> None:
    assert built(context_of(project, kernel())).status == "ok"
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "csrc").mkdir(parents=True)
    for name in (*BINDING_FILES, "csrc/k.cpp"):
        (elsewhere / name).write_text(name)
    context = context_of(elsewhere, kernel("other"))
    context.cache = project / "cache"
    record = built(context, "other")
    assert asked(context) == [KERNEL] and str(project) not in record.build_ninja


@pytest.mark.parametrize("how", ["changed", "gone", "a link"])
def test_an_object_that_is_not_what_was_compiled_is_compiled_again(project: Path, how: str) -> None:
    context = context_of(project, kernel(), kernel("other"))
    assert built(context).status == "ok"
    [made] = objects_kept(project)
    content = made.read_bytes()
    made.unlink()
    if how == "changed":
        made.write_bytes(b"tampered")
    elif how == "a link":
        (project / "copy").write_bytes(content)
        made.symlink_to(project / "copy")
    assert built(context, "other").status == "ok"
    assert asked(context) == [BINDING, KERNEL, BINDING, KERNEL]
    assert made.read_bytes() == content and not made.is_symlink()


def test_a_binding_that_does_not_compile_fails_the_kernel_by_its_own_name(project: Path) -> None:
    context = context_of(project, kernel())
    context.executor.binding_result = FAILED  # type: ignore[attr-defined]
    record = built(context)
    assert (record.status, record.message) == ("build_failed", FAILED["message"])
    assert (record.kernel, record.runnable, record.flags) == ("k", True, []), "nothing of the kernel was compiled"
    assert asked(context) == [BINDING]


@pytest.mark.parametrize("ended", [FAILED, None], ids=["failed", "interrupted"])
def test_a_binding_that_was_not_compiled_is_compiled_again(project: Path, ended: dict[str, Any] | None) -> None:
    context = context_of(project, kernel())
    executor: Any = context.executor
    executor.binding_result = ended
    with contextlib.suppress(Interrupted):
        built(context)
    executor.binding_result = {"status": "ok"}
    assert built(context).status == "ok" and asked(context) == [BINDING, BINDING, KERNEL]


def test_builds_side_by_side_wait_for_the_one_that_compiles_it(project: Path) -> None:
    names = [f"k{number}" for number in range(8)]
    context = context_of(project, *map(kernel, names))
    executor: Any = context.executor
    executor.binding_s = 0.3
    with ThreadPoolExecutor(len(names)) as pool:
        records = list(pool.map(lambda name: built(context, name), names))
    assert {record.status for record in records} == {"ok"} and {record.binding_s for record in records} == {9.0}
    assert sorted(asked(context)) == [BINDING, *[KERNEL] * len(names)]


def test_other_flags_and_devices_have_their_own(project: Path) -> None:
    context = context_of(project, kernel(), kernel("other", flags={"cxx": ["-O1"]}))
    assert {built(context, name, device).status for name in ("k", "other") for device in ("cpu", "cuda")} == {"ok"}
    assert asked(context).count(BINDING) == len(objects_kept(project)) == 4
    executor: Any = context.executor
    assert [task.request.cuda_headers for task in executor.tasks].count(True) == 2
    assert len({task.log for task in executor.tasks}) == len(executor.tasks)


def test_a_binding_of_its_own_stays_as_it_is(project: Path) -> None:
    context = context_of(project, kernel("my.kernel", binding="own"))
    record = built(context, "my.kernel")
    executor: Any = context.executor
    [task] = executor.tasks
    assert (task.request.name, task.request.objects) == ("my_kernel", [])
    assert record.artifact == "my_kernel.so" and record.binding_s is None and BINDING_OBJECT not in record.objects


def test_a_broken_environment_builds_nothing(project: Path) -> None:
    context = context_of(project, kernel())
    broken: Any = SimpleNamespace(id="e", key="", status="broken", message="no wheel")
    context.environments["e"] = broken
    record = built(context)
    assert record.status == "broken" and "no wheel" in record.message and asked(context) == []
