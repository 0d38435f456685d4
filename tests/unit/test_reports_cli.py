"""`kernel-matrix report`: files, lines, exit codes, and each guard tripped."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.schema.records import Outcome, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import load_record, save_record
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

FILES = ("index.html", "summary.json", "summary.md", "comment.md", "junit.xml")
WRONG = {(NEXT, "kernel", "seed-fp16"): Case(passed=19, bits="new")}
SLOW = {(NEXT, "kernel", "seed-fp16"): Case(slowdown=1.3)}
DOUBLED = {(NEXT, "kernel", "seed-fp16"): Case(slowdown=2.0)}
SEED_CELL = Cell(environment=NEXT, kernel="attention_scalar", workload="seed-fp16", device="cpu")


def test_all_files_and_the_page_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, Spec())
    assert main(["report", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("attention_scalar (cpu): right in 2.1.0 and in 2.5.0")
    assert lines[-1] == str(tmp_path / "index.html")
    assert all((tmp_path / name).is_file() for name in FILES)
    assert not list(tmp_path.glob(".*.part"))


def test_out_leaves_the_run_alone(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Spec())
    before = sorted((tmp_path / "run").rglob("*"))
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "new" / "out")]) == 0
    assert sorted((tmp_path / "run").rglob("*")) == before
    assert all((tmp_path / "new" / "out" / name).is_file() for name in FILES)


@pytest.mark.parametrize(
    ("spec", "options", "code"),
    [
        (Spec(), [], 0),
        (Spec(min_effect=0.03), ["--fail-on", "correctness,latency", "--strict"], 0),
        (Spec(cases=WRONG), [], 0),
        (Spec(cases=WRONG), ["--fail-on", "correctness"], 10),
        (Spec(cases=WRONG), ["--fail-on", "latency"], 0),
        (Spec(cases=SLOW), ["--fail-on", "correctness"], 0),
        (Spec(cases=SLOW), ["--fail-on", "latency"], 11),
        (Spec(cases=WRONG | {(NEXT, "math", "*"): Case(slowdown=1.3)}), ["--fail-on", "latency,correctness"], 10),
        (Spec(cases={(NEXT, "kernel", "*"): Case(status="unsupported")}), ["--fail-on", "correctness"], 10),
        (Spec(cases={(NEXT, "kernel", "*"): Case(status="crashed")}), ["--fail-on", "correctness"], 10),
        (Spec(launches=3), ["--fail-on", "latency"], 0),
        (Spec(launches=3), ["--fail-on", "latency", "--strict"], 40),
        (Spec(launches=3), ["--strict"], 0),
        # A lone doubling is found with any number of launches that says how they spread.
        *((Spec(cases=DOUBLED, launches=launches), ["--fail-on", "latency"], 11) for launches in (3, 5, 6)),
        # What the launches made could not have shown does not pass: too few, too noisy, or not compared at all.
        (Spec(launches=1), ["--fail-on", "latency"], 40),
        (Spec(launches=2, spread=0.05), ["--fail-on", "latency"], 40),
        (Spec(spread=0.06), ["--fail-on", "latency"], 40),
        (Spec(spread=0.06), ["--fail-on", "latency", "--detect", "60%"], 0),
        (Spec(), ["--fail-on", "latency", "--detect", "0.01"], 40),
        (Spec(mode="eval"), ["--fail-on", "latency"], 40),
        (Spec(cases={(BASE, "kernel", "*"): Case(status="crashed")}), ["--fail-on", "latency"], 40),
        (Spec(launches=1), ["--fail-on", "correctness"], 0),
        (Spec(), ["--detect", "0"], 64),
        (Spec(mode="eval"), ["--fail-on", "latency", "--strict"], 40),
        (Spec(builds={NEXT: Outcome(status="build_failed")}), [], 20),
        (Spec(builds={NEXT: Outcome(status="build_failed")}), ["--fail-on", "correctness"], 20),
        (Spec(stacks={NEXT: Outcome(status="broken")}), ["--fail-on", "correctness"], 30),
    ],
)
def test_exit_codes(tmp_path: Path, spec: Spec, options: list[str], code: int) -> None:
    write_run(tmp_path, spec)
    assert main(["report", str(tmp_path), *options]) == code


def test_of_a_build_that_failed_the_last_lines_name_it_and_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, Spec(builds={NEXT: Outcome(status="build_failed")}))
    assert main(["report", str(tmp_path)]) == 20
    *_, sentence, last = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"attention_scalar (cpu) did not build in {NEXT}; ")
    assert sentence.endswith(str(tmp_path / "index.html")) and (tmp_path / "index.html").exists()
    assert last == "exit code 20: a build failed"


def test_a_gate_says_what_it_could_not_have_seen_and_how_many_launches_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, Spec(spread=0.08))
    assert main(["report", str(tmp_path), "--fail-on", "latency"]) == 40
    said = capsys.readouterr().out.splitlines()[-1]
    assert "a slow-down of 10% could not have been detected in 6 of 6 timed rows; the hardest is " in said
    found = re.search(r"about (\d+) launches of each environment would be enough \(--launches\)", said)
    assert found and 10 < int(found[1]) < 400


def edited(path: Path) -> None:
    value = json.loads(path.read_text())
    value["body"]["recipes"][0]["trials"] = 99
    path.write_text(json.dumps(value))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def of_another_version(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 999}))


def in_anothers_place(path: Path) -> None:
    save_record(path, replace(load_record(path, ValidationRecord), workload="seed-fp32"))


@pytest.mark.parametrize("damage", [edited, truncated, of_another_version, in_anothers_place])
def test_records_that_cannot_be_trusted_are_refused_with_their_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage
) -> None:
    run = write_run(tmp_path, Spec())
    damage(run.validation_path(SEED_CELL))
    assert main(["report", str(tmp_path)]) == 64
    error = capsys.readouterr().err
    assert f"{NEXT}/attention_scalar-cpu/seed-fp" in error and "remedy" in error
    assert not (tmp_path / "index.html").exists()


def test_latest_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "reports" / "runs" / "one", Spec())
    (tmp_path / "reports" / "latest").symlink_to("runs/one")
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 0
    assert (tmp_path / "reports" / "runs" / "one" / "index.html").is_file()
