from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.process import MARK, clean_environment, run_child, tail

pytestmark = pytest.mark.process


def child(tmp_path: Path, code: str, timeout_s: float = 20) -> tuple[object, Path]:
    log = tmp_path / "log"
    return run_child([sys.executable, "-c", code], cwd=tmp_path, log=log, timeout_s=timeout_s, environment={}), log


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_how_a_process_ended_is_told_apart(tmp_path: Path) -> None:
    for code, said in [
        ("pass", "exited with 0"),
        ("raise SystemExit(3)", "exited with 3"),
        ("import os; os.abort()", "died by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "died by SIGSEGV"),
    ]:
        ended, _ = child(tmp_path, code)
        assert ended.how == said  # type: ignore[attr-defined]


def test_a_hang_is_killed_at_its_limit_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, os\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('child', 'w').write(str(p.pid))\n"
        # One that leaves session, group and parent: what a daemon does.
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open('daemon', 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "time.sleep(600)\n"
    )
    started = time.monotonic()
    ended, _ = child(tmp_path, code, timeout_s=2)
    assert ended.timed_out and "its limit of 2 s" in ended.how  # type: ignore[attr-defined]
    assert time.monotonic() - started < 15
    for name in ("child", "daemon"):
        assert not alive(int((tmp_path / name).read_text())), name


def test_what_a_finished_process_left_behind_is_killed_too(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open('child', 'w').write(str(p.pid))\n"
    )
    ended, _ = child(tmp_path, code)
    assert ended.returncode == 0  # type: ignore[attr-defined]
    assert not alive(int((tmp_path / "child").read_text()))


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from harness.process import run_child\n"
        "inner = 'import os, time; open(\"pid\", \"w\").write(str(os.getpid())); time.sleep(600)'\n"
        "run_child([sys.executable, '-c', inner], cwd=Path('.'), log=Path('log'), timeout_s=600, environment={})\n"
    )
    root = str(Path(__file__).parents[2])
    parent = subprocess.Popen([sys.executable, "-c", code, root], cwd=tmp_path)
    pid = tmp_path / "pid"
    deadline = time.monotonic() + 20
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    inner = int(pid.read_text())
    assert alive(inner)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while alive(inner) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(inner)


def test_the_log_holds_everything_and_its_tail_starts_at_a_line(tmp_path: Path) -> None:
    ended, log = child(tmp_path, "import sys; [print('line', i) for i in range(2000)]; print('end', file=sys.stderr)")
    assert log.read_text().count("\n") == 2001
    assert ended.log.startswith("[...]\nline ")  # type: ignore[attr-defined]
    assert ended.log.endswith("end\n")  # type: ignore[attr-defined]
    assert tail(tmp_path / "none") == ""


def test_the_environment_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/tmp/x.so")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    kept = clean_environment({MARK: "1"})
    assert "LD_PRELOAD" not in kept and "PYTORCH_NO_CUDA_MEMORY_CACHING" not in kept
    assert kept["CUDA_HOME"] == "/opt/cuda" and kept[MARK] == "1" and kept["PATH"] == os.environ["PATH"]
