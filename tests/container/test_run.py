"""A whole run in containers of both versions, beside the same matrix in virtual environments at the same time."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.executors.engine import Engine
from harness.schema.environment_records import BINDING_OBJECT, BuildRecord
from harness.schema.storage import Run
from tests.container.conftest import BASE
from tests.container.project import begin, containers_of, docker_run, printed
from tests.projects import SHIPPED, check_measured, files, head, latest, make_project, outputs

pytestmark = [pytest.mark.container, pytest.mark.environments, pytest.mark.timeout(1500)]

WAITING = "another run is measuring on this machine; waiting for it"
VERSIONS = ("2.1.0", "2.5.0")
SOURCES = "sources: {cpu: [csrc/attention_scalar_cpu.cpp], cuda: [csrc/attention_scalar.cu]}"
MATRIX = head(*VERSIONS) + SHIPPED.replace("sources: {cpu: [csrc/attention_scalar_cpu.cpp]}", SOURCES)
FAST = MATRIX.replace(SOURCES, "sources: {cpu: [csrc/attention_scalar_cpu.cpp]}")


class Ran(NamedTuple):
    code: int
    printed: str
    run: Run
    pid: int


def touch(project: Path) -> None:
    """Change the kernel's sources, but not what they compute, so that nobody has built them yet."""
    for path in (project / "csrc").glob("attention_scalar*.c*"):
        path.write_text(f"{path.read_text()}\n// {uuid.uuid4().hex}\n")


@pytest.fixture(scope="module")
def both(image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """By executor: two runs of one matrix at once."""
    children = {}
    for executor, options in (("docker", ()), ("venv", ("--executor=venv",))):
        project = make_project(tmp_path_factory.mktemp("both") / executor, MATRIX)
        touch(project)
        children[executor] = project, begin(project, *options)
    return {
        executor: Ran(child.wait(), printed(project), latest(project), child.pid)
        for executor, (project, child) in children.items()
    }


def test_both_complete(both: dict[str, Ran]) -> None:
    for ran in both.values():
        assert ran.code == 0, ran.printed
        assert len(ran.run.validations()) == 2
        check_measured(ran.run, launches=4)


def cuda_builds(ran: Ran) -> list[BuildRecord]:
    return [build for build in ran.run.builds() if build.device == "cuda"]


def test_cuda_sources_are_compiled_under_both_versions_for_every_architecture(both: dict[str, Ran]) -> None:
    builds = cuda_builds(both["docker"])
    assert len({build.environment for build in builds}) == len(builds) == 2
    for build in builds:
        assert build.status == "ok" and not build.runnable and not build.reused, build.message
        assert "release 12.4" in build.compiler or "12.4" in build.compiler, build.compiler
        assert {function.architecture for function in build.functions} == {"sm_80", "sm_89", "sm_90"}
        assert all(function.registers > 8 and function.disassembly_sha256 for function in build.functions)
        assert build.artifact_sha256 and "nvcc" in build.build_ninja
        assert BINDING_OBJECT in build.objects and build.binding_s and build.build_s
    assert builds[0].artifact_sha256 != builds[1].artifact_sha256


def test_the_records_say_where_it_ran(both: dict[str, Ran], engine: Engine) -> None:
    record = both["docker"].run.load()
    assert record.executor == "docker" and record.executor_reason == f"containers of {engine.facts().name}"
    assert record.engine["version"] == engine.facts().version
    for environment in both["docker"].run.environments():
        assert environment.executor == "docker" and re.fullmatch(r"sha256:[0-9a-f]{64}", environment.image)
        found = engine.image(environment.image)
        assert found is not None and found.labels["org.kernel-matrix.base"] == BASE
        assert found.labels["org.kernel-matrix.key"] == environment.key
        seen = environment.observed
        assert seen is not None and seen.torch.partition("+")[0] == environment.torch and "12.4" in seen.nvcc
        cage = seen.confinement
        assert cage is not None and cage.user_id == 10002 and cage.seccomp == 2 and cage.no_new_privileges
        assert not cage.root_writable and cage.memory_bytes and cage.processes == 1024
    record = both["venv"].run.load()
    assert record.executor == "venv" and record.engine == {}
    assert all(environment.image == "" for environment in both["venv"].run.environments())


def test_both_executors_give_the_same_bits(both: dict[str, Ran]) -> None:
    inside, outside = outputs(both["docker"].run), outputs(both["venv"].run)
    assert inside.keys() == outside.keys() and len(inside) == 2 * 3 * 4
    compilers = {
        (executor, build.environment): build.compiler
        for executor, ran in both.items()
        for build in ran.run.builds()
        if build.device == "cpu"
    }
    compared = 0
    for place, digests in inside.items():
        environment, _, name = place
        if name != "kernel" or compilers["docker", environment] == compilers["venv", environment]:
            assert digests and digests == outside[place], place
            compared += 1
    assert compared >= 2 * 3 * 3
    for left, right in zip(both["docker"].run.validations(), both["venv"].run.validations(), strict=True):
        for one, other in zip(left.recipes, right.recipes, strict=True):
            assert one.input_sha256 == other.input_sha256 and one.input_sha256
            assert one.truth_sha256 == other.truth_sha256 and one.truth_sha256
            assert one.rounding_cost == other.rounding_cost


def test_no_container_is_left(both: dict[str, Ran]) -> None:
    assert not containers_of(both["docker"].pid)
    assert not (both["docker"].run.folder / "scratch").exists()


def project_of(ran: Ran) -> Path:
    return ran.run.folder.parent.parent.parent


def test_an_unchanged_run_starts_no_container(both: dict[str, Ran]) -> None:
    before = files(both["docker"].run)
    (code, said, run), _ = docker_run(project_of(both["docker"]))
    assert code == 0 and "nothing changed" in said and run.folder == both["docker"].run.folder
    assert files(run) == before


def test_a_changed_kernel_rebuilds_no_image(both: dict[str, Ran]) -> None:
    project = project_of(both["docker"])
    (project / "matrix.yaml").write_text(FAST)
    touch(project)
    (code, said, run), pid = docker_run(project, "--launches=1")
    assert code == 0, said
    before = {environment.id: environment.image for environment in both["docker"].run.environments()}
    assert {environment.id: environment.image for environment in run.environments()} == before
    assert all(environment.reused for environment in run.environments())
    assert not any(build.reused for build in run.builds()) and not containers_of(pid)
