"""How long 3,000 comparisons take to be explained, a report of them to render, and its page to open.

    python -m benchmarks.report [--comparisons N]

Reading the records is timed apart: it grows with the samples in them, which the launches decide.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import shutil
import tempfile
import time
from pathlib import Path

from reports.attribute import attribute
from reports.compare.rows import compare
from reports.load.evidence import load_evidence
from reports.render.commands import write_report
from reports.render.page import render_page
from reports.render.report import Report
from tests.unit.spec import NEXT, Case, Spec
from tests.unit.synthetic import write_run

WORKLOADS, REFERENCES = 50, ("flash", "math")


def make_spec(comparisons: int) -> Spec:
    """Kernels x 50 workloads, and two references; every seventh workload has something that moved."""
    workloads = tuple(f"shape{number:03d}-fp16" for number in range(WORKLOADS))
    kernels = max(1, comparisons // WORKLOADS - len(REFERENCES))
    cases = {(NEXT, "kernel", name): Case(passed=19, bits="moved", slowdown=1.04) for name in workloads[::7]}
    return Spec(
        kernels=tuple(f"kernel{number:03d}" for number in range(kernels)),
        workloads=workloads,
        references=REFERENCES,
        trials=20,
        samples=5,
        cases=cases,
        machine_code={NEXT: "other"},
    )


def open_page(page: Path) -> float | None:
    """Seconds from navigation to the tables being ready; None, with the reason printed, without a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("page opening: not measured, playwright is not installed")
        return None
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        times = []
        for _ in range(5):
            tab = browser.new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]")
            times.append(time.perf_counter() - start)
            tab.close()
        browser.close()
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder, make_spec(options.comparisons))
        gc.disable()  # as `kernel-matrix report` does
        marks = [time.perf_counter()]
        evidence = load_evidence(folder)
        marks.append(time.perf_counter())
        rows = compare(evidence)
        marks.append(time.perf_counter())
        causes = attribute(evidence, rows)
        marks.append(time.perf_counter())
        report = Report(evidence)
        marks.append(time.perf_counter())
        render_page(report)
        marks.append(time.perf_counter())
        path = write_report(report, folder)
        marks.append(time.perf_counter())
        load, compared, attributed, built, render, everything = (b - a for a, b in itertools.pairwise(marks))
        print(f"comparisons          {len(report.rows)}")
        print(f"read and check       {load:.2f} s  ({sum(map(len, evidence.launches.values()))} timed rows)")
        print(f"compare              {compared:.2f} s")
        print(f"attribute            {attributed:.2f} s  ({len(causes)} causes in {len(report.explanations)} cards)")
        print(f"both, and the rest   {built:.2f} s")
        print(f"render the page      {render:.2f} s  ({path.stat().st_size / 1e6:.2f} MB)")
        print(f"render, write all    {everything:.2f} s  (page, summary.json, summary.md, junit.xml)")
        opened = open_page(path)
        if opened is not None:
            print(f"page opening         {opened:.2f} s  (median of 5)")


if __name__ == "__main__":
    main()
