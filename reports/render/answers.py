"""The first screen, as plain data: of each kernel what happened, why, what to do, and what is not known. Pure.

The page, summary.md, summary.json and the end of a command's output hold this text; they only lay it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reports.attribute.causes import BRIEF_GRADES, Cause, Kind
from reports.compare.differences import Confounder
from reports.compare.outcomes import Version
from reports.compare.rows import KERNEL, OPERATOR, SUBJECTS, has_moved
from reports.compare.two_runs import changed_sources
from reports.load.evidence import Evidence
from reports.model import Comparison
from reports.render import advice, of_operators
from reports.render.explanations import Explanation
from reports.render.grid import GridCell
from reports.render.verdict_text import (
    ABSENT,
    BAD,
    ORDER,
    STATES,
    Told,
    outcome,
    sides,
)
from reports.text import count_of, short, tally_text

MOST = 20  # answers that are written out in a summary; a run of hundreds of problems has more
MOST_NAMES = 6
BUILT_OTHERWISE = "; its build differs too, so the upgrade may not be why"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Of one kernel or reference on one device, or of several of which the same is said.

    `open`: what could not be told, and what did not run; `cards`: the numbers of the explanations; `grid`: by subject,
    one cell for each version.
    """

    kind: str
    subjects: tuple[str, ...]
    device: str
    state: str
    what: str
    also: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    run: str = ""
    open: tuple[str, ...] = ()
    cards: tuple[int, ...] = ()
    grid: dict[str, list[GridCell]] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        left = len(self.subjects) - MOST_NAMES
        return ", ".join(self.subjects[:MOST_NAMES]) + (f" and {left} more" if left > 0 else "")

    @property
    def line(self) -> str:
        return f"{self.name} ({self.device}): {self.what}"

    @property
    def colour(self) -> str:
        return STATES[self.state]

    @property
    def rest(self) -> list[tuple[str, tuple[str, ...]]]:
        """What follows the line, by its label."""
        run = (self.run,) if self.run else ()
        parts = {"Why": self.why, "Do": self.do, "Run": run, "Also": self.also, "Open": self.open}
        return [(label, texts) for label, texts in parts.items() if texts]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """`kernels` and `references` are worst first; of references only those that changed or are wrong."""

    title: str
    kernels: list[Answer]
    references: list[Answer]
    of_references: str
    deviations: str
    notes: list[str]
    versions: list[Version]

    @property
    def grades(self) -> dict[str, str]:
        """Of the grades that are named, what they mean."""
        said = [text for each in self.kernels for text in each.why]
        return {grade: text for grade, text in BRIEF_GRADES.items() if any(f"({grade})" in why for why in said)}

    @property
    def lines(self) -> list[str]:
        """All of it, as a terminal shows it."""
        several = sum(len(each.subjects) for each in self.kernels) > 1
        found = [self.title] if several else []
        for each in self.kernels[:MOST]:
            found.append(each.line)
            for label, texts in each.rest:
                found += [f"  {label + ':':<6}{text}" for text in texts]
        if left := self.kernels[MOST:]:
            found.append(f"and {len(left)} more lines: see the page")
        found += [self.of_references] if self.of_references else []
        found += [f"  {each.line}" for each in self.references[:MOST]]
        found += [*([self.deviations] if self.deviations else []), *self.notes]
        return [line.replace("\n", " ") for line in found]


def answers(
    evidence: Evidence,
    versions: Sequence[Version],
    rows: Sequence[Comparison],
    explained: Sequence[Explanation],
    confounded: Sequence[Confounder],
) -> Answers:
    controls = [row for row in rows if row.control]
    judged = [row for row in rows if not row.control] or list(rows)
    shown = {each.environment for row in judged for each in (row.correctness.baseline, row.correctness.this)}
    names = {each.id: evidence.names[each.id].removeprefix("PyTorch ") for each in versions if each.id in shown}
    subjects: dict[tuple[str, str, str], list[Comparison]] = {}
    for row in judged:
        subjects.setdefault((row.kind, row.target, row.device), []).append(row)
    cards: dict[tuple[bool, str, str], list[tuple[Explanation, Cause]]] = {}
    for explanation in explained:
        for cause in explanation.causes:
            cards.setdefault((bool(cause.kernel), cause.subject, cause.device), []).append((explanation, cause))
    every = [
        _answer(evidence, own, names, cards.get((kind == KERNEL, target, device), []))
        for (kind, target, device), own in subjects.items()
    ]
    kernels = _with_left_out(evidence, [each for each in every if each.kind in SUBJECTS], len(names))
    references = [each for each in every if each.kind not in SUBJECTS]
    changed = [each for each in references if each.state not in advice.NO_WORSE or each.cards]
    found = sorted(kernels, key=lambda each: (ORDER.index(each.state), not each.rest))  # what has more to it is first
    return Answers(
        title=_title(found, list(names.values())),
        kernels=_together(found),
        references=sorted(changed, key=lambda each: ORDER.index(each.state)),
        of_references=_of_references(references, any(each.kind == OPERATOR for each in kernels)),
        deviations=_deviations(confounded),
        notes=[*of_operators.changes(judged, names), *_notes(evidence, controls)],
        versions=[each for each in versions if each.id in names],
    )


def _notes(evidence: Evidence, controls: Sequence[Comparison]) -> list[str]:
    run, notes = evidence.run, []
    if controls:
        moved = sum(map(has_moved, controls))
        notes.append(f"A/A control: {moved} of {len(controls)} comparisons changed")
    if run.kernelbench and run.kernelbench.missing:
        notes.append(f"{count_of(len(run.kernelbench.missing), 'problem')} without a solution, so not run")
    for_cpu = any("cpu" in kernel.devices for kernel in run.kernels)
    if for_cpu and all(cell.device != "cpu" for cell in run.cells):
        notes.append("nothing was run on the CPU, though there are kernels for it")
    return notes


def _of_references(every: Sequence[Answer], operators: bool) -> str:
    if not every:
        return "" if operators else "PyTorch itself: no reference was compared"
    states = [each.state for each in every]
    told = tally_text({state: count for state in ORDER if (count := states.count(state))})
    return f"PyTorch itself, {count_of(len(every), 'reference')}: {told}"


def _deviations(confounded: Sequence[Confounder]) -> str:
    """In one line: how many, and the first."""
    if not confounded:
        return ""
    first = "; ".join(short(each.statement, 120) for each in confounded[:2])
    more = f"; and {len(confounded) - 2} more" if len(confounded) > 2 else ""
    what = "confounder or deviation" if len(confounded) == 1 else "confounders and deviations"
    return f"{len(confounded)} {what} from the request: {first}{more}"


def _title(kernels: Sequence[Answer], names: Sequence[str]) -> str:
    if len(kernels) == 1:
        return kernels[0].line
    prefix = "PyTorch " if names[0][:1].isdigit() else ""
    over = f"{prefix}{names[0]}" + (f" to {' and '.join(names[1:])}" if names[1:] else "")
    states = {state: count for state in ORDER if (count := sum(each.state == state for each in kernels))}
    distinct = len({each.subjects for each in kernels})
    where = " on CPU and GPU" if distinct < len(kernels) else ""
    kinds = {kind: len({each.subjects for each in kernels if each.kind == kind}) for kind in SUBJECTS}
    counted = " and ".join(count_of(count, kind) for kind, count in kinds.items() if count)
    return f"{over}, {counted}{where}: {tally_text(states)}"


def _together(found: Sequence[Answer]) -> list[Answer]:
    """One answer where the same is said of several."""
    made: dict[Answer, list[Answer]] = {}
    for each in found:
        made.setdefault(replace(each, subjects=()), []).append(each)
    return [
        replace(
            same[0],
            subjects=tuple(name for each in same for name in each.subjects),
            grid={name: cells for each in same for name, cells in each.grid.items()},
        )
        for same in made.values()
    ]


def _with_left_out(evidence: Evidence, found: Sequence[Answer], versions: int) -> list[Answer]:
    """With kernels that were planned on no device; and of others, the devices on which they were not."""
    planned = {(cell.kernel, cell.device) for cell in evidence.run.cells}
    answers = list(found)
    numbers: dict[str, int] = {}
    for number, each in enumerate(found):
        numbers.setdefault(each.subjects[0], number)
    for kernel in (each for each in evidence.run.kernels if not each.pytorch):
        own = numbers.get(kernel.name)
        for device in kernel.devices:
            # What ran on a GPU may have been left out on the CPU by choice.
            if (kernel.name, device) in planned or (own is not None and device == "cpu"):
                continue
            why, do = _why_left_out(evidence, device)
            failed, only_built = _builds(evidence, kernel.name, device)
            if own is not None:
                more = f"on {device}: not run, since {'; besides, '.join([why, *failed])}"
                answers[own] = replace(answers[own], open=(*answers[own].open, more))
            else:
                cells = [GridCell(outputs=ABSENT, verdict=STATES[ABSENT])] * versions
                answers.append(
                    Answer(
                        kind=KERNEL,
                        subjects=(kernel.name,),
                        device=device,
                        state=ABSENT,
                        what=f"not run in any version: {why}",
                        also=tuple(only_built),
                        do=(*(f"first mend this: {text}" for text in failed), do),
                        grid={kernel.name: cells},
                    )
                )
    return answers


def _why_left_out(evidence: Evidence, device: str) -> tuple[str, str]:
    """Why, and what to do."""
    chosen = evidence.run.selection.devices
    if chosen and device not in chosen:
        return f"the run was of {' and '.join(chosen)} alone", f"run it with --device {device}"
    if device == "cuda" and evidence.run.host.get("gpus", "none") == "none":
        return "this machine had no GPU that the run could use", "run the same command on a machine with a GPU"
    others = {cell.device for cell in evidence.run.cells}
    if device not in others:
        return f"the run was of {' and '.join(sorted(others))} alone", f"run it with --device {device}"
    return f"it has no workload for {device}", f"give a workload a dtype for {device} in matrix.yaml"


def _builds(evidence: Evidence, kernel: str, device: str) -> tuple[list[str], list[str]]:
    """Of what did not run: why it did not build, which comes first, or that it was at least compiled."""
    built = [each for (_, name, on), each in evidence.builds.items() if (name, on) == (kernel, device)]
    failed = [each for each in built if each.status != "ok"]
    if failed:
        verb = "load" if failed[0].refused else "build"
        why = short(failed[0].message, 200)
        return [f"it does not {verb} in {len(failed)} of {len(built)} versions: {why}"], []
    return [], [f"it was only compiled, in {count_of(len(built), 'version')}"] if built else []


def _answer(
    evidence: Evidence,
    rows: Sequence[Comparison],
    names: Mapping[str, str],
    cards: Sequence[tuple[Explanation, Cause]],
) -> Answer:
    row = rows[0]
    cards = [(each, cause) for each, cause in cards if cause.cause != Kind.NOTHING_MOVED]
    leads = [cause for _, cause in cards]
    same_build = not any(Kind.BUILD_MOVED in cause.causes for cause in leads)
    faults = advice.proven_faults(evidence, leads, rows) if row.kind == KERNEL else []
    told = Told(rows, names, same_build, faults)
    bad = [each for each in rows if any(outcome(side) in BAD for side in sides([each]).values())]
    answer = Answer(
        kind=row.kind,
        subjects=(row.target,),
        device=row.device,
        state=told.state,
        what=told.text + _built_otherwise(told),
        also=(*advice.wrong_parts(told), *told.more),
        why=tuple(advice.graded_names(leads)),
        cards=tuple(dict.fromkeys(each.number for each, _ in cards)),
        grid={row.target: [told.cell(name) for name in told.names]},
    )
    if row.kind == KERNEL:
        info = evidence.kernel(row.target)
        return replace(
            answer,
            also=(*answer.also, *advice.beside(leads, told.state)),
            why=tuple(advice.why(leads, changed_sources(evidence.run, info) if info else [])),
            do=tuple(advice.to_do(evidence, leads, bad, told)),
            run=advice.command(evidence, told, leads),
            open=tuple(advice.open_questions(evidence, told)),
        )
    if row.kind == OPERATOR:
        return replace(
            answer,
            also=(*answer.also, *of_operators.also(told)),
            why=tuple(advice.why(leads)),
            do=tuple(of_operators.to_do(told, leads)),
            run=advice.bisection(evidence, told, leads),
            open=tuple(of_operators.open_questions(told)),
        )
    return answer


def _built_otherwise(told: Told) -> str:
    """PyTorch's version is not all that differs where something got worse."""
    return "" if told.same_build or told.state in advice.NO_WORSE else BUILT_OTHERWISE
