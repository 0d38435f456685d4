"""What pydantic refuses in a file that people write, in the words of the person who wrote it. Pure.

Everything that is wrong is told, unknown keys first: a misspelt key is often why another is missing.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from harness.errors import nearest

MOST_TOLD = 8
EXAMPLES = {  # by key, without the numbers of entries, as they would be written
    "baseline": '"2.1.0"',
    "environments": '[{torch: "2.5.0", cuda: "12.1", python: "3.11"}]',
    "environments.torch": '"2.5.0"',
    "environments.cuda": '"12.1"',
    "environments.python": '"3.11"',
    "environments.index": "https://download.pytorch.org/whl/cu121",
    "environments.fallback_index": "https://pypi.org/simple",
    "environments.variables": '{OMP_NUM_THREADS: "1"}',
    "packages": "[numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]",
    "kernels": "[{name: mine, sources: {cuda: [mine/attention.cu]}}]",
    "kernels.name": "mine",
    "kernels.entry": "mine.ops:attention",
    "kernels.library": "build/libmine.so",
    "kernels.sources": "{cpu: [mine/attention.cpp], cuda: [mine/attention.cu]}",
    "kernels.sources.cpu": "[mine/attention.cpp]",
    "kernels.tunables": "{BLOCK_M: 32}",
    "kernels.architectures": "[sm_80, sm_90]",
    "operators.dtypes": "[float32]",
    "workloads": "[{name: tail, shape: {batch: 1, heads: 8, seq_len: 511, head_dim: 64}, dtypes: {cpu: [float32]}}]",
    "workloads.name": "tail",
    "workloads.shape": "{batch: 1, heads: 8, seq_len: 512, head_dim: 64}",
    "workloads.dtypes": "{cpu: [float32], cuda: [float16, float32]}",
    "slurm": "{partition: gpu, time: 60}",
}
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
MALFORMED = (
    "indent with spaces, not with a tab, and like the neighbouring lines; close every quote and bracket; write "
    "`key: value`, with a space after the colon, and quotes around a value that holds one"
)
# What text must be, by key.
FORMS = {
    "torch": 'a release of three numbers, a nightly such as 2.9.0.dev20250801, a candidate such as 2.9.0rc3, or "host"',
    "cuda": "a version of two numbers that PyTorch has wheels for, from 10.0 to 13",
    "python": "a version of two numbers, from 3.8 to 3.15",
    "library": "a shared object, whose name ends with .so; files to compile stand under sources",
    "wheel": "a wheel, whose name ends with .whl",
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


def malformed(error: yaml.YAMLError) -> tuple[str, str]:
    """Return where a file is not YAML and what its parser says, and the way out."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    said = [str(text) for name in ("context", "problem") if (text := getattr(error, name, None))]
    return f"{where}{', '.join(said) or 'is not YAML'}", MALFORMED


def problem_and_remedy(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """Return all that is wrong, and one way out for each."""
    every = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # stable
    misspelt = {(*each["loc"][:-1], _nearest_key(each["loc"], model)) for each in every if _is_unknown(each)}
    told = [_tell(each, model) for each in every if not (each["type"] == "missing" and each["loc"] in misspelt)]
    if len(told) == 1:
        [(where, problem, remedy)] = told
        return f"{where}{problem}", remedy
    problems = [f"{where}{problem}" for where, problem, _ in told[:MOST_TOLD]]
    if len(told) > MOST_TOLD:
        problems.append(f"and {len(told) - MOST_TOLD} more")
    return "\n  ".join(problems), "; ".join(f"{where}{remedy}" for where, _, remedy in told[:MOST_TOLD])


def _is_unknown(error: Mapping[str, Any]) -> bool:
    return bool(error["type"] == "extra_forbidden")


def _tell(error: Mapping[str, Any], model: type[BaseModel]) -> tuple[str, str, str]:
    """Return where, what is wrong there, and the way out."""
    place, kind, value, facts = error["loc"], error["type"], error["input"], error.get("ctx", {})
    if place[-1:] == ("[key]",):  # of a mapping: what the name says is in the value, too
        place = place[:-2]
    names = [part for part in place if isinstance(part, str)]
    key, example = names[-1] if names else "", EXAMPLES.get(".".join(names))
    got, form = _shown(value), FORMS.get(key, "of the right form")
    problem = PROBLEMS.get(kind, "{msg}, got {got}").format(**facts, form=form, got=got, msg=error["msg"])
    remedy = f"such as {key}: {example}" if example else "correct the value"
    if _is_unknown(error):
        remedy = _spelled(place, model)
    elif kind in ("missing", "too_short"):
        remedy = f"add it, {remedy}" if example else "add it"
    elif kind == "value_error":
        refused = facts["error"]
        problem = str(refused) if isinstance(value, (dict, list)) else f"{refused}, got {got}"
        remedy = getattr(refused, "remedy", remedy)
    elif kind == "literal_error":
        near = nearest(str(value), re.findall(r"'([^']*)'", facts["expected"]))
        remedy = f"did you mean {near}?" if near else f"write {facts['expected']}"
    elif kind == "string_type" and isinstance(value, int | float):
        remedy = f'put it in quotes, "{value}"'
        remedy += f', or "{value}0" if that was typed: YAML reads 2.10 as 2.1' if isinstance(value, float) else ""
    elif not example and isinstance(default := _default_at(model, place), int | float):
        remedy = f"such as {key}: {default}"
    elif isinstance(value, str) and kind.startswith(("int_", "float_")):
        remedy = "write a number, without quotes and without a unit"
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    return f"{where}: " if where else "", problem, remedy


def _shown(value: object) -> str:
    """A value as YAML has it, and what it is where that is not seen."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "keys with values" if isinstance(value, dict) else "a list"
    return repr(value) if isinstance(value, str) else f"{value!r} ({type(value).__name__})"


def _nearest_key(place: Place, model: type[BaseModel]) -> str:
    """Return the key that an unknown one may be a misspelling of; empty where none is near."""
    return nearest(re.sub(r"\W", "_", str(place[-1]).lower()), fields_at(model, place[:-1]))


def _spelled(place: Place, model: type[BaseModel]) -> str:
    """Return what to write instead of an unknown key."""
    key, known = str(place[-1]), fields_at(model, place[:-1])
    if key in REMOVED:
        return REMOVED[key]
    if near := _nearest_key(place, model):
        return f"did you mean {near!r}?"
    return f"remove it; the keys here are {', '.join(known)}"


def _default_at(model: type[BaseModel], place: Place) -> Any:
    return getattr(fields_at(model, place[:-1]).get(str(place[-1])), "default", None) if place else None


def fields_at(model: type[BaseModel], place: Place) -> dict[str, Any]:
    """Return the fields of the model that stands there; none where there is no model."""
    kind: Any = model
    for part in place:
        if isinstance(part, int):
            kind = next(iter(get_args(_plain(kind))), None)
        else:
            kind = getattr(_fields_of(kind).get(part), "annotation", None)
    return _fields_of(kind)


def _fields_of(annotation: Any) -> dict[str, Any]:
    return dict(getattr(_plain(annotation), "model_fields", {}))


def _plain(annotation: Any) -> Any:
    """Return an annotation without what may be None, and without what is only said of it."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation = get_args(annotation)[0]
    return annotation
