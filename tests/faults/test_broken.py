"""A broken environment, then a mended one: the same command measures again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.scripted import BROKEN, Scripted, contents
from tests.projects import SHIPPED, copy_pins, head, make_project, start

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]


def test_a_mended_environment_is_measured_by_the_same_command(tmp_path: Path, undisturbed: Scripted) -> None:
    scripted = Scripted(tmp_path)
    (scripted.root / BROKEN).write_text("2.5.0")
    for number in (1, 2):  # still broken: tried again, and said again
        assert "the index cannot be reached" in scripted.done(code=30)
        assert len(scripted.runs) == number
        run = scripted.latest
        assert {e.torch: e.status for e in run.environments()} == {"2.1.0": "ok", "2.5.0": "broken"}
        assert {v.status for v in run.validations() if "2.5.0" in v.environment} == {"broken"}
        assert {x.status for x in run.launches() if "2.1.0" in x.environment} == {"ok"}
    broken = contents(scripted.latest)
    before = scripted.latest

    (scripted.root / BROKEN).unlink()
    assert "nothing changed" not in scripted.done()
    assert contents(scripted.latest) == contents(undisturbed.latest)
    assert scripted.latest.folder != before.folder and contents(before) == broken, "the broken run's records stay"
    assert "nothing changed" in scripted.done()


def test_a_run_that_measures_a_mended_environment_may_be_killed(tmp_path: Path, undisturbed: Scripted) -> None:
    """Wherever: the rerun takes up the mended run, and not the broken one."""
    for number in range(60, 600, 140):
        scripted = Scripted(tmp_path / str(number))
        (scripted.root / BROKEN).write_text("2.1.0")
        scripted.done(code=30)
        (scripted.root / BROKEN).unlink()
        scripted.killed(number)
        scripted.finish_as(undisturbed)
        assert len(scripted.runs) == 2, number


def test_an_environment_that_breaks_between_two_halves_of_a_run(tmp_path: Path, undisturbed: Scripted) -> None:
    scripted = Scripted(tmp_path)
    assert scripted.killed(500) and scripted.runs
    marker = next((scripted.cache / "environments").glob("torch2.5.0-*/complete.json"))
    marker.unlink()
    (scripted.root / BROKEN).write_text("2.5.0")
    scripted.done(code=30)
    (scripted.root / BROKEN).unlink()
    scripted.finish_as(undisturbed)


@pytest.mark.environments
def test_a_real_environment_that_cannot_be_made_is_broken_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the index is down, then a pin's hash does not match, then all is well."""
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    wheels = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    code, printed, run = start(project, "matrix", "--launches=1")
    assert code == 30, printed
    assert [e.status for e in run.environments()] == ["broken"] and {v.status for v in run.validations()} == {"broken"}

    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_CACHE_DIR", wheels)
    pins = next(copy_pins(project).glob("torch2.5.0-pypi-*.txt"))
    good = pins.read_text()
    lines = good.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("setuptools=="))
    last = next((i for i in range(first + 1, len(lines)) if "==" in lines[i]), len(lines))
    lines[first:last] = [lines[first].split("\\")[0].split("--hash")[0] + f" --hash=sha256:{'0' * 64}"]
    pins.write_text("\n".join(lines) + "\n")
    code, printed, damaged = start(project, "matrix", "--launches=1")
    assert code == 30 and "ash" in printed, printed
    record = damaged.environments()[0]
    assert record.status == "broken" and "setuptools" in record.message, record.message

    pins.write_text(good)
    code, printed, mended = start(project, "matrix", "--launches=1")
    assert code == 0 and "nothing changed" not in printed, printed
    assert mended.folder not in (run.folder, damaged.folder)
    assert {record.status for record in [*mended.validations(), *mended.launches()]} == {"ok"}
