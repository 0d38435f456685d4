"""What of a root of its own this machine grants a bundle's cells, and how a cell is described."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import InfrastructureError
from harness.isolate.bundle import namespaces
from harness.isolate.bundle.manifest import load_bundle
from harness.isolate.bundle.namespaces import Namespaces, device_mounts, driver_mounts, probe_namespaces, write_sandbox
from harness.isolate.sandbox import TASK_USER
from tests.unit.bundles import ALL, make_unpacked


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    return make_unpacked(tmp_path / "bundle")


def test_a_cell_is_described_for_the_bundle_s_own_python(unpacked: Path, tmp_path: Path) -> None:
    there = load_bundle(unpacked)
    mounts = [("ro", "/a b", "/in/a")]
    command = write_sandbox(tmp_path / "sandbox.json", there, ALL, tmp_path / "new", mounts, {"A": "b"}, ["/bin/true"])
    assert command[0] == f"{there.folder}/python" and command[2].endswith("enter.py")
    cell = json.loads((tmp_path / "sandbox.json").read_text())
    assert cell["mounts"] == [["ro", "/a b", "/in/a"]] and cell["variables"] == {"A": "b"} and cell["user"] == TASK_USER
    assert cell["namespaces"] == ["pid", "net", "ipc", "uts"] and cell["rootless"] is False


def granting(monkeypatch: pytest.MonkeyPatch, euid: int, allowed: Any) -> None:
    """A machine that makes cells where `allowed(rootless, granted)`."""
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: euid)

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        cell = json.loads(Path(command[-1]).read_text())
        good = allowed(cell["rootless"], set(cell["namespaces"]))
        return SimpleNamespace(returncode=0 if good else 125, stderr="" if good else "Operation not permitted")

    monkeypatch.setattr(namespaces.subprocess, "run", run)


@pytest.mark.parametrize(
    ("euid", "allowed", "expected"),
    [
        (0, lambda rootless, names: True, ALL),
        (1000, lambda rootless, names: True, replace(ALL, rootless=True)),
        (0, lambda rootless, names: rootless, replace(ALL, rootless=True)),
        (1000, lambda rootless, names: "net" not in names, Namespaces(rootless=True, granted=("pid", "ipc", "uts"))),
        (0, lambda rootless, names: not names, Namespaces(rootless=False, granted=())),
    ],
)
def test_as_much_is_taken_as_is_granted(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch, euid: int, allowed: Any, expected: Namespaces
) -> None:
    granting(monkeypatch, euid, allowed)
    assert probe_namespaces(load_bundle(unpacked)) == expected


def test_a_machine_that_grants_nothing_is_an_error_with_a_way_out(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granting(monkeypatch, 1000, lambda rootless, names: False)
    with pytest.raises(InfrastructureError, match=r"grants no root of its own.*Operation not permitted") as caught:
        probe_namespaces(load_bundle(unpacked))
    assert "as root" in caught.value.remedy and "max_user_namespaces" in caught.value.remedy


def test_the_driver_s_libraries_come_from_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("stubs", "driver", "other"):
        (tmp_path / folder).mkdir()
        for name in ("libcuda.so.580.1", "libnvidia-ml.so.580.1", "libnvidia-glcore.so.580.1", "libc.so.6"):
            (tmp_path / folder / name).write_text("")
        (tmp_path / folder / "libcuda.so.1").symlink_to("libcuda.so.580.1")
        (tmp_path / folder / "libcuda.so").symlink_to("libcuda.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"relative:{tmp_path / 'stubs'}:{tmp_path / 'empty'}:{tmp_path / 'driver'}")
    cached = f"\tlibcuda.so.1 (libc6,x86-64) => {tmp_path}/other/libcuda.so.1\n"
    monkeypatch.setattr(namespaces, "output_of", lambda command: cached)
    mounts = driver_mounts()
    real = str(tmp_path / "driver" / "libcuda.so.580.1")
    assert ("ro", real, "/driver/libcuda.so.580.1") in mounts
    assert ("link", "libcuda.so.580.1", "/driver/libcuda.so.1") in mounts
    assert {target for _, _, target in mounts} == {
        "/driver/libcuda.so.580.1", "/driver/libcuda.so.1", "/driver/libcuda.so", "/driver/libnvidia-ml.so.580.1",
    }  # fmt: skip
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert any("/other/" in source for _, source, _ in driver_mounts())
    monkeypatch.setattr(namespaces, "output_of", lambda command: None)
    monkeypatch.setattr(namespaces, "DRIVER_FOLDERS", (str(tmp_path / "none"),))
    with pytest.raises(InfrastructureError, match=r"libcuda\.so\.1"):
        driver_mounts()


def test_the_gpu_s_nodes_must_all_be_there(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-caps/nvidia-cap1", "nvme0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    with pytest.raises(InfrastructureError, match="nvidia-uvm") as caught:
        device_mounts(tmp_path)
    assert "nvidia-modprobe" in caught.value.remedy
    (tmp_path / "nvidia-uvm").write_text("")
    assert {target for _, _, target in device_mounts(tmp_path)} == {
        "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1",
    }  # fmt: skip
