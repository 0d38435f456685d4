"""What a cause says, and how rules make one: a sentence and the command that comes next. Pure. Nothing decides by what
stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.schema.run_records import RunRecord
from harness.worker import protocol
from reports import model
from reports.attribute import figures
from reports.attribute.causes import CORRECTNESS, FAULTS, LATENCY, OF_MEMORY, Cause, Figure, RuledOut
from reports.attribute.evidence import extent, time_seen
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.times import TimeChange
from reports.model import Latency, Seen
from reports.text import matrix_command

# By rule, or by what a rule found. {kernel}, {subject} and the versions {base} and {this} are always given,
# all other names by the rule.
SENTENCES = {
    # what differs besides PyTorch
    "inputs_moved": "The two environments computed from different input bytes, so their results cannot be compared.",
    "meaning_changed": "{values}. Nothing in this run shows which version is right.",
    "meaning_decided": "{values}: {shown}.",
    "draws_changed": "{subject} draws other numbers from the same seed in {this} than in {base}, so their outputs "
    "cannot be compared.",
    "broken_environment": "{environment} is not the requested environment, so nothing was measured in it: {why}",
    "does_not_build": "{kernel} does not build {where}: {message} Correct that, then run again.",
    "build_failed": "{kernel} does not build {where}, and builds in the other environment.",
    "build_refused": "{kernel} does not build {where}, and builds in the other environment: its sources use something "
    "that the PyTorch of the failed build does not have.",
    "abi_break": "{file} does not load {where}: {reason}.{before}",
    "loading_raises": "{kernel} does not load {where}, and loads in the other environment: {reason}.",
    "build_moved": "{kernel} {what} because its build changed ({differences}): its machine code differs, and the "
    "result changed with it.",
    "loaded_code_moved": "{kernel} {what} because its code changed: its Python file compiles or loads other machine "
    "code in {this}, and the result changed with it.",
    "source_compiles_otherwise": "{kernel} {what} because its code changed: the same compiler with the same flags "
    "makes other machine code in {this}, and the result changed with it.",
    "environment_confounder": "{kernel}'s result depends on the environment that runs it, not on its code. "
    "Differences: {differences}.",
    "component_moved": "{subject} {what} because {package} changed: {held}, its result follows the "
    "package ({one} in {base}, {two} in {this}).",
    "component_together": "{subject} {what} only if {with_two} and the rest of the environment of {this} come "
    "together: with {with_one} there, or with {with_two} in that of {base}, it stays as it was.",
    "component_of_time": "{subject} is {extent}, because {package} changed: {held}, its time follows the "
    "package ({one} in {base}, {two} in {this}).",
    "sole_package": "{subject} {what} because {package} changed ({one} in {base}, {two} in {this}): "
    "the PyTorch of both environments is the same, and so is all else that it is known to compute with.",
    "sole_package_of_time": "{subject} is {extent}, because {package} changed ({one} in {base}, {two} in {this}): "
    "the PyTorch of both environments is the same, and so is all else that it is known to compute with.",
    "variables_decide": "{kernel}'s result depends on environment variables {where}: {variables}.",
    # memory, and what calls do besides computing
    "uninitialised": "{kernel} reads {memory} that it has not written{where}{follows}.{so_far}",
    "unwritten": "{kernel} leaves part of its output unwritten: those elements keep what {memory} held before.",
    "out_of_bounds": "{kernel} {how} {what}{which}.",
    "race": "{kernel} has a race: {shown}.",
    "wrong_stream": "{kernel} works on another stream than the one it is given: it does not wait for earlier work on "
    "that stream, and later work does not wait for it.",
    "writes_inputs": "{kernel} writes to its inputs, so whatever uses them next computes from other numbers.",
    "keeps_state": "{kernel}'s output depends on earlier calls: the same inputs give another output after other calls.",
    "drawn_once": "{kernel} gives another output in each process on the same inputs: it computes from something that "
    "each process makes once, such as random numbers or a value from its surroundings.",
    "predecessor": "{kernel}'s output depends on what ran just before it: the same inputs give another output.",
    "not_repeatable": "{kernel} is right in every run, but its bits differ from run to run. `deterministic: true` "
    "asks for equal bits, so this counts as wrong.",
    # references, and kernels made of PyTorch's operators
    "reference_moved_under": "{kernel} {how}. PyTorch's own {references} changed{agreed}.",
    "another_operator_under": "{kernel} {how}. Under the name {references} PyTorch runs another operator in "
    "{this}{agreed}.",
    "reference_moved": "{subject} {how}{by}: {dtypes}, on the same input bytes.",
    "compiled_code_moved": "{subject}, compiled at run time, {what}, and other code is generated for it in {this} than "
    "in {base}.",
    "operator_not_there": "{message}{running}.",
    "operator_refused": "{subject} does not run in {refusing}: {message}{running}.",
    "default_moved": "PyTorch's default for attention changed: it runs another operator in {this}{right}. If your test "
    "compares with default SDPA, or your kernel runs after it, that operator is now a different one.",
    "same_reference_inside": "{kernel} {what} with PyTorch: its outputs equal those of PyTorch's own {both}, bit for "
    "bit, and those changed.",
    "other_reference_inside": "{kernel} {what} with PyTorch: bit for bit, its outputs equal those of PyTorch's own "
    "{before} in {base}, and of {here} in {this}.",
    "backend_named": "{kernel} stops in {environment} with an error that names PyTorch's {backends}, and runs in the "
    "other environment. If PyTorch chooses the backend, it chose another one in {environment}.",
    "moved_with_model": "{kernel} and the model that it replaces agree in both environments, and both changed: "
    "PyTorch's operators, which both call, changed.",
    "other_inputs_with_model": "{kernel} and the model that it replaces agree in both environments, and both changed: "
    "they compute from something that differs between the environments, although the stored inputs are the same.",
    "model_draws": "{kernel} is compared with a model that gives another output in each call on the same tensors. "
    "Both compute from more than their inputs, such as random numbers drawn in a call, so no two calls compute from "
    "the same.",
    "chosen_by_version": "{kernel} {what} by its own choice: its result follows the PyTorch version that its file is "
    "told, whichever PyTorch runs it.",
    "other_lines_run": "{kernel} {what} by its own choice: other lines of its file run in {this} than in {base}.",
    "draws_otherwise": "{kernel} {what} because of random numbers that are drawn when it is constructed: in {where} "
    "they are not the ones drawn for the model.",
    "another_backend_inside": "{kernel} calls PyTorch's operators from {file} the same in both environments, and "
    "PyTorch runs another attention backend for it in {this}.",
    "operator_inside_moved": "{kernel} calls PyTorch's operators from {file} the same in both environments: one of "
    "these operators changed.",
    "operator_or_choice_moved": "{kernel} calls PyTorch's operators from {file} the same in both environments: one of "
    "these operators changed, or what the file chooses or draws by itself.",
    # what is refused
    "refused_by_itself": "{kernel} does not support this shape or type{where}, by its own error code: {message}",
    "refused_by_error": "{kernel} uses something that PyTorch has no code for {where}: {message}",
    "own_error": "{kernel} does not run {where}, by an error of its own: {message} Correct that, then run again.",
    "raises_on_one_side": "{kernel} raises an exception {where}, and runs in the other environment: {message}",
    "unsupported": "{kernel} {how}: {what} on {device}.",
    "reference_unsupported": "{refusing} refuses {reference} attention for {what} on {device}; {running}.",
    # inputs
    "range_overflow": "{subject} fails where logits are large, and only then: a number that it computes exceeds the "
    "range or the precision of its arithmetic.",
    "limited_range": "{subject} fails where logits are large, and only then, and nothing becomes infinite: a limit "
    "that it sets itself (a clamp, a table, a narrow integer) is possible, and so is arithmetic with too few digits.",
    "right_when_smaller": "{subject} is wrong on inputs of their usual size and right on smaller ones ({smaller}): a "
    "number that it computes overflows (or underflows) its type{logits}.",
    "right_when_upcast": "{subject} gives NaN or infinity in its type, and is right in a wider one: a number that it "
    "computes overflows (or underflows) its type.",
    "masked": "{kernel} is wrong, and some test inputs hide it: {which}.",
    # tolerances, and what was so all along
    "too_tight": "{subject} is as exact {exact}, but the rule {rule} refuses it: the tolerance is too tight for "
    "{dtypes}.",
    "too_loose": "{kernel} is wrong, but the rule {rule} passes it: the tolerance is too loose for {dtypes}.",
    "stops_everywhere": "{subject} does not run in {base} either: {message}",
    "wrong_everywhere": "{subject} is wrong{where} on {workloads}, compared with the float64 truth{also}.",
    "undecided": "The records do not show why {subject} {outcome}: {why}.",
    "nothing_moved": "{kernel} is right in both environments, and {bits}.{also}",
    # times
    "clock_or_load": "{subject} is {extent}, and {what}: look at the machine, not at one target.",
    "another_operator": "{subject} is {extent}: PyTorch runs another operator under that name.",
    "same_operator": "{subject} is {extent}, with the same operator: its implementation changed. A profile would show "
    "which part of it.",
    "operators_of_profile": "{subject} is {extent}: {operators}.",
    "backend_chosen": "{subject} lets PyTorch choose the attention backend: {before} in {base}, {here} in {this}.",
    "many_small_calls": "{subject} is {extent}: a call runs {here} operators in {this} and {before} in {base}, each "
    "of them shorter. {graph}",
    "overhead_on_gpu": "{subject} is {extent}, but the device's own work did not change: the time went into {part}.",
    "overhead_on_cpu": "{subject} is {extent} on small problems. On large ones it changed by about the same time, "
    "which hardly counts there: each call costs {costs}, its work does not.",
    "fewer_threads": "{subject} is {extent}, because {here} {compute} in {this}, and {before} in {base}.",
    "too_many_threads": "{subject} is {extent}: {most} in {where} share {processors}, and take turns.",
    "lost_threads": "{subject} is {extent}, and keeps {fewer} processors busy at a time: it computes with another "
    "number of threads, whatever PyTorch reports.",
    "own_threads": "{subject} is {extent}, and in {where} it computes with more threads than PyTorch has.",
    "code_of_time": "{subject} is {extent}, and {how}.",
    "unexplained": "The records do not show why {subject} is {extent}: {why}.",
    "leaning": "The time of {kernel} may have changed on {workloads}: the whole interval of the ratio lies beyond the "
    "smallest effect that counts, but so few launches cannot make it certain.",
    # memory
    "memory_operator": "{subject} {uses}: PyTorch runs another operator under that name.",
    "memory_of_implementation": "{subject} {uses}, by the same operator: its implementation changed.",
    "memory_of_code": "{subject} {uses}, and {how}.",
    "memory_of_lines": "{subject} {uses}: other lines of its file run in {this} than in {base}.",
    "memory_of_operators": "{subject} {uses}. The same lines of its file run: it comes from an operator of "
    "PyTorch that they call.",
    "memory_of_package": "{subject} {uses}, because {package} changed: {held}, its memory follows the package "
    "({one} in {base}, {two} in {this}).",
    "memory_of_sole_package": "{subject} {uses}, because {package} changed ({one} in {base}, {two} in {this}): the "
    "PyTorch of both environments is the same, and so is all else that it is known to compute with.",
    "memory_cured": "{subject} {uses}, with {with_one}. With {with_two} in its place it uses as much as in {base}.",
    "memory_unexplained": "{subject} {uses}. The records do not show why.",
    "rival": '{rival}. It may be why, or not: it changed together with "{name}". To tell them apart: {separated_by}.',
}
# After these, experiments on the same cells decide or show more; after the others, another run of them does.
EXPLAINED = frozenset(
    {
        "build_moved",
        "loaded_code_moved",
        "source_compiles_otherwise",
        "environment_confounder",
        "variables_decide",
        "component_moved",
        "component_together",
        "component_of_time",
        "uninitialised",
        "unwritten",
        "out_of_bounds",
        "race",
        "wrong_stream",
        "writes_inputs",
        "keeps_state",
        "drawn_once",
        "predecessor",
        "not_repeatable",
        "model_draws",
        "chosen_by_version",
        "other_lines_run",
        "draws_otherwise",
        "another_backend_inside",
        "operator_inside_moved",
        "operator_or_choice_moved",
        "raises_on_one_side",
        "another_operator",
        "same_operator",
        "operators_of_profile",
        "many_small_calls",
        "own_threads",
        "code_of_time",
        "unexplained",
    }
)


def make(
    case: CaseFacts,
    cause: str,
    grade: str,
    sentence: str,
    cells: Sequence[CellFacts],
    evidence: Iterable[Seen],
    *,
    ruled_out: Iterable[RuledOut | None] = (),
    figures: Iterable[Figure | None] = (),
    group: tuple[str, ...] = (),
    about: str = CORRECTNESS,
    command: str = "",
    measured: bool = False,
    ratio: float = 1.0,
    under: tuple[str, ...] = (),
    fix: str = "",
    **names: Any,
) -> Cause:
    """`sentence`: of `SENTENCES`, which `names` complete. `group`: what else must be alike for two causes to share a
    card, where that is not the sentence with all that completes it."""
    cells = list(dict.fromkeys(cells))
    base, this = case.versions
    facts = (str(fact).replace(case.kernel or "\0", "").replace(this, "") for fact in names.values())
    return Cause(
        cause=cause,
        grade=grade,
        about=about,
        kernel=case.kernel,
        reference=case.reference,
        workloads=tuple(dict.fromkeys(cell.workload for cell in cells)),
        device=case.device,
        environment=case.environment,
        baseline=case.baseline,
        statement=SENTENCES[sentence].format(kernel=case.kernel, subject=case.subject, base=base, this=this, **names),
        evidence=_once(evidence),
        ruled_out=tuple(dict.fromkeys(each for each in ruled_out if each is not None)),
        next_command=command or (case.explain(cells) if sentence in EXPLAINED else case.command(cells)),
        figures=tuple(each for each in figures if each is not None),
        rows=tuple(cell.row.id for cell in cells),
        is_operator=case.is_operator,
        wrong=any(side.status != protocol.OK for cell in cells for side in cell.sides),
        measured=measured,
        improved=ratio < 1 if about in (LATENCY, OF_MEMORY) else _improved(cause, cells),
        ratio=ratio,
        under=under,
        own_fix=fix,
        group_key=(cause, about, case.device, *(group or (grade, sentence, case.reference, *facts))),
    )


def _once(evidence: Iterable[Seen]) -> tuple[Seen, ...]:
    """The first of each text: what several records say alike is said once."""
    first: dict[str, Seen] = {}
    for seen in evidence:
        first.setdefault(seen.text, seen)
    return tuple(first.values())


FEWEST, ENOUGH = 2, 10  # launches of which nothing can be said, and what they are by default


def launches_command(run: RunRecord, kernel: str, device: str, timed: Iterable[Latency]) -> str:
    """The launches that would decide times which are undecided; empty where nobody can tell how many."""
    timed = list(timed)
    needed = [each.launches_needed for each in timed if each.launches_needed]
    undecided = [each for each in timed if each.verdict == model.UNDECIDED]
    if any(len(side.blocks) < FEWEST for each in undecided for side in (each.baseline, each.this)):
        needed.append(ENOUGH)
    if not needed:
        return ""
    both = " (for each of the two runs, then compare them again)" if run.sides else ""
    return f"{matrix_command(run.command, kernel=kernel, device=device)} --launches {max(needed)}{both}"


IMPROVED = (model.FIXED, model.NEWLY_SUPPORTED, model.MORE_EXACT)


def _improved(cause: str, cells: Sequence[CellFacts]) -> bool:
    """A kernel's own fault is no better for showing in the baseline alone."""
    return cause not in FAULTS and bool(cells) and all(cell.verdict in IMPROVED for cell in cells)


def make_of_time(
    change: TimeChange,
    cause: str,
    grade: str,
    sentence: str,
    evidence: Sequence[Seen],
    ruled_out: Sequence[RuledOut | None] = (),
    drawn: Sequence[Figure | None] = (),
    *,
    group: tuple[str, ...] = (),
    measured: bool = False,
    fix: str = "",
    command: str = "",
    **names: Any,
) -> Cause:
    case, extreme = change.case, max if change.sign > 0 else min
    usual = case.explain(change.cells) if sentence in EXPLAINED else f"{case.command(change.cells)} --fresh"
    return make(
        case,
        cause,
        grade,
        sentence,
        change.cells,
        [*time_seen(change), *evidence],
        about=LATENCY,
        ruled_out=ruled_out,
        measured=measured,
        ratio=extreme(change.ratios, default=1.0),
        command=command or usual,
        figures=[*drawn, figures.ratios_figure(change)],
        group=(*group, case.environment, change.word) if group else (),
        fix=fix,
        extent=extent(change),
        **names,
    )
