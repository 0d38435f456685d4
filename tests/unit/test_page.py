"""The page without a browser: self-contained, escaped, complete, small."""

import base64
import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.schema.records import Outcome
from harness.schema.run_records import Fallback
from harness.schema.storage import save_record
from reports.compare.exit_codes import exit_codes
from reports.load.evidence import load_evidence
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary_text
from reports.render.tables import SERVER_ROWS
from reports.render.templating import csp_hash, html_templates
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

HOSTILE = "</script><img src=x onerror=alert(1)>\"'<svg onload=alert(2)>{{ 7*7 }}"


def unpack(page: str, name: str) -> Any:
    found = re.search(f'id="{name}">([^<]*)</script>', page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


TABLES, KINDS = ("correctness", "latency"), ("rows", "details")


def unpacked(page: str, name: str) -> list[str]:
    """What all chunks of this name hold."""
    return [text for number in range(page.count(f'id="{name}-')) for text in unpack(page, f"{name}-{number}")]


class Tags(HTMLParser):
    """Every start tag with its attributes, and the text outside of script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(text: str) -> None:
    for tag, attributes in Tags(text).found:
        assert tag not in ("img", "iframe", "object", "embed", "base")
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "style" not in attributes
        for name in ("href", "src"):
            value = attributes.get(name) or ""
            assert not value or value.startswith("#") or value == "data:,", (tag, value)


def test_hostile_records_stay_text(tmp_path: Path) -> None:
    spec = Spec(
        hostile=HOSTILE,
        stacks={NEXT: Outcome(status="broken", message=HOSTILE, log_excerpt=HOSTILE)},
        fallbacks=(Fallback(subject=HOSTILE, wanted=HOSTILE, got=HOSTILE, reason=HOSTILE),),
    )
    page = render_page(report_of(tmp_path, spec))
    assert_harmless(page)
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page
    assert "49" not in re.findall(r"onload=alert\(2\)&gt;(.{4})", page)
    # The page's own script is the only one that the policy admits, and nothing closed it early.
    assert [tag for tag, _ in Tags(page).found].count("script") == 2


def test_hostile_messages_in_rows_that_travel_compressed(tmp_path: Path) -> None:
    names = tuple(f"w{number:03d}" for number in range(80))
    cases = {
        (NEXT, "kernel", "*"): Case(status="crashed", message=HOSTILE),
        (NEXT, "math", "*"): Case(operators=(HOSTILE,), bits="moved"),
    }
    page = render_page(report_of(tmp_path, Spec(workloads=names, cases=cases, launches=2, trials=3)))
    packed = [text for kind in KINDS for table in TABLES for text in unpacked(page, f"{kind}-{table}")]
    for text in packed:
        assert_harmless(text)
    assert any("onerror" in text for text in packed)


def test_nothing_is_fetched_and_the_policy_says_so(tmp_path: Path) -> None:
    page = render_page(report_of(tmp_path, Spec()))
    policy = next(a["content"] for t, a in Tags(page).found if t == "meta" and "http-equiv" in a)
    assert policy is not None and "default-src 'none'" in policy and "unsafe" not in policy
    for tag in ("script", "style"):
        found = re.search(f"<{tag}>(.*?)</{tag}>", page, re.S)
        assert found is not None and csp_hash(found[1]) in policy
        assert tag == "script" or not re.search(r"url\(|@import", found[1])
    assert_harmless(page)


def test_small_runs_need_no_script(tmp_path: Path) -> None:
    report = report_of(tmp_path, Spec(cases={(NEXT, "kernel", "seed-fp16"): Case(passed=19, bits="new")}))
    page = render_page(report)
    visible = page.partition('<script type="application')[0]
    for row in report.rows:
        assert f'id="correctness/{row.id}"' in visible and f'id="latency/{row.id}"' in visible
        assert row.command in visible
    for text in ("2.1.0+cu121", "2.5.0+cu121", "19/100", "12%\N{EN DASH}28%", "Changes in the references"):
        assert text in visible
    assert not any(unpacked(page, f"{kind}-{table}") for kind in KINDS for table in TABLES)


@pytest.mark.parametrize(
    "case", [Case(passed=0), Case(status="crashed", message="it died"), Case(status="wrong", message="wrong shape")]
)
def test_a_kernel_that_was_always_wrong_did_not_move(tmp_path: Path, case: Case) -> None:
    cases = {(name, "kernel", "seed-fp16"): case for name in (BASE, NEXT)}
    report = report_of(tmp_path, Spec(cases=cases))
    assert not report.moved
    [answer] = report.answers.kernels
    assert answer.what.startswith(("wrong in 2.1.0 and in 2.5.0 on", "crashes in 2.1.0 and in 2.5.0 on"))
    assert "the upgrade did not cause it" in answer.what
    assert not exit_codes(report.evidence, report.rows, frozenset({"correctness", "latency"}))
    places = [failure.places for failure in report.failures if failure.status == case.status]
    assert len(places) == (1 if case.message else 0) and all(len(found) > 1 for found in places)


def test_controls_have_a_note_of_their_own(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "seed-fp16"): Case(passed=19)}
    report = report_of(tmp_path, Spec(environments=(BASE, f"{BASE}-r1", NEXT), cases=cases, min_effect=0.05))
    assert report.answers.title.startswith("attention_scalar (cpu): broke in 2.5.0 on seed-fp16: right in 2.1.0")
    assert report.answers.notes == ["A/A control: 0 of 6 comparisons changed"]
    assert '<span class="role">A/A control</span>' in render_page(report)


def test_a_busy_machine_and_an_unfinished_run_are_confounders(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec(busy=0.45))
    next((run.folder / "launches").rglob("009.json")).unlink()
    assert [item.statement for item in Report(load_evidence(tmp_path)).confounders] == [
        "the run is not finished: 19 of 20 launches are recorded",
        "the machine was busy: other processes used 45% of it during 19 of 19 launches; latencies are less certain",
    ]


@pytest.mark.slow
def test_a_thousand_comparisons_fit_in_one_megabyte(tmp_path: Path) -> None:
    names = tuple(f"shape{number:03d}-fp16" for number in range(200))
    cases = {(NEXT, "kernel", name): Case(passed=2, bits="moved", slowdown=1.04) for name in names[::7]}
    spec = Spec(kernels=("one", "two", "three"), workloads=names, cases=cases, trials=4)
    report = report_of(tmp_path, spec)
    page = render_page(report)
    assert len(report.rows) == 1000 and len(page.encode()) < 1_000_000
    index = unpack(page, "payload")
    assert len(index["rows"]["id"]) == 1000 and "Workload" not in index["latency"]["keys"]
    for table in TABLES:
        rows, details = (unpacked(page, f"{kind}-{table}") for kind in KINDS)
        assert len(rows) == len(details) == 1000 - index[table]["first"] > 1000 - SERVER_ROWS
        for place, row in enumerate(index[table]["order"][index[table]["first"] :]):
            assert f'id="{table}/{index["rows"]["id"][row]}"' in rows[place]


PICTURES: Any = html_templates().globals["pictures"]


def test_a_plot_of_equal_or_absent_times_is_drawn() -> None:
    assert PICTURES.strip([], [], ("", "")) == ""
    assert "<svg" in PICTURES.strip([5.0, 5.0], [5.0], ("", ""))


def test_a_plot_says_the_median_of_each_launch() -> None:
    title = re.search("<title>(.*)</title>", PICTURES.strip([1204.0, 1199.96], [0.98765], ("PyTorch 2.1.0", "<b>")))
    assert title and title[1] == "launch medians: above, PyTorch 2.1.0, 1.200, 1.204 ms; below, &lt;b&gt;, 0.988 µs"


def test_an_interval_and_its_band_have_numbers() -> None:
    drawn = PICTURES.ratio_picture(0.971, 0.954, 0.989, 0.1, 0.05)
    assert "[0.954, 0.989]; band, too small to count: 0.952 to 1.050</title>" in drawn
    shown = re.search(r'viewBox="0 0 (\d+) .*<text x="(\d+)" y="12">±5%</text>', drawn)
    assert shown and PICTURES.WIDTH < int(shown[2]) < int(shown[1]), "beside the picture, and within it"
    assert "<title>2.000\N{MULTIPLICATION SIGN} (no interval)</title>" in PICTURES.ratio_picture(2.0, None, None, 1.0)


@pytest.mark.parametrize(
    ("more", "said"),
    [("", False), ("tolerances: {problem_rounding_units: 64.0}\n", True)],
)
def test_a_matrix_of_another_version_says_what_is_no_longer_a_key(more: str, said: bool, tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec())
    text = f"kernels: [{{name: k, sources: {{cpu: [k.cpp]}}}}]\n{more}"
    save_record(run.run_path(), replace(run.load(), matrix_text=text))
    page = render_page(Report(load_evidence(tmp_path)))
    assert ("written for another version" in page) is said and ("rounding_units holds for problem" in page) is said


def test_the_page_says_what_a_workload_is_and_where_one_length_is_all_that_was_tested(tmp_path: Path) -> None:
    one, two = ({"shapes": {"seed-fp16": (1, 8, 512, 64), "seed-fp32": (1, 8, length, 64)}} for length in (512, 511))
    pages = {}
    for name, changes in (("one", one), ("two", two)):
        report = report_of(tmp_path / name, Spec(**changes))
        pages[name] = render_page(report), render_summary_text(report)
    for page, summary in pages.values():
        assert "B1 H8 S512 D64" in page and "`seed-fp16`: B1 H8 S512 D64, float16" in summary
    assert all("tested at 512 keys only" in text for text in pages["one"])
    assert not any("keys only" in text for text in pages["two"]) and "S511" in pages["two"][0]
    never = {(version, "kernel", "*"): Case(status="unsupported", message="no") for version in (BASE, NEXT)}
    assert "keys only" not in render_page(report_of(tmp_path / "never", Spec(cases=never, **one)))
