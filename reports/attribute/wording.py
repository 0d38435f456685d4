"""What a cause says, and how rules make one: a sentence and the command that comes next. Pure. Nothing decides by what
stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.worker import protocol
from reports import model
from reports.attribute import figures
from reports.attribute.causes import CORRECTNESS, FAULTS, LATENCY, Cause, Figure, RuledOut
from reports.attribute.evidence import extent, time_seen
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.times import TimeChange
from reports.model import Seen

# By rule, or by what a rule found. {kernel} and {subject} are always given, all other names by the rule.
SENTENCES = {
    # what differs besides PyTorch
    "inputs_moved": "The inputs are not the same bytes in both environments, so their results answer different "
    "questions.",
    "broken_environment": "{environment} is not the environment that was asked for, so nothing of it was measured: "
    "{why}",
    "does_not_build": "{kernel} does not build {where}: {message} Correct that, then run again.",
    "build_failed": "{kernel} does not build {where}, and does in the other environment.",
    "build_refused": "{kernel} does not build {where}, and does in the other environment: its sources ask for what "
    "that PyTorch does not have.",
    "build_moved": "{kernel} {what} because of its code: it was built otherwise here, to other machine code, and the "
    "result goes with that.",
    "loaded_code_moved": "{kernel} {what} because of its code: its Python file compiles or loads other machine code "
    "here, and the result goes with that.",
    "source_compiles_otherwise": "{kernel} {what} because of its code: its source compiles to other machine code "
    "here, by the same compiler with the same flags, and the result goes with that.",
    "environment_confounder": "{kernel}'s result depends on the environment that runs it, not on its code. What "
    "differs: {differences}.",
    "variables_decide": "{kernel}'s result depends on the environment variables of its process {where}: {variables}.",
    # memory, and what calls do besides computing
    "uninitialised": "{kernel} reads {memory} that it has not written: its output follows what was left there.{so_far}",
    "unwritten": "{kernel} leaves part of its output unwritten: what stands there is what was in {memory} before.",
    "out_of_bounds": "{kernel} reads or writes {what}{which}.",
    "race": "{kernel} has a race: {shown}.",
    "wrong_stream": "{kernel} runs on a stream other than the one it is given: it does not wait for work on that "
    "stream, and later work does not wait for it. To fix it, launch on the stream that it is given, in C++ "
    "at::cuda::getCurrentCUDAStream().",
    "second_device": "{kernel} is right on the GPU that is current, and not where its tensors are on another one: "
    "tests on one GPU hide that.",
    "writes_inputs": "{kernel} writes to its inputs: whatever is computed from them next is computed from other "
    "numbers.",
    "keeps_state": "{kernel}'s output depends on the calls before: the same inputs give other outputs after other "
    "calls.",
    "drawn_once": "{kernel} computes from something that is not the same in any two processes, on the same inputs: "
    "what it draws, or takes from its surroundings, when it is made.",
    "predecessor": "{kernel}'s output depends on what ran just before it, on the same inputs.",
    "not_repeatable": "{kernel} is right in every run, and gives other bits from run to run, which is refused: "
    "`deterministic: true` asks for the same ones.",
    # references, and kernels made of PyTorch's operators
    "reference_moved_under": "{kernel} {how}; PyTorch's own {references} does not, so their agreement moved without "
    "the kernel.",
    "another_operator_under": "{kernel} {how}; under the name {references} PyTorch runs another operator here, so "
    "their agreement moved without the kernel.",
    "reference_moved": "{subject} {how}: {dtypes}, on the same input bytes.",
    "default_moved": "PyTorch's own choice for attention changed: it runs another operator here{right}. A kernel that "
    "agreed with the old one bit for bit, or ran after it, now meets another.",
    "same_reference_inside": "{kernel} {what} with PyTorch: its outputs are those of PyTorch's own {both}, bit for "
    "bit, and these moved.",
    "other_reference_inside": "{kernel} {what} with PyTorch: its outputs are bit for bit those of PyTorch's own "
    "{before} in the baseline, of {here} here.",
    "backend_named": "{kernel} runs into PyTorch's {backends} in {environment}, and not in the other environment: if "
    "PyTorch chooses the backend, it chose another one there.",
    "moved_with_model": "{kernel} and the model that it replaces moved together and agree with each other on both "
    "sides: PyTorch's operators, which both are made of, moved.",
    "other_inputs_with_model": "{kernel} and the model that it replaces moved together and agree with each other on "
    "both sides: what both compute from is not the same in both environments, although the stored inputs are.",
    "model_draws": "{kernel} is held against a model that gives other outputs in each call on the same tensors: both "
    "compute from more than their inputs, such as numbers that a call draws, and no two calls from the same.",
    "other_lines_run": "{kernel} {what} by a choice of its own: other lines of its file run here than in the baseline.",
    "draws_otherwise": "{kernel} {what} by random numbers that are drawn when it is constructed: {where} they are not "
    "those that are drawn for the model.",
    "another_backend_inside": "{kernel} is made of PyTorch's operators by {file} the same in both environments: "
    "PyTorch runs another one of attention's backends for it here.",
    "operator_inside_moved": "{kernel} is made of PyTorch's operators by {file} the same in both environments: one of "
    "these operators moved.",
    # what is refused
    "refused_by_itself": "{kernel} does not support this shape or type{where}, by its own error code: {message}",
    "refused_by_error": "{kernel} asks {where} for what PyTorch has no code for there: {message}",
    "own_error": "{kernel} does not run {where}, by an error of its own: {message} Correct that, then run again.",
    "raises_on_one_side": "{kernel} is refused {where}, and not in the other environment: {message}",
    "unsupported": "{who} {how}: {what} on {device}.",
    # inputs
    "range_overflow": "{subject} fails where logits are large, and nowhere else: what it computes leaves the range or "
    "the precision of its arithmetic there.",
    "right_when_smaller": "{subject} is wrong at the inputs' size, and right on smaller ones: a number that it "
    "computes leaves the range of its type.",
    "right_when_upcast": "{subject} gives NaN or infinity in its type, and is right in a wider one: a number that it "
    "computes leaves the range of its type.",
    "right_in_wider_integers": "{kernel} is right where it is given integers of 64 bits in place of the narrower ones "
    "that it asks for: one of these leaves the range of its type.",
    "masked": "{kernel} is wrong, and some test inputs hide it: {which}.",
    # tolerances, and what was so all along
    "too_tight": "{subject} is as exact {exact}, and the rule {rule} refuses it: the tolerance is too tight for "
    "{dtypes}.",
    "too_loose": "{kernel} passes the rule {rule} and is wrong all the same: the tolerance is too loose for {dtypes}.",
    "stops_everywhere": "{subject} does not run in the baseline either: {message}",
    "wrong_everywhere": "{subject} is wrong against the float64 truth in {where}: this fault is not new{also}.",
    "undecided": "The records do not show why {subject} {outcome}: {why}.",
    "nothing_moved": "{kernel} is right in both environments, and {bits}.{also}",
    # times
    "clock_or_load": "{subject} is {extent}, and {what}: look at the machine, not at one target.",
    "another_operator": "{subject} is {extent}: another operator runs under that name.",
    "same_operator": "{subject} is {extent}, by the same operator: its own implementation moved. A profile would show "
    "which part of it.",
    "operators_of_profile": "{subject} is {extent}: {operators}.",
    "backend_chosen": "{subject} leaves the choice to PyTorch: it takes {before} in the baseline, and {here} here.",
    "many_small_calls": "{subject} is {extent}: it runs {here} operators a call here and {before} in the baseline, "
    "each of them shorter. The time goes into calling them.",
    "overhead_on_gpu": "{subject} is {extent}, and the device's own work did not move: the time went into {part}.",
    "overhead_on_cpu": "{subject} is {extent} on small problems, and as fast as before on large ones, give or take "
    "the same time: a call costs {costs}, its work does not.",
    "fewer_threads": "{subject} is {extent}, because {here} {compute} here, and {before} in the baseline.",
    "too_many_threads": "{subject} is {extent}: {most} {where} share {processors}, and take turns.",
    "lost_threads": "{subject} is {extent}, and works on {fewer} processors at a time: it computes with another "
    "number of threads, whatever PyTorch reports.",
    "own_threads": "{subject} is {extent}, and computes {where} by more threads than PyTorch has.",
    "code_of_time": "{subject} is {extent}, and {how}.",
    "unexplained": "The records do not show why {subject} is {extent}: {why}.",
    "leaning": "The time of {kernel} may have moved on {workloads}: its interval lies beyond what counts as a change, "
    "and this many launches cannot make it certain.",
    "rival": "{rival}. This moved together with what is called {name}, and was not varied alone. To separate the two: "
    "{separated_by}.",
}
# After these, experiments on the same cells decide or show more; after the others, another run of them does.
EXPLAINED = frozenset(
    {
        "build_moved", "loaded_code_moved", "source_compiles_otherwise", "environment_confounder", "variables_decide",
        "uninitialised", "unwritten", "out_of_bounds", "race", "wrong_stream", "second_device", "writes_inputs",
        "keeps_state", "drawn_once", "predecessor", "not_repeatable", "model_draws", "other_lines_run",
        "draws_otherwise", "another_backend_inside", "operator_inside_moved", "raises_on_one_side", "another_operator",
        "same_operator", "operators_of_profile", "many_small_calls", "own_threads", "code_of_time", "unexplained",
    }
)  # fmt: skip


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
    **names: Any,
) -> Cause:
    """`sentence`: of `SENTENCES`, which `names` complete. `group`: what else must be alike for two causes to share a
    card, where that is not the sentence with all that completes it."""
    cells = list(dict.fromkeys(cells))
    facts = (str(fact).replace(case.kernel or "\0", "") for fact in names.values())
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
        statement=SENTENCES[sentence].format(kernel=case.kernel, subject=case.subject, **names),
        evidence=tuple(dict.fromkeys(evidence)),
        ruled_out=tuple(dict.fromkeys(each for each in ruled_out if each is not None)),
        next_command=command or (case.explain(cells) if sentence in EXPLAINED else case.command(cells)),
        figures=tuple(each for each in figures if each is not None),
        rows=tuple(cell.row.id for cell in cells),
        wrong=any(side.status != protocol.OK for cell in cells for side in cell.sides),
        measured=measured,
        improved=ratio < 1 if about == LATENCY else _improved(cause, cells),
        ratio=ratio,
        under=under,
        group_key=(cause, about, case.device, *(group or (grade, sentence, case.reference, *facts))),
    )


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
    **names: Any,
) -> Cause:
    case, extreme = change.case, max if change.sign > 0 else min
    return make(
        case, cause, grade, sentence, change.cells, [*time_seen(change), *evidence],
        about=LATENCY, ruled_out=ruled_out, measured=measured, ratio=extreme(change.ratios, default=1.0),
        command=case.explain(change.cells) if sentence in EXPLAINED else f"{case.command(change.cells)} --fresh",
        figures=[*drawn, figures.ratios_figure(change)],
        group=(*group, case.environment, change.word) if group else (),
        extent=extent(change), **names,
    )  # fmt: skip
