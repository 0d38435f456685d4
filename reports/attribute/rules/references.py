"""Rules for references that moved: under a kernel that did not, and by themselves."""

from __future__ import annotations

from harness.worker import protocol
from reports import model
from reports.attribute import causes, figures
from reports.attribute.causes import DECISIVE, STRONG, Cause, RuledOut
from reports.attribute.evidence import dtypes_of, excluded, listed, share
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts, Reference, backends, operators_moved
from reports.attribute.wording import make
from reports.compare.factors import DIFFERS, SAME, operators_seen
from reports.model import Seen
from reports.text import apart


def _same_bits(case: CaseFacts, cell: CellFacts) -> bool:
    """Of what gives other bits from call to call, equal bits in two environments are luck."""
    return cell.bits.state == SAME and not case.unsteady


def _kernel_stays(case: CaseFacts, cell: CellFacts) -> bool:
    against_truth = getattr(cell.sides[1].rate, "against", "") == protocol.TRUTH
    return _same_bits(case, cell) or (cell.verdict == model.PASS and against_truth)


def _counts(cell: CellFacts, reference: Reference) -> bool:
    """Whether this reference's movement changes what can be said of the kernel: more than drift within rounding."""
    decided = reference.name == getattr(cell.sides[1].rate, "against", "")
    judged_otherwise = (reference.base.status == protocol.OK) != (reference.this.status == protocol.OK)
    return judged_otherwise or decided or cell.verdict not in model.RIGHT


def _under_kernel(case: CaseFacts, wanted: str) -> Cause | None:
    """Agreement with a reference moved, and it was the reference that moved."""
    swapped = wanted == causes.DEFAULT_BACKEND_MOVED
    found = [
        (cell, reference)
        for cell in case.cells
        if cell.inputs.state == SAME and _kernel_stays(case, cell)
        for reference in cell.references
        if reference.bits.state == DIFFERS and _counts(cell, reference) and reference.operators_moved == swapped
    ]
    if not case.is_kernel or case.alone or not found:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    names = list(dict.fromkeys(reference.name for _, reference in found))
    evidence = []
    for cell, each in found[:4]:
        one, two = map(share, each.agreed)
        text = f"{case.kernel} agrees with {each.name} in {apart(case.versions, f'{one} trials', f'in {two}')}"
        operators = operators_seen(each.base, each.this, case.versions)
        evidence += [cell.seen(text), cell.bits.seen, each.bits.seen, operators]
    same = all(_same_bits(case, cell) for cell in cells)
    stays = RuledOut(rival="the kernel's code and build", how=cells[0].bits.seen.text, record=cells[0].record)
    return make(
        case,
        causes.ENVIRONMENT_CONFOUNDER if case.one_torch else wanted,
        DECISIVE if same else STRONG,
        "another_operator_under" if swapped else "reference_moved_under",
        cells,
        evidence,
        ruled_out=[stays if same else None, excluded("the inputs", cells[0].inputs)],
        figures=[figures.crossing_figure(cells[0], names), figures.cells_figure("Against the truth", cells)],
        group=("under", case.environment, *names),
        under=tuple(names),
        references=listed(names),
        fix=causes.FIXES[wanted],
        agreed=_agreed(case, found),
        how="gives the same bits in both environments" if same else "is as right as before, against the float64 truth",
    )


MOST_TOLD = 4  # references, or workloads, whose agreement is told one by one


def _agreed(case: CaseFacts, found: list[tuple[CellFacts, Reference]]) -> str:
    """Between what, and in which direction: over all workloads, or one by one where it rose on some and fell on
    others."""
    told = []
    names = list(dict.fromkeys(reference.name for _, reference in found))
    for name in names:
        known = [(c.workload, *r.agreed) for c, r in found if r.name == name and None not in r.agreed]
        counts = [(w, (one.passed, one.trials), (two.passed, two.trials)) for w, one, two in known if one and two]
        fell = {one[0] * two[1] > two[0] * one[1] for _, one, two in counts if one != two}
        sums = [tuple(map(sum, zip(*(each[side] for each in counts), strict=True))) for side in (1, 2) if counts]
        which = f"{name}: " if len(names) > 1 else ""
        if len(fell) > 1:
            told += [f"{which}{_agreement(case, one, two)} on {w}" for w, one, two in counts if one != two]
        elif sums:
            told.append(which + _agreement(case, sums[0], sums[1]))
    more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return f": {'; '.join(told[:MOST_TOLD])}{more}" if told else ""


def _agreement(case: CaseFacts, one: tuple[int, ...], two: tuple[int, ...]) -> str:
    """6 of 8 trials agreed with it in 2.1.0, all 8 do in 2.5.0."""
    first, second = (f"all {of}" if passed == of else f"{passed or 'none'} of {of}" for passed, of in (one, two))
    if one == two:
        return f"{first} trials agree with it in both"
    return f"{first} trials agreed with it {apart(case.versions, '', f'{second} do').strip()}"


def reference_moved_under(case: CaseFacts) -> Cause | None:
    return _under_kernel(case, causes.REFERENCE_MOVED)


def default_moved_under(case: CaseFacts) -> Cause | None:
    return _under_kernel(case, causes.DEFAULT_BACKEND_MOVED)


MOVED = {
    frozenset({model.REGRESSED}): "is wrong in {this} and was right in {base}",
    frozenset({model.FIXED}): "was wrong in {base} and is right in {this}",
    frozenset({model.LESS_EXACT}): "is right in both environments, and less exact in {this}",
    frozenset({model.MORE_EXACT}): "is right in both environments, and more exact in {this}",
    frozenset({model.OTHER_TYPE}): "is right in both environments, and gives another type in {this}",
    frozenset({model.REGRESSED, model.LESS_EXACT}): "is wrong in {this} where it was right, or less exact",
    frozenset({model.FIXED, model.MORE_EXACT}): "is right in {this} where it was wrong in {base}, or more exact",
}


MIXED = "is better in {this} on some workloads, and worse on others"


def reference_moved(case: CaseFacts) -> Cause | None:
    """A reference's own verdict against the truth moved: no kernel takes part in that."""
    cells = [cell for cell in case.moved if cell.inputs.state == SAME and cell.bits.state == DIFFERS]
    if case.is_kernel or not cells:
        return None
    swapped = any(operators_moved(*cell.sides) for cell in cells)
    cause = causes.DEFAULT_BACKEND_MOVED if swapped else causes.REFERENCE_MOVED
    cause = causes.OPERATOR_MOVED if case.is_operator else cause
    base, this = case.versions
    how = MOVED.get(frozenset(cell.verdict for cell in cells), MIXED)
    dtypes = dtypes_of(case, cells)
    evidence = []
    for cell in cells[:3]:
        evidence.append(cell.why)
        one, two = cell.units
        if one is not None and two is not None:
            errors = apart(case.versions, f"{one:.3g} rounding units", f"{two:.3g}")
            evidence.append(cell.seen(f"largest error {errors}"))
        evidence += [cell.bits.seen, operators_seen(*cell.sides, case.versions)]
    return make(
        case,
        causes.ENVIRONMENT_CONFOUNDER if case.one_torch else cause,
        DECISIVE,
        "reference_moved",
        cells,
        evidence,
        ruled_out=[
            None if case.is_operator else RuledOut(rival="the kernel", how="a reference's outputs do not depend on it"),
            excluded("the inputs", cells[0].inputs),
            excluded("the truth and the tolerance", cells[0].yardstick),
        ],
        figures=[figures.recipes_figure(cells[0]), figures.crossing_figure(cells[0], [cells[0].target])],
        group=("reference", case.reference, how, dtypes),
        how=how.format(base=base, this=this),
        dtypes=dtypes,
        by=", by its definition, truth()" if cells[0].is_defined else "",
    )


def default_moved(case: CaseFacts) -> Cause | None:
    """PyTorch picks another operator for the same call; its outputs stay right."""
    cells = [cell for cell in case.cells if operators_moved(*cell.sides) and not cell.verdict_moved]
    if case.is_kernel or case.reference != "default" or case.one_torch or not cells:
        return None
    right = all(cell.verdict in model.RIGHT for cell in cells)
    by_backends: dict[tuple[str, str], list[CellFacts]] = {}
    for cell in cells:
        one, two = (", ".join(backends(side)) for side in cell.sides)
        by_backends.setdefault((one, two), []).append(cell)
    return make(
        case,
        causes.DEFAULT_BACKEND_MOVED,
        DECISIVE,
        "default_moved",
        cells,
        [
            Seen(
                text=f"{apart(case.versions, one, two)}: {listed((cell.workload for cell in group), 6)}",
                record=group[0].record,
            )
            for (one, two), group in by_backends.items()
        ],
        ruled_out=[excluded("the inputs", cells[0].inputs)],
        figures=[figures.operators_figure(cells)],
        group=("default", str(right), *backends(cells[0].sides[1])),
        right=", and is still right" if right else "",
    )
