"""Tabs of a real browser, each of which must have had no complaint and no request."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")


HANGS_MS = 300_000  # longer than the busiest machine takes


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=HANGS_MS)
        yield browser
        browser.close()


class Watched:
    """A tab whose complaints and requests are kept; `finish` asserts that there were none."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
        self.context.set_default_timeout(HANGS_MS)
        self.tab = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str, ready: bool = True) -> Any:
        self.tab.goto(address)
        if ready:
            self.tab.wait_for_selector("html[data-ready]")
        return self.tab

    def finish(self) -> None:
        self.context.close()
        assert self.complaints == []
        assert all(address.startswith(("file:", "data:")) for address in self.requests)
        assert len([address for address in self.requests if address.startswith("file:")]) >= 1


Watch = Callable[..., Watched]


@pytest.fixture
def watch(browser: Any) -> Iterator[Watch]:
    """Makes tabs, each of which must have had no complaint and no request at the end of the test."""
    tabs: list[Watched] = []

    def make(**options: Any) -> Watched:
        tabs.append(Watched(browser, **options))
        return tabs[-1]

    yield make
    for tab in tabs:
        tab.finish()


@pytest.fixture
def watched(watch: Watch) -> Watched:
    return watch()
