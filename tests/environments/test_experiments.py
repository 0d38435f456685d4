"""Binary swap, checkers and profiles in the two real versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.experiments.checkers import CheckersExperiment
from harness.experiments.factors import FactorExperiment
from harness.experiments.profile import ProfileExperiment
from harness.run.context import Context
from harness.schema.experiment_records import CheckersRecord, ExperimentFactor, FactorRecord, ProfileRecord
from harness.schema.run_records import Cell
from harness.schema.storage import load_record
from harness.worker import protocol
from tests.conftest import ROOT
from tests.projects import built_context, head, make_project

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]
OLD, NEW = "torch2.1.0-pypi-py311", "torch2.5.0-pypi-py311"
MATRIX = """\
kernels:
  - {name: small, sources: {cpu: [csrc/small_attention.cpp]}}
  - {name: wide, sources: {cpu: [csrc/small_attention.cpp]}, tunables: {SUMS: double}}
  - {name: beyond, sources: {cpu: [csrc/small_attention.cpp]}, tunables: {FAULT: beyond}}
  - {name: crashes, sources: {cpu: [csrc/small_attention.cpp]}, tunables: {FAULT: crashes}}
  - {name: refuses, sources: {cpu: [csrc/small_attention.cpp]}, tunables: {FAULT: refuses}}
  - {name: torchy, sources: {cpu: [csrc/torchy.cpp]}}
  - name: openmp
    sources: {cpu: [csrc/small_attention.cpp]}
    flags: {cxx: [-O2, -fopenmp]}
    tunables: {FAULT: openmp}
workloads:
  - name: small
    shape: {batch: 1, heads: 2, seq_len: 70, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 3
    extra_trials: 1
  - name: seed
    shape: {batch: 1, heads: 8, seq_len: 512, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 1
    extra_trials: 0
"""
TORCHY = """
#include <ATen/Parallel.h>
#include "small_attention.cpp"
namespace { const int counted = at::get_num_threads(); }
"""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    small = (ROOT / "tests" / "candidates" / "small_attention.cpp").read_text()
    sources = {"csrc/small_attention.cpp": small, "csrc/torchy.cpp": TORCHY}
    folder = tmp_path_factory.mktemp("experiments") / "project"
    return built_context(make_project(folder, head("2.1.0", "2.5.0") + MATRIX, sources))


def varied(context: Context, kernel: str, factor: ExperimentFactor = ExperimentFactor.CODE) -> FactorRecord:
    cell = Cell(environment=NEW, kernel=kernel, workload="small-fp32", device="cpu")
    return FactorExperiment(context=context, factor=factor, cell=cell, baseline=OLD, failing={}).make()


def test_all_four_combinations_agree_with_what_was_validated(context: Context) -> None:
    record = varied(context, "small")
    assert record.status == "ok", record
    assert [(r.level, r.home) for r in record.results] == [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)]
    for result in record.results:
        assert result.status == "ok" and result.runs == result.passed == 5 and len(result.output_sha256) == 5, result
        assert result.max_units is not None and 0 < result.max_units < 4
        assert "libstdc++.so.6" in result.runtime and "libc.so.6" in result.runtime
    assert len({tuple(result.output_sha256) for result in record.results}) == 1
    runtimes = {result.home: result.runtime for result in record.results}
    assert "libcudart" in runtimes[NEW] and runtimes[OLD] != runtimes[NEW]  # (12.1) and (12.4)
    path = context.run.experiment_path(NEW, "small", "cpu", "small-fp32", record.name)
    written = context.save(path, record)
    assert load_record(path, FactorRecord) == written and str(context.root) not in path.read_text()
    assert not list((context.run.folder / "scratch" / "factors").glob("*")), "something was left behind"


def test_variables_of_the_other_environment_reach_the_kernels_process(context: Context) -> None:
    record = varied(context, "small", ExperimentFactor.VARIABLES)
    assert record.status == "ok" and {(r.home, r.level) for r in record.results} == {
        (home, level) for home in (OLD, NEW) for level in (OLD, NEW)
    }
    assert all(result.status == "ok" and result.runs == result.passed == 5 for result in record.results), record


def test_what_follows_the_code_is_told_from_what_follows_the_place(context: Context) -> None:
    """As if 2.5.0 had compiled another kernel."""
    real = context.builds[NEW, "small", "cpu"]
    other = context.builds[NEW, "wide", "cpu"]
    assert real.own_objects != other.own_objects
    context.builds[NEW, "small", "cpu"] = other
    try:
        record = varied(context, "small")
    finally:
        context.builds[NEW, "small", "cpu"] = real
    assert record.status == "ok", record
    bits = {(r.level, r.home): tuple(r.output_sha256) for r in record.results}
    assert bits[OLD, OLD] == bits[OLD, NEW] != bits[NEW, NEW] == bits[NEW, OLD]
    units = {r.level: r.max_units for r in record.results}
    assert units[NEW] is not None and units[OLD] is not None and units[NEW] < units[OLD]


def test_what_needs_pytorch_is_not_swapped_and_says_so(context: Context) -> None:
    record = varied(context, "torchy")
    assert record.status == "not_run" and not record.results
    assert "its objects need PyTorch: at::get_num_threads" in record.message


def test_openmp_is_that_of_the_pytorch_that_calls(context: Context) -> None:
    record = varied(context, "openmp")
    assert record.status == "ok" and {result.status for result in record.results} == {"ok"}, record
    assert all("torch/lib/libgomp" in result.runtime for result in record.results)


@pytest.mark.parametrize(
    ("kernel", "status", "words"), [("crashes", "crashed", "SIGABRT"), ("refuses", "crashed", "no such head_dim")]
)
def test_a_combination_that_fails_is_a_row(context: Context, kernel: str, status: str, words: str) -> None:
    record = varied(context, kernel)
    assert record.status == "ok" and len(record.results) == 4
    for result in record.results:
        assert result.status == status and words in result.message and result.runs == 0, result


def test_an_object_that_was_changed_since_its_build_is_not_run(context: Context) -> None:
    built = context.builds[OLD, "small", "cpu"]
    changed = replace(built, objects={name: "0" * 64 for name in built.objects})
    context.builds[OLD, "small", "cpu"] = changed
    try:
        record = varied(context, "small")
    finally:
        context.builds[OLD, "small", "cpu"] = built
    assert record.status == "not_run" and OLD in record.message and "is not what its build described" in record.message


@pytest.mark.parametrize("environment", [OLD, NEW])
@pytest.mark.parametrize(("kernel", "found"), [("small", []), ("beyond", ["address"])])
def test_checkers_in_both_versions(context: Context, environment: str, kernel: str, found: list[str]) -> None:
    cell = Cell(environment=environment, kernel=kernel, workload="small-fp32", device="cpu")
    record = CheckersExperiment(context=context, cell=cell).make()
    assert record.status == "ok", record
    assert {result.tool for result in record.results} == {"address", "undefined_behaviour", "thread", "auto_var_init"}
    assert all(result.control_found for result in record.results), record
    assert [result.tool for result in record.results if result.findings] == found
    path = context.run.experiment_path(environment, kernel, "cpu", "small-fp32", "checkers")
    assert context.save(path, record) == load_record(path, CheckersRecord)
    assert str(context.root) not in path.read_text()


def test_checkers_of_a_kernel_with_openmp_leave_its_threads_out(context: Context) -> None:
    cell = Cell(environment=NEW, kernel="openmp", workload="small-fp32", device="cpu")
    record = CheckersExperiment(context=context, cell=cell).make()
    status = {result.tool: result.status for result in record.results}
    assert status == {"address": "ok", "undefined_behaviour": "ok", "thread": "not_run", "auto_var_init": "ok"}, record


def profiled(context: Context, environment: str, target: str, kernel: str = "small") -> ProfileRecord:
    cell = Cell(environment=environment, kernel=kernel, workload="seed-fp32", device="cpu")
    return ProfileExperiment(context=context, cell=cell, target=target).make()


def test_what_math_does_more_in_2_5_0_is_in_its_profile(context: Context) -> None:
    old, new = (profiled(context, environment, "math") for environment in (OLD, NEW))
    for record in (old, new):
        assert record.status == "ok" and record.profiled_calls == 20 and record.threads, record
        assert record.operators == sorted(record.operators, key=lambda row: -row.self_us)
    before, after = ({row.name: row for row in record.operators} for record in (old, new))
    assert before["aten::bmm"].calls == after["aten::bmm"].calls == 2
    appeared = {name for name in after.keys() - before.keys() if after[name].self_us > 100}
    assert {"aten::where", "aten::eq", "aten::all"} <= appeared, appeared
    path = context.run.experiment_path(NEW, "small", "cpu", "seed-fp32", "profile-math")
    assert context.save(path, new) == load_record(path, ProfileRecord) and context.run.experiments(ProfileRecord)


@pytest.mark.parametrize("environment", [OLD, NEW])
def test_a_kernels_profile_is_the_time_outside_operators(context: Context, environment: str) -> None:
    record = profiled(context, environment, protocol.KERNEL)
    assert record.status == "ok", record
    assert record.operators[0].name == "outside operators" and record.operators[0].calls == 1
    assert record.operators[0].self_us > 10 * sum(row.self_us for row in record.operators[1:])


def test_what_cannot_be_profiled_says_why(context: Context) -> None:
    crashed = profiled(context, NEW, protocol.KERNEL, "crashes")
    assert crashed.status == "crashed" and "SIGABRT" in crashed.message and not crashed.operators
    refused = profiled(context, NEW, protocol.KERNEL, "refuses")
    assert refused.status == "crashed" and "no such head_dim" in refused.message
    assert "outside operators" in {row.name for row in refused.operators}, "what ran before the exception is told"
    unsupported = profiled(context, OLD, "cudnn")
    assert unsupported.status == "unsupported" and "cuDNN" in unsupported.message
