"""The rows of tests/unit/causes/*.yaml: a made-up run with its experiments, and the causes that it must give.

`run` changes fields of `Spec`, `does` says what a target does in an environment (BASE, NEXT or both), `tried` are calls
of `tests.unit.experiments`. `gives`: the causes, in order, each as "subject: cause grade", with its parts; `says`:
words that stand in one of their statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from harness.schema.experiment_records import ConditionResult
from harness.schema.records import Outcome, TruthDifference
from harness.schema.run_records import Fallback
from harness.schema.storage import Run, save_record
from reports.attribute import Cause
from tests.unit import experiments
from tests.unit.spec import BASE, NEXT, Case, Spec

FOLDER = Path(__file__).parent / "causes"
SEED = "seed-fp16"
PLAIN: dict[str, Any] = {"workloads": (SEED,), "trials": 10, "launches": 1}
PAIRS = ("times_us", "peaks_bytes", "throttled", "others")  # fields of a spec whose keys have two words
MODELS = {"Outcome": Outcome, "Fallback": Fallback, "TruthDifference": TruthDifference}


@dataclass(frozen=True, kw_only=True)
class CauseRow:
    topic: str
    name: str
    run: Mapping[str, Any]
    does: Mapping[str, Mapping[str, Any]]
    tried: list[dict[str, Any]]
    gives: list[str]
    says: str = ""

    @property
    def spec(self) -> Spec:
        cases = {}
        for place, case in self.does.items():
            environment, target, *workload = place.split(" ")
            named = {"BASE": [BASE], "NEXT": [NEXT], "both": [BASE, NEXT]}.get(environment, [environment])
            for each in named:
                cases[each, target, workload[0] if workload else SEED] = Case(**_typed(case))
        changes = _typed(self.run)
        for name in PAIRS:
            if name in changes:
                changes[name] = {tuple(key.split(" ")): value for key, value in changes[name].items()}
        known = {each.name for each in fields(Spec)}
        assert set(changes) <= known, set(changes) - known
        return Spec(**{**PLAIN, **changes, "cases": cases})

    def experiments(self, run: Run) -> None:
        for step in self.tried:
            ((name, given),) = step.items()
            given = _typed(given)
            arguments = given.pop("with", ())
            if name == "conditions":
                arguments = (arguments[0], [_result(each) for each in arguments[1]])
            if name in ("variables", "version"):
                arguments = ({tuple(key.split(" ")): value for key, value in arguments[0].items()}, *arguments[1:])
            make = STEPS[name] if name in STEPS else getattr(experiments, name)
            make(run, *arguments, **given)


def written_in_python(run: Run) -> None:
    """Make the kernel a Python file."""
    record = run.load()
    kernels = [replace(kernel, sources=["solution.py"]) for kernel in record.kernels]
    save_record(run.run_path(), replace(record, kernels=kernels))


STEPS = {"written_in_python": written_in_python}


def _typed(value: Any) -> Any:
    """As Python has it: environments by their names, tuples, and what a tag names."""
    if isinstance(value, dict):
        typed = {_typed(key): _typed(each) for key, each in value.items()}
        tag = next(iter(typed), "")
        return MODELS[tag](**typed[tag]) if tag in MODELS else typed
    if isinstance(value, list):
        return tuple(map(_typed, value))
    if isinstance(value, str):
        return value.replace("BASE", BASE).replace("NEXT", NEXT)
    return value


def _result(given: dict[str, Any]) -> ConditionResult:
    changes = given.pop("set", {})
    if given.pop("dead", False):
        made = experiments.dead(**given)
    else:
        made = experiments.result(given.pop("bits", ""), given.pop("right", 1.0), **given)
    changes = {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()}
    return replace(made, **changes)


def told(cause: Cause) -> str:
    """Such as "attention_scalar: race proven; with masked_by_inputs possible"."""
    about = "" if cause.about == "correctness" else f"{cause.about} "
    text = f"{cause.subject}: {about}{cause.cause} {cause.grade}"
    parts = ", ".join(f"{part.cause} {part.grade}" for part in cause.parts)
    return f"{text}; with {parts}" if parts else text


def rows() -> list[CauseRow]:
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for name, row in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            found.append(
                CauseRow(
                    topic=path.stem,
                    name=name,
                    run=row.get("run", {}),
                    does=row.get("does", {}),
                    tried=row.get("tried", []),
                    gives=row["gives"],
                    says=row.get("says", ""),
                )
            )
    return found
