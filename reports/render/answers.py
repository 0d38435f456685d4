"""The first screen, as plain data: of each kernel what happened, why, what to do, and what is not known. Pure.

The page, summary.md, summary.json and the end of a command's output hold this text; they only lay it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reports.attribute.causes import BRIEF_GRADES, Cause, Kind
from reports.compare.differences import Confounder
from reports.compare.outcomes import Version
from reports.compare.rows import KERNEL, OPERATOR, SUBJECTS, has_moved
from reports.compare.two_runs import changed_sources
from reports.load.evidence import Evidence
from reports.load.groups import grouped
from reports.model import Comparison
from reports.render import advice
from reports.render.explanations import Explanation
from reports.render.subjects import BAD, NOT_RUN, ORDER, GridCell, State, Subject, find_end, sides_of
from reports.sentences import sentence, sentences

MOST = 20  # answers that are written out in a summary; a run of hundreds of problems has more
MOST_NAMES = 6


@dataclass(frozen=True, kw_only=True)
class SubjectSummary:
    """Of one kernel or reference on one device, or of several of which the same is said.

    `open`: what could not be told, and what did not run; `cards`: the numbers of the explanations; `grid`: by subject,
    one cell for each version.
    """

    kind: str
    subjects: tuple[str, ...]
    device: str
    state: State
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
        return sentence("answers", "names", self.subjects, MOST_NAMES)

    @property
    def line(self) -> str:
        return f"{self.name} ({self.device}): {self.what}"

    @property
    def rest(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return what follows the line, by its label."""
        run = (self.run,) if self.run else ()
        parts = {"Why": self.why, "Do": self.do, "Run": run, "Also": self.also, "Open": self.open}
        return [(label, texts) for label, texts in parts.items() if texts]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """`kernels` and `references` are worst first; of references only those that changed or are wrong."""

    title: str
    kernels: list[SubjectSummary]
    references: list[SubjectSummary]
    of_references: str
    deviations: str
    notes: list[str]
    versions: list[Version]

    @property
    def grades(self) -> dict[str, str]:
        """Return what the grades mean that are named."""
        said = [text for each in self.kernels for text in each.why]
        return {grade: text for grade, text in BRIEF_GRADES.items() if any(f"({grade})" in why for why in said)}

    @property
    def lines(self) -> list[str]:
        """Return all of it, as a terminal shows it."""
        return sentences("answers", "terminal", self, MOST)


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
    subjects = grouped(((row.kind, row.target, row.device), row) for row in judged)
    cards = grouped(
        ((bool(cause.kernel), cause.subject, cause.device), (each, cause))
        for each in explained
        for cause in each.causes
    )
    every = [
        _answer(evidence, own, names, cards.get((kind == KERNEL, target, device), []))
        for (kind, target, device), own in subjects.items()
    ]
    kernels = _with_left_out(evidence, [each for each in every if each.kind in SUBJECTS], len(names))
    references = [each for each in every if each.kind not in SUBJECTS]
    changed = [each for each in references if each.state.is_worse or each.cards]
    found = sorted(kernels, key=lambda each: (each.state.rank, not each.rest))  # what has more to it is first
    has_operators = any(each.kind == OPERATOR for each in kernels)
    return Answers(
        title=_title(found, list(names.values())),
        kernels=_together(found),
        references=sorted(changed, key=lambda each: each.state.rank),
        of_references=sentence("answers", "of_references", len(references), _tally(references), has_operators),
        deviations=sentence("answers", "deviations", confounded),
        notes=[
            *advice.operator_changes(judged, names),
            *sentences("answers", "notes", evidence.run, len(controls), sum(map(has_moved, controls))),
        ],
        versions=[each for each in versions if each.id in names],
    )


def _tally(found: Sequence[SubjectSummary]) -> dict[State, int]:
    states = Counter(each.state for each in found)
    return {state: states[state] for state in ORDER if states[state]}


def _title(kernels: Sequence[SubjectSummary], names: Sequence[str]) -> str:
    if len(kernels) == 1:
        return kernels[0].line
    distinct = {(each.kind, each.subjects) for each in kernels}
    kinds = {kind: sum(each == kind for each, _ in distinct) for kind in SUBJECTS}
    return sentence("answers", "title", names, kinds, len(distinct) < len(kernels), _tally(kernels))


def _together(found: Sequence[SubjectSummary]) -> list[SubjectSummary]:
    """Return one answer where the same is said of several."""
    alike = grouped((replace(each, subjects=()), each) for each in found)
    return [
        replace(
            same[0],
            subjects=tuple(name for each in same for name in each.subjects),
            grid={name: cells for each in same for name, cells in each.grid.items()},
        )
        for same in alike.values()
    ]


def _with_left_out(evidence: Evidence, found: Sequence[SubjectSummary], versions: int) -> list[SubjectSummary]:
    """Return answers with kernels that were planned on no device; and of others, the devices on which they were not."""
    planned = {(cell.kernel, cell.device) for cell in evidence.run.cells}
    answers = list(found)
    numbers = {each.subjects[0]: number for number, each in reversed(list(enumerate(found)))}
    for kernel in (each for each in evidence.run.kernels if not each.pytorch):
        own = numbers.get(kernel.name)
        for device in kernel.devices:
            # What ran on a GPU may have been left out on the CPU by choice.
            if (kernel.name, device) in planned or (own is not None and device == "cpu"):
                continue
            built = [each for (_, name, on), each in evidence.builds.items() if (name, on) == (kernel.name, device)]
            failed = [each for each in built if each.status != "ok"]
            facts = (evidence.run, device, built, failed)
            if own is not None:
                more = sentence("answers", "left_out_beside", *facts)
                answers[own] = replace(answers[own], open=(*answers[own].open, more))
                continue
            answer = SubjectSummary(
                kind=KERNEL,
                subjects=(kernel.name,),
                device=device,
                state=State.ABSENT,
                what=sentence("answers", "left_out", *facts),
                also=tuple(sentences("answers", "only_built", *facts)),
                do=tuple(sentences("answers", "do_of_left_out", *facts)),
                grid={kernel.name: [GridCell(outputs=State.ABSENT, verdict=NOT_RUN)] * versions},
            )
            answers.append(answer)
    return answers


def _answer(
    evidence: Evidence,
    rows: Sequence[Comparison],
    names: Mapping[str, str],
    cards: Sequence[tuple[Explanation, Cause]],
) -> SubjectSummary:
    row = rows[0]
    cards = [(each, cause) for each, cause in cards if cause.cause != Kind.NOTHING_MOVED]
    leads = [cause for _, cause in cards]
    same_build = not any(Kind.BUILD_MOVED in cause.causes for cause in leads)
    faults = advice.proven_faults(evidence, leads, rows) if row.kind == KERNEL else []
    subject = Subject(rows, names, same_build, faults)
    # PyTorch's version is not all that differs where something got worse.
    built_otherwise = not same_build and subject.state.is_worse
    answer = SubjectSummary(
        kind=row.kind,
        subjects=(row.target,),
        device=row.device,
        state=subject.state,
        what=subject.text + (sentence("answers", "built_otherwise") if built_otherwise else ""),
        also=(*advice.wrong_parts(subject), *subject.more),
        why=tuple(advice.graded_names(leads)),
        cards=tuple(dict.fromkeys(each.number for each, _ in cards)),
        grid={row.target: [subject.cell(name) for name in names]},
    )
    if row.kind == KERNEL:
        info = evidence.kernel(row.target)
        bad = [each for each in rows if BAD & set(map(find_end, sides_of([each]).values()))]
        return replace(
            answer,
            also=(*answer.also, *advice.beside(leads, subject.state)),
            why=tuple(advice.why(leads, changed_sources(evidence.run, info) if info else [])),
            do=tuple(advice.to_do(evidence, leads, bad, subject)),
            run=advice.command(evidence, subject, leads),
            open=tuple(advice.open_questions(evidence, subject)),
        )
    if row.kind == OPERATOR:
        return replace(
            answer,
            also=(*answer.also, *advice.operator_also(subject)),
            why=tuple(advice.why(leads)),
            do=tuple(advice.operator_to_do(subject, leads)),
            run=advice.bisection(evidence, subject, leads),
            open=tuple(advice.unjudged(subject)),
        )
    return answer
