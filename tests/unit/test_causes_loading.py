"""Causes of kernels that are built already, and that an environment cannot load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema.environment_records import BuildRecord, LoadFailure
from harness.schema.records import Outcome
from harness.schema.storage import Run, load_record, save_record
from reports.attribute.causes import Grade, Kind, Rival
from reports.load.evidence import load_evidence
from reports.render.report import Report
from reports.render.subjects import End, find_end
from tests.unit.attributed import KERNEL, Make, causes_of, of_kernel, spec
from tests.unit.reporting import kernel_row
from tests.unit.spec import BASE, NEXT

SYMBOL = "_ZN2at4_ops4ones4callEv"
MISSING = LoadFailure(
    kind="symbol",
    symbol=SYMBOL,
    reason="it needs at::_ops::ones::call(), which PyTorch 2.5.0 does not define",
    remedy="rebuild it against PyTorch 2.5.0",
)
OTHER = LoadFailure(kind="other", reason="it raised ImportError: cannot import name 'x' from 'torch'")


def loaded(*refused: str, failure: LoadFailure = MISSING) -> Make:
    """The kernel is one file, built already; these environments refuse it."""

    def make(run: Run) -> None:
        for environment in (BASE, NEXT):
            path = run.build_path(environment, KERNEL, "cuda")
            path = path if path.exists() else run.build_path(environment, KERNEL, "cpu")
            changes = {"artifact_sha256": "5a" * 32, "objects": {}, "build_ninja": "", "flags": [], "functions": []}
            if environment in refused:
                changes |= {"refused": failure, "message": f"mine.so cannot be loaded: {failure.reason}"}
            save_record(path, replace(load_record(path, BuildRecord), **changes))

    return make


def failing(*environments: str) -> dict[str, Outcome]:
    return dict.fromkeys(environments, Outcome(status="build_failed", message="mine.so cannot be loaded"))


def test_a_symbol_that_one_version_lacks_is_proven(tmp_path: Path) -> None:
    [cause] = of_kernel(tmp_path, spec(builds=failing(NEXT)), loaded(NEXT))
    assert (cause.cause, cause.grade) == (Kind.ABI_BREAK, Grade.PROVEN)
    assert "does not load in" in cause.statement and "which PyTorch 2.5.0 does not define" in cause.statement
    assert "It loads in" in cause.statement
    assert cause.fix == "rebuild it against PyTorch 2.5.0"
    assert [each.rival for each in cause.excluded] == [Rival.CODE]


def test_one_that_no_environment_loads_names_what_is_missing_and_no_library(tmp_path: Path) -> None:
    [cause] = of_kernel(tmp_path, spec(builds=failing(BASE, NEXT)), loaded(BASE, NEXT))
    assert (cause.cause, cause.grade) == (Kind.ABI_BREAK, Grade.PROVEN)
    assert "in either environment" in cause.statement and "It loads in" not in cause.statement


@pytest.mark.parametrize(
    ("refused", "expected"), [((NEXT,), Kind.UNSUPPORTED_COMBINATION), ((BASE, NEXT), Kind.OWN_ERROR)]
)
def test_what_it_raises_by_itself_is_not_proven(tmp_path: Path, refused: tuple[str, ...], expected: str) -> None:
    cause = of_kernel(tmp_path, spec(builds=failing(*refused)), loaded(*refused, failure=OTHER))[0]
    assert (cause.cause, cause.grade) == (expected, Grade.LIKELY) and "cannot import name" in cause.statement


def test_the_page_says_that_it_does_not_load(tmp_path: Path) -> None:
    causes_of(tmp_path, spec(builds=failing(NEXT)), loaded(NEXT))
    assert find_end(kernel_row(Report(load_evidence(tmp_path))).correctness.this) == End.UNLOADED
