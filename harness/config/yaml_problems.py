"""What pydantic refuses in a file that people write, in the words of who wrote it. Pure.

All that is wrong is told, unknown keys first: a misspelt key is often why another is missing.
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
EXAMPLES = {  # by key, as they would be written; where a key stands in several places, that is tried which fits there
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
    "sources": "{cuda: [mine/attention.cu]}",
    "tunables": "{BLOCK_M: 32}",
    "search": "{BLOCK_M: [16, 32]}",
    "architectures": "[sm_80, sm_90]",
    "workloads": "[{name: tail, shape: {batch: 1, heads: 8, seq_len: 511, head_dim: 64}, dtypes: {cpu: [float32]}}]",
    "shape": "{batch: 1, heads: 8, seq_len: 512, head_dim: 64}",
    "dtypes": "{cpu: [float32], cuda: [float16, float32]}",
    "variables": '{OMP_NUM_THREADS: "1"}',
    "slurm": "{partition: gpu, time: 60}",
}
ANYWHERE = {"dtypes": ("[float32]",), "sources": ("[mine/attention.cu]",), "shape": ("[64, 4096]",)}
# No longer keys of matrix.yaml, and what to do where a file of before has one.
REMOVED = {
    "control_of": "remove it: a copy that was slowed on purpose is a kernel like any other",
    "problem_rounding_units": "remove it: rounding_units holds for problem files too",
}
KINDS = {
    "model_type": "keys with values",
    "dict_type": "keys with values",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
LIMITS = {
    "greater_than": "be above {gt:g}",
    "greater_than_equal": "be at least {ge:g}",
    "less_than": "be below {lt:g}",
    "less_than_equal": "be at most {le:g}",
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


class Refused(ValueError):
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
    """All that is wrong, and one way out for each."""
    every = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # stable
    meant = {(*each["loc"][:-1], near) for each in every if (near := _meant(each, model))}
    told = [_told(each, model) for each in every if not (each["type"] == "missing" and each["loc"] in meant)]
    shown, more = told[:MOST_TOLD], len(told) - MOST_TOLD
    problems = [f"{where}: {problem}" if where else problem for where, problem, _ in shown]
    problems += [f"and {more} more"] if more > 0 else []
    if len(shown) == 1:
        return problems[0], shown[0][2]
    return "\n  ".join(problems), "; ".join(f"{where}: {remedy}" if where else remedy for where, _, remedy in shown)


def _told(error: Mapping[str, Any], model: type[BaseModel]) -> tuple[str, str, str]:
    """Where, what is wrong there, and the way out."""
    place, kind, value, limits = error["loc"], error["type"], error["input"], error.get("ctx", {})
    known = fields_at(model, place[:-1])
    example = _example(place, known)
    remedy = f"such as {example}" if example else "correct the value"
    key = _key(place)
    field = known.get(key) or fields_at(model, place[:-2]).get(key)  # of an entry, its list's
    if kind == "extra_forbidden":
        problem, remedy = "unknown key", _spelled(error, model, known)
    elif kind == "missing":
        problem, remedy = "missing", f"add it, {remedy}" if example else "add it"
    elif kind == "value_error":
        problem = re.sub(r"^Value error, ", "", error["msg"])
        problem, _, way_out = problem.partition("; ")
        remedy = getattr(limits.get("error"), "remedy", way_out or remedy)
        if not isinstance(value, (dict, list)):
            problem += f", got {_shown(value)}"
    elif kind == "literal_error":
        problem = f"must be {limits['expected']}, got {_shown(value)}"
        near = nearest(str(value), re.findall(r"'([^']*)'", limits["expected"]))
        remedy = "take one of these" if " or " in limits["expected"] else f"write {limits['expected']}"
        remedy = f"did you mean {near}?" if near else remedy
    elif kind == "string_pattern_mismatch":
        problem = f"must be {FORMS[key]}, got {value!r}" if key in FORMS else f"{value!r} is not of the right form"
    elif kind == "too_short":
        problem, remedy = "is empty", f"add at least one entry, {remedy}" if example else "add at least one entry"
    elif kind in LIMITS:
        problem = f"must {LIMITS[kind].format(**limits)}, got {_shown(value)}"
        remedy = "correct the value"
    elif kind in KINDS:
        problem = f"expected {KINDS[kind]}, got {_shown(value)}"
        if kind == "string_type" and isinstance(value, (int, float)):
            remedy = f'put it in quotes, "{value}"'
            remedy += f', or "{value}0" if that was typed: YAML reads 2.10 as 2.1' if isinstance(value, float) else ""
        elif kind == "list_type" and value and isinstance(value, str) and _fits(field, f"[{value}]"):
            remedy = f"such as {key}: [{value}]"
        elif key == "sources" and isinstance(value, str):
            remedy = f"such as sources: {{{'cuda' if value.endswith('.cu') else 'cpu'}: [{value}]}}"
        elif isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
            remedy = "remove the quotes"
        elif isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?%", value):
            share = f"{float(value[:-1]) / 100:g}"
            remedy = f"such as {key}: {share}" if _fits(field, share) else remedy
        elif isinstance(value, str) and (number := re.match(r"\d+(\.\d+)?", value)) and _fits(field, number[0]):
            remedy = f"such as {key}: {number[0]}"
    else:
        problem = f"{error['msg']}, got {_shown(value)}"
    return _written(place), problem, remedy


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
    """The key that an unknown one may be a misspelling of; empty where none is near."""
    if error["type"] != "extra_forbidden":
        return ""
    *place, key = error["loc"]
    plain = {re.sub(r"[^a-z0-9]", "", name): name for name in fields_at(model, tuple(place))}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", str(key).lower()), plain, 1, 0.6)
    return plain[near[0]] if near else ""


def _spelled(error: Mapping[str, Any], model: type[BaseModel], known: Iterable[str]) -> str:
    key = str(error["loc"][-1])
    if key in REMOVED:
        return REMOVED[key]
    near = _meant(error, model)
    inner = [name for name in known if key in fields_at(model, (name,)) or key in fields_at(model, (name, 0))]
    if inner and len(error["loc"]) == 1 and not near:
        return f"it is a key of {' or '.join(inner)}: write it there"
    return f"did you mean {near!r}?" if near else f"remove it; the keys here are {', '.join(known)}"


def _example(place: Place, known: Mapping[str, Any]) -> str:
    """A right value for the key, or for an entry of its list; empty where there is none."""
    key = _key(place)
    field = known.get(key)
    default = getattr(field, "default", None)
    tried = [*([EXAMPLES[key]] if key in EXAMPLES else []), *ANYWHERE.get(key, ())]
    if isinstance(default, (int, float, str)) and default != "" and not isinstance(default, bool):
        tried.append(str(default))
    if isinstance(default, list) and default and all(isinstance(each, str) for each in default):
        tried.append(f"[{', '.join(default)}]")
    return next((f"{key}: {text}" for text in tried if field is None or _fits(field, text)), "")


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
