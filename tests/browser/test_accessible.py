"""What axe-core finds on a page of each kind, wide and narrow, light and dark: nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.schema.storage import save_record
from tests.browser.conftest import Watch
from tests.unit.spec import NEXT, Case, Spec, gpu_spec
from tests.unit.synthetic import write_pairs, write_run
from tests.unit.test_bisection import one_step
from tests.unit.test_sweep import SEARCHED, WINS, swept

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
pytestmark = pytest.mark.browser

CASES = {(NEXT, "kernel", "seed-fp16"): Case(passed=19, bits="new"), (NEXT, "math", "*"): Case(slowdown=1.3)}
SCREENS = {"wide": (1440, "light"), "dark": (1440, "dark"), "phone": (390, "light")}


def run(folder: Path) -> Path:
    return write_run(folder, Spec(workloads=("seed-fp16", "causal-fp32"), cases=CASES)).folder


def long(folder: Path) -> Path:
    """Tables that scroll in boxes of their own."""
    names = tuple(f"shape{number:03d}-fp16" for number in range(52))
    return write_run(folder, Spec(workloads=names, trials=2, launches=2)).folder


def gpu(folder: Path) -> Path:
    return write_run(folder, gpu_spec(workloads=("seed-fp16", "tail239-fp16"))).folder


def problems(folder: Path) -> Path:
    cases = {(NEXT, "kernel", "*"): Case(status="crashed"), (NEXT, "model", "*"): Case(slowdown=1.7)}
    write_pairs(folder, Spec(kernels=("level1.19_relu", "level1.20_gelu"), cases=cases), missing=["level1.21"])
    return folder


def bisection(folder: Path) -> Path:
    save_record(folder / "bisection.json", one_step())
    return folder


def swept_page(folder: Path) -> Path:
    save_record(folder / "sweep.json", swept(*SEARCHED, WINS))
    return folder


def two_runs(folder: Path) -> Path:
    runs = [str(write_run(folder / "runs" / name, Spec(cases=CASES)).folder) for name in ("one", "two")]
    assert main(["compare", *runs, "--torch=2.5.0", f"--out={folder / 'page'}"]) == 0
    return folder / "page" / NEXT / "index.html"


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in (long, gpu)]


@pytest.mark.parametrize("kind", [run, *SLOW, problems, bisection, swept_page, two_runs])
def test_axe_finds_nothing(watch: Watch, tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    page = kind(tmp_path)
    if page.is_dir():
        assert main(["report", str(page)]) == 0
        page /= "index.html"
    for width, scheme in SCREENS.values():
        tab = watch(viewport={"width": width, "height": 900}, color_scheme=scheme).open(page.as_uri(), ready=False)
        tab.evaluate("() => new Promise(done => requestIdleCallback(done))")  # its script has nothing left to do
        found = axe.Axe().run(tab).response["violations"]
        told = [(each["id"], node["html"][:200], node["failureSummary"]) for each in found for node in each["nodes"]]
        assert told == [], (width, scheme)
