"""Code that takes all it can get, and leaves what nobody asked for: it ends at a limit, and nothing else does."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.isolate import MOST_RESULT_BYTES, Answer, Task
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.executor import DockerExecutor
from harness.isolate.logs import LOG_LIMIT_BYTES
from tests.container.cells import LIMITS, SLEEP_S, AnyCells, Cells, asleep
from tests.container.unpacked import mounted
from tests.messages import asked

pytestmark = pytest.mark.container


@pytest.fixture(autouse=True, scope="module")
def the_next_cell_is_fine(cells: Cells) -> Iterator[None]:
    """Whatever cells did, the next one runs."""
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
    **{name: (f"import os, threading, time\n{bomb}", "its limit of 96 processes") for name, bomb in BOMBS.items()},
    "a sparse file": ("open('/out/w0/x', 'wb').truncate(1 << 40)", "its output limit: it left more than"),
    "names too deep": (DEEP, "its output limit: it left a file that cannot be kept: File name too long"),
}


@pytest.mark.parametrize("name", AT_A_LIMIT)
def test_it_is_killed_at_a_limit_that_its_row_names(cells: Cells, tmp_path: Path, name: str) -> None:
    """In time, and nothing of its output is kept."""
    code, limit = AT_A_LIMIT[name]
    (out := tmp_path / "out").mkdir()
    answer = cells(code, reads=(out,), writes=(out,))
    ended(answer, f"killed at {limit}")
    assert answer.ended.killed_by
    assert name == "names too deep" or not list(out.iterdir())


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


def test_memory_filled_by_files_takes_the_whole_cell(engine: Engine, image: str, tmp_path: Path) -> None:
    """Files are in memory too, and killing frees none of it: the kernel takes the keeper as well."""
    wide = Cells(engine, image, tmp_path, replace(LIMITS, memory_bytes=64 << 20))
    code = (
        "import os\n"
        "while os.fork() == 0: pass\n"
        "with open(f'/out/{os.getpid()}', 'wb', 0) as file:\n"
        "    while True: file.write(bytes(1 << 20))\n"
    )
    ended(wide(code), "killed at its memory limit of 0.0625 GiB")


def test_processes_that_never_end(cells: Cells) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    answer = cells(bomb, timeout_s=4)
    assert answer.ended.timed_out and answer.result is None


def test_its_folder(cells: Cells) -> None:
    result = cells.result(
        """
        try:
            with open("/out/w0", "wb") as file:
                while True: file.write(bytes(1 << 20))
        except OSError as error:
            result["error"] = error.strerror
            import os
            os.unlink("/out/w0")
        """
    )
    assert result == {"error": "No space left on device"}


def test_more_files_than_it_may(cells: Cells, tmp_path: Path) -> None:
    result = cells.result(
        """
        import os
        os.mkdir("/out/w0")
        try:
            for number in range(100_000): open(f"/out/w0/{number}", "w")
        except OSError as error:
            result.update(error=error.strerror, number=number)
            for name in range(99): os.unlink(f"/out/w0/{name}")
        """,
        writes=(tmp_path / "out",),
    )
    assert result["error"] == "No space left on device" and result["number"] < LIMITS.output_files
    assert len(list((tmp_path / "out").iterdir())) == result["number"] - 99


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


@pytest.mark.parametrize(("sleep_s", "timeout_s"), [(600, 30), (0.1, 300)], ids=["at its limit", "after its end"])
def test_what_it_started_ends_with_it(any_cells: AnyCells, sleep_s: float, timeout_s: float) -> None:
    """Also what ignores signals and is in a session of its own."""
    answer = any_cells(LEAVES_ASLEEP.format(sleep_s), timeout_s=timeout_s)
    assert "began" in answer.ended.log
    assert answer.ended.timed_out is (answer.result is None) is (sleep_s == 600)
    assert not answer.ended.timed_out or answer.ended.how == "killed at its time limit"
    assert not asleep() and not mounted(str(any_cells.folder))


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


@pytest.mark.parametrize(("code", "how"), [("os._exit(200)", "exited with 200"), ("os.kill(-1, 9)", "exited with 1")])
def test_how_it_ends_in_a_container(cells: Cells, code: str, how: str) -> None:
    """The keeper outlives a cell that kills all it can."""
    answer = cells(f"import os; {code}")
    assert answer.result is None and answer.ended.how == how and not answer.ended.killed_by


def test_a_result_that_is_too_large(engine: Engine, image: str, tmp_path: Path) -> None:
    wide = Cells(engine, image, tmp_path, replace(LIMITS, output_bytes=400 << 20, memory_bytes=1 << 30))
    code = f"import os\nopen('/out/result.json', 'w').write(' ' * {MOST_RESULT_BYTES + 1})\nos._exit(0)"
    ended(wide(code), "exited with 0 before it gave a result")


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
    assert left["plain"] == b"plain" == left["hard"]
    for name in ("absolute", "up", "outside", "parent", "loop", "inner", "endless", "pipe"):
        assert left[name] == b"", name
    for name in ("new\nline", "-rf", "..hidden", "...", "a\\b", os.fsdecode(b"latin-\xff"), "program", "n" * 255):
        assert left[name] == b"x", name
    assert "unreadable" not in left
    assert [path.name for path in outside.rglob("*")] == ["kept"] and passwd == Path("/etc/passwd").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "outside"}


def test_a_link_in_place_of_its_folder_leads_nowhere(cells: Cells, tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    code = "import os\nos.symlink(request['outside'], '/out/w0')"
    assert cells(code, request={"outside": str(outside)}, writes=(out,)).result == {}
    assert not out.is_symlink() and not list(outside.iterdir())


def test_what_changes_while_it_is_collected_is_no_harm(cells: Cells, tmp_path: Path) -> None:
    """A daemon that goes on turning files into links and folders while the keeper reads."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    code = """
    import os, time
    os.chdir("/out/w0")
    def turn(name):
        for act in (lambda: open(name, "wb").write(os.urandom(1 << 20)), lambda: os.unlink(name),
                    lambda: os.symlink(request["outside"], name), lambda: os.unlink(name),
                    lambda: os.mkfifo(name), lambda: os.unlink(name),
                    lambda: (os.mkdir(name), open(name + "/x", "w")), lambda: (os.unlink(name + "/x"), os.rmdir(name))):
            try:
                act()
            except OSError:
                pass
    for number in range(4):
        if os.fork() == 0:
            while True:
                for index in range(20): turn(f"{index:02d}")
    time.sleep(0.2)
    """
    for _ in range(3):
        answer = cells(code, request={"outside": str(outside)}, reads=(out,), writes=(out,), timeout_s=200)
        assert answer.result == {} or "its output limit" in answer.ended.how, answer.ended.how
        assert not list(outside.iterdir()) and not [path for path in out.rglob("*") if path.is_symlink()]


def test_the_truth_of_one_cell_serves_the_next(engine: Engine, image: str, tmp_path: Path) -> None:
    """Computed once, it costs less than everything else about a validation together."""
    executor = DockerExecutor(engine, tmp_path / "project", tmp_path / "cache", 2, limits=LIMITS)
    executor._images["here"] = image
    shape = {"batch": 1, "heads": 2, "seq_len": 64, "head_dim": 16, "causal": False, "scale": 0.25}
    truth = tmp_path / "truth"
    request = {
        "workload": {"id": "w", "dtype": "float32", **shape, "recipes": {"independent": 3}, "problem": None},
        "seed": 0,
        "threads": 2,
        "device": "cpu",
        "references": ["flash"],
        "candidate": None,
        "candidate_out": "",
        "precision": None,
        "truth_dir": str(truth),
        "arrays": "",
        "array_trials": 0,
        "decides": "rounding",
        "limits": {"rounding": 4.0, "strict": 1e-3, "kernelbench": 1e-4},
    }

    def judge(*writes: Path) -> tuple[dict[str, object], dict[Path, int]]:
        answer = executor.run(
            Task(
                environment="here",
                name="judge",
                request=asked("judge", request),
                scratch=tmp_path / "scratch",
                log=tmp_path / "log",
                timeout_s=120,
                reads=(truth,),
                writes=writes,
            )
        )
        assert answer.result is not None, answer.ended.log
        return answer.result, {path: path.stat().st_mtime_ns for path in truth.rglob("*.truth")}

    first, kept = judge(truth)
    assert len(kept) == 3
    assert judge() == (first, kept)
    changed = next(truth.rglob("*.unit"))
    unit = json.loads(changed.read_bytes())
    unit["costs"] = {norm: (0.125).hex() for norm in unit["costs"]}
    changed.write_text(json.dumps(unit))
    assert judge()[0]["recipes"] != first["recipes"], "a cost that nobody computed shows that the file was read"
