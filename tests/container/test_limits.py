"""Code that takes all it can get, and leaves what nobody asked for: it ends at a limit, and nothing else does."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.executors import Answer
from harness.executors.engine import Engine
from harness.executors.process import LOG_LIMIT_BYTES
from harness.worker.protocol import MOST_RESULT_BYTES
from tests.container.cells import LIMITS, SLEEP_S, AnyCells, BwrapCells, Cells, asleep

pytestmark = pytest.mark.container


@pytest.fixture(autouse=True, scope="module")
def the_next_one_is_unharmed(cells: Cells) -> Iterator[None]:
    """Run one more, whatever others did."""
    yield
    assert cells.result("result['fine'] = True") == {"fine": True}


def ended(answer: Answer, how: str) -> None:
    assert answer.result is None and how in answer.ended.how, (answer.ended.how, answer.ended.log)


CHILD = "x = []\nwhile True: x.append(bytearray(1 << 24))"
DEEP = """
import os
os.chdir("/out/w0")
for _ in range(40):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("deep", "w").write("x")
os.chdir("/out")
"""
BOMBS = {
    "forks": "while True: os.fork()",
    "threads": "while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a chain of forks": "while os.fork() == 0: pass\nos.wait()\nos._exit(1)",
}
AT_A_LIMIT = {
    "memory": ("held = []\nwhile True: held.append(bytearray(1 << 24))", "its memory limit of 0.5 GiB"),
    "memory of a child": (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}])",
        "its memory limit",
    ),
    "many large files": (
        "for name in range(40): open(f'/out/w0/{name}', 'wb').truncate(32 << 20)",
        "its output limit: it left more than",
    ),
    "many files": ("for name in range(9999): open(f'/out/w0/{name}', 'w')", "its output limit: it left more than"),
    "names too deep": (DEEP, "its output limit: it left a file that cannot be kept: File name too long"),
}


@pytest.mark.parametrize("name", AT_A_LIMIT)
def test_it_is_killed_at_a_limit_that_its_row_names(cells: Cells, tmp_path: Path, name: str) -> None:
    code, limit = AT_A_LIMIT[name]
    (out := tmp_path / "out").mkdir()
    answer = cells(code, reads=(out,), writes=(out,))
    ended(answer, f"killed at {limit}")
    assert answer.ended.killed_by


@pytest.mark.parametrize("bomb", [*BOMBS.values(), "open('/out/w0/x', 'wb').truncate(1 << 40)"])
def test_what_it_cannot_have_ends_it(cells: Cells, tmp_path: Path, bomb: str) -> None:
    (out := tmp_path / "out").mkdir()
    answer = cells(f"import os, threading, time\n{bomb}", reads=(out,), writes=(out,))
    assert answer.result is None and answer.ended.returncode and not answer.ended.timed_out, answer.ended.how


def test_it_ends_at_its_limit_without_a_harness(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.executors.docker.OVERTIME_S", -57.0)
    answer = cells("import time; time.sleep(600)")
    assert answer.ended.how == "died by SIGKILL" and not answer.ended.timed_out


NO_RESULTS = {
    **{
        text: f"open('/out/result.json', 'w').write({text})"
        for text in ("''", "'{\"status\"'")  # which texts are none: tests/unit/test_containers.py
    },
    "a pipe": "os.mkfifo('/out/result.json')",
    "a folder": "os.mkdir('/out/result.json')",
    "a link": "os.symlink('/etc/passwd', '/out/result.json')",
    "an endless link": "os.symlink('/dev/zero', '/out/result.json')",
}


@pytest.mark.parametrize("act", NO_RESULTS.values(), ids=NO_RESULTS)
def test_a_result_that_is_none(cells: Cells, act: str) -> None:
    ended(cells(f"import os\n{act}\nos._exit(0)"), "exited with 0 before it gave a result")


def test_what_it_prints(cells: Cells) -> None:
    task = cells.task("print('first')\nfor _ in range(64): sys.stdout.write('x' * (1 << 20))\nprint('last')")
    answer = cells.executor.run(task)
    assert answer.result == {} and answer.ended.log.endswith("last\n")
    assert LOG_LIMIT_BYTES <= task.log.stat().st_size < LOG_LIMIT_BYTES + 100
    assert b"bytes dropped here" in task.log.read_bytes()


def test_what_it_prints_without_end(cells: Cells) -> None:
    task = cells.task("import os\nwhile True: os.write(1, b'y\\n' * 30000)", timeout_s=3)
    answer = cells.executor.run(task)
    assert answer.ended.timed_out and task.log.stat().st_size < LOG_LIMIT_BYTES + 100


LEAVES_ASLEEP = f"""
import os, signal, subprocess, time
for number in signal.Signals:
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_IGN)
subprocess.Popen(["setsid", "sleep", "{SLEEP_S}"], start_new_session=True)
print("began", flush=True)
time.sleep({{}})
"""


@pytest.mark.parametrize(("sleep_s", "timeout_s"), [(600, 8), (0.1, 300)], ids=["at its limit", "after its end"])
def test_what_it_started_ends_with_it(any_cells: AnyCells, sleep_s: float, timeout_s: float) -> None:
    """Also what ignores signals and is in a session of its own."""
    answer = any_cells(LEAVES_ASLEEP.format(sleep_s), timeout_s=timeout_s)
    assert "began" in answer.ended.log
    assert answer.ended.timed_out is (answer.result is None) is (sleep_s == 600)
    assert not answer.ended.timed_out or answer.ended.how == "killed at its time limit"
    assert not asleep()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os._exit(0)", "exited with 0 before it gave a result"),
        ("import sys; sys.exit(0)", "exited with 0 before it gave a result"),
        ("import os; os._exit(3)", "exited with 3"),
        ("import os; os.abort()", "died by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "died by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "died by SIGSEGV"),
        ("raise SystemError", "exited with 1"),
    ],
)
def test_how_it_ends_is_distinguished(any_cells: AnyCells, code: str, how: str) -> None:
    answer = any_cells(code)
    assert answer.result is None and answer.ended.how == how and not answer.ended.killed_by


@pytest.mark.parametrize(("code", "how"), [("os._exit(200)", "exited with 200"), ("os.kill(-1, 9)", "died by SIGKILL")])
def test_how_it_ends_in_a_container(cells: Cells, code: str, how: str) -> None:
    """The first process outlives a task that kills all it can."""
    answer = cells(f"import os; {code}")
    assert answer.result is None and answer.ended.how == how and not answer.ended.killed_by


LEAVES = """
import os, socket
os.makedirs("/out/w0/folder", exist_ok=True)
os.chdir("/out/w0")
open("plain", "w").write("plain")
os.symlink("/etc/passwd", "absolute")
os.symlink("../../../../../../../../etc/passwd", "up")
os.symlink(request["outside"], "outside")
os.symlink(request["outside"], "folder/outside")
os.symlink("..", "parent")
os.symlink(".", "loop")
os.symlink("plain", "inner")
os.symlink("/dev/zero", "endless")
os.link("plain", "hard")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open("new\\nline", "w").write("x")
open("-rf", "w").write("x")
open("..hidden", "w").write("x")
open("...", "w").write("x")
open("a\\\\b", "w").write("x")
open(os.fsencode("latin-") + b"\\xff", "w").write("x")
open("unreadable", "w").write("x")
os.chmod("unreadable", 0)
open("program", "w").write("x")
os.chmod("program", 0o6777)
open("n" * 255, "w").write("x")
"""


def test_only_plain_files_come_back_and_only_into_their_folder(cells: Cells, tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    passwd = Path("/etc/passwd").read_bytes()
    assert cells(LEAVES, request={"outside": str(outside)}, reads=(out,), writes=(out,)).result == {}
    for path in tmp_path.rglob("*"):
        kind = path.lstat().st_mode
        assert stat.S_ISREG(kind) or stat.S_ISDIR(kind), path
        assert not kind & (stat.S_ISUID | stat.S_ISGID) and (path.is_dir() or not kind & 0o111), path
    left = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert {left["plain"], left["hard"]} == {b"plain", b""}
    for name in ("absolute", "up", "outside", "parent", "loop", "inner", "endless", "pipe"):
        assert left[name] == b"", name
    for name in ("new\nline", "-rf", "..hidden", "...", "a\\b", os.fsdecode(b"latin-\xff"), "program", "n" * 255):
        assert left[name] == b"x", name
    assert left["unreadable"] == b"x"
    assert [path.name for path in outside.rglob("*")] == ["kept"] and passwd == Path("/etc/passwd").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "outside"}


def test_a_link_in_place_of_its_folder_leads_nowhere(cells: Cells, tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    code = "import os\nos.symlink(request['outside'], '/out/w0')"
    assert cells(code, request={"outside": str(outside)}, writes=(out,)).result == {}
    assert not out.is_symlink() and not list(outside.iterdir())


def test_limits_of_each_process_under_bubblewrap(bwrap_cells: BwrapCells) -> None:
    seen = bwrap_cells.result(
        """
        import errno, resource, subprocess
        try:
            bytearray(2 << 30)
        except MemoryError:
            result["memory"] = "refused"
        try:
            with open("large", "wb") as file:
                file.write(bytes(TOO_MANY))
        except OSError as error:
            result["file"] = errno.errorcode[error.errno]
        children = []
        try:
            for _ in range(200):
                children.append(subprocess.Popen(["/bin/sleep", "20"]))
        except OSError as error:
            result["processes"] = errno.errorcode[error.errno]
        result["core"] = resource.getrlimit(resource.RLIMIT_CORE)[1]
        """.replace("TOO_MANY", str(LIMITS.output_bytes + 1))
    )
    assert seen == {"memory": "refused", "file": "EFBIG", "processes": "EAGAIN", "core": 0}


def test_only_what_was_asked_for_is_taken_back_and_is_ours(bwrap_cells: BwrapCells) -> None:
    place = bwrap_cells.folder / "only"
    out, other, shared = place / "files" / "out", place / "files" / "other", place / "shared"
    shared.mkdir(parents=True)
    (shared / "before").write_text("before")
    bwrap_cells.result(
        """
        import os
        os.makedirs(request["out"] + "/deep")
        open(request["out"] + "/deep/plain", "w").write("plain")
        os.symlink("/etc/passwd", request["out"] + "/link")
        os.makedirs(request["out"] + "/closed", 0)
        open(request["other"], "w").write("other")
        open(request["shared"] + "/after", "w").write(open(request["shared"] + "/before").read() + " and after")
        """,
        request={"out": str(out), "other": str(other), "shared": str(shared)},
        reads=(shared,),
        writes=(out, shared),
    )
    assert (out / "deep" / "plain").read_text() == "plain" and not (out / "link").is_symlink()
    assert not other.exists() and (shared / "after").read_text() == "before and after"
    assert {path.lstat().st_uid for path in place.rglob("*")} == {bwrap_cells.user or os.geteuid()}


def test_a_result_that_is_too_large(engine: Engine, image: str, tmp_path: Path) -> None:
    wide = Cells(engine, image, tmp_path, replace(LIMITS, output_bytes=400 << 20, memory_bytes=1 << 30))
    code = f"import os\nopen('/out/result.json', 'w').write(' ' * {MOST_RESULT_BYTES + 1})\nos._exit(0)"
    ended(wide(code), "exited with 0 before it gave a result")
