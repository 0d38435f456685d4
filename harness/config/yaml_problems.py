"""What pydantic refuses in a file that people write, in the words of who wrote it. Pure.

All that is wrong is told, unknown keys first: a misspelt key is often why another is missing.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

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
    "sources": "{cuda: [mine/attention.cu]}",
    "tunables": "{BLOCK_M: 32}",
    "search": "{BLOCK_M: [16, 32]}",
    "architectures": "[sm_80, sm_90]",
    "workloads": "[{name: tail, shape: {batch: 1, heads: 8, seq_len: 511, head_dim: 64}, dtypes: {cpu: [float32]}}]",
    "shape": "{batch: 1, heads: 8, seq_len: 512, head_dim: 64}",
    "dtypes": "{cpu: [float32], cuda: [float16, float32]}",
    "variables": '{OMP_NUM_THREADS: "1"}',
}
# No longer keys of matrix.yaml, and what to do where a file of before has one.
REMOVED = {"problem_rounding_units": "remove it: rounding_units holds for problem files too"}
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
Place = tuple[int | str, ...]


class Refused(ValueError):
    """Of a validator that knows the way out."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


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
    if kind == "extra_forbidden":
        problem, remedy = "unknown key", _spelled(error, model, known)
    elif kind == "missing":
        problem, remedy = "missing", f"add it, {remedy}" if example else "add it"
    elif kind == "value_error":
        problem = re.sub(r"^Value error, ", "", error["msg"])
        remedy = getattr(limits.get("error"), "remedy", remedy)
        if not isinstance(value, (dict, list)):
            problem += f", got {_shown(value)}"
    elif kind == "literal_error":
        problem = f"must be {limits['expected']}, got {_shown(value)}"
        near = difflib.get_close_matches(str(value), re.findall(r"'([^']*)'", limits["expected"]), 1)
        remedy = f"did you mean {near[0]}?" if near else "take one of these"
    elif kind == "string_pattern_mismatch":
        problem = f"{value!r} is not of the form that it needs"
    elif kind == "too_short":
        problem, remedy = "is empty", f"add at least one entry, {remedy}" if example else "add at least one entry"
    elif kind in LIMITS:
        problem = f"must {LIMITS[kind].format(**limits)}, got {_shown(value)}"
        remedy = "correct the value"
    elif kind in KINDS:
        problem = f"expected {KINDS[kind]}, got {_shown(value)}"
        if kind == "string_type" and isinstance(value, (int, float)):
            remedy = "put it in quotes: YAML reads 2.10 as the number 2.1"
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
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


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
    return f"did you mean {near!r}?" if near else f"remove it; the keys here are {', '.join(known)}"


def _example(place: Place, known: Mapping[str, Any]) -> str:
    """A right value for the key, or for an entry of its list; empty where there is none."""
    key = next((part for part in reversed(place) if isinstance(part, str)), "")
    if key in EXAMPLES:
        return f"{key}: {EXAMPLES[key]}"
    default = getattr(known.get(key), "default", None)
    plain = isinstance(default, (int, float, str)) and default != "" and not isinstance(default, bool)
    return f"{key}: {default}" if plain else ""


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
