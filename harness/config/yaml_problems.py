"""What pydantic refuses in a file that people write, in the words of the person who wrote it. Pure.

Everything that is wrong is told, unknown keys first: a misspelt key is often why another is missing.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError, create_model

from harness.errors import nearest

MOST_TOLD = 8
EXAMPLES = {  # by key, as they would be written
    "baseline": '"2.1.0"',
    "environments": '[{torch: "2.5.0", cuda: "12.1", python: "3.11"}]',
    "torch": '"2.5.0"',
    "cuda": '"12.1"',
    "python": '"3.11"',
    "index": "https://download.pytorch.org/whl/cu121",
    "packages": "[numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]",
    "kernels": "[{name: mine, sources: {cuda: [mine/attention.cu]}}]",
    "name": "mine",
    "entry": "mine.ops:attention",
    "library": "build/libmine.so",
    "sources": "{cpu: [mine/attention.cpp], cuda: [mine/attention.cu]}",
    "tunables": "{BLOCK_M: 32}",
    "search": "{BLOCK_M: [16, 32]}",
    "architectures": "[sm_80, sm_90]",
    "workloads": "[{name: tail, shape: {batch: 1, heads: 8, seq_len: 511, head_dim: 64}, dtypes: {cpu: [float32]}}]",
    "shape": "{batch: 1, heads: 8, seq_len: 512, head_dim: 64}",
    "dtypes": "{cpu: [float32], cuda: [float16, float32]}",
    "variables": '{OMP_NUM_THREADS: "1"}',
    "slurm": "{partition: gpu, time: 60}",
}
LISTS = {"dtypes": "[float32]", "sources": "[mine/attention.cu]", "shape": "[64, 4096]"}  # where the key has a list
# No longer keys of matrix.yaml, and what to do where an older file has one.
REMOVED = {
    "control_of": "remove it: a copy that was slowed on purpose is a kernel like any other",
    "problem_rounding_units": "remove it: rounding_units holds for problem files too",
}
PROBLEMS = {  # by pydantic's kind of error
    "extra_forbidden": "unknown key",
    "missing": "missing",
    "too_short": "is empty",
    "literal_error": "must be {expected}, got {got}",
    "string_pattern_mismatch": "must be {form}, got {got}",
    "greater_than": "must be above {gt:g}, got {got}",
    "greater_than_equal": "must be at least {ge:g}, got {got}",
    "less_than": "must be below {lt:g}, got {got}",
    "less_than_equal": "must be at most {le:g}, got {got}",
    "model_type": "expected keys with values, got {got}",
    "dict_type": "expected keys with values, got {got}",
    "list_type": "expected a list, got {got}",
    "string_type": "expected text, got {got}",
    "int_type": "expected a whole number, got {got}",
    "int_from_float": "expected a whole number, got {got}",
    "float_type": "expected a number, got {got}",
    "bool_type": "expected true or false, got {got}",
}
# What the parser says of a file that is not YAML: in other words, and the way out.
MALFORMED = (
    (r"character '\\t'", "a tab", "indent with spaces: YAML takes no tabs there"),
    (r"could not find expected ':'", "a line without its colon", "write `key: value`, with a space after the colon"),
    (r"quoted scalar|unexpected end of stream", "a quote that is not closed", "close the quote"),
    (r"expected ',' or '([\]}])'", "a bracket that is not closed, or a comma is missing", "close it: {0}"),
    (
        r"mapping values are not allowed",
        "a colon where no key can be",
        "quote a value that holds a colon, and indent the line like its neighbours",
    ),
    (
        r"expected <block end>",
        "it does not continue what stands before it",
        "indent the line like its neighbours, and close every quote and bracket before it",
    ),
    (r"expected a single document", "a second document begins", "remove the line of dashes, and what does not belong"),
    (r"special characters are not allowed", "a character that text cannot have", "remove it"),
)
# What text must be, by key.
FORMS = {
    "torch": 'a release of three numbers, a nightly such as 2.9.0.dev20250801, a candidate such as 2.9.0rc3, or "host"',
    "cuda": "a version of two numbers",
    "python": "a version of two numbers, from 3.8 on",
    "index": "an address that begins with https:// or http://",
    "fallback_index": "an address that begins with https:// or http://",
    "entry": "a function in a module of the wheel",
    "name": "a name of small letters, digits, _ and .",
    "packages": "a package with its exact version",
    "architectures": "an architecture as nvcc has it",
    "tunables": "a name of capitals, digits and _",
    "search": "a name of capitals, digits and _",
    "variables": "a name of capitals, digits and _",
    "slurm": "an option of sbatch by its long name, without the dashes",
}
Place = tuple[int | str, ...]


class RefusedValue(ValueError):
    """Of a validator that knows the way out."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def malformed(error: yaml.YAMLError, file: str) -> tuple[str, str]:
    """Where a file is not YAML, what is wrong there, and the way out."""
    mark, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    open_quote = [number for number, line in enumerate(file.splitlines(), 1) if line.count('"') % 2]
    if open_quote and mark and open_quote[0] <= mark.line + 1:
        return f"line {open_quote[0]}: a quote that is not closed", "close the quote"
    text = " ".join(str(getattr(error, name, None) or "") for name in ("context", "problem"))
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    since = f", in what begins in line {begun.line + 1}" if begun and mark and begun.line != mark.line else ""
    for pattern, problem, remedy in MALFORMED:
        if found := re.search(pattern, text):
            return f"{where}{problem}{since}", remedy.format(*found.groups())
    return f"{where}{getattr(error, 'problem', None) or 'is not YAML'}", "correct the YAML"


def problem_and_remedy(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """Return all that is wrong, and one way out for each."""
    every = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # stable
    meant = {(*each["loc"][:-1], _meant(each, model)) for each in every if each["type"] == "extra_forbidden"}
    told = [_tell(each, model) for each in every if not (each["type"] == "missing" and each["loc"] in meant)]
    if len(told) == 1:
        [(where, problem, remedy)] = told
        return f"{where}{problem}", remedy
    shown, more = told[:MOST_TOLD], [f"and {len(told) - MOST_TOLD} more"] * (len(told) > MOST_TOLD)
    problems = [f"{where}{problem}" for where, problem, _ in shown]
    return "\n  ".join([*problems, *more]), "; ".join(f"{where}{remedy}" for where, _, remedy in shown)


def _tell(error: Mapping[str, Any], model: type[BaseModel]) -> tuple[str, str, str]:
    """Return where, what is wrong there, and the way out."""
    place, kind, value, facts = error["loc"], error["type"], error["input"], error.get("ctx", {})
    known, key = fields_at(model, place[:-1]), _key(place)
    example = _example(key, known.get(key))
    remedy = f"such as {example}" if example else "correct the value"
    form = FORMS.get(key, "of the right form")
    problem = PROBLEMS.get(kind, "{msg}, got {got}").format(**facts, form=form, got=_shown(value), msg=error["msg"])
    if kind == "extra_forbidden":
        remedy = _spelled(error, model, known)
    elif kind in ("missing", "too_short"):
        added = "add it" if kind == "missing" else "add at least one entry"
        remedy = f"{added}, {remedy}" if example else added
    elif kind == "value_error":
        problem, _, way_out = error["msg"].removeprefix("Value error, ").partition("; ")
        problem += "" if isinstance(value, (dict, list)) else f", got {_shown(value)}"
        remedy = getattr(facts.get("error"), "remedy", way_out or remedy)
    elif kind == "literal_error":
        near = nearest(str(value), re.findall(r"'([^']*)'", facts["expected"]))
        remedy = f"did you mean {near}?" if near else f"write {facts['expected']}"
    elif kind == "string_type" and isinstance(value, int | float):
        remedy = f'put it in quotes, "{value}"'
        remedy += f', or "{value}0" if that was typed: YAML reads 2.10 as 2.1' if isinstance(value, float) else ""
    elif kind == "list_type" and isinstance(value, str) and not example:
        remedy = f"such as {key}: [{value}]"
    elif isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value) and kind != "string_pattern_mismatch":
        remedy = "remove the quotes"
    where = _written(place)
    return f"{where}: " if where else "", problem, remedy


def _shown(value: object) -> str:
    """A value as YAML has it, and what it is where that is not seen."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "keys with values" if isinstance(value, dict) else "a list"
    return repr(value) if isinstance(value, str) else f"{value!r} ({type(value).__name__})"


def _written(place: Place) -> str:
    """As people write it. A mapping's own key, of which pydantic says `[key]`, is what its value says."""
    parts = place[:-2] if place[-1:] == ("[key]",) else place
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


def _key(place: Place) -> str:
    """The key of the file that a place belongs to."""
    names = [part for part in (place[:-2] if place[-1:] == ("[key]",) else place) if isinstance(part, str)]
    return names[-1] if names else ""


def _meant(error: Mapping[str, Any], model: type[BaseModel]) -> str:
    """Return the key that an unknown one may be a misspelling of; empty where none is near."""
    *place, key = error["loc"]
    plain = {name.replace("_", ""): name for name in fields_at(model, tuple(place))}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", str(key).lower()), plain, 1, 0.6)
    return plain[near[0]] if near else ""


def _spelled(error: Mapping[str, Any], model: type[BaseModel], known: Iterable[str]) -> str:
    key = str(error["loc"][-1])
    if key in REMOVED:
        return REMOVED[key]
    if near := _meant(error, model):
        return f"did you mean {near!r}?"
    inner = [name for name in known if key in fields_at(model, (name,)) or key in fields_at(model, (name, 0))]
    if inner and len(error["loc"]) == 1:
        return f"it is a key of {' or '.join(inner)}: write it there"
    return f"remove it; the keys here are {', '.join(known)}"


def _example(key: str, field: Any) -> str:
    """Return a right value for a key, as it would be written; empty where there is none."""
    default = getattr(field, "default", None)
    tried = [text for text in (EXAMPLES.get(key), LISTS.get(key)) if text]
    if default and isinstance(default, int | float | str):
        tried.append(str(default))
    return next((f"{key}: {text}" for text in tried if _fits(field, text)), "")


def _fits(field: Any, text: str) -> bool:
    """Whether a value, as it would be written, is right for a field."""
    if field is None:
        return True
    try:
        create_model("Fitted", value=(field.annotation, field)).model_validate({"value": yaml.safe_load(text)})
    except (ValidationError, yaml.YAMLError):
        return False
    return True


def fields_at(model: type[BaseModel], place: Place) -> dict[str, Any]:
    """The fields of the model that stands there; none where there is no model."""
    annotation: Any = model
    for part in place:
        found = _inner(annotation)
        if isinstance(part, int):
            annotation = next(iter(get_args(found)), None)
        elif isinstance(found, type) and issubclass(found, BaseModel) and part in found.model_fields:
            annotation = found.model_fields[part].annotation
        else:
            annotation = None
    found = _inner(annotation)
    return dict(found.model_fields) if isinstance(found, type) and issubclass(found, BaseModel) else {}


def _inner(annotation: Any) -> Any:
    """Without what may be None, and without what is only said of it."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        kinds = [each for each in get_args(annotation) if each is not type(None)]
        annotation = kinds[0]
    return annotation
