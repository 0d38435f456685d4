"""The rule for what compiles at run time: its compiler generated other code, and its result moved."""

from __future__ import annotations

from reports.attribute import causes, figures
from reports.attribute.causes import STRONG, SUGGESTIVE, Cause, RuledOut
from reports.attribute.evidence import became, excluded
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.wording import make
from reports.compare.factors import DIFFERS, SAME
from reports.model import Seen

NOT_TRIED = Seen(text="not excluded: what runs around the generated code")


def compiled_code_moved(case: CaseFacts) -> Cause | None:
    """Other generated code and another result are two things that moved together. The same call without torch.compile,
    unmoved in both environments, tells the compiler from the operator."""
    cells = [
        cell
        for cell in case.moved
        if cell.compiled is not None
        and cell.compiled.state == DIFFERS
        and cell.inputs.state == SAME
        and cell.bits.state == DIFFERS
    ]
    plain = [cell.plain for cell in cells if cell.plain is not None]
    if case.alone or case.one_torch or not cells or any(each.moved for each in plain):
        return None
    cell = cells[0]
    made = cell.compiled
    assert made is not None
    stays = [each.seen for each in plain if each.seen is not None]
    unmoved = stays[0] if len(stays) == len(cells) else None
    grade = STRONG if unmoved is not None else SUGGESTIVE
    return make(
        case,
        causes.COMPILED_CODE_MOVED,
        grade if not case.unsteady else SUGGESTIVE,
        "compiled_code_moved",
        cells,
        [
            *(each.why for each in cells[:3]),
            cell.seen(made.generated_text, made.record),
            NOT_TRIED,
            *([unmoved] if unmoved else []),
        ],
        ruled_out=[
            excluded("the inputs", cell.inputs),
            RuledOut(rival="the plain operator", how=unmoved.text, record=unmoved.record) if unmoved else None,
        ],
        figures=[figures.recipes_figure(cell)],
        what=became(cell),
    )
