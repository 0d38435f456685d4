"""Pictures of a rendered page, for the README: ``python -m docs.screenshot PAGE.html OUT.png``.

Needs Chromium and Playwright (``nox -s screenshot``); a report itself needs neither.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from harness.errors import InfrastructureError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def take(page: Path, picture: Path, *, width: int, height: int, dark: bool) -> None:
    """The first screen of `page`, as a PNG of `width` x `height` CSS pixels. InfrastructureError without a browser."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise InfrastructureError("no Chromium on this machine", "apt-get install chromium")
    picture.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        window = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = window.new_page(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
        tab.goto(page.resolve().as_uri())
        tab.screenshot(path=str(picture))
        window.close()
    with Image.open(picture) as taken:
        few = taken.convert("RGB").quantize(96)  # a page has few colours: a third of the size
    few.save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.screenshot", description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=720)
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    take(options.page, options.picture, width=options.width, height=options.height, dark=options.dark)


if __name__ == "__main__":
    main()
