"""Each figure of the house's budget can be exceeded, and is then refused."""

import ast
import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("house", Path(__file__).parents[2] / "ci/house.py")
house = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(house)
GENEROUS = {
    **dict.fromkeys(("product_nodes", "product_files", "tests_nodes", "tests_files", "file_nodes"), 1000),
    **{"function_lines": 3, "long_functions": 0, "repeated_classes": 0, "format_skips": 0},
}


HOUSE = {"harness/a.py": "class Plan:\n    pass\n", "tests/test_a.py": "x = 1\n"}


def faults_of(folder, files, budget):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return list(house.check(budget, house.read_files(folder, files)))


def test_a_house_within_its_budget_is_accepted(tmp_path):
    assert faults_of(tmp_path, HOUSE, GENEROUS) == []


@pytest.mark.parametrize(
    ("change", "text", "said"),
    [
        ({"product_nodes": 2}, None, "product: 3 nodes, 1 too many"),
        ({"tests_files": 0}, None, "tests: 1 files, 1 too many"),
        ({"file_nodes": 2}, None, "harness/a.py: 3 nodes"),
        ({}, "def long():\n" + "    x = 1\n" * 3, "long has 4 lines"),
        ({}, "class Plan:\n    x = 1\n", "class Plan is defined in harness/a.py and reports/b.py"),
        ({}, "x = 1  # fmt" + ": skip\n", "1 comments turn the formatter off"),
    ],
)
def test_what_exceeds_it_is_refused(tmp_path, change, text, said):
    files = {**HOUSE, "reports/b.py": text} if text else HOUSE
    faults = faults_of(tmp_path, files, {**GENEROUS, **change})
    assert any(said in fault for fault in faults), faults


def test_docstrings_do_not_count():
    with_words = ast.parse('def f():\n    """Return nothing."""\n    return None\n')
    without = ast.parse("def f():\n    return None\n")
    assert house.count_nodes(with_words) == house.count_nodes(without)
