"""The first screen, as plain data: of each kernel what happened, why, what to do, and what is not known. Pure.

The page, summary.md, summary.json and the end of a command's output hold this text; they only lay it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from reports import model
from reports.attribute.causes import NOTHING_MOVED, OUT_OF_BOUNDS, RACE, UNDECIDED, UNINITIALISED, Cause
from reports.attribute.evidence import hidden
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.experiments import findings
from reports.compare.differences import Confounder
from reports.compare.outcomes import Version
from reports.compare.properties import one_length
from reports.compare.rows import KERNEL, has_moved
from reports.load.evidence import Evidence
from reports.model import Comparison
from reports.render.explanations import Explanation
from reports.render.verdict_text import (
    ABSENT,
    BAD,
    NEARLY,
    ORDER,
    RIGHT,
    STATES,
    GridCell,
    Told,
    labels,
    outcome,
    sides,
)
from reports.text import count_of, matrix_command, shape_text, short, tally_text, words

MOST = 20  # answers that are written out in a summary; a run of hundreds of problems has more
MOST_NAMES = 6
SAME = (ABSENT, *ORDER[ORDER.index(NEARLY) :])  # states in which nothing got worse
# Kinds of what checkers report, and the causes that they are evidence for.
REPORTED = {"out_of_bounds": (OUT_OF_BOUNDS,), "race": (RACE,), "uninitialised": UNINITIALISED}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Of one kernel or reference on one device, or of several of which the same is said. `open`: what could not be told,
    and what did not run; `cards`: the numbers of the explanations; `grid`: by subject, one cell for each version."""

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
        parts = {"Also": self.also, "Why": self.why, "Do": self.do, "Run": run, "Open": self.open}
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
    def lines(self) -> list[str]:
        """All of it, as a terminal shows it."""
        several = len(self.kernels) > 1
        found = [self.title] if several else []
        for each in self.kernels[:MOST]:
            found.append(each.line)
            for label, texts in each.rest:
                found += [f"  {label + ':':<6}{text}" for text in texts]
        if left := self.kernels[MOST:]:
            found.append(f"and {len(left)} more lines: see the page")
        found += [self.of_references, *(f"  {each.line}" for each in self.references[:MOST])]
        return [*found, *([self.deviations] if self.deviations else []), *self.notes]


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
    names = {id: name for id, name in labels(each for each in versions if each.id in shown).items()}
    subjects: dict[tuple[str, str, str], list[Comparison]] = {}
    for row in judged:
        subjects.setdefault((row.kind, row.target, row.device), []).append(row)
    every = [_answer(evidence, Told(own, names), explained) for own in subjects.values()]
    kernels = _with_left_out(evidence, [each for each in every if each.kind == KERNEL], len(names))
    references = [each for each in every if each.kind != KERNEL]
    changed = [each for each in references if each.state not in SAME or each.cards]
    notes = [f"A/A control: {sum(map(has_moved, controls))} of {len(controls)} comparisons changed"] if controls else []
    if (bench := evidence.run.kernelbench) and bench.missing:
        notes.append(f"{count_of(len(bench.missing), 'problem')} without a solution, so not run")
    if "cpu" not in {cell.device for cell in evidence.run.cells} and any("cpu" in k.devices for k in evidence.run.kernels):
        notes.append("nothing was run on the CPU, though there are kernels for it")
    found = sorted(kernels, key=lambda each: ORDER.index(each.state))
    return Answers(
        title=_title(found, list(names.values())),
        kernels=_together(found),
        references=sorted(changed, key=lambda each: ORDER.index(each.state)),
        of_references=_of_references(len(changed), len(references)),
        deviations=_deviations(confounded),
        notes=notes,
        versions=[each for each in versions if each.id in names],
    )


def _of_references(changed: int, every: int) -> str:
    if not every:
        return "PyTorch itself: no reference was compared"
    some = f"{changed} of {every}" if changed else f"none of {every}"
    return f"PyTorch itself: {some} reference{'s' if every > 1 else ''} changed or wrong"


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
    over = f"PyTorch {names[0]}" + (f" to {' and '.join(names[1:])}" if names[1:] else "")
    states = {state: count for state in ORDER if (count := sum(each.state == state for each in kernels))}
    return f"{over}, {count_of(len(kernels), 'kernel')}: {tally_text(states)}"


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
    for kernel in evidence.run.kernels:
        own = [number for number, each in enumerate(answers) if each.subjects == (kernel.name,)]
        for device in kernel.devices:
            # What ran on a GPU may have been left out on the CPU by choice.
            if (kernel.name, device) in planned or (own and device == "cpu"):
                continue
            why = [_why_left_out(evidence, device), *_builds(evidence, kernel.name, device)]
            if own:
                more = f"on {device}: not run, since {'; '.join(why)}"
                answers[own[0]] = replace(answers[own[0]], open=(*answers[own[0]].open, more))
            else:
                cells = [GridCell(outputs=ABSENT, verdict=STATES[ABSENT])] * versions
                answers.append(
                    Answer(
                        kind=KERNEL, subjects=(kernel.name,), device=device, state=ABSENT,
                        what=f"not run in any version: {why[0]}", why=tuple(why[1:]), grid={kernel.name: cells},
                    )
                )  # fmt: skip
    return answers


def _why_left_out(evidence: Evidence, device: str) -> str:
    if device == "cuda" and not evidence.run.gpus:
        return "this machine had no GPU that the run could use"
    others = {cell.device for cell in evidence.run.cells}
    if device not in others:
        return f"the run was of {' and '.join(sorted(others))} alone"
    return f"it has no workload for {device}"


def _builds(evidence: Evidence, kernel: str, device: str) -> list[str]:
    """Whether what did not run was at least compiled."""
    built = [each for (_, name, on), each in evidence.builds.items() if (name, on) == (kernel, device)]
    failed = [each for each in built if each.status != "ok"]
    if failed:
        return [f"it does not build in {len(failed)} of {len(built)} versions: {short(failed[0].message, 200)}"]
    return [f"it was only compiled, in {count_of(len(built), 'version')}"] if built else []


def _answer(evidence: Evidence, told: Told, explained: Sequence[Explanation]) -> Answer:
    row = told.rows[0]
    cards = [(each, cause) for each in explained for cause in each.causes if _is_of(cause, row)]
    cards = [(each, cause) for each, cause in cards if cause.cause != NOTHING_MOVED]
    bad = [each for each in told.rows if any(outcome(side) in BAD for side in sides([each]).values())]
    is_kernel = row.kind == KERNEL
    leads = [cause for _, cause in cards]
    return Answer(
        kind=row.kind,
        subjects=(row.target,),
        device=row.device,
        state=told.state,
        what=told.text,
        also=tuple(told.more),
        why=tuple(_why(leads) if is_kernel else _names(leads)),
        do=tuple(_do(evidence, leads, bad)) if is_kernel else (),
        run=_command(evidence, told, leads) if is_kernel else "",
        open=tuple(_open(evidence, told)) if is_kernel else (),
        cards=tuple(dict.fromkeys(each.number for each, _ in cards)),
        grid={row.target: [told.cell(name) for name in told.names]},
    )


def _is_of(cause: Cause, row: Comparison) -> bool:
    return cause.device == row.device and (cause.kernel if row.kind == KERNEL else cause.reference) == row.target and (
        bool(cause.kernel) == (row.kind == KERNEL)
    )


def _why(causes: Sequence[Cause]) -> list[str]:
    """The first of each class, with its parts."""
    first: dict[tuple[str, ...], Cause] = {}
    for cause in causes:
        first.setdefault((cause.cause, cause.about, str(cause.improved)), cause)
    every = [part for cause in first.values() for part in (cause, *cause.parts)]
    texts = [short(each.statement if each.cause == UNDECIDED else f"{_graded(each)}: {each.statement}", 500) for each in every]
    return list(dict.fromkeys(texts))


def _graded(cause: Cause) -> str:
    return f"{cause.name} ({cause.grade})"


def _names(causes: Sequence[Cause]) -> list[str]:
    """Of a reference, whose cards say the rest."""
    names = ", ".join(dict.fromkeys(_graded(part) for cause in causes for part in (cause, *cause.parts)))
    return [names] if names else []


# -- what to do ---------------------------------------------------------------------------------------------


def _do(evidence: Evidence, causes: Sequence[Cause], bad: Sequence[Comparison]) -> list[str]:
    every = [part for cause in causes for part in (cause, *cause.parts)]
    found = [cause.fix for cause in every if cause.fix]
    found += [f"test on more inputs: {seen.text}" for seen in hidden([CellFacts(evidence, row) for row in bad])]
    found += _reported(evidence, {cause.cause for cause in every}, bad)
    return list(dict.fromkeys([*found, *_smallest(evidence, bad)]))


def _reported(evidence: Evidence, causes: set[str], bad: Sequence[Comparison]) -> list[str]:
    """The lines that checkers named, of what is given as a cause."""
    return [
        f"look at {each.finding.where}: {each.result.tool} reports {short(each.finding.text, 160)}"
        for row in bad
        for kind, classes in REPORTED.items()
        if causes & set(classes)
        for each in findings(CellFacts(evidence, row).checkers, kind)
        if each.finding.where
    ][:3]


def _smallest(evidence: Evidence, bad: Sequence[Comparison]) -> list[str]:
    """The smallest input that was seen to fail: of the lengths that were tried, else of the workloads."""
    lengths = [(each.wrong[0], row) for row in bad for each in CellFacts(evidence, row).lengths if each.wrong]
    if lengths:
        length, row = min(lengths, key=lambda each: each[0])
        return [f"reproduce it at sequence length {length}, the shortest tried that fails ({row.workload})"]
    infos = [(info, row) for row in bad if (info := evidence.workload(row.workload)) is not None]
    if not infos:
        return []
    info, row = min(infos, key=lambda each: each[0].flops or 0.0)
    shape = f" ({shape_text(info)}, {info.dtype})" if shape_text(info) else ""
    failing = [side for side in sides([row]).values() if outcome(side) in BAD]
    recipe = next((r for side in failing for r in side.recipes if r.worst), None)
    at = f"; {words(recipe.recipe)} inputs, {recipe.worst}" if recipe else ""
    return [f"reproduce it on {info.id}{shape}, the smallest workload that fails{at}"]


def _command(evidence: Evidence, told: Told, causes: Sequence[Cause]) -> str:
    """The next step of the first cause; of a time that is undecided, the launches that would decide it."""
    if causes and told.state not in SAME:
        return causes[0].next_command
    needed = [each.launches_needed for row in told.right_rows for each in row.timed if each.launches_needed]
    if not needed:
        return ""
    row = told.rows[0]
    command = matrix_command(evidence.run.command, kernel=row.target, device=row.device)
    return f"{command} --launches {max(needed)}"


# -- what is open --------------------------------------------------------------------------------------


def _open(evidence: Evidence, told: Told) -> list[str]:
    found: dict[str, list[tuple[str, str]]] = {}  # what, to the workloads and versions of which it is so
    for row in told.rows:
        for name, side in sides([row]).items():
            if outcome(side) == ABSENT:
                found.setdefault(f"not run: {short(side.message or side.status, 200)}", []).append((row.workload, name))
            elif outcome(side) not in (RIGHT, *BAD[:1]) and side.message:
                text = f"{outcome(side)}: {short(side.message, 200)}"
                found.setdefault(text, []).append((row.workload, name))
        judged = row.correctness
        if judged.verdict == model.UNDECIDED and ABSENT not in map(outcome, sides([row]).values()):
            found.setdefault(f"correctness undecided: {short(judged.why, 200)}", []).append(
                (row.workload, row.environment)
            )
    texts = [f"{text} ({_places(told, places)})" for text, places in found.items()]
    row = told.rows[0]
    if not evidence.ever_ran(row.target, row.device):
        texts.append("it ran in no version: `--fail-on` passes it, for nothing regressed; `gate` does not")
    if all(each.alone for each in told.rows):
        texts.append("whether a version changed it: there is nothing to compare with")
    texts += _open_times(told)
    tried = any(CellFacts(evidence, each).lengths for each in told.rows)
    return [*texts, *([length] if not tried and (length := one_length(evidence).get(row.target)) else [])]


def _places(told: Told, places: Iterable[tuple[str, str]]) -> str:
    workloads, environments = (list(dict.fromkeys(each)) for each in zip(*places, strict=True))
    on = f"{len(workloads)} workloads" if len(workloads) > 3 else ", ".join(workloads)
    return f"{on}, {told.where(environments)}"


def _open_times(told: Told) -> list[str]:
    """Times of right outputs that are undecided, and what would decide them."""
    found: dict[str, list[Comparison]] = {}
    for row in told.right_rows:
        for timed in row.timed:
            if timed.verdict == model.UNDECIDED and not row.alone:
                needed = timed.launches_needed
                why = f"about {needed} launches of each version would decide it" if needed else short(timed.why, 160)
                found.setdefault("" if needed else why, []).append(row)
    texts = []
    for why, rows in found.items():
        needed = [each.launches_needed for row in rows for each in row.timed if each.launches_needed]
        enough = f"about {max(needed)} launches of each version would decide it" if not why and needed else why
        names = list(dict.fromkeys(row.workload for row in rows))
        on = ", ".join(names) if len(names) < 4 else f"{len(names)} workloads"
        texts.append(f"whether its time changed on {on}: {enough}")
    return texts
