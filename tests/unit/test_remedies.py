"""Every way out is tried: a value that is offered fits its place, and a command that is offered is one."""

from __future__ import annotations

import ast
import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from harness.cli import main
from harness.config.matrix import Matrix
from harness.config.yaml_problems import fields_at, problem_and_remedy
from harness.preflight.operators import LOOK_UP
from harness.schema.records import Outcome
from tests.conftest import ROOT
from tests.unit.attributed import of_both, spec
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case

DOCUMENT = yaml.safe_load("""
baseline: "2.1.0"
environments: [{torch: "2.1.0", cuda: "12.1", python: "3.11"}, {torch: "2.5.0", cuda: "12.1", python: "3.11"}]
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
kernels: [{name: mine, sources: {cpu: [mine/attention.cpp]}, tunables: {BLOCK: 32}, flags: {cxx: [-O2]}}]
workloads: [{name: tail, shape: {batch: 1, heads: 8, seq_len: 511, head_dim: 64}, dtypes: {cpu: [float32]}}]
operators: [{operator: torch.topk, shapes: [[64, 4096]], arguments: {k: 4}}]
thresholds: {}
tolerances: {}
limits: {}
slurm: {partition: gpu}
""")
WRONG = (None, 5, -1, 0.5, "", "some text", "80%", "12 GB", True, [], [5], ["text"], {}, {"no_such": 1}, {"cpu": [5]})
OFFER = re.compile(r"such as (\w+): (.*)$")


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of every model of the document, those that it leaves out too, and entries of lists."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield (*place, number)
            yield from places(each, (*place, number))
        return
    known = fields_at(Matrix, place)
    for name in known:
        yield (*place, name)
        if isinstance(value, dict) and name in value:
            yield from places(value[name], (*place, name))


def with_value(place: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(DOCUMENT)
    inner = made
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return made


def errors_of(document: Any) -> ValidationError | None:
    try:
        Matrix.model_validate(document)
    except ValidationError as error:
        return error
    return None


def at(error: ValidationError | None, place: tuple[Any, ...]) -> list[Any]:
    """What is wrong at this place or in it."""
    return [each["msg"] for each in (error.errors() if error else []) if each["loc"][: len(place)] == place]


@pytest.mark.parametrize("place", list(places(DOCUMENT)), ids=lambda place: ".".join(map(str, place)))
def test_a_value_that_is_offered_is_right_there(place: tuple[Any, ...]) -> None:
    for wrong in WRONG:
        error = errors_of(with_value(place, wrong))
        if error is None or not at(error, place):
            continue
        problem, remedy = problem_and_remedy(error, Matrix)
        assert problem and remedy
        offered = OFFER.search(remedy) if len(error.errors()) == 1 else None
        if offered is None:
            continue
        key, text = offered.groups()
        home = place[:-1] if isinstance(place[-1], int) else place
        home = next((place[:end] for end in range(len(place), 0, -1) if place[end - 1] == key), home)
        if home[-1] != key:  # a key inside of this one
            home = (*place, key)
            document = with_value(place, {**(wrong if isinstance(wrong, dict) else {}), key: yaml.safe_load(text)})
        else:
            document = with_value(home, yaml.safe_load(text))
        assert not at(errors_of(document), home), (wrong, remedy)


def test_the_list_of_an_operators_dtypes_is_offered_as_a_list() -> None:
    error = errors_of(with_value(("operators", 0, "dtypes"), {"cpu": ["float32"], "cuda": ["float16"]}))
    assert error is not None
    assert problem_and_remedy(error, Matrix) == (
        "operators[0].dtypes: expected a list, got keys with values", "such as dtypes: [float32]"
    )  # fmt: skip


@pytest.mark.process
def test_a_near_name_exists_is_called_and_may_be_written(tmp_path: Path) -> None:
    """By a torch of our own: the names that it has are known."""
    (tmp_path / "torch.py").write_text(
        "class Tensor:\n    exponential_ = normal_ = _softmax = print\n    softmax = print\n    softmac = 3\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", LOOK_UP, "torch.Tensor.softmaxx", "torch.Tensor.exponential"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(run.stdout) == {"torch.Tensor.softmaxx": ["torch.Tensor.softmax"], "torch.Tensor.exponential": []}


# -- commands


def strings() -> Iterator[tuple[str, str]]:
    """Every text of the product's code, but for docstrings, and where it stands."""
    for path in sorted([*(ROOT / "harness").rglob("*.py"), *(ROOT / "reports").rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def options_of(verb: str) -> set[str]:
    parser = main.make_parser(verb)._subparsers
    assert parser is not None
    chosen = parser._group_actions[0].choices[verb]  # type: ignore[index, call-overload]
    return {name for action in chosen._actions for name in action.option_strings}


def typed_calls() -> Iterator[tuple[str, list[str]]]:
    """The words of every call of `typed`, as far as they are written out."""
    for path in sorted([*(ROOT / "harness").rglob("*.py"), *(ROOT / "reports").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("typed", "words_of"):
                words = [each.value for each in node.args if isinstance(each, ast.Constant)]
                if words and words[0] in main.VERBS:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", words


def test_every_command_in_a_message_is_one_with_options_that_it_has() -> None:
    spelled = re.compile(r"(?:kernel-matrix|nox -s) ([a-z]+)((?: (?:--)?[\w./{}=-]+)*)")
    found = [
        (where, [match[1], *match[2].split()])
        for where, text in strings()
        for match in spelled.finditer(text)
        if match[1] in main.VERBS
    ]
    found += list(typed_calls())
    assert len(found) > 30
    for where, words in found:
        options = [word for word in words[1:] if re.fullmatch(r"--[a-z][a-z-]*", word)]
        wrong = set(options) - options_of(words[0])
        assert not wrong, f"{where}: {words[0]} has no {wrong}"


def test_every_option_that_a_message_names_exists_somewhere() -> None:
    known = set().union(*(options_of(verb) for verb in (*main.VERBS, *main.INTERNAL)))
    named = re.compile(r"(?:^|[ (:,`])(--[a-z][a-z-]+)(?= [A-Z]|[,.;:)`]|$)")
    others = {"--help", "--version"}
    remedies = [(where, text) for where, text in strings() if " " in text.strip() and "/cli/" in where]
    wrong = [(where, name) for where, text in remedies for name in named.findall(text) if name not in known | others]
    assert not wrong


# -- what to do, on a page


def test_a_build_that_fails_is_reproduced_on_no_workload(tmp_path: Path) -> None:
    unbuilt = Outcome(status="build_failed", message="x.cpp:1: error: no")
    [answer] = report_of(tmp_path, spec(builds={BASE: unbuilt, NEXT: unbuilt})).answers.kernels
    assert not any("reproduce it" in text for text in answer.do)
    [wrong] = report_of(tmp_path / "wrong", of_both(Case(passed=2, units=400.0))).answers.kernels
    assert any("reproduce it on seed-fp16" in text for text in wrong.do)
