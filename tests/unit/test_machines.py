"""Runs on different devices, side by side on one page."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import main
from harness.errors import InputError
from reports.render.commands import render_run, render_side_by_side
from reports.render.machines import groups
from tests.unit.spec import Spec, gpu_spec
from tests.unit.synthetic import write_run


def test_each_device_is_a_group_of_columns_that_leads_to_its_page(tmp_path: Path) -> None:
    cpu = write_run(tmp_path / "runs" / "cpu", Spec(kernels=("<b>one</b>", "two"))).folder
    gpu = write_run(tmp_path / "runs" / "gpu", gpu_spec()).folder
    words = ["report", str(cpu), "--beside", str(gpu), "--out", str(tmp_path / "out")]
    assert main(words) == render_run(cpu)
    one, two = groups([cpu, gpu], tmp_path / "out")
    assert one.title == "CPU" and "two" in one.cells and len(one.versions) == len(one.cells["two"])
    assert two.page == "../runs/gpu/index.html" and (tmp_path / "out" / two.page).is_file() and two.title != "CPU"
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count('scope="colgroup"') == 2 and "<b>one" not in page and f'href="{two.page}"' in page


def test_a_run_without_a_report_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "cpu", Spec(kernels=("one",))).folder
    with pytest.raises(InputError, match=r"summary\.json"):
        render_side_by_side([run], tmp_path / "out")
