"""The releases that a package index has between two, and why some of them cannot be installed here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from packaging import tags
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from harness.config.environments import PYPI, Environment
from harness.config.indexes import in_words, open_page, page_url
from harness.errors import InfrastructureError, InputError
from harness.schema.bisection_records import Release

TIMEOUT_S = 60.0
MAX_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One file of the index."""

    filename: str
    yanked: bool
    requires_python: str


def parse_version(text: str, option: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise InputError(f"{option} {text}: not a version", "give a release, such as 2.5.0") from None


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


def fetch_listing(index: str) -> list[Listed]:
    """What the index lists of torch. InfrastructureError where it does not answer, or with something else."""
    url = page_url(index)
    remedy = "check the network or a proxy (HTTPS_PROXY); what was recorded is kept"
    try:
        with open_page(index, TIMEOUT_S) as answer:
            return parse_listing(answer.read(MAX_BYTES).decode())
    except OSError as error:
        raise InfrastructureError(f"{url} cannot be read: {in_words(error)}", remedy) from None
    except ValueError as error:
        raise InfrastructureError(f"{url}: not a package index's answer: {error}", remedy) from None


def supported_tags(python: str) -> frozenset[tags.Tag]:
    """What a Python of this version on a machine like this one installs."""
    major, minor = (int(part) for part in python.split("."))
    cpython = tags.cpython_tags((major, minor), abis=[f"cp{major}{minor}"])
    return frozenset([*cpython, *tags.compatible_tags((major, minor), interpreter=f"cp{major}{minor}")])


def in_order(good: str, bad: str) -> tuple[Version, Version]:
    """InputError where these are no two releases, the earlier first: nobody needs to be asked to see that."""
    first, last = parse_version(good, "--good"), parse_version(bad, "--bad")
    if first >= last:
        remedy = "exchange them" if first > last else "give two releases"
        raise InputError(f"--good {good} --bad {bad}: the good one must be the earlier", remedy)
    return first, last


def releases_between(
    files: Iterable[Listed], good: str, bad: str, spec: Environment, index: str, supported: frozenset[tags.Tag]
) -> list[Release]:
    """Every final release from `good` to `bad`, in order. Pre-releases, and what was yanked as a whole, are left out;
    what has no wheel for this Python, machine and CUDA is kept, with the reason.

    InputError where `good` does not come before `bad`, or one of them is not among the releases.
    """
    first, last = in_order(good, bad)
    local = spec.cuda_tag if index == spec.wheel_index and index != PYPI and spec.index is None else None
    found: dict[Version, list[str]] = {}
    for item in files:
        try:
            name, version, _, given = parse_wheel_filename(item.filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        public = Version(version.public)
        if name != "torch" or item.yanked or version.is_prerelease or not first <= public <= last:
            continue
        problem = ""
        if local is not None and version.local != local:
            problem = f"no wheel for CUDA {spec.cuda}"
        elif not given & supported or not _admits(item.requires_python, spec.python):
            problem = f"no wheel for Python {spec.python} on this machine"
        found.setdefault(public, []).append(problem)
    for option, end in (("--good", first), ("--bad", last)):
        if end not in found:
            raise InputError(
                f"{option} {end}: not a release on {index}", "pypi.org/project/torch/#history lists the releases"
            )
    return [
        # The reason of the file that comes nearest: for the right CUDA, and another Python.
        Release(version=str(version), skipped="" if "" in problems else max(problems, key=lambda p: "Python" in p))
        for version, problems in sorted(found.items())
    ]


def _admits(requires_python: str, python: str) -> bool:
    try:
        return SpecifierSet(requires_python).contains(f"{python}.99")
    except InvalidSpecifier:
        return True
