"""Rules read facts alone: they know of no other rule, and of no sentence."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import reports.attribute.grading
from harness.schema.environment_records import EnvironmentRecord
from reports.attribute.precedence import NEARER, OF_TIME, RULES
from reports.attribute.rules import meaning, memory_use
from reports.attribute.wording import EXPLAINED, SENTENCES
from reports.compare.differences import EXECUTOR, VARIABLE, differing

MODULES = {inspect.getmodule(rule) for rule in (*RULES, *OF_TIME)}
READS_TEXT = {"startswith", "endswith", "search", "match", "fullmatch", "findall"}
# Names of files and operators, which are identifiers, and C++ names that a profile and a linker spell differently.
IDENTIFIERS = {"cases", "cells", "profiles"}


@pytest.mark.parametrize("module", sorted(filter(None, MODULES), key=lambda each: each.__name__))
def test_no_rule_calls_another(module: ModuleType) -> None:
    names = {rule.__name__ for rule in (*RULES, *OF_TIME)}
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        if not (isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") in ("self", "case"))
    }
    assert not called & names


def test_every_rule_is_listed_once_and_what_is_nearer_is_a_rule() -> None:
    assert len(set(RULES)) == len(RULES)
    assert {*NEARER, *(rule for nearer in NEARER.values() for rule in nearer)} <= set(RULES)
    returns = {
        function
        for module in filter(None, MODULES)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        if inspect.get_annotations(function) == {"case": "CaseFacts", "return": "Cause | None"}
    }
    apart = {"undecided", "nothing_moved", "leaning"}  # what is asked where no rule says anything
    assert {function for function in returns if function.__name__ not in apart} == set(RULES)


def test_every_sentence_is_a_rules_and_every_rules_sentence_is_known() -> None:
    makers = [*filter(None, MODULES), memory_use, meaning, reports.attribute.grading]
    texts = {
        node.value
        for module in makers
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    apart = {"undecided", "nothing_moved", "unexplained", "leaning"}
    assert set(SENTENCES) <= texts | apart and set(SENTENCES) >= EXPLAINED


RULE_FILES = sorted(Path(reports.attribute.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_text_is_read_in_one_place(path: Path) -> None:
    if path.stem in {"messages", *IDENTIFIERS}:
        return
    used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert not used & READS_TEXT


def test_a_difference_is_known_by_its_kind_whatever_its_sentence_says() -> None:
    shared: dict[str, Any] = {
        "id": "a",
        "torch": "2.5.0",
        "cuda": "cpu",
        "python": "3.11",
        "replica": 0,
        "index": "",
        "key": "",
        "pins": {},
        "status": "ok",
        "pins_sha256": "",
        "prepared_s": None,
        "reused": False,
        "observed": None,
    }
    base = EnvironmentRecord(**shared, executor="venv")
    this = EnvironmentRecord(**shared, executor="the variable X is set", variables={"X": "PyTorch's setting threads"})
    found = {each.kind: each for each in differing(base, this, ("one", "two"))}
    assert set(found) == {EXECUTOR, VARIABLE} and found[VARIABLE].name == "X"
    assert not any(each.of_threads for each in found.values())
