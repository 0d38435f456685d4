"""What a package index lists of torch, or of another package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from harness.config.environments import NOUNS, channel
from harness.config.indexes import in_words, open_page, page_url
from harness.errors import InfrastructureError

TIMEOUT_S = 60.0
MAX_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One file of the index."""

    filename: str
    yanked: bool
    requires_python: str


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Listed] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            name = unquote(urlsplit(given["href"] or "").path).rpartition("/")[2]
            requires = given.get("data-requires-python") or ""
            self.found.append(Listed(filename=name, yanked="data-yanked" in given, requires_python=requires))


def parse_listing(text: str) -> list[Listed]:
    """The files of a project's page. ValueError where it has none."""
    links = _Links()
    links.feed(text)
    if not links.found:
        raise ValueError("it lists no files")
    return links.found


def fetch_listing(index: str, package: str = "torch") -> list[Listed]:
    """What the index lists of a package. InfrastructureError where it does not answer, or with something else."""
    url = page_url(index, package)
    remedy = "check the network or a proxy (HTTPS_PROXY); what was recorded is kept"
    try:
        with open_page(index, TIMEOUT_S, package) as answer:
            return parse_listing(answer.read(MAX_BYTES).decode())
    except OSError as error:
        raise InfrastructureError(f"{url} cannot be read: {in_words(error)}", remedy) from None
    except ValueError as error:
        raise InfrastructureError(f"{url}: not a package index's answer: {error}", remedy) from None


def kept_there(files: Iterable[Listed], torch: str) -> str:
    """In words, which nightlies an index keeps where `torch` is one, or candidates; '' of a release, or of none."""
    kind, found = channel(torch), set[Version]()
    for item in files if kind else ():
        with contextlib.suppress(InvalidWheelFilename, InvalidVersion):
            name, version, _, _ = parse_wheel_filename(item.filename)
            if name == "torch" and channel(version.public) == kind:
                found.add(Version(version.public))
    if not found:
        return ""
    return f"it keeps {NOUNS[kind]} from {min(found)} to {max(found)}: choose one of them"
