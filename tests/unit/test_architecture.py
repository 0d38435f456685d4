"""docs/architecture.md names code that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"((?:harness|reports)/[\w/]+\.py):(\w+(?:\.\w+)?)", TEXT)))
FILES = sorted(set(re.findall(r"`((?:harness|reports|tests)/[\w/]+(?:\.\w+)*)`", TEXT)))


def defined_in(path):
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{inner.name}" for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_name_is_defined_in_its_file(file, name):
    assert name in defined_in(ROOT / file)


@pytest.mark.parametrize("file", FILES)
def test_every_file_is_there(file):
    assert (ROOT / file).exists()


def test_the_walks_are_found():
    assert len(NAMED) > 40 and len(FILES) > 10
