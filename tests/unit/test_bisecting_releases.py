"""The releases between two: from an index's page, with those that cannot be installed and why."""

from __future__ import annotations

import urllib.error
import urllib.request
from io import BytesIO

import pytest
from packaging import tags

from harness.config.environments import PYPI, Environment
from harness.config.listing import Listed, fetch_listing, parse_listing
from harness.config.wheel_files import supported_tags
from harness.errors import InfrastructureError, InputError
from harness.search.bisect.releases import releases_between

SPEC = Environment(torch="2.1.0", cuda="12.1", python="3.11")
OWN = SPEC.wheel_index
SUPPORTED = frozenset([tags.Tag("cp311", "cp311", "linux_x86_64"), tags.Tag("cp311", "cp311", "manylinux1_x86_64")])


def wheel(
    version: str, python: str = "cp311", machine: str = "linux_x86_64", *, yanked: bool = False, requires: str = ""
) -> Listed:
    return Listed(filename=f"torch-{version}-{python}-{python}-{machine}.whl", yanked=yanked, requires_python=requires)


def found(files: list[Listed], index: str = PYPI, good: str = "2.1.0", bad: str = "2.5.0") -> dict[str, str]:
    releases = releases_between(files, good, bad, SPEC, index, SUPPORTED)
    return {release.version: release.skipped for release in releases}


ENDS = [wheel("2.5.0"), wheel("2.1.0")]


PYTHON, CUDA = "no wheel for Python 3.11 on this machine", "no wheel for CUDA 12.1"
OTHERS = [
    Listed(filename=name, yanked=False, requires_python="")
    for name in (
        "torch-2.2.0.tar.gz",
        "torchvision-2.2.0-cp311-cp311-linux_x86_64.whl",
        "torch-x-cp311-cp311-linux_x86_64.whl",
        "",
    )
]


@pytest.mark.parametrize(
    ("files", "between"),
    [
        # In the order of versions, not of the page.
        (
            [wheel("2.10.0"), wheel("2.2.0"), wheel("2.1.10"), wheel("2.1.2"), wheel("2.0.1"), wheel("2.5.1")],
            {"2.1.2": "", "2.1.10": "", "2.2.0": ""},
        ),
        # Pre-releases, what is yanked and other files are passed over.
        ([wheel("2.2.0rc1"), wheel("2.3.0.dev1"), wheel("2.4.0", yanked=True), *OTHERS], {}),
        # A release of which one file was yanked is still there by its others.
        ([wheel("2.4.0", yanked=True), wheel("2.4.0", "cp312")], {"2.4.0": PYTHON}),
        # What cannot be installed is kept with its reason.
        (
            [
                wheel("2.2.0", "cp38"),
                wheel("2.3.0", machine="manylinux2014_aarch64"),
                wheel("2.4.0", requires=">=3.12"),
                wheel("2.4.1", "cp38"),
                wheel("2.4.1"),
            ],
            {"2.2.0": PYTHON, "2.3.0": PYTHON, "2.4.0": PYTHON, "2.4.1": ""},
        ),
    ],
)
def test_the_releases_between_two(files: list[Listed], between: dict[str, str]) -> None:
    releases = found([*ENDS, *files])
    assert releases == {"2.1.0": "", **between, "2.5.0": ""} and list(releases) == ["2.1.0", *between, "2.5.0"]


def test_on_pytorchs_own_index_the_cuda_version_counts() -> None:
    files = [
        wheel("2.1.0+cu121"),
        wheel("2.2.0+cu118"),
        wheel("2.3.0+cpu"),
        wheel("2.4.0+cu121", "cp38"),
        wheel("2.4.0+cpu"),
        wheel("2.5.0+cu121"),
    ]
    assert found(files, OWN) == {"2.1.0": "", "2.2.0": CUDA, "2.3.0": CUDA, "2.4.0": PYTHON, "2.5.0": ""}


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("2.5.0", "2.1.0", "must be the earlier"),
        ("2.1.0", "2.1.0", "must be the earlier"),
        ("2.1.0", "2.4.9", "not a release"),
        ("2.0.9", "2.5.0", "not a release"),
        ("two", "2.5.0", "not a version"),
    ],
)
def test_ends_that_cannot_be_are_refused(good: str, bad: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        found(ENDS, good=good, bad=bad)


def test_the_page_of_a_simple_index_is_read() -> None:
    name = "torch-2.1.0+cu121-cp311-cp311-linux_x86_64.whl"
    html = (
        f'<a href="/whl/cu121/{name.replace("+", "%2B")}#sha256=0" data-requires-python="&gt;=3.8">{name}</a>'
        '<a href="old.whl" data-yanked="broken">old.whl</a><a>nowhere</a>'
    )
    assert parse_listing(html) == [
        Listed(filename=name, yanked=False, requires_python=">=3.8"),
        Listed(filename="old.whl", yanked=True, requires_python=""),
    ]


def test_the_index_is_asked_once_and_its_failures_have_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(request: urllib.request.Request, timeout: float) -> BytesIO:
        asked.append(request.full_url)
        return BytesIO(b'<a href="torch-2.1.0-cp311-cp311-linux_x86_64.whl">')

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    assert len(fetch_listing("https://index/simple/")) == 1 and asked == ["https://index/simple/torch/"]
    for other in (b"", b"{}", b"<html>Sign in</html>", b"\xff"):
        monkeypatch.setattr(urllib.request, "urlopen", lambda *_, other=other, **__: BytesIO(other))
        with pytest.raises(InfrastructureError, match="not a package index's answer"):
            fetch_listing("https://index")

    def gone(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", gone)
    with pytest.raises(InfrastructureError, match=r"cannot be read: no route\n.*remedy"):
        fetch_listing("https://index")


def test_tags_are_those_of_the_pinned_python_not_of_the_harness_s() -> None:
    for python in ("3.8", "3.12"):
        mark = "cp" + python.replace(".", "")
        found = supported_tags(python)
        assert {tag.abi for tag in found if tag.interpreter == mark} >= {mark, "abi3"}
        assert not any(tag.interpreter == "cp313" for tag in found)
