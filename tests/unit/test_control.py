"""Controls: false alarms between replicas, what a slowed kernel's trials find, and a calibration that is cited."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import main
from harness.errors import BAD_INPUT, InputError
from reports.compare import control
from reports.compare.calibration import Controls, count_share
from reports.compare.control import calibrate
from reports.load.evidence import load_evidence
from reports.render.commands import load_calibration
from reports.render.page import render_page
from reports.render.report import Report
from tests.unit.reporting import evidence_of, report_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

REPLICA = f"{BASE}-r1"
SLOWED = {"slowed": ("attention_scalar", 1.05)}


def spec(**changes: object) -> Spec:
    values = {
        "environments": (BASE, REPLICA),
        "kernels": ("attention_scalar", "slowed"),
        "slowed": SLOWED,
        "workloads": ("seed-fp16",),
        "references": ("flash",),
        "device": "cuda",
        "launches": 20,
        "spread": 0.005,
    } | changes
    return Spec(**values)  # type: ignore[arg-type]


def controls_of(folder: Path, given: Spec, launches: int = 10) -> Controls:
    found = control.controls(evidence_of(folder, given), launches)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Controls:
    return controls_of(tmp_path_factory.mktemp("alike"), spec())


def test_replicas_that_are_alike_raise_no_alarm_and_every_row_is_counted(alike: Controls) -> None:
    (aa,) = alike.aa
    # Two kernels and one reference, cold and hot, in each of two trials of 10 of the 20 blocks.
    assert (aa.environments, aa.blocks, aa.trials, aa.rows.of) == ([BASE, REPLICA], 20, 2, 12)
    assert aa.rows.count == 0 and aa.alarmed == count_share(0, 2)
    assert aa.rows.low == 0.0 and aa.rows.high == pytest.approx(1 - 0.025 ** (1 / 12))


def test_a_replica_that_is_slower_is_an_alarm_in_every_trial(tmp_path: Path) -> None:
    found = controls_of(tmp_path, spec(cases={(REPLICA, "flash", "*"): Case(slowdown=1.05)}))
    (aa,) = found.aa
    assert (aa.rows.count, aa.alarmed.count, len(aa.alarms)) == (4, 2, 4)
    assert "flash (reference) on seed-fp16, cold" in aa.alarms[0]
    # Beside the slowed kernel its reference did not change: cold and hot, in two trials of each environment.
    assert found.unchanged == count_share(0, 8)
    assert found.false_alarms == count_share(4, aa.rows.of + 8)


def test_a_slowed_kernel_is_found_with_its_true_slow_down(alike: Controls) -> None:
    assert {(each.environment, each.mode) for each in alike.detections} == {
        (name, mode) for name in (BASE, REPLICA) for mode in ("cold", "hot")
    }
    for each in alike.detections:
        assert each.low is not None and each.high is not None and each.low <= 1.05 <= each.high
        assert (each.found.count, each.found.of, each.launches) == (2, 2, 20)
        assert each.resampled is not None and each.resampled.of == control.RESAMPLES
    assert alike.found("cold") == count_share(4, 4)


def test_a_kernel_slowed_by_less_than_the_minimum_effect_is_not_found(tmp_path: Path) -> None:
    found = controls_of(tmp_path, spec(slowed={"slowed": ("attention_scalar", 1.003)}))
    assert found.found("cold").count == 0 and found.found("cold").of == 4


def test_one_trial_leaves_nothing_to_resample(tmp_path: Path) -> None:
    found = controls_of(tmp_path, spec(launches=13))
    assert all(each.found.of == 1 and each.resampled is None for each in found.detections)


def test_too_few_blocks_are_said(tmp_path: Path) -> None:
    found = controls_of(tmp_path, spec(launches=6))
    assert not found.aa and not found.detections
    assert f"{BASE} against {REPLICA}: 6 blocks are too few for a trial of 10" in found.missing
    assert len(controls_of(tmp_path, spec(launches=6), launches=6).aa) == 1


def test_trials_are_disjoint_and_have_no_launch_twice(tmp_path: Path) -> None:
    rows = control.replica_rows(evidence_of(tmp_path, spec(launches=25)), BASE, REPLICA)
    assert control.trials(rows, 10) == [set(range(10)), set(range(10, 20))]


def test_the_procedure_is_the_reports_own(tmp_path: Path) -> None:
    """One trial of all launches says of each row what the report of the same records says."""
    given = spec(kernels=("attention_scalar",), slowed={}, cases={(REPLICA, "flash", "*"): Case(slowdown=1.05)})
    evidence = evidence_of(tmp_path, given)
    rows = control.replica_rows(evidence, BASE, REPLICA)
    judged = control.judge(evidence, rows, set(range(20)))
    said = {
        (row.target, timed.verdict, timed.ratio, timed.q_value) for row in Report(evidence).rows for timed in row.timed
    }
    assert {
        (row.name.removesuffix(" (reference)"), each.verdict, each.ratio, each.q_value)
        for row, each in zip(rows, judged, strict=True)
    } == said


def test_a_run_without_controls_has_none(tmp_path: Path) -> None:
    report = report_of(tmp_path, Spec(environments=(BASE, NEXT)))
    assert report.controls is None and 'id="trust"' not in render_page(report)
    with pytest.raises(InputError, match="neither replicas"):
        calibrate(load_evidence(tmp_path))


def test_the_command_prints_and_stores_and_another_page_cites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "control", spec())
    stored = tmp_path / "calibration.json"
    assert main(["control", str(tmp_path / "control"), "--write", str(stored)]) == 0
    said = capsys.readouterr().out
    assert "2 disjoint trials of 10 launches each; rows called a change: 0 of 12 (0.00%, 95% interval 0.00% to" in said
    assert "found in 2 of 2 trials; 200 of 200 resampled groups" in said
    assert main(["report", str(tmp_path / "control")]) == 0
    page = (tmp_path / "control" / "index.html").read_text()
    assert "how far to trust this" in page and "Trials share no launch" in page and "Resampling estimate" in page
    cited = load_calibration(stored)
    assert (cited.gpus, cited.drivers) == (["NVIDIA H200"], ["580.159.04"])

    write_run(tmp_path / "run", Spec(device="cuda"))
    assert main(["report", str(tmp_path / "run"), "--calibration", str(stored)]) == 0
    page = (tmp_path / "run" / "index.html").read_text()
    assert "Controls of another run" in page and cited.run_id in page and "0 of 12 (0.00%" in page
    assert "another GPU" not in page

    # Beside a run it needs no option; of another GPU it says so.
    (tmp_path / "cpu" / "calibration.json").parent.mkdir()
    (tmp_path / "cpu" / "calibration.json").write_bytes(stored.read_bytes())
    write_run(tmp_path / "cpu", Spec())
    assert main(["report", str(tmp_path / "cpu")]) == 0
    assert "ran on another GPU: NVIDIA H200; this run: none" in (tmp_path / "cpu" / "index.html").read_text()


@pytest.mark.parametrize("content", [b"", b'{"schema_version": 2}', b'{"schema_version": 1, "more": 1}', b"\xff"])
def test_what_is_no_calibration_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a calibration"):
        load_calibration(path)


@pytest.mark.parametrize(
    "options", [["absent"], ["run", "--launches", "1"], ["run", "--launches", "21"], ["run", "--write", "absent/\0"]]
)
def test_bad_options_are_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", spec())
    (tmp_path / "file").write_text("")
    options = [option.replace("absent/\0", "file/calibration.json") for option in options]
    assert main(["control", *options]) == BAD_INPUT
    assert "remedy" in capsys.readouterr().err
