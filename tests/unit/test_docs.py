"""The documents: what is written from code is up to date, the README is short, and its links lead somewhere.

And the records and pages that they show are small.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.fixture
def matrix_yaml(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix_yaml", root / "docs" / "matrix_yaml.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_matrix_yaml_is_current(matrix_yaml: ModuleType) -> None:
    written = matrix_yaml.render(json.loads(matrix_yaml.SCHEMA.read_text()))
    assert matrix_yaml.PAGE.read_text() == written, "write it again: python docs/matrix_yaml.py"


def test_every_key_of_the_schema_is_described_on_the_page(matrix_yaml: ModuleType) -> None:
    schema = json.loads(matrix_yaml.SCHEMA.read_text())
    page = matrix_yaml.render(schema)
    for entry in (schema, *schema["$defs"].values()):
        for name, value in entry["properties"].items():
            assert value["description"], f"{name} has no description"
            assert f"| `{name}` |" in page


def test_a_table_says_type_bounds_and_default(matrix_yaml: ModuleType) -> None:
    text = {"type": "string", "pattern": "^a|b$"}
    schema = {
        "properties": {
            "some": {"type": "array", "items": {"$ref": "#/$defs/Some"}, "description": "d"},
            "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.5, "description": "e | f"},
        },
        "required": ["some"],
        "$defs": {
            "Some": {"description": "One.", "properties": {"name": {**text, "default": "a", "description": "n"}}}
        },
    }
    assert matrix_yaml.render(schema).endswith(
        "| `some` | d | list of: [Some](#some) | required |\n"
        "| `share` | e &#124; f | number, above 0, at most 1 | <code>0.5</code> |\n\n"
        "## Some\n\nOne.\n\n| key | what it is | type | default |\n|---|---|---|---|\n"
        '| `name` | n | text like <code>^a&#124;b$</code> | <code>"a"</code> |\n'
    )


def test_the_readme_is_short_and_has_the_commands_that_ci_reads(root: Path) -> None:
    lines = (root / "README.md").read_text().splitlines()
    assert len(lines) <= 200
    for session in ("tests", "matrix"):
        assert any(line.endswith(f"&& .venv/bin/nox -s {session}") for line in lines), session


def links(path: Path) -> Iterator[tuple[str, str]]:
    """Every relative link of a document: path and anchor."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(text):
        if not target.startswith(("http://", "https://")):
            name, _, anchor = target.partition("#")
            yield name, anchor


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and MkDocs make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(path.read_text())
    }


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_documents_outside_the_site_lead_somewhere(root: Path, name: str) -> None:
    """Those within docs/ are checked when the site is built: `nox -s docs`."""
    for target, anchor in links(root / name):
        path = root / target if target else root / name
        assert path.exists(), f"{name}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{name}: {target}#{anchor}"


def test_documents_of_the_site_link_to_nothing_outside_it(root: Path) -> None:
    """The site holds docs/ alone; what lies outside is named by its path."""
    for page in sorted((root / "docs").glob("*.md")):
        for target, _ in links(page):
            assert not target or (page.parent / target).resolve().is_relative_to(root / "docs"), (
                f"{page.name}: {target}"
            )


def test_committed_records_and_pages_hold_at_most_3_mib(root: Path) -> None:
    examples = root / "docs" / "examples"
    lines = (examples / ".gitignore").read_text().splitlines()
    ignored = {path for line in lines if not line.startswith("#") for path in examples.rglob(line.strip("/"))}
    kept = {*examples.rglob("*"), *(root / "reports" / "records").rglob("*")} - ignored
    assert sum(path.stat().st_size for path in kept if path.is_file()) <= 3 << 20
