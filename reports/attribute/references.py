"""Rules for references that moved: under a kernel that did not, and by themselves. Pure."""

from __future__ import annotations

from harness.worker import protocol
from reports import model
from reports.attribute import figures
from reports.attribute.cases import Case
from reports.attribute.cells import Cell, Reference, backends, operators_moved
from reports.attribute.making import dtypes_of, listed, make, ruled, share
from reports.attribute.model import (
    DECISIVE,
    DEFAULT_BACKEND_MOVED,
    ENVIRONMENT_CONFOUNDER,
    REFERENCE_MOVED,
    STRONG,
    Cause,
    Entry,
    Figure,
    Ruled,
)
from reports.compare.factors import DIFFERS, SAME, operators_seen
from reports.model import Seen


def _counts(cell: Cell, reference: Reference) -> bool:
    """Whether this reference's movement changes what can be said of the kernel: more than drift within rounding."""
    decided = reference.name == getattr(cell.sides[1].rate, "against", "")
    return reference.judged_otherwise or decided or cell.verdict not in model.RIGHT


def _kernel_stays(case: Case, cell: Cell) -> bool:
    return _same_bits(case, cell) or (cell.verdict == model.PASS and _against_truth(cell))


def _same_bits(case: Case, cell: Cell) -> bool:
    """Of what gives other bits from call to call, equal bits in two environments are luck."""
    return cell.bits.state == SAME and not case.unsteady


def _against_truth(cell: Cell) -> bool:
    return getattr(cell.sides[1].rate, "against", "") == protocol.TRUTH


def _under_kernel(case: Case, wanted: str) -> Cause | None:
    """Agreement with a reference moved, and it was the reference that moved."""
    if not case.is_kernel or case.alone:
        return None
    found = [
        (cell, reference)
        for cell in case.cells
        if cell.inputs.state == SAME and _kernel_stays(case, cell)
        for reference in cell.references
        if reference.bits.state == DIFFERS
        and _counts(cell, reference)
        and reference.operators_moved == (wanted == DEFAULT_BACKEND_MOVED)
    ]
    if not found:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    names = list(dict.fromkeys(reference.name for _, reference in found))
    evidence = []
    for cell, reference in found[:4]:
        one, two = reference.agreed
        told = (
            f"{cell.workload}: {case.kernel} agrees with {reference.name} in {share(one)} trials in the baseline, "
            f"{share(two)} here"
        )
        evidence.append(Seen(text=told, record=cell.record))
        evidence += [cell.bits.seen, reference.bits.seen, operators_seen(reference.base, reference.this)]
    same = all(_same_bits(case, cell) for cell in cells)
    said = "gives the same bits in both environments" if same else "is as right as before, against the float64 truth"
    moved = (
        f"under the name {listed(names)} PyTorch runs another operator here"
        if wanted == DEFAULT_BACKEND_MOVED
        else f"PyTorch's own {listed(names)} does not"
    )
    return make(
        case,
        wanted if not case.one_torch else ENVIRONMENT_CONFOUNDER,
        DECISIVE if same else STRONG,
        f"{case.kernel} {said}; {moved}, so their agreement moved without the kernel.",
        cells,
        evidence,
        ruled=[
            Ruled(rival="the kernel, its code and its build", how=cells[0].bits.seen.text, record=cells[0].record)
            if same
            else None,
            ruled("the inputs", cells[0].inputs),
        ],
        figures=[figures.crossing_figure(cells[0], names), figures.cells_figure("Against the truth", cells)],
        gist=("under", case.environment, *names),
        under=tuple(names),
    )


def reference_moved_under(case: Case) -> Cause | None:
    return _under_kernel(case, REFERENCE_MOVED)


def default_moved_under(case: Case) -> Cause | None:
    return _under_kernel(case, DEFAULT_BACKEND_MOVED)


WAS = {
    frozenset({model.REGRESSED}): "is wrong here, and was right in the baseline",
    frozenset({model.FIXED}): "was wrong in the baseline, and is right here",
    frozenset({model.LESS_EXACT}): "is right in both environments, and less exact here",
    frozenset({model.MORE_EXACT}): "is right in both environments, and more exact here",
    frozenset({model.REGRESSED, model.LESS_EXACT}): "is wrong here where it was right, or less exact",
    frozenset({model.FIXED, model.MORE_EXACT}): "is right here where it was wrong in the baseline, or more exact",
}


def reference_moved(case: Case) -> Cause | None:
    """A reference's own verdict against the truth moved: no kernel takes part in that."""
    if case.is_kernel:
        return None
    cells = [cell for cell in case.moved if cell.inputs.state == SAME and cell.bits.state == DIFFERS]
    if not cells:
        return None
    swapped = [cell for cell in cells if operators_moved(*cell.sides)]
    cause = DEFAULT_BACKEND_MOVED if swapped else REFERENCE_MOVED
    if case.one_torch:
        cause = ENVIRONMENT_CONFOUNDER
    was = WAS.get(frozenset(cell.verdict for cell in cells), "is better here on some workloads, and worse on others")
    dtypes = dtypes_of(case, cells)
    evidence = []
    for cell in cells[:3]:
        evidence.append(Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record))
        one, two = cell.units
        if one is not None and two is not None:
            text = f"{cell.workload}: largest error {one:.3g} units in the baseline, {two:.3g} here"
            evidence.append(Seen(text=text, record=cell.record))
        evidence += [cell.bits.seen, operators_seen(*cell.sides)]
    return make(
        case,
        cause,
        DECISIVE,
        f"{case.subject} {was}: {dtypes}, on the same input bytes.",
        cells,
        evidence,
        ruled=[
            Ruled(rival="the kernel under test", how="it takes no part in a reference's outputs"),
            ruled("the inputs", cells[0].inputs),
            ruled("the truth and the tolerance", cells[0].yardstick),
        ],
        figures=[figures.recipes_figure(cells[0]), figures.crossing_figure(cells[0], [case.reference])],
        gist=("reference", case.reference, was, dtypes),
    )


def default_moved(case: Case) -> Cause | None:
    """PyTorch picks another operator for the same call; its outputs stay right."""
    if case.is_kernel or case.reference != "default" or case.one_torch:
        return None
    cells = [cell for cell in case.cells if operators_moved(*cell.sides) and not cell.verdict_moved]
    if not cells:
        return None
    right = all(cell.verdict in model.RIGHT for cell in cells)
    return make(
        case,
        DEFAULT_BACKEND_MOVED,
        DECISIVE,
        "PyTorch's own choice for attention changed: it runs another operator here"
        f"{', and stays right' if right else ''}. What agreed with the old one bit for bit, or ran after it, meets "
        "another.",
        cells,
        _backends_seen(cells),
        ruled=[ruled("the inputs", cells[0].inputs)],
        figures=[_operators_figure(cells)],
        gist=("default", str(right), *backends(cells[0].sides[1])),
    )


def _backends_seen(cells: list[Cell]) -> list[Seen]:
    """One line for each pair of backends, with the workloads that it holds for."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        one, two = (", ".join(backends(side)) for side in cell.sides)
        found.setdefault((one, two), []).append(cell)
    return [
        Seen(
            text=f"{one} in the baseline, {two} here: {listed((cell.workload for cell in group), 6)}",
            record=group[0].record,
        )
        for (one, two), group in found.items()
    ]


def _operators_figure(cells: list[Cell]) -> Figure:
    return Figure(
        title="What ran under the name default",
        columns=("baseline", "here"),
        rows=tuple(
            (cell.workload, tuple(Entry(text=", ".join(backends(side)) or "not recorded") for side in cell.sides))
            for cell in cells[:6]
        ),
        record=cells[0].record,
    )
