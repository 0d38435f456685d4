"""The page in a real browser: opened from a file, with every request watched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.schema.storage import save_record
from reports.text import TIMES
from tests.browser.conftest import Watch, Watched, sync_api
from tests.unit.spec import NEXT, Case, Spec, gpu_spec
from tests.unit.synthetic import write_pairs, write_run
from tests.unit.test_sweep import SEARCHED, WINS, swept

pytestmark = pytest.mark.browser

WORKLOADS = ("seed-fp16", "seed-fp32", "causal-fp32")
MANY = tuple(f"shape{number:03d}-fp16" for number in range(120))
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
CASES = {
    (NEXT, "kernel", "seed-fp16"): Case(passed=19, bits="new"),
    (NEXT, "math", "*"): Case(slowdown=1.3, bits="new"),
    (NEXT, "flash", "causal-fp32"): Case(status="unsupported", message=HOSTILE),
}
ROW = f"{NEXT}/attention_scalar/seed-fp16/cpu"


def render(folder: Path, spec: Spec) -> str:
    write_run(folder, spec)
    assert main(["report", str(folder)]) == 0
    return (folder / "index.html").as_uri()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(tmp_path_factory.mktemp("small"), Spec(workloads=WORKLOADS, cases=CASES))


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(tmp_path_factory.mktemp("gpu"), gpu_spec())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    cases = {(NEXT, "kernel", "shape077-fp16"): Case(status="crashed", message=HOSTILE)}
    return render(tmp_path_factory.mktemp("large"), Spec(workloads=MANY, cases=cases, trials=4, launches=4))


def names(tab: Any, table: str, column: int) -> list[str]:
    return tab.locator(f"#table-{table} .row td:nth-child({column})").all_inner_texts()


def test_it_opens_with_the_verdict_and_nothing_else_is_requested(watched: Watched, small: str) -> None:
    tab = watched.open(small)
    assert "broke in 2.5.0 on seed-fp16" in tab.inner_text("h1")
    assert tab.locator("#causes > .cause").count() == 1 and tab.locator("#references .cause").count() == 2
    assert len(watched.requests) <= 2
    assert tab.title() != "owned"


def test_filters_narrow_both_tables_and_stay_in_the_address(watched: Watched, small: str) -> None:
    tab = watched.open(small)
    tab.keyboard.press("/")
    tab.keyboard.type("seed math")
    assert tab.locator("#table-correctness .row").count() == tab.locator("#table-latency .row").count() == 2
    tab.select_option("#verdict", "regressed")
    assert tab.locator("#table-correctness .row").count() == 0
    assert "No row matches" in tab.inner_text("#correctness")
    assert tab.locator("#table-latency .row").count() == 2
    assert "q=seed+math" in tab.url and "verdict=regressed" in tab.url
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator("#table-latency .row").count() == 2
    tab.focus("#q")
    tab.keyboard.press("Escape")
    tab.select_option("#verdict", "")
    tab.select_option("#kind", "kernel")
    assert tab.locator("#table-correctness .row").count() == 3


def test_a_header_sorts_and_says_so(watched: Watched, small: str) -> None:
    tab = watched.open(small)
    head = tab.locator("#table-latency th", has_text=re.compile("^Ratio"))
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    ratios = [float(text.split(TIMES)[0]) for text in names(tab, "latency", 4) if TIMES in text]
    assert len(ratios) == 8 and ratios == sorted(ratios)
    assert TIMES not in names(tab, "latency", 4)[-1]
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert "sort-latency=-3" in tab.url
    assert TIMES not in names(tab, "latency", 4)[-1]


def test_the_settings_of_a_sweep_are_sorted_by_a_header(watch: Watch, tmp_path: Path) -> None:
    save_record(tmp_path / "sweep.json", swept(*SEARCHED, WINS))
    assert main(["report", str(tmp_path)]) == 0
    tab = watch().open((tmp_path / "index.html").as_uri(), ready=False)
    table = tab.locator("table.sortable").nth(1)
    came = table.locator("tbody tr td:nth-child(3)").all_inner_texts()
    head = table.locator("th", has_text="Over the incumbent")
    for said, expected in (("ascending", came), ("descending", came[::-1]), (None, came)):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == said
        assert table.locator("tbody tr td:nth-child(3)").all_inner_texts() == expected
    assert len(came) == 2


def test_a_permalink_scrolls_opens_and_highlights(watched: Watched, small: str) -> None:
    tab = watched.open(f"{small}#correctness/{ROW}")
    row = tab.locator(f'[id="correctness/{ROW}"]')
    assert "open" in row.get_attribute("class")
    assert row.locator("a").get_attribute("aria-expanded") == "true"
    sync_api.expect(row).to_be_in_viewport()
    assert "nox -s matrix -- --kernel attention_scalar" in tab.locator(".detail.open").inner_text()
    row.locator("td").nth(1).click()
    assert tab.locator(".detail.open").count() == 0


def test_a_cause_leads_to_its_rows_and_they_to_it(watched: Watched, small: str) -> None:
    tab = watched.open(small)
    tab.locator("#causes > .cause details summary").first.click()
    tab.locator("#causes > .cause .rowlinks a").first.click()
    back = tab.locator(".detail.open .why a").first
    sync_api.expect(back).to_be_visible()
    back.click()
    sync_api.expect(tab.locator("#causes > .cause").first).to_be_in_viewport()


def test_a_link_to_a_references_card_opens_the_fold_that_it_is_in(watched: Watched, small: str) -> None:
    tab = watched.open(small)
    sync_api.expect(tab.locator("#references .cause").first).to_be_hidden()
    tab.evaluate("location.hash = 'cause-2'")
    sync_api.expect(tab.locator("#cause-2")).to_be_in_viewport()


def test_keys_walk_the_rows(watched: Watched, small: str) -> None:
    tab = watched.open(small)
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    tab.keyboard.press("k")
    focused = tab.evaluate("document.activeElement.closest('.row').id")
    assert focused == tab.locator(".rows .row").first.get_attribute("id")
    tab.keyboard.press("Enter")
    sync_api.expect(tab.locator(".detail.open")).to_have_count(1)


def test_rows_beyond_the_first_are_found_filtered_and_linked(watched: Watched, large: str) -> None:
    link = f"latency/{NEXT}/ref:math/shape099-fp16/cpu"
    tab = watched.open(f"{large}#{link}")
    row = tab.locator(f'[id="{link}"]')
    sync_api.expect(row).to_be_in_viewport()
    sync_api.expect(tab.locator(".detail.open")).to_be_visible()
    tab.fill("#q", "shape077 attention")
    assert tab.locator("#table-correctness .row").count() == 1
    tab.locator("#table-correctness .row td").nth(1).click()
    sync_api.expect(tab.locator("#table-correctness .detail.open")).to_contain_text("onerror")
    assert tab.title() != "owned"
    tab.fill("#q", "")
    assert "360 rows: scroll" in tab.inner_text("[data-more=latency]")
    assert tab.get_attribute("#table-latency", "aria-rowcount") == "361"


def test_rows_of_a_long_table_come_as_it_is_scrolled(watched: Watched, large: str) -> None:
    tab = watched.open(large)
    rows = tab.locator("#table-latency .row")
    assert rows.count() < 200
    tab.locator("#latency").scroll_into_view_if_needed()
    before = names(tab, "latency", 2)
    tab.evaluate("document.querySelector('#latency .scroll').scrollTo(0, 1e9)")
    last = tab.locator("#table-latency .row[aria-rowindex='361']")
    sync_api.expect(last).to_have_count(1)
    assert rows.count() < 200 and names(tab, "latency", 2)[-1] not in before
    tab.evaluate("document.querySelector('#latency .scroll').scrollTo(0, 0)")
    sync_api.expect(tab.locator("#table-latency .row[aria-rowindex='2']")).to_be_in_viewport()
    sync_api.expect(last).to_have_count(0)


def test_a_long_table_is_sorted_as_a_whole(watched: Watched, large: str) -> None:
    tab = watched.open(large)
    head = tab.locator("#table-latency th", has_text="Workload").get_by_role("button")
    head.click()
    head.click()
    sync_api.expect(tab.locator("#table-latency .row").first).to_contain_text("shape119-fp16")


def test_a_hostile_name_far_down_is_found_and_stays_text(watch: Watch, tmp_path: Path) -> None:
    address = render(tmp_path, Spec(workloads=(*MANY, f"zz{HOSTILE}".replace("/", ":")), trials=2, launches=2))
    tab = watch().open(address)
    tab.fill("#q", "zz<:script")
    sync_api.expect(tab.locator("#table-latency .row")).to_have_count(3)
    sync_api.expect(tab.locator("#table-latency .row").first).to_contain_text("<img src=x")
    assert tab.locator("img").count() == 0 and tab.title() != "owned"


def test_without_script_a_small_run_is_whole(watch: Watch, small: str) -> None:
    tab = watch(java_script_enabled=False).open(f"{small}#correctness/{ROW}", ready=False)
    assert tab.locator("#table-correctness .row").count() == 9
    assert tab.locator(f'[id="correctness/{ROW}"] + .detail').is_visible()
    assert tab.locator(".detail:visible").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_and_the_toggle(watch: Watch, small: str, scheme: str) -> None:
    tab = watch(color_scheme=scheme).open(small)
    shade = "getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"
    assert (int(tab.evaluate(shade)) < 128) == (scheme == "dark")
    tab.click("#theme")
    assert (int(tab.evaluate(shade)) < 128) == (scheme == "light")


def opened_wide(tab: Any, width: int) -> Any:
    """With all details open it never scrolls sideways."""
    for details in tab.locator("details").all():
        details.evaluate("element => element.open = true")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    return tab


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_the_page_never_scrolls_sideways(watch: Watch, small: str, width: int) -> None:
    opened_wide(watch(viewport={"width": width, "height": 844}).open(f"{small}#correctness/{ROW}"), width)


@pytest.mark.parametrize("width", [390, 1440])
def test_a_gpus_page_never_scrolls_sideways_and_shows_both_times(watch: Watch, gpu: str, width: int) -> None:
    row = f"{NEXT}/ref:efficient/tail239-fp16/cuda"
    tab = opened_wide(watch(viewport={"width": width, "height": 844}).open(f"{gpu}#latency/{row}"), width)
    assert tab.locator(f'[id="latency/{row}"] .mode').all_inner_texts() == ["cold", "hot"]
    assert "Hot: Median of launch medians" in tab.inner_text(".detail.open")
    assert tab.locator("#rates tbody").count() == 36


@pytest.mark.parametrize("width", [390, 1440])
def test_fast_p_and_every_solution_fit_the_page(watch: Watch, tmp_path: Path, width: int) -> None:
    cases = {(NEXT, "kernel", "*"): Case(status="crashed", message=HOSTILE), (NEXT, "model", "*"): Case(slowdown=1.7)}
    write_pairs(tmp_path, Spec(kernels=("level1.19_relu", "level1.20_gelu"), cases=cases), missing=[HOSTILE])
    assert main(["report", str(tmp_path)]) == 0
    tab = watch(viewport={"width": width, "height": 844}).open((tmp_path / "index.html").as_uri() + "#kernelbench")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert "fast1.5" in tab.inner_text("#kernelbench thead >> nth=0").replace("\n", "")
    text = tab.inner_text("#kernelbench")
    assert "level1/level1.20_gelu.py" in text and "onerror" in text and "no solution" in text
    assert tab.title() != "owned"


def test_the_verdict_filter_finds_what_moved_hot_alone(watch: Watch, tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "seed-fp16"): Case(hot_slowdown=1.06)}
    tab = watch().open(render(tmp_path, Spec(device="cuda", cases=cases, spread=0.002)))
    tab.select_option("#verdict", "regressed")
    assert tab.locator("#table-latency .row").count() == 1


def test_print_shows_every_table_without_controls(watched: Watched, small: str) -> None:
    tab = watched.open(small)
    tab.emulate_media(media="print")
    assert not tab.locator("#filters").is_visible()
    assert tab.locator("#table-latency .row").first.is_visible()


def test_print_holds_every_row_and_the_screen_only_the_first(watched: Watched, large: str) -> None:
    tab = watched.open(large)
    rows = tab.locator("#table-latency .row")
    first = rows.count()
    assert first < 200
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert rows.count() == 360
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    sync_api.expect(rows).to_have_count(first)


def test_on_a_phone_no_label_runs_into_the_next(watch: Watch, small: str) -> None:
    """Labels that take two lines beside a value that takes one."""
    tab = watch(viewport={"width": 390, "height": 844}).open(small)
    cells = "[...document.querySelectorAll('.rows .row > td')].filter(cell => cell.offsetParent)"
    over = tab.evaluate(
        f"{cells}.filter(cell => cell.scrollHeight > cell.clientHeight + 1).map(cell => cell.dataset.label)"
    )
    assert tab.evaluate(f"{cells}.length") > 8 and over == []
