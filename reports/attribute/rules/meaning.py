"""Rules for what two versions of PyTorch compute differently by intent: other formulas, other draws."""

from __future__ import annotations

from reports import model
from reports.attribute import causes, figures
from reports.attribute.causes import DECISIVE, Cause
from reports.attribute.evidence import excluded
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.wording import make
from reports.compare.meaning import evidence_text, meaning_text
from reports.model import Comparison

DEFINE = (
    "write down what it should compute, as `def truth(...)` with the inputs of `forward` in the problem file, then run "
    "again: both versions are then judged by it"
)
DEFINE_OPERATOR = (
    "write the call as a problem file (kernel-matrix new), with what it should compute as `def truth(...)`, then run "
    "again: both versions are then judged by it"
)
PASS_DRAWS = "draw the numbers in get_inputs() and pass them to forward(), so that both versions get the same"


def concerns(row: Comparison) -> bool:
    """Return whether a row is about what versions compute, and not about how well."""
    return row.correctness.meaning is not None or row.correctness.verdict == model.OTHER_DRAWS


def meaning_changed(case: CaseFacts) -> Cause:
    """Explain rows of one case that all `concern` another meaning, by the first of them."""
    cell = case.cells[0]
    meaning, (base, this) = cell.row.correctness.meaning, case.versions
    seen = [each.why for each in case.cells[:3]]
    drawn = [figures.recipes_figure(cell), figures.crossing_figure(cell, [cell.target])]
    if meaning is None:
        return make(
            case,
            causes.MEANING_CHANGED,
            DECISIVE,
            "draws_changed",
            case.cells,
            [*seen, cell.bits.seen],
            ruled_out=[excluded("the inputs", cell.inputs)],
            figures=drawn,
            fix=PASS_DRAWS,
        )
    names = dict(zip(case.environments, case.versions, strict=True))
    values = meaning_text(meaning, base, this)
    shown = evidence_text(meaning.by, names[meaning.right]) if meaning.by else ""
    fix = DEFINE
    if case.is_operator and not _has_file(case):
        fix = DEFINE_OPERATOR
    if meaning.by:
        fix = ""
    return make(
        case,
        causes.MEANING_CHANGED,
        DECISIVE,
        "meaning_decided" if meaning.by else "meaning_changed",
        case.cells,
        seen,
        ruled_out=[excluded("the inputs", cell.inputs)],
        figures=drawn,
        values=values[0].upper() + values[1:],
        shown=shown,
        fix=fix,
    )


def _has_file(case: CaseFacts) -> bool:
    info = case.evidence.workload(case.cells[0].workload)
    return info is not None and info.problem is not None and info.operator is None
