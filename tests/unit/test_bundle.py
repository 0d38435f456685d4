from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.bundling.manifest import BundledEnvironment, BundleManifest, Machine, Proof, load_bundle
from harness.errors import InfrastructureError, InputError
from harness.executors import Answer, Task, bundle, choosing, namespaces
from harness.executors.bundle import BundleExecutor, choose_bundled_index, gpu_lines, plain_id, unconfined, unsuitable
from harness.executors.cells import VERB, bring_back, signalled
from harness.executors.choosing import choose_bundle, wanted_bundle
from harness.executors.namespaces import Namespaces, device_mounts, driver_mounts, probe_namespaces, write_cell
from harness.gathering import bundled_indexes
from harness.inside import protocol
from harness.matrix import PYPI
from harness.process import Ended
from harness.records import Confinement, Gpu, Wheel
from tests.unit.test_host import WITH_HOST
from tests.unit.test_matrix import parse_matrix
from tests.unit.test_venv import PINS, observation, planned

ID = "torch2.5.0-pypi-py311"
ALL = Namespaces(rootless=False, granted=namespaces.OPTIONAL)
MACHINE = Machine(cpu_model="x", fma=True)
DIGEST = "d" * 64
H200 = ("NVIDIA H200", "90", "580.159.04")
CONFINED = Confinement(
    user_id=VERB, no_new_privileges=True, seccomp=0, capabilities="0", networks=["lo"], root_writable=False,
    memory_bytes=None, processes=None,
)  # fmt: skip


def entry(**changes: Any) -> BundledEnvironment:
    values: dict[str, Any] = {
        "torch": "2.5.0+cu124", "cuda": "12.4", "python": "3.11.2", "index": PYPI, "key": "0" * 64,
        "image": "sha256:1", "base_image": "base:1", "pins_sha256": "0" * 64, "removed": {"triton": 1 << 20},
        "blanked": {"libcudnn.so": 5 << 20},
        "proof": Proof(digests={"cpu/matmul/fp32": DIGEST}, libraries=[], machine=MACHINE),
    }  # fmt: skip
    return BundledEnvironment(**{**values, **changes})


def make_bundle(folder: Path, **changes: Any) -> Path:
    """An unpacked bundle of one environment, with no file in it but those that the harness reads."""
    values: dict[str, Any] = {
        "created_utc": "2026-01-02T03:04:05Z", "machine": "x86_64", "architecture": "90", "least_driver": "525.60.13",
        "removed": {"usr/share/doc": 3 << 20}, "packages": {}, "parts": [], "archives": {},
        "environments": {ID: entry()},
    }  # fmt: skip
    manifest = BundleManifest(**{**values, **changes})
    (folder / "root" / "usr" / "bin").mkdir(parents=True)
    (folder / "root" / "usr" / "bin" / "python3.11").write_text("")
    for id in manifest.environments:
        place = folder / "environments" / id
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "python").symlink_to("/usr/bin/python3.11")
        (place / "lib" / "python3.11" / "site-packages" / "nvidia" / "cuda_nvrtc" / "lib").mkdir(parents=True)
    data = manifest.model_dump_json().encode()
    (folder / "manifest.json").write_bytes(data)
    digest = protocol.sha256_file(str(folder / "manifest.json"))
    (folder / "complete.json").write_text(
        json.dumps({"manifest_sha256": digest, "environments": list(manifest.environments)})
    )
    return folder


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(choosing, "gpu_lines", list)
    monkeypatch.setattr(choosing, "probe_namespaces", lambda bundle: ALL)
    monkeypatch.setattr(bundle, "gpus", lambda: ())
    return make_bundle(tmp_path / "bundle")


# -- which bundle ---------------------------------------------------------------------------------------------


def test_a_folder_that_is_named_asks_for_its_executor(tmp_path: Path) -> None:
    there = {choosing.BUNDLE_VARIABLE: str(tmp_path / "b")}
    assert wanted_bundle("auto", tmp_path, {}) == tmp_path
    assert wanted_bundle("bundle", tmp_path, there) == tmp_path
    assert wanted_bundle("bundle", None, there) == wanted_bundle("auto", None, there) == tmp_path / "b"
    assert wanted_bundle("auto", None, {}) is None
    assert wanted_bundle("venv", None, there) is None, "what is asked for on the command line wins"


def test_contradictions_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--executor venv uses none"):
        wanted_bundle("venv", tmp_path, {})
    with pytest.raises(InputError, match="which one") as caught:
        wanted_bundle("bundle", None, {})
    assert choosing.BUNDLE_VARIABLE in caught.value.remedy


def test_the_reason_tells_date_architecture_and_confinement(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose_bundle(unpacked)
    assert choice.executor == "bundle" and choice.reason.startswith("a bundle of 2026-01-02 for sm_90; cells")
    assert "without seccomp filter and memory limit" in choice.reason and "network" not in choice.reason
    few = Namespaces(rootless=True, granted=("pid",))
    monkeypatch.setattr(choosing, "probe_namespaces", lambda bundle: few)
    said = choose_bundle(unpacked).reason
    assert "in a user namespace" in said and "the network is the machine's" in said and "processes are seen" not in said


@pytest.mark.parametrize("missing", ["complete.json", "manifest.json", "root", "everything"])
def test_one_that_is_not_whole_is_refused(unpacked: Path, missing: str) -> None:
    if missing == "everything":
        unpacked = unpacked / "nothing"
    elif missing == "root":
        (unpacked / "root").rename(unpacked / "elsewhere")
    else:
        (unpacked / missing).unlink()
    with pytest.raises((InputError, InfrastructureError)) as caught:
        choose_bundle(unpacked)
    assert caught.value.remedy


def test_a_machine_of_another_kind_and_a_path_with_a_colon(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked.rename(unpacked.with_name("a:b"))
    with pytest.raises(InputError, match="colon"):
        choose_bundle(unpacked.with_name("a:b"))
    unpacked.with_name("a:b").rename(unpacked)
    monkeypatch.setattr(choosing.platform, "machine", lambda: "aarch64")
    with pytest.raises(InputError, match="this machine is aarch64"):
        choose_bundle(unpacked)


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([], ""),
        ([H200], ""),
        ([("T400", "75", "580.1"), H200], ""),
        ([("NVIDIA A100", "80", "580.1")], "sm_90 alone, and this machine's NVIDIA A100 is sm_80"),
        ([("NVIDIA H200", "90", "525.9.1")], "driver is 525.9.1; the bundle's CUDA needs 525.60.13"),
        ([("NVIDIA H200", "90", "1000.1")], ""),
    ],
)
def test_the_gpu_and_its_driver_are_asked_first(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[tuple[str, str, str]], said: str
) -> None:
    problem, remedy = unsuitable(load_bundle(unpacked), gpus)
    assert (said in problem and bool(problem) == bool(said)) and bool(remedy) == bool(said)
    monkeypatch.setattr(choosing, "gpu_lines", lambda: gpus)
    if said:
        with pytest.raises(InfrastructureError):
            choose_bundle(unpacked)


def test_what_nvidia_smi_prints_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "output_of", lambda command: "NVIDIA H200, 9.0, 580.159.04\n")
    assert gpu_lines() == [H200]
    monkeypatch.setattr(bundle, "output_of", lambda command: None)
    assert gpu_lines() == []


def test_indexes_are_those_it_was_packed_from(unpacked: Path) -> None:
    there = load_bundle(unpacked)
    assert choose_bundled_index(there, "torch2.5.0-cu121-py311", ID) == (PYPI, True)
    assert choose_bundled_index(there, ID, "other") == (PYPI, False)
    assert choose_bundled_index(there, f"{ID}-r3", "other") == (PYPI, False), "replicas share one"
    with pytest.raises(InputError, match=r"has no torch2.1.0-cu121-py311; it has torch2.5.0"):
        bundled_indexes(parse_matrix(WITH_HOST), there, strict=False)
    text = WITH_HOST.replace('  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}\n', "").replace(
        'baseline: "2.1.0"', "baseline: host"
    )
    with pytest.raises(InfrastructureError, match="--strict refuses"):
        bundled_indexes(parse_matrix(text), there, strict=True)
    indexes, reasons = bundled_indexes(parse_matrix(text), there, strict=False)
    assert indexes == {"torch2.5.0-cu121-py311": PYPI} and "packed" in reasons["torch2.5.0-cu121-py311"]


def test_ids_of_replicas() -> None:
    assert [plain_id(id) for id in (ID, f"{ID}-r12", "host-r1")] == [ID, ID, "host"]


# -- the environment ------------------------------------------------------------------------------------------

SEEN = observation(torch="2.5.0+cu124", torch_cuda="12.4", confinement=CONFINED)
PROVEN = {"digests": {"cpu/matmul/fp32": DIGEST}, "unsupported": {}, "failures": {}, "machine": MACHINE.model_dump()}


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
        asked.append(task.verb)
        ended = Ended(returncode=0 if proof else -9, timed_out=False, duration_s=1, log="out of luck")
        return Answer(result=seen.model_dump() if task.verb == "observe" else proof, ended=ended)

    executor.run = run  # type: ignore[method-assign]
    return executor.prepare(planned(PYPI), pins), asked


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose manifest names the pins that `prepare` gives."""
    (tmp_path / "pins.txt").write_text(PINS)
    pinned = entry(pins_sha256=protocol.sha256_file(str(tmp_path / "pins.txt")))
    monkeypatch.setattr(bundle, "gpus", lambda: ())
    return make_bundle(tmp_path / "bundle", environments={ID: pinned})


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
    record, _ = prepare(whole, seen=SEEN.model_copy(update={"wheels": wheels}))
    assert record.status == "broken" and "numpy: its list of files changed" in record.message


def test_other_bits_than_before_packing_are_broken_and_not_remembered(whole: Path) -> None:
    for proof, said in (
        ({**PROVEN, "digests": {"cpu/matmul/fp32": "e" * 64}}, "cpu/matmul/fp32: not the bits of before packing"),
        ({**PROVEN, "failures": {"cuda/flash/fp16": "no kernel image"}}, "cuda/flash/fp16: no kernel image"),
        (None, "died by SIGKILL"),
    ):
        record, asked = prepare(whole, proof=proof)
        assert record.status == "broken" and said in record.message and "remedy" in record.message
        assert asked == ["observe", "prove"]


def test_other_pins_than_it_was_made_from_are_broken(unpacked: Path) -> None:
    record, asked = prepare(unpacked)
    assert record.status == "broken" and "not the pins" in record.message and not asked


def test_what_the_manifest_says_was_removed_may_be_missing_and_nothing_else(tmp_path: Path, whole: Path) -> None:
    without = {"numpy": SEEN.wheels["numpy"]}
    missing = SEEN.model_copy(update={"wheels": without})
    assert "torch: pinned 2.5.0, found nothing" in prepare(whole, seen=missing)[0].message
    pinned = entry(pins_sha256=protocol.sha256_file(str(tmp_path / "pins.txt")), removed={"torch": 1})
    other = make_bundle(tmp_path / "other", environments={ID: pinned})
    assert prepare(other, seen=missing)[0].status == "ok"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"user_id": 0}, "runs as user 0"),
        ({"no_new_privileges": False}, "gain privileges"),
        ({"capabilities": "3f"}, "capabilities 3f"),
        ({"networks": ["eth0", "lo"]}, "network: eth0"),
        ({"root_writable": True}, "write to its root"),
    ],
)
def test_a_cell_that_is_not_confined_is_broken(whole: Path, changes: dict[str, Any], said: str) -> None:
    seen = CONFINED.model_copy(update=changes)
    assert said in unconfined(seen, ALL)
    record, _ = prepare(whole, seen=SEEN.model_copy(update={"confinement": seen}))
    assert record.status == "broken" and said in record.message
    assert unconfined(None, ALL) and not unconfined(CONFINED, ALL)
    few = replace(ALL, granted=())
    assert not unconfined(CONFINED.model_copy(update={"networks": ["eth0"]}), few), "it was said that it has one"


def test_a_gpu_that_is_not_seen_inside_or_has_no_code_is_broken(whole: Path) -> None:
    assert "sees no GPU" in prepare(whole, gpu=True)[0].message
    gpu = Gpu(name="NVIDIA A100", uuid="", compute_capability="8.0", memory_bytes=1, driver="580")
    assert "A100, which the bundle holds no code for" in prepare(
        whole, gpu=True, seen=SEEN.model_copy(update={"gpus": [gpu]})
    )[0].message  # fmt: skip


def test_the_key_is_of_the_manifest_and_the_environment(tmp_path: Path, whole: Path) -> None:
    one, two = (
        BundleExecutor(load_bundle(folder), ALL, tmp_path, tmp_path / "cache", 2)
        for folder in (whole, make_bundle(tmp_path / "two"))
    )
    keys = {one.key(planned(PYPI), None), one.key(planned(PYPI, replica=1), None), two.key(planned(PYPI), None)}
    assert len(keys) == 3


# -- the cell -------------------------------------------------------------------------------------------------


def test_a_cell_is_described_for_the_bundle_s_own_python(unpacked: Path, tmp_path: Path) -> None:
    there = load_bundle(unpacked)
    mounts = [("ro", "/a b", "/in/a")]
    command = write_cell(tmp_path / "cell.json", there, ALL, tmp_path / "new", mounts, {"A": "b"}, ["/bin/true"])
    assert command[:3] == [
        f"{there.root}/{namespaces.LOADER}",
        "--library-path",
        f"{there.root}/{namespaces.LIBRARIES}",
    ]
    assert command[3:5] == [f"{there.root}/usr/bin/python3.11", "-ISB"] and command[5].endswith("enter_bundle.py")
    cell = json.loads((tmp_path / "cell.json").read_text())
    assert cell["mounts"] == [["ro", "/a b", "/in/a"]] and cell["variables"] == {"A": "b"} and cell["user"] == VERB
    assert cell["namespaces"] == ["pid", "net", "ipc", "uts"] and cell["rootless"] is False


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
        environment=ID, verb="judge", request={"sources": [str(source)], "truth": str(shared)},
        scratch=tmp_path / "scratch", log=tmp_path / "log", timeout_s=1, reads=(source, shared, run / "none"),
        writes=(shared, run / "arrays.npz"),
    )  # fmt: skip
    answer = executor.run(task)
    assert answer.result == {"status": "ok"}
    assert seen["request"] == {"sources": ["/in/project/csrc/x.cu"], "truth": "/out/w0"}
    assert seen["/in/project/csrc/x.cu"] == ("ro", str(source)) and seen["/out"][0] == "rw"
    assert seen["/opt/environment"] == ("ro", str(unpacked / "environments" / ID))
    assert {path.name for path in shared.iterdir()} == {"old", "new"} and (run / "arrays.npz").read_text() == "arrays"
    libraries = seen["variables"]["LD_LIBRARY_PATH"].split(":")
    assert libraries == ["/driver", "/opt/environment/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib"]
    assert not task.scratch.exists()


def test_sources_that_another_user_cannot_read_are_named(unpacked: Path, tmp_path: Path) -> None:
    executor = BundleExecutor(load_bundle(unpacked), ALL, tmp_path, tmp_path / "cache", 2)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "file").write_text("")
    (tmp_path / "closed" / "file").chmod(0o600)
    (tmp_path / "out").mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root gives its files to another user")
    with pytest.raises(InfrastructureError, match="closed/file") as caught:
        executor._hand_over(tmp_path / "out", [tmp_path / "closed"])
    assert "chmod -R o+rX" in caught.value.remedy
    assert (tmp_path / "out").stat().st_uid == VERB


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


# -- what this machine grants ---------------------------------------------------------------------------------


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
