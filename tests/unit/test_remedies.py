"""Every way out is tried: a value that is offered fits its place, and a command that is offered is one."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from harness.cli import main
from harness.config import operators
from harness.config.matrix import Matrix
from harness.config.yaml_problems import fields_at, problem_and_remedy
from harness.schema.records import Outcome
from tests.conftest import ROOT
from tests.torch_names import LACKING
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
        "operators[0].dtypes: expected a list, got keys with values",
        "such as dtypes: [float32]",
    )


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
    return {name for action in main.make_parser(verb)._actions for name in action.option_strings}


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


def texts() -> Iterator[tuple[str, str]]:
    """Yield every sentence of the product's code and of its causes, and where it stands; {} for what is filled in."""
    for path in sorted([*(ROOT / "harness").rglob("*.py"), *(ROOT / "reports").rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            text = ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | parts:
                text = node.value
            if " " in text.strip() and "\n" not in text:  # neither a word nor a program
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text
    for path in sorted((ROOT / "reports" / "attribute").rglob("*.j2")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", re.sub(r"{{.*?}}|{[%#].*?[%#]}", "{}", line)


# Options of other programs, which stand behind the program's name in the same text.
FOREIGN_OPTIONS = {
    "docker run": {"--rm", "--gpus"},
    "nvidia-ctk": {"--runtime"},
    "sbatch": {"--help"},
    "sinfo": {"--format"},
    "unpack.sh": {"--only"},
    "compiler's": {"--version"},
    "nvcc's": {"--version"},
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!=sha256)")


def test_every_option_that_a_message_names_exists_somewhere() -> None:
    known = {"--help", "--version"}.union(*(options_of(verb) for verb in (*main.VERBS, *main.INTERNAL)))
    named = 0
    for where, text in texts():
        if "--hash=" in text:  # a pattern of a file of pins
            continue
        foreign = set[str]().union(*(options for program, options in FOREIGN_OPTIONS.items() if program in text))
        options = set(OPTION.findall(text))
        named += len(options)
        assert options <= known | foreign, f"{where}: {sorted(options - known - foreign)} in: {text}"
    assert named > 100


# -- keys of matrix.yaml


def keys_of(schema: Any) -> set[str]:
    """Return the names of all keys that a matrix.yaml may have, at any depth."""
    if isinstance(schema, list):
        return set[str]().union(*map(keys_of, schema))
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set[str]()
    return own.union(*map(keys_of, schema.values()))


KEYS = keys_of(Matrix.model_json_schema(by_alias=True)) | set(operators.TensorEntry.model_fields)
# A key that stands before "in matrix.yaml", and one in backticks, such as `replica: 1`.
BEFORE = re.compile(r"(\w+)[`:,]* in matrix\.yaml")
QUOTED_KEY = re.compile(r"`([a-z_]+)(?:: ?([^`]*))?`")
DOTTED = re.compile(r"\b(thresholds|tolerances|limits|slurm)\.([a-z_]+)")
# Words before "in matrix.yaml" that name no key: a path, a pair.
PLAIN_WORDS = {"1", "direction", "it", "name", "not", "own", "pairs", "path", "setting", "some", "them"}
# In backticks, and no keys: commands, functions, fields of records, a word of C++.
QUOTED_WORDS = {*main.VERBS, "against", "base", "default", "forward", "key", "like", "observed", "static"}


def test_every_key_of_the_matrix_that_a_message_names_is_one() -> None:
    named = 0
    for where, text in texts():
        for word in BEFORE.findall(text):
            assert word in KEYS | PLAIN_WORDS, f"{where}: matrix.yaml has no {word}: {text}"
            named += word in KEYS
        for section, key in DOTTED.findall(text):
            if text.startswith("$") or f"{section}.{key}(" in text:
                continue
            assert key in fields_at(Matrix, (section,)), f"{where}: {section} has no {key}: {text}"
            named += 1
    assert named > 15


def test_every_key_in_backticks_is_one_with_a_value_that_can_be_written() -> None:
    named = 0
    for where, text in texts():
        for key, value in QUOTED_KEY.findall(text):
            assert key in KEYS | QUOTED_WORDS, f"{where}: `{key}` is no key of matrix.yaml: {text}"
            written = value.replace("{{", "{").replace("}}", "}")  # of a template
            yaml.safe_load(f"{key}: {written.replace('...', '1').replace('{}', '1')}")
            named += 1
    assert named > 30


def test_an_option_or_a_key_that_does_not_exist_is_found() -> None:
    assert OPTION.findall("raise --detekt, or (--launches)") == ["--detekt", "--launches"]
    assert "packages" in KEYS and "memory_gib" in KEYS and "replica" in KEYS
    assert "package" not in KEYS and "memory_gb" not in fields_at(Matrix, ("limits",))
    assert BEFORE.findall("add it to `package` in matrix.yaml") == ["package"]
    assert DOTTED.findall("raise limits.memory_gb in matrix.yaml") == [("limits", "memory_gb")]


def test_packages_that_a_message_offers_can_be_pinned() -> None:
    written = re.compile(r"\bpackages: (\[[^\]{]*\])")
    offered = [(where, value) for where, text in texts() for value in written.findall(text)]
    assert offered
    for where, text in offered:
        assert not at(errors_of(with_value(("packages",), yaml.safe_load(text))), ("packages",)), where


# -- names of PyTorch


NAMED = re.compile(r"\btorch(?:\.[A-Za-z_]\w*)+|\b(?:at|c10)::cuda::\w+")


def test_every_name_of_pytorch_that_a_message_names_is_looked_up() -> None:
    """`tests/environments/test_remedies.py` does it, in the pinned versions."""
    found = {name: where for where, text in texts() for name in NAMED.findall(text)}
    unknown = {name: where for name, where in found.items() if name not in LACKING}
    assert not unknown, "list them in tests/torch_names.py"
    assert not LACKING.keys() - found.keys(), "no message names them any more"


def test_a_message_names_something_for_each_version() -> None:
    for where, text in texts():
        names = set(NAMED.findall(text))
        for version in set[str]().union(*(LACKING[name] for name in names)):
            assert any(version not in LACKING[name] for name in names), f"{where}: nothing for {version}: {text}"


# -- what to do, on a page


def test_a_build_that_fails_is_reproduced_on_no_workload(tmp_path: Path) -> None:
    unbuilt = Outcome(status="build_failed", message="x.cpp:1: error: no")
    [answer] = report_of(tmp_path, spec(builds={BASE: unbuilt, NEXT: unbuilt})).answers.kernels
    assert not any("reproduce it" in text for text in answer.do)
    [wrong] = report_of(tmp_path / "wrong", of_both(Case(passed=2, units=400.0))).answers.kernels
    assert any("reproduce it on seed-fp16" in text for text in wrong.do)
