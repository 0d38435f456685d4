"""Experiments as a user meets them: a matrix that runs them by itself, and `explain` on a finished run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.experiments.plan import EXPERIMENTS, LENGTHS
from harness.schema.experiment_records import ConditionsRecord, ExperimentFactor, FactorRecord
from harness.schema.storage import Run, load_record
from tests.candidates.faulty import SOURCE
from tests.conftest import ROOT
from tests.projects import Finished, attempt, command, head, make_project, start

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

MATRIX = """\
kernels:
  - {name: right, sources: {cpu: [csrc/faulty.cpp]}}
  - {name: unwritten, sources: {cpu: [csrc/faulty.cpp]}, tunables: {FAULT: unwritten}}
workloads:
  - name: small
    shape: {batch: 1, heads: 2, seq_len: 70, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 2
    extra_trials: 1
  - name: smaller
    shape: {batch: 1, heads: 1, seq_len: 33, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 2
    extra_trials: 1
"""


def explain(project: Path, *arguments: str) -> tuple[int, str]:
    return attempt(command(project, "explain", *arguments))


def experiments(run: Run) -> dict[str, float]:
    return {str(p.relative_to(run.folder)): p.stat().st_mtime for p in (run.folder / "experiments").rglob("*.json")}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = 'variables: {ATTENTION_NOTE: "1"}, flags: {cxx: [-DNOTED]}'
    environments = head("2.1.0", "2.5.0").replace('"2.5.0", ', f'"2.5.0", {own}, ')
    folder = tmp_path_factory.mktemp("explained") / "project"
    return make_project(folder, environments + MATRIX, {"csrc/faulty.cpp": SOURCE})


@pytest.fixture(scope="module")
def finished(project: Path) -> Finished:
    return start(project, "matrix", "--launches=1", "--explain=auto")


def test_the_matrix_explains_what_is_wrong_and_nothing_else(finished: Finished) -> None:
    code, printed, run = finished
    assert code == 0, printed
    records = run.experiments(ConditionsRecord)
    assert {(r.environment, r.experiment) for r in records} == {
        (environment, experiment)
        for environment in run.load().environments
        for experiment in (*EXPERIMENTS, *LENGTHS, "history")
    }
    assert {(r.kernel, r.workload) for r in records} == {("unwritten", "smaller-fp32")}, "the smallest stands for all"
    assert "--all explains these too" in printed
    assert not (run.folder / "scratch").exists()


def test_records_say_what_the_kernel_did(finished: Finished) -> None:
    for record in finished[2].experiments(ConditionsRecord):
        assert record.status == "ok" and record.duration_s > 0
        ran = [result for result in record.results if result.runs]
        assert all(result.status == "wrong" and result.passed == 0 for result in ran)
        assert all(len(r.output_sha256) == len(r.input_sha256) for r in ran)
        if record.experiment == "poison":
            digests = {
                site: {str(r.output_sha256) for r in ran if r.condition.site == site}
                for site in ("output", "stack", "heap")
            }
            assert {site: len(found) for site, found in digests.items()} == {"output": 4, "stack": 1, "heap": 1}
        if record.experiment == "predecessor":
            assert ran[-1].condition.before == "fresh" and ran[-1].runs == 2
        if record.experiment == "inputs":
            refused = [r for r in record.results if r.status == "unsupported"]
            assert [r.condition.layout for r in refused] == ["strided"] and "contiguous" in refused[0].message
            validated = next(
                v
                for v in finished[2].validations()
                if (v.environment, v.kernel, v.workload) == (record.environment, "unwritten", "smaller-fp32")
            )
            assert ran[0].input_sha256[:2] == validated.recipes[0].input_sha256, "the same bytes as in validation"
        if record.experiment == "repeat":
            assert [r.runs for r in ran] == [50, 50]
        if record.experiment == "history":
            assert [(r.condition.process, r.condition.before) for r in ran[:2]] == [(1, "fresh"), (2, "fresh")]
            assert ran[0].output_sha256 == ran[1].output_sha256 and not any(map(any, ran[0].within))


def test_variables_are_tried_in_both_environments(finished: Finished) -> None:
    run = finished.run
    baseline, other = run.load().environments
    record = next(each for each in run.experiments(FactorRecord) if each.factor is ExperimentFactor.VARIABLES)
    assert (record.status, record.baseline, record.environment) == ("ok", baseline, other)
    bits = {(each.home, each.level): each.output_sha256 for each in record.results}
    assert len(bits) == 4 and all(bits[home, baseline] == bits[home, other] for home in (baseline, other))


def test_flags_and_variables_of_an_environment_reach_it_alone(finished: Finished) -> None:
    run = finished.run
    before, after = run.environments()
    assert (before.variables, after.variables) == ({}, {"ATTENTION_NOTE": "1"})
    assert before.observed is not None and after.observed is not None
    assert "env.ATTENTION_NOTE" not in before.observed.settings
    assert after.observed.settings["env.ATTENTION_NOTE"] == "1"
    flags = {build.environment: build.flags for build in run.builds() if build.kernel == "right"}
    assert "cxx: -DNOTED" in flags[after.id]
    assert [flag for flag in flags[after.id] if flag != "cxx: -DNOTED"] == flags[before.id]


def test_nothing_of_this_machine_is_recorded(finished: Finished) -> None:
    text = finished.run.run_path().read_text()
    assert str(ROOT) not in text and str(Path.home()) not in text


def test_never_leaves_them_to_explain_which_takes_what_is_known(project: Path, finished: Finished) -> None:
    code, printed, run = start(project, "matrix", "--launches=1", "--kernel=unwritten", "--explain=never")
    assert code == 0 and not experiments(run), printed
    code, printed = explain(project, str(run.folder))
    assert code == 0, printed
    assert set(experiments(run)) == set(experiments(finished[2]))
    assert "ran " not in printed, "another run holds these very experiments"


def test_what_is_recorded_is_not_done_again(project: Path, finished: Finished) -> None:
    run = finished[2]
    before = experiments(run)
    code, printed, again = start(project, "matrix", "--launches=1", "--explain=auto")
    assert code == 0 and again.folder == run.folder and "nothing changed" in printed and experiments(run) == before


def test_a_damaged_record_is_made_again(project: Path, finished: Finished) -> None:
    run = finished[2]
    path = next((run.folder / "experiments").rglob("smaller-fp32/repeat.json"))
    key = load_record(path, ConditionsRecord).key
    path.write_text(path.read_text().replace('"repeat"', '"poison"'))
    for other in (project / "reports" / "runs").iterdir():  # no other run to take it from
        if other != run.folder:
            (other / path.relative_to(run.folder)).unlink(missing_ok=True)
    before = experiments(run)
    code, printed = explain(project, str(run.folder))
    assert code == 0 and "ran repeat:" in printed, printed
    assert load_record(path, ConditionsRecord).key == key
    after = experiments(run)
    assert {name for name in after if after[name] != before[name]} == {str(path.relative_to(run.folder))}


def test_another_project_than_the_run_measured_is_refused(project: Path, finished: Finished) -> None:
    source = project / "csrc" / "faulty.cpp"
    text = source.read_text()
    source.write_text(text + "// changed\n")
    os.utime(source)
    try:
        code, printed = explain(project, str(finished[2].folder))
    finally:
        source.write_text(text)
    assert code == 64 and "is not what that run measured" in printed and "start the matrix again" in printed
