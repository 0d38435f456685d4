from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from harness.executors import process
from harness.executors.process import LOG_LIMIT_BYTES, MARK, Ended, Gate, clean_environment, run_child, tail

pytestmark = pytest.mark.process

# Leaves session, group, parent and environment: what a daemon does.
DAEMON = """\
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("part", "w").write(str(os.getpid()))
        os.rename("part", "daemon")
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
"""
STILL_THERE = "os.kill(int(open('daemon').read()), 0)\n"


def child(tmp_path: Path, code: str, timeout_s: float = 500) -> tuple[Ended, Path]:
    log = tmp_path / "log"
    return run_child([sys.executable, "-c", code], cwd=tmp_path, log=log, timeout_s=timeout_s, environment={}), log


def wait_for(*paths: Path) -> None:
    """Until a child has made them; a test that hangs ends at its own limit."""
    while not all(path.exists() for path in paths):
        time.sleep(0.01)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_how_a_process_ended_is_told_apart(tmp_path: Path) -> None:
    for code, said in [
        ("pass", "exited with 0 before it gave a result"),
        ("raise SystemExit(3)", "exited with 3"),
        ("import os; os.abort()", "died by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "died by SIGSEGV"),
    ]:
        ended, _ = child(tmp_path, code)
        assert ended.how == said


def test_a_hang_is_killed_at_its_limit_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, os\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('part', 'w').write(str(p.pid)); os.rename('part', 'child')\n"
        f"{DAEMON}time.sleep(600)\n"
    )
    gate = Gate()  # whose opening its limit begins with
    with ThreadPoolExecutor(1) as pool:
        log = tmp_path / "log"
        going = pool.submit(
            run_child, [sys.executable, "-c", code], cwd=tmp_path, log=log, timeout_s=0.1, environment={}, gate=gate
        )
        wait_for(tmp_path / "child", tmp_path / "daemon")
        gate.open()
        ended = going.result()
    assert ended.timed_out and ended.how == "killed at its time limit"
    for name in ("child", "daemon"):
        assert not alive(int((tmp_path / name).read_text())), name


def test_who_sheds_session_parent_and_environment_is_killed_too(tmp_path: Path) -> None:
    code = f"import os\n{DAEMON}os.wait()\nwhile not os.path.exists('daemon'): pass\nprint('done')\n"
    # While another child with such a daemon runs on: only what ended children left is killed.
    with ThreadPoolExecutor(1) as pool:
        (tmp_path / "other").mkdir()
        other = pool.submit(child, tmp_path / "other", code + "while not os.path.exists('go'): pass\n" + STILL_THERE)
        ended, _ = child(tmp_path, code)
        assert not alive(int((tmp_path / "daemon").read_text()))
        assert ended.returncode == 0 and ended.log == "done\n"
        (tmp_path / "other" / "go").touch()
        assert other.result()[0].returncode == 0, other.result()[0]
    assert not alive(int((tmp_path / "other" / "daemon").read_text()))


def test_a_log_is_cut_in_its_middle_and_says_so(tmp_path: Path) -> None:
    code = "import sys\nprint('first')\nfor _ in range(300): sys.stdout.write('x' * (1 << 20))\nprint('\\nlast')\n"
    ended, log = child(tmp_path, code)
    assert ended.returncode == 0 and ended.log.endswith("last\n")
    text = log.read_text()
    assert LOG_LIMIT_BYTES <= len(text) < LOG_LIMIT_BYTES + 100
    assert text.startswith("first\nxxx")
    dropped = int(text.partition("[... ")[2].partition(" bytes dropped here ...]")[0])
    assert dropped + LOG_LIMIT_BYTES == len("first\n") + (300 << 20) + len("\nlast\n")


def test_a_log_of_one_line_has_an_excerpt(tmp_path: Path) -> None:
    ended, _ = child(tmp_path, "print('x' * 10000, end='')")
    assert ended.log.endswith("xxx") and len(ended.log) > 3000


def test_who_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(0.5); open('end', 'w'); time.sleep({})"
    assert child(tmp_path, code.format(0))[0].returncode == 0
    assert (tmp_path / "end").exists()
    used = time.process_time()
    assert child(tmp_path, code.format(600), timeout_s=2)[0].timed_out
    assert time.process_time() - used < 1, "who waits sleeps"


def test_who_prints_without_end_is_ended_at_its_limit(tmp_path: Path) -> None:
    ended, log = child(tmp_path, "import os\nwhile True: os.write(1, b'y\\n' * 30000)", timeout_s=2)
    assert ended.timed_out
    assert log.stat().st_size < LOG_LIMIT_BYTES + 100


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from harness.executors.process import run_child\n"
        'inner = \'import os, time; open("part", "w").write(str(os.getpid())); os.rename("part", "pid"); \'\n'
        "inner += 'time.sleep(600)'\n"
        "run_child([sys.executable, '-c', inner], cwd=Path('.'), log=Path('log'), timeout_s=600, environment={})\n"
    )
    root = str(Path(__file__).parents[2])
    parent = subprocess.Popen([sys.executable, "-c", code, root], cwd=tmp_path)
    pid = tmp_path / "pid"
    wait_for(pid)
    inner = int(pid.read_text())
    assert alive(inner)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while alive(inner):  # until the test's own limit
        time.sleep(0.05)


def test_the_log_holds_everything_and_its_tail_starts_at_a_line(tmp_path: Path) -> None:
    ended, log = child(tmp_path, "import sys; [print('line', i) for i in range(2000)]; print('end', file=sys.stderr)")
    assert log.read_text().count("\n") == 2001
    assert ended.log.startswith("[...]\nline ")
    assert ended.log.endswith("end\n")
    assert tail(tmp_path / "none") == ""


HELD_BACK = "import sys, time; open('ready', 'w').close(); sys.stdin.buffer.read(); print('through', flush=True); "


def held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, timeout_s: float, opens_after_s: float
) -> tuple[Ended, str]:
    """How a child ended that was held back for so long, by a clock that is set forwards meanwhile."""
    late_s = [0.0]
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late_s[0]))
    gate, log = Gate(), tmp_path / "log"
    command = [sys.executable, "-c", HELD_BACK + code]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run_child, command, cwd=tmp_path, log=log, timeout_s=timeout_s, environment={}, gate=gate)
        wait_for(tmp_path / "ready")
        late_s[0] = opens_after_s
        before = log.read_text() if log.exists() else ""
        gate.open()
        return future.result(), before


def test_a_child_that_is_held_back_begins_when_its_gate_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, before = held_back(tmp_path, monkeypatch, "time.sleep(0.2)", timeout_s=1000, opens_after_s=5000)
    assert before == "" and "through" in ended.log
    assert ended.returncode == 0 and not ended.timed_out, "what it waited counts against no limit"
    assert 0.2 <= ended.duration_s < 1000, "nor as its duration"


def test_a_child_that_was_held_back_is_killed_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, _ = held_back(tmp_path, monkeypatch, "time.sleep(600)", timeout_s=0.5, opens_after_s=0)
    assert ended.timed_out and ended.duration_s >= 0.5


def test_a_child_that_ends_before_its_gate_opens_has_ended(tmp_path: Path) -> None:
    gate = Gate()
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    ended = run_child(command, cwd=tmp_path, log=tmp_path / "log", timeout_s=500, environment={}, gate=gate)
    assert ended.returncode == 3
    gate.open()
    gate.open()


def test_the_environment_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/tmp/x.so")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    kept = clean_environment({MARK: "1"})
    assert "LD_PRELOAD" not in kept and "PYTORCH_NO_CUDA_MEMORY_CACHING" not in kept
    assert kept["CUDA_HOME"] == "/opt/cuda" and kept[MARK] == "1" and kept["PATH"] == os.environ["PATH"]
