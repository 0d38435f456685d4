"""Rules for what a kernel works on: another stream than its own, or the current GPU whichever has its tensors. Pure."""

from __future__ import annotations

from dataclasses import replace

from harness.schema.experiment_records import ConditionResult
from harness.schema.records import ENDED_BADLY
from reports.attribute import figures
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import excluded, make, steady_rivals
from reports.attribute.model import DECISIVE, MASKED_BY_INPUTS, STRONG, WRONG_STREAM, Cause, Ruled
from reports.attribute.observed import Conditions
from reports.model import Seen

FIX = "launch on the stream that it is given, in C++ at::cuda::getCurrentCUDAStream()"


def wrong_stream(case: Case) -> Cause | None:
    """Right wherever nobody else works on the device, so that every trial may pass. A replay of its captured calls
    holds none of them, for they ran at once; or, on a side stream that first waits and then puts the inputs where zeros
    were, it saw the zeros, and on the current one it is right."""
    escaped = [(cell, name) for cell in case.cells for name in _places(cell)]
    aside = [(cell, each) for cell in case.cells for each in cell.masks if not case.unsteady and _astray(each)]
    if not case.is_kernel or not (escaped or aside):
        return None
    cells = list(dict.fromkeys(cell for cell, _ in (*escaped, *aside)))
    launches = [_launches_seen(case, cell, name) for cell, name in escaped[:4]]
    proven = bool(aside) or any(sure for _, sure in launches)
    return make(
        case,
        WRONG_STREAM,
        DECISIVE if proven else STRONG,
        f"{case.kernel} works on another stream than the one it is given: whoever works on that one before or behind "
        f"it is not waited for. To mend it, {FIX}.",
        cells,
        [
            *(seen for seen, _ in launches),
            *(
                Seen(
                    text=f"{cell.workload} in {each.record.environment}: right on the current stream; on another one "
                    "it reads its inputs before that stream has put them there",
                    record=each.path,
                )
                for cell, each in aside[:4]
            ),
        ],
        ruled=[
            Ruled(rival="the algorithm", how="every trial passes where nothing else is on the device")
            if not case.failing
            else None,
            excluded("chance", case.steady[0] if case.steady and not case.failing else None),
        ],
        command=case.explain(cells),
        figures=[
            figures.conditions_figure(f"{cell.workload}: which stream it is called on", each.ran, each.path)
            for cell, each in aside[:1]
        ],
        gist=("stream", case.kernel),
    )


def _places(cell: Cell) -> list[str]:
    names = (cell.row.baseline, cell.row.environment)
    return list(dict.fromkeys(name for name, off in zip(names, cell.off_stream, strict=True) if off))


def _launches_seen(case: Case, cell: Cell, environment: str) -> tuple[Seen, bool]:
    """What launches say of it, and whether they saw that it ran at once."""
    timings = case.evidence.escaping(environment, cell.kernel, cell.workload, case.device)
    sure = [timing for timing in timings if timing.escaped]
    record = case.evidence.launches_pointer(environment, cell.kernel, case.device)
    said = (sure or timings)[0].hot_message
    return Seen(text=f"{cell.workload} in {environment}: {said}", record=record), bool(sure)


def _astray(conditions: Conditions) -> bool:
    """Right in every run as validated, and wrong in every run on a side stream: what fails now and then is a race."""
    plain = conditions.as_laid_out
    failed = {each.condition.recipe for each in plain if each.passed < each.runs}
    passed = {each.condition.recipe for each in plain if each.runs} - failed
    beside = [each for each in conditions.ran if each.condition.stream == "side" and each.condition.recipe in passed]
    return any(each.runs and not each.passed for each in beside)


def on_the_current_gpu_alone(case: Case) -> Cause | None:
    """Right where the current GPU holds the tensors, wrong or ended where another one does: it works on the current one
    whichever that is, or keeps something that belongs to the GPU of its first call. Validation has one GPU: this is
    not why anything moved there."""
    found = [
        (cell, conditions, second)
        for cell in case.cells
        for conditions in cell.places
        if (second := _fails_on_the_second(conditions)) is not None
    ]
    if not case.is_kernel or not found or case.unsteady:
        return None
    cells = list(dict.fromkeys(cell for cell, _, _ in found))
    _, conditions, second = found[0]
    shown = [*_plain(conditions, second), second]
    cause = make(
        case,
        MASKED_BY_INPUTS,
        STRONG,
        f"{case.kernel} is right on the GPU that is current, and not where its tensors are on another one: tests on "
        "one GPU hide that.",
        cells,
        [
            Seen(
                text=f"{cell.workload} in {told.record.environment}: with tensors on a second GPU "
                + (each.message or each.status.replace("_", " ")),
                record=told.path,
            )
            for cell, told, each in found[:4]
        ],
        ruled=[
            Ruled(rival="the numbers", how="the same ones pass on the current GPU", record=conditions.path),
            *steady_rivals(case),
        ],
        command=case.explain(cells),
        figures=[
            figures.conditions_figure(f"{cells[0].workload}: which GPU holds the tensors", shown, conditions.path)
        ],
    )
    return replace(cause, aside=True)


def _plain(conditions: Conditions, second: ConditionResult) -> list[ConditionResult]:
    """On the current GPU, and otherwise the same."""
    return [each for each in conditions.as_laid_out if each.condition.recipe == second.condition.recipe]


def _fails_on_the_second(conditions: Conditions) -> ConditionResult | None:
    for each in conditions.record.results:
        if each.condition.gpu == "second" and (each.status in ENDED_BADLY or each.passed < each.runs):
            plain = _plain(conditions, each)
            return each if plain and all(p.runs and p.passed == p.runs for p in plain) else None
    return None
