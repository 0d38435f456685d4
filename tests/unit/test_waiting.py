"""A process that waits for a lock says so, and for how long."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import filelock
import pytest

from harness.run import folders
from harness.run.folders import held


def waiter(path: Path) -> threading.Thread:
    def wait() -> None:
        with held(path, "another run is measuring"):
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def wait_until_told(capfd: pytest.CaptureFixture[str], pattern: str) -> str:
    said = ""
    for _ in range(10_000):  # minutes, and only where it is never told
        said += capfd.readouterr().out
        if re.search(pattern, said):
            return said
        threading.Event().wait(0.02)
    pytest.fail(f"not told: {said}")


def test_who_waits_is_told_and_for_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folders, "STILL_WAITING_S", 0.05)
    monkeypatch.setattr(folders, "_told", set())
    path = tmp_path / "measure.lock"
    with held(path, "not said"):
        thread = waiter(path)
        said = wait_until_told(capfd, "still waiting.*\n")
    thread.join()
    assert re.match(r"another run is measuring\nstill waiting, for 0 min\n", said), said


def test_who_holds_it_again_and_again_takes_turns_with_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    turns, changed, acquire = ["nobody"], threading.Condition(), folders._acquire

    def recorded(lock: filelock.BaseFileLock, *arguments: Any) -> None:
        acquire(lock, *arguments)
        if lock.lock_file.endswith(".next"):
            say(threading.current_thread().name)

    def say(who: str) -> None:
        with changed:
            turns.append(who)
            changed.notify_all()

    def hold() -> None:
        who = threading.current_thread().name
        for _ in range(5):
            with held(tmp_path / "measure.lock", "another run is measuring"), changed:
                order.append(who)
                changed.wait_for(lambda: turns[-1] != who)  # until another waits
        say("nobody")

    monkeypatch.setattr(folders, "_acquire", recorded)
    threads = [threading.Thread(target=hold, name=who) for who in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order in (["a", "b"] * 5, ["b", "a"] * 5)
