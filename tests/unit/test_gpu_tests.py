"""What the tests for a GPU plant and compile is there: found out without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.executors import Answer
from harness.executors.process import Ended
from tests.conftest import ROOT
from tests.gpu import conftest, prebuild, test_sanitizers
from tests.gpu.conftest import BUILDS


@pytest.mark.parametrize("fault", test_sanitizers.PLANTED)
def test_a_fault_for_the_sanitizers_has_its_place(fault: str) -> None:
    assert test_sanitizers.faulty(fault) != test_sanitizers.KERNEL.read_text()


def test_every_build_has_its_source() -> None:
    assert all((ROOT / source).is_file() for source, _ in BUILDS.values())


def test_a_build_is_kept_until_its_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(self: conftest.Here, verb: str, request: dict[str, Any], **_: Any) -> Answer:
        asked.append(request["name"])
        ended = Ended(returncode=0, timed_out=False, duration_s=1.0, log="")
        return Answer(result={"status": "ok", "artifact": f"{len(asked)}.so"}, ended=ended)

    monkeypatch.setattr(conftest.Here, "ask", ask)
    monkeypatch.setattr(conftest, "architecture", lambda: "sm_90")
    monkeypatch.setenv(conftest.PROGRAMS, str(tmp_path / "programs"))
    first, second = (conftest.Here(tmp_path / name) for name in ("first", "second"))
    assert [here.build("shipped")["artifact"] for here in (first, first, second)] == ["1.so"] * 3
    assert first.build("slowed")["artifact"] == "2.so"
    monkeypatch.setattr(conftest, "sources_digest", lambda source: "others")
    assert conftest.Here(tmp_path / "third").build("shipped")["artifact"] == "3.so"
    assert asked == ["k_shipped", "k_slowed", "k_shipped"]


def test_prebuilding_needs_a_folder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(prebuild.PROGRAMS, raising=False)
    assert prebuild.main() == 2 and "KERNEL_MATRIX_PROGRAMS=" in capsys.readouterr().err


def test_what_cannot_be_prebuilt_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not prebuild.timed("shipped", lambda: 1 // 0) and prebuild.timed("slowed", lambda: 1)
    said = capsys.readouterr().out
    assert "shipped: ZeroDivisionError" in said and "slowed: 0.0 s" in said
