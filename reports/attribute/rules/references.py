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
        case, causes.ENVIRONMENT_CONFOUNDER if case.one_torch else wanted, DECISIVE if same else STRONG,
        "another_operator_under" if swapped else "reference_moved_under", cells, evidence,
        ruled_out=[stays if same else None, excluded("the inputs", cells[0].inputs)],
        figures=[figures.crossing_figure(cells[0], names), figures.cells_figure("Against the truth", cells)],
        group=("under", case.environment, *names), under=tuple(names), references=listed(names),
        how="gives the same bits in both environments" if same else "is as right as before, against the float64 truth",
    )  # fmt: skip


def reference_moved_under(case: CaseFacts) -> Cause | None:
    return _under_kernel(case, causes.REFERENCE_MOVED)


def default_moved_under(case: CaseFacts) -> Cause | None:
    return _under_kernel(case, causes.DEFAULT_BACKEND_MOVED)


MOVED = {
    frozenset({model.REGRESSED}): "is wrong in {this} and was right in {base}",
    frozenset({model.FIXED}): "was wrong in {base} and is right in {this}",
    frozenset({model.LESS_EXACT}): "is right in both environments, and less exact in {this}",
    frozenset({model.MORE_EXACT}): "is right in both environments, and more exact in {this}",
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
        case, causes.ENVIRONMENT_CONFOUNDER if case.one_torch else cause, DECISIVE, "reference_moved", cells, evidence,
        ruled_out=[
            RuledOut(rival="the kernel", how="a reference's outputs do not depend on it"),
            excluded("the inputs", cells[0].inputs),
            excluded("the truth and the tolerance", cells[0].yardstick),
        ],
        figures=[figures.recipes_figure(cells[0]), figures.crossing_figure(cells[0], [case.reference])],
        group=("reference", case.reference, how, dtypes), how=how.format(base=base, this=this), dtypes=dtypes,
    )  # fmt: skip


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
        case, causes.DEFAULT_BACKEND_MOVED, DECISIVE, "default_moved", cells,
        [
            Seen(
                text=f"{apart(case.versions, one, two)}: {listed((cell.workload for cell in group), 6)}",
                record=group[0].record,
            )
            for (one, two), group in by_backends.items()
        ],
        ruled_out=[excluded("the inputs", cells[0].inputs)],
        figures=[figures.operators_figure(cells)],
        group=("default", str(right), *backends(cells[0].sides[1])), right=", and is still right" if right else "",
    )  # fmt: skip
