"""Whether two versions compute different things, and what shows which of them is right. Pure.

Each environment computes the float64 result of a problem with its own PyTorch. Where two of them differ by more than
their rounding, neither is a measure for the other. A definition that the user wrote (`truth` in the problem file) is
one, and is used in their place. So is the formula of attention, written out. Of gradients finite differences are: a
slope needs no backward pass. Nothing else is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.schema.records import RecipeResult, TruthDifference, ValidationRecord
from harness.schema.run_records import Cell
from harness.worker import protocol
from reports.load.evidence import Evidence
from reports.model import Bits, MeaningChange, MeaningEvidence
from reports.sentences import sentence

DRAWN_SHARE = 0.01  # of the largest magnitude: outputs of other draws differ by more, those of other rounding by less


def meaning_change(evidence: Evidence, base: Cell, this: Cell) -> MeaningChange | None:
    """Return how the float64 results of two environments differ; None where they do not, or one is not known."""
    place = this.kernel, this.device, this.workload
    record = evidence.crossings.get(place)
    facing = (_facing(each, base.environment, this.environment) for each in (record.truths if record else []))
    found = [each for each in facing if each is not None]
    if not found:
        return None
    changed = tuple(dict.fromkeys(each.output for each in found))
    right, decisive, by = _supported(evidence, (base, this), changed)
    first = next((each for each in found if each.output == decisive), found[0])
    return MeaningChange(
        outputs=changed,
        output=first.output,
        recipe=first.recipe,
        trial=first.trial,
        kind=first.kind,
        elements=first.elements,
        of=first.of,
        index=tuple(first.index),
        before=first.left_value,
        here=first.right_value,
        right=right,
        by=by,
        record=evidence.crossing_pointer(*place),
    )


def _facing(each: TruthDifference, base: str, this: str) -> TruthDifference | None:
    """Return the difference with the baseline's value first; None where it is of other environments."""
    if (each.left, each.right) == (base, this):
        return each
    if (each.left, each.right) != (this, base):
        return None
    return replace(each, left=base, right=this, left_value=each.right_value, right_value=each.left_value)


def _supported(
    evidence: Evidence, cells: Sequence[Cell], changed: Sequence[str]
) -> tuple[str, str, MeaningEvidence | None]:
    """Return the one environment whose results an independent computation gives, and not the other's, with the output
    that shows it and what it was compared with. Empty where nothing shows it, or outputs contradict."""
    validations = [evidence.validations.get(cell.id) for cell in cells]
    kinds = [MeaningEvidence.FORMULA]
    if all(name.startswith(protocol.GRADIENT) for name in changed):
        kinds.append(MeaningEvidence.FINITE_DIFFERENCES)
    for kind in kinds:
        found: dict[str, str] = {}
        for name in changed:
            agrees = [_agrees(validation, name, kind) for validation in validations]
            if True in agrees and False in agrees:
                found.setdefault(cells[agrees.index(True)].environment, name)
        if len(found) == 1:
            return *next(iter(found.items())), kind
    return "", "", None


def _agrees(validation: ValidationRecord | None, name: str, kind: MeaningEvidence) -> bool | None:
    """Return whether an output agrees with an independent computation on every recipe; None where none was made."""
    by_recipe = [
        recipe.formulas if kind is MeaningEvidence.FORMULA else recipe.gradients for recipe in _recipes(validation)
    ]
    checked = [agrees[name] for agrees in by_recipe if name in agrees]
    return all(checked) if checked else None


def _recipes(validation: ValidationRecord | None) -> Sequence[RecipeResult]:
    return validation.recipes if validation is not None else []


def draws_otherwise(evidence: Evidence, cells: Sequence[Cell], target: str, bits: Bits) -> bool:
    """Return whether a problem's model draws random numbers in its call, and gives other numbers from the same seed: by
    more than rounding, where each version repeats its own bits."""
    drawing = [any(each.draws_numbers for each in _recipes(evidence.validations.get(cell.id))) for cell in cells]
    if not all(drawing) or bits.unsteady or bits.identical == bits.compared:
        return False
    record = evidence.crossings.get((cells[1].kernel, cells[1].device, cells[1].workload))
    wanted = {f"{cell.environment}:{target}" for cell in cells}
    pairs = [pair for pair in (record.pairs if record else []) if {pair.left, pair.right} == wanted]
    return any(pair.max_abs is not None and pair.max_abs > DRAWN_SHARE * (pair.largest or 0.0) for pair in pairs)


def evidence_text(by: MeaningEvidence, right: str) -> str:
    """Return a clause on what shows that one version is right; `right` names it."""
    return sentence("correctness", "shows", by, right)


def meaning_text(found: MeaningChange, before: str, here: str) -> str:
    """Return what two versions compute, with both float64 values. `before` and `here` name the versions."""
    return sentence("correctness", "values", found, before, here)
