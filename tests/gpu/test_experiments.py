"""Object code without its binding, checkers and profiles on a real GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.experiments.checkers import COMPUTE, DRIVER, cuda_results
from harness.schema.experiment_records import CheckerResult, OperatorTime
from harness.tools import cuda_compiler
from harness.worker import codec, wire
from tests.conftest import ROOT
from tests.gpu.conftest import BUILDS, REFERENCES, Built, Here, architecture, kernel_of, workload
from tests.messages import answered

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(cuda_compiler() is None, reason="no nvcc here"),
]
SHAPE = workload(seq_len=130, heads=2)


def objects_of(here: Here, name: str) -> dict[str, Any]:
    """(path and recorded hash) of the kernel's own object of a build."""
    return {Path(BUILDS[name][0]).stem + ".cuda.o": here.build_folder(name)}


def outputs(here: Here, kernel: dict[str, Any], place: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    out = here.work / place
    result = here.candidate(kernel_of(None) | kernel, SHAPE, out)
    return result, {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.bin"))}


def test_object_code_without_its_binding_gives_the_extensions_bits(here: Here, built: Built) -> None:
    extension, expected = outputs(here, {"artifact": built("shipped")}, "out-extension")
    recorded = here.build("shipped")["objects"]
    ((name, folder),) = objects_of(here, "shipped").items()
    library = here.work / "plain" / "kernel.so"
    objects = [{"path": str(folder / name), "sha256": recorded[name]}]
    request = {"objects": objects, "library": str(library), "cuda": True}
    assert here.result("link", request) == {"status": "ok", "message": "", "log_excerpt": ""}
    plain, found = outputs(here, {"library": str(library)}, "out-plain")
    assert extension["status"] == plain["status"] == "ok", plain
    assert found == expected and len(found) == 1  # the second run's bits are those of the first
    assert "libcudart.so" in plain["message"] and "(1" in plain["message"], plain["message"]


def call_request(here: Here, name: str) -> dict[str, Any]:
    """For the verbs that call a build's C entry point from an executable."""
    recorded = here.build(name)["objects"]
    ((object_name, folder),) = objects_of(here, name).items()
    number = architecture().removeprefix("sm_")
    assert object_name in recorded
    return {
        "device": "cuda",
        "driver": str(ROOT / DRIVER),
        "sources": [],
        "objects": [str(folder / object_name)],
        "include_dirs": [str(ROOT / "csrc")],
        "workload": SHAPE,
        "batch": 1,
        "heads": 2,
        "recipe": "independent",
        "flags": {"cxx": [], "nvcc": [f"-gencode=arch=compute_{number},code=sm_{number}"]},
        "trial": 0,
        "seed": 0,
        "threads": 8,
        "run_s": 60,
    }


def checked(here: Here, name: str) -> dict[str, CheckerResult]:
    printed = codec.read(wire.CheckResult, answered(here.result("check", call_request(here, name), timeout_s=400)))
    if printed.status == "not_run" and "compute-sanitizer" in printed.message:
        pytest.skip(printed.message)
    assert printed.status == "ok", printed.message
    return {result.tool: result for result in cuda_results(printed)}


def test_every_tool_is_silent_on_the_shipped_kernel_and_finds_its_control(here: Here, built: Built) -> None:
    built("shipped")
    results = checked(here, "shipped")
    assert tuple(results) == tuple(COMPUTE)
    for result in results.values():
        assert result.status == "ok" and result.control_found and not result.findings, result


@pytest.mark.parametrize(
    ("fault", "places"), [("ILLEGAL_ADDRESS", ("device_faults.cu", "forward")), ("unwritten-TAIL", ("",))]
)
def test_memcheck_finds_what_is_out_of_bounds(here: Here, built: Built, fault: str, places: tuple[str, ...]) -> None:
    """A write to an address that is nobody's; a read beyond a tensor that ends where its allocation does. Allocations
    lie side by side; without padding the next tensor would be read, and the tool would be silent."""
    built(fault)
    result = checked(here, fault)["memcheck"]
    assert result.status == "wrong" and result.findings[0].kind == "out_of_bounds", result
    assert any(place in result.findings[0].where for place in places)


@pytest.mark.parametrize("target", ["kernel", *REFERENCES])
def test_a_profile_holds_device_functions(here: Here, built: Built, target: str) -> None:
    request = {"kernel": kernel_of(built("shipped")), "workload": SHAPE, "target": target, "seed": 0}
    result = here.result("profile", {**request, "device": "cuda", "threads": 2, "calls": 20, "most_s": 2.0})
    if result["status"] == "unsupported":
        pytest.skip(result["message"])
    assert result["status"] == "ok", result
    rows = [OperatorTime(**row) for row in result["operators"]]
    on_device = [row for row in rows if row.kind == "device_function"]
    print(target, [(row.name[:60], row.calls, row.self_us) for row in rows[:6]])
    assert on_device and all(0 < row.self_us < 1e5 for row in on_device)
    assert not any(row.name in ("cudaDeviceSynchronize", "profiled call") for row in rows)
    if target == "kernel":
        assert len(on_device) == 1 and on_device[0].calls == 1 and "attention" in on_device[0].name
