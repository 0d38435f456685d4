"""A bundle's environment proves itself; what a verb is given in its cell, and what is taken back."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.environments import PYPI
from harness.errors import InfrastructureError
from harness.isolate import Answer, Task, namespaces
from harness.isolate.bundle import executor as bundle
from harness.isolate.bundle.executor import BundleExecutor
from harness.isolate.bundle.manifest import load_bundle
from harness.isolate.namespaces import Namespaces, device_mounts, driver_mounts, probe_namespaces, write_sandbox
from harness.isolate.process import Ended
from harness.isolate.sandbox import TASK_USER, bring_back, hand_over, refuse_closed, signalled, unconfined
from harness.schema.environment_records import Confinement, Gpu, Wheel
from harness.worker import codec, protocol
from tests.messages import answered, made
from tests.unit.bundles import ALL, ID, PROOF, entry, make_unpacked
from tests.unit.test_venv import PINS, observation, planned

CONFINED = Confinement(
    user_id=TASK_USER,
    no_new_privileges=True,
    seccomp=2,
    capabilities="0",
    networks=["lo"],
    root_writable=False,
    memory_bytes=None,
    processes=None,
)
SEEN = observation(torch="2.5.0+cu124", torch_cuda="12.4", confinement=CONFINED)
PROVEN = {**PROOF, "failures": {}}


def prepare(
    folder: Path, *, seen: Any = SEEN, proof: dict[str, Any] | None = PROVEN, gpu: bool = False
) -> tuple[Any, list[str]]:
    """(the record, the verbs that were asked)."""
    pins = folder.parent / "pins.txt"
    pins.write_text(PINS)
    executor = BundleExecutor(load_bundle(folder), ALL, folder.parent / "project", folder.parent / "cache", 2)
    executor.devices = [("device", "/dev/nvidia0", "/dev/nvidia0")] if gpu else []
    asked: list[str] = []

    def run(task: Task) -> Answer:
        asked.append(task.name)
        ended = Ended(returncode=0 if proof else -9, timed_out=False, duration_s=1, log="out of luck")
        result = asdict(seen) if task.name == "observe" else proof
        return Answer(result=result and answered(**result), ended=ended)

    executor.run = run  # type: ignore[method-assign]
    return executor.prepare(planned(PYPI), pins), asked


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bundle, "gpus", lambda: ())
    return make_unpacked(tmp_path / "bundle")


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose manifest names the pins that `prepare` gives."""
    (tmp_path / "pins.txt").write_text(PINS)
    pinned = entry(pins_sha256=protocol.sha256_file(str(tmp_path / "pins.txt")))
    monkeypatch.setattr(bundle, "gpus", lambda: ())
    return make_unpacked(tmp_path / "bundle", environments={ID: pinned})


def test_it_proves_itself_once(whole: Path) -> None:
    record, asked = prepare(whole)
    assert record.status == "ok", record.message
    assert asked == ["observe", "prove"] and not record.reused and record.image == "sha256:1"
    record, asked = prepare(whole)
    assert asked == ["observe"] and record.reused
    os.utime(whole / "complete.json", ns=(1, 1))
    assert prepare(whole)[1] == ["observe", "prove"], "unpacked again, it is another"


def test_wheels_that_changed_since_are_broken(whole: Path) -> None:
    assert prepare(whole)[0].status == "ok"
    wheels = {**SEEN.wheels, "numpy": Wheel(version="1.26.4", record_sha256="edited")}
    record, _ = prepare(whole, seen=replace(SEEN, wheels=wheels))
    assert record.status == "broken" and "numpy: its list of files changed" in record.message


def test_other_bits_than_before_packing_are_broken_and_not_remembered(whole: Path) -> None:
    for proof, said in (
        ({**PROVEN, "digests": {"cpu/matmul/fp32": "e" * 64}}, "cpu/matmul/fp32: not the bits of before packing"),
        ({**PROVEN, "failures": {"cuda/flash/fp16": "no kernel image"}}, "cuda/flash/fp16: no kernel image"),
        (None, "died by SIGKILL"),
    ):
        record, asked = prepare(whole, proof=proof)
        assert record.status == "broken" and said in record.message and "remedy" in record.message
        assert list(dict.fromkeys(asked)) == ["observe", "prove"], "each once more where it was killed from outside"


def test_other_pins_than_it_was_made_from_are_broken(unpacked: Path) -> None:
    record, asked = prepare(unpacked)
    assert record.status == "broken" and "not the pins" in record.message and not asked


def test_what_the_manifest_says_was_removed_may_be_missing_and_nothing_else(tmp_path: Path, whole: Path) -> None:
    without = {"numpy": SEEN.wheels["numpy"]}
    missing = replace(SEEN, wheels=without)
    assert "torch: pinned 2.5.0, found nothing" in prepare(whole, seen=missing)[0].message
    pinned = entry(pins_sha256=protocol.sha256_file(str(tmp_path / "pins.txt")), removed={"torch": 1})
    other = make_unpacked(tmp_path / "other", environments={ID: pinned})
    assert prepare(other, seen=missing)[0].status == "ok"


def test_a_sandbox_that_is_not_confined_is_broken(whole: Path) -> None:
    """What else it must not be able to do: tests/unit/test_containers.py."""
    seen = replace(CONFINED, networks=["eth0", "lo"])
    record, _ = prepare(whole, seen=replace(SEEN, confinement=seen))
    assert record.status == "broken" and "it has a network: eth0" in record.message
    assert not unconfined(CONFINED) and not unconfined(seen, network=True), "the machine gives it one"


def test_a_gpu_that_is_not_seen_inside_or_has_no_code_is_broken(whole: Path) -> None:
    assert "sees no GPU" in prepare(whole, gpu=True)[0].message
    gpu = Gpu(name="NVIDIA A100", uuid="", compute_capability="8.0", memory_bytes=1, driver="580")
    assert (
        "A100, which the bundle holds no code for"
        in prepare(whole, gpu=True, seen=replace(SEEN, gpus=[gpu]))[0].message
    )


def test_the_key_is_of_the_manifest_and_the_environment(tmp_path: Path, whole: Path) -> None:
    one, two = (
        BundleExecutor(load_bundle(folder), ALL, tmp_path, tmp_path / "cache", 2)
        for folder in (whole, make_unpacked(tmp_path / "two"))
    )
    keys = {one.key(planned(PYPI), None), one.key(planned(PYPI, replica=1), None), two.key(planned(PYPI), None)}
    assert len(keys) == 3


def test_what_a_verb_is_given_and_what_is_taken_back(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, cache, run = tmp_path / "project", tmp_path / "cache", tmp_path / "run"
    source, shared = project / "csrc" / "x.cu", run / "truth"
    for path in (source, shared / "old"):
        path.parent.mkdir(parents=True)
        path.write_text("text")
    executor = BundleExecutor(load_bundle(unpacked), replace(ALL, rootless=True), project, cache, 2)
    seen: dict[str, Any] = {}

    def run_child(command: list[str], *, cwd: Path, **options: Any) -> Ended:
        cell = json.loads(Path(command[-1]).read_text())
        seen.update({target: (kind, source) for kind, source, target in cell["mounts"]}, variables=cell["variables"])
        seen["request"] = json.loads(Path(seen["/in/request.json"][1]).read_text())
        out = Path(seen["/out"][1])
        assert (out / "w0" / "old").read_text() == "text", "what is shared goes in"
        (out / "w0" / "new").write_text("new")
        (out / "w1").write_text("arrays")
        (out / "result.json").write_text('{"status": "ok"}')
        return Ended(returncode=0, timed_out=False, duration_s=1, log="")

    monkeypatch.setattr(bundle, "run_child", run_child)
    task = Task(
        environment=ID,
        name="judge",
        request=made(sources=[str(source)], truth=str(shared)),
        scratch=tmp_path / "scratch",
        log=tmp_path / "log",
        timeout_s=1,
        reads=(source, shared, run / "none"),
        writes=(shared, run / "arrays.npz"),
    )
    answer = executor.run(task)
    assert answer.result == {"status": "ok"}
    assert seen["request"] == {"version": codec.VERSION, "sources": ["/in/project/csrc/x.cu"], "truth": "/out/w0"}
    assert seen["/in/project/csrc/x.cu"] == ("ro", str(source)) and seen["/out"][0] == "rw"
    assert seen["/opt/environment"] == ("ro", str(unpacked / "environments" / ID))
    assert {path.name for path in shared.iterdir()} == {"old", "new"} and (run / "arrays.npz").read_text() == "arrays"
    libraries = seen["variables"]["LD_LIBRARY_PATH"].split(":")
    assert libraries == ["/driver", "/opt/environment/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib"]
    assert not task.scratch.exists()


def test_sources_that_another_user_cannot_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "file").write_text("")
    (tmp_path / "closed" / "file").chmod(0o600)
    (tmp_path / "out").mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root gives its files to another user")
    hand_over([tmp_path / "out"])
    with pytest.raises(InfrastructureError, match="closed/file") as caught:
        refuse_closed([tmp_path / "closed"])
    assert "chmod -R o+rX" in caught.value.remedy
    assert (tmp_path / "out").stat().st_uid == TASK_USER


def test_only_plain_files_are_taken_back(tmp_path: Path) -> None:
    secret = tmp_path / "etc"
    secret.mkdir()
    (secret / "shadow").write_text("secret")
    left = tmp_path / "left"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "plain").write_text("plain")
    (left / "file").symlink_to(secret / "shadow")
    (left / "folder").symlink_to(secret)
    os.mkfifo(left / "pipe")
    bring_back(left, tmp_path / "target")
    taken = {
        str(path.relative_to(tmp_path / "target")): path.read_text()
        for path in (tmp_path / "target").rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    assert taken == {"deep/plain": "plain", "file": "", "folder": "", "pipe": ""}
    (tmp_path / "link").symlink_to(secret)
    bring_back(tmp_path / "link", tmp_path / "second")
    assert (tmp_path / "second").read_text() == "" and (secret / "shadow").read_text() == "secret"
    bring_back(tmp_path / "nothing", tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_statuses() -> None:
    assert [signalled(code) for code in (0, 1, 137, 134, 64, None)] == [0, 1, -9, -6, 64, -9]


# -- what this machine grants a sandbox, and what it puts into it ---------------------------------------------------


def test_a_cell_is_described_for_the_bundle_s_own_python(unpacked: Path, tmp_path: Path) -> None:
    there = load_bundle(unpacked)
    mounts = [("ro", "/a b", "/in/a")]
    place, new = tmp_path / "sandbox.json", tmp_path / "new"
    command = write_sandbox(place, there.maker, ALL, new, mounts, {"A": "b"}, ["/bin/true"])
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
    assert probe_namespaces(load_bundle(unpacked).maker) == expected


def test_a_machine_that_grants_nothing_is_an_error_with_a_way_out(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granting(monkeypatch, 1000, lambda rootless, names: False)
    with pytest.raises(InfrastructureError, match=r"grants no root of its own.*Operation not permitted") as caught:
        probe_namespaces(load_bundle(unpacked).maker)
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
    assert {target for _, _, target in mounts[:-1]} == {
        "/driver/libcuda.so.580.1",
        "/driver/libcuda.so.1",
        "/driver/libcuda.so",
        "/driver/libnvidia-ml.so.580.1",
    }
    assert mounts[-1] == ("libraries", "", "/driver"), "once they are all there"
    (tmp_path / "driver" / "libcuda.so").unlink()
    assert ("link", "libcuda.so.1", "/driver/libcuda.so") in driver_mounts(), "by which Triton links"
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
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps/nvidia-cap1",
    }
