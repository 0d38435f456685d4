"""A matrix of two real versions, from matrix.yaml to the page: what `nox -s tests` runs of the real thing.

The pinned environments are made on first use, and kept in the user's cache.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Watched, browser  # noqa: F401 - a fixture
from tests.projects import SHIPPED, Finished, check_measured, head, make_project, report, start

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("matrix") / "project", head("2.1.0", "2.5.0") + SHIPPED)


@pytest.fixture(scope="module")
def finished(project: Path) -> Finished:
    finished = start(project, "matrix", "--launches=1")
    assert finished.code == 0, finished.printed
    return finished


def test_the_records_hold_what_was_observed_and_measured(finished: Finished) -> None:
    """Versions as seen inside, builds, validations of the same input bytes, backends by name, and correct times."""
    run = finished.run
    check_measured(run, launches=2)
    for environment in run.environments():
        seen = environment.observed
        assert seen is not None and seen.torch.partition("+")[0] == environment.torch and seen.numpy == "1.26.4"
    assert [environment.torch for environment in run.environments()] == ["2.1.0", "2.5.0"]
    builds = [build for build in run.builds() if build.device == "cpu"]
    assert len(builds) == 2 and all("build" in b.build_ninja and b.artifact_sha256 for b in builds)
    validations = run.validations()
    assert len(validations) == len(run.load().cells) == 2
    first, second = ([recipe.input_sha256 for recipe in validation.recipes] for validation in validations)
    assert first == second and run.crossings()[0].inputs_identical, "the same bytes go in everywhere"
    operators = {t.target: t.operators for t in validations[1].recipes[0].targets}
    assert any("flash" in name for name in operators["flash"]) and any("math" in name for name in operators["math"])


@pytest.fixture(scope="module")
def page(finished: Finished) -> Path:
    code, printed = report(finished.run)
    assert code == 0 and printed.strip().endswith("index.html")
    return finished.run.folder / "index.html"


def test_the_page_names_both_versions(finished: Finished, page: Path) -> None:
    text = page.read_text()
    assert "2.1.0" in text and "2.5.0" in text
    assert "2.5.0" in json.dumps(json.loads((finished.run.folder / "summary.json").read_text()))


@pytest.mark.browser
def test_the_page_opens_in_a_browser(page: Path, browser: Any) -> None:  # noqa: F811
    """Every row is shown, nothing is requested from elsewhere, and the browser has nothing to complain of."""
    watched = Watched(browser)
    tab = watched.open(page.as_uri())
    assert tab.locator("#table-correctness .row").count() >= 4
    assert tab.locator("#table-latency .row").count() >= 3
    watched.finish()
