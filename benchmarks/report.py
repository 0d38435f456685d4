"""How long 3,000 comparisons take to be explained, a report of them to render, and its page to open.

    python -m benchmarks.report [--comparisons N] [--launches N] [--times N]

Reading the records is timed apart: it grows with the samples in them, which the launches decide. --times N puts every
comparison N times into the page's tables, each time as another kernel's: a page whose records would not fit in memory.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import shutil
import tempfile
import time
from dataclasses import replace
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


def repeated(report: Report, times: int) -> None:
    """Every row again under other names, with the causes of the first. Ratios differ, or what is sorted by them would
    stand side by side, and be packed as if it were nothing."""
    for number in range(1, times):
        for row in report.rows[: len(report.rows) // number]:
            latency = replace(row.latency, ratio=row.latency.ratio and row.latency.ratio * (1 + number / 1000))
            id, target = row.id.replace("/", f"/{number}-", 1), f"{row.target}-{number}"
            other = replace(row, target=target, id=id, latency=latency)
            report.rows.append(other)
            report.by_row[other.id] = report.by_row.get(row.id, [])


def open_page(page: Path) -> dict[str, float]:
    """Seconds, the median of five: from navigation to the first rows, to the end of loading, and to the page being
    ready; from a word typed into the filter to its row far down, and from a jump to the last rows to their being there.
    Nothing, with the reason printed, without a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("page opening: not measured, playwright is not installed")
        return {}
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    found: dict[str, list[float]] = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(5):
            tab = browser.new_page()
            start = time.perf_counter()

            def mark(name: str, start: float) -> None:
                found.setdefault(name, []).append(time.perf_counter() - start)

            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("#table-latency .row")
            mark("first rows", start)
            tab.wait_for_selector("html[data-ready]")
            mark("ready", start)
            tab.wait_for_load_state("load")
            mark("loaded", start)
            start = time.perf_counter()
            tab.evaluate("document.querySelector('#latency .scroll').scrollTo(0, 1e9)")
            last = tab.get_attribute("#table-latency", "aria-rowcount")
            tab.wait_for_selector(f"#table-latency .row[aria-rowindex='{last}']")
            mark("the last rows", start)
            start = time.perf_counter()
            tab.fill("#q", "shape049 math")
            tab.wait_for_selector("#table-latency .row[aria-rowindex='2']:has-text('shape049')")
            mark("filtered", start)
            start = time.perf_counter()
            tab.locator("#table-latency th button").nth(1).click()
            tab.wait_for_selector("#table-latency th[aria-sort=ascending]")
            mark("sorted", start)
            tab.close()
        browser.close()
    return {name: sorted(times)[len(times) // 2] for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=3000)
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder, replace(make_spec(options.comparisons), launches=options.launches))
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
        repeated(report, options.times)
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
        for name, elapsed_s in open_page(path).items():
            print(f"page, {name:14} {elapsed_s:.2f} s  (median of 5)")


if __name__ == "__main__":
    main()
