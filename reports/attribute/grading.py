"""How sure a cause can be, said once for all rules: what else differs between the two sides, and explains as much.

A rule says what points to its cause. It does not know what else moved. Here every factor that differs between the two
environments, that could explain what the cause explains, and that no experiment and no observation excludes, is a
rival: the cause is then never decisive, its story names the rival beside it, and says what would part the two. Where
the mechanism that the cause names was itself measured on both sides and accounts for the change, rivals are what may
have brought it, and it stays strong; where the two only moved together, it is suggested.

An intervention outranks what moved together: swapped object code, or variables that were tried both ways, hold all but
one factor fixed, and what they held is no rival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.config.environments import THREADS
from reports import model
from reports.attribute import code, variables
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.machine import slower_machine
from reports.attribute.making import listed, make, number
from reports.attribute.model import (
    BUILD_MOVED,
    CODE,
    DEFAULT_BACKEND_MOVED,
    ENVIRONMENT_CONFOUNDER,
    KERNEL_CODE_MOVED,
    LATENCY_CLOCK_OR_LOAD,
    LATENCY_LAUNCH_OVERHEAD,
    LATENCY_OPERATOR,
    LATENCY_THREAD_COUNT,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
    UNSUPPORTED_COMBINATION,
    Cause,
    told,
    worse,
)
from reports.attribute.observed import OBJECT, PLACE
from reports.attribute.threads import at_work_alike, threads_told
from reports.attribute.timed import Timed
from reports.compare.differences import EXECUTOR, GPU, SETTING
from reports.compare.factors import DIFFERS, SAME
from reports.model import Seen

REFERENCES = (REFERENCE_MOVED, DEFAULT_BACKEND_MOVED)
# What says why the two sides differ. Other causes are facts of one side, shown within it.
OF_OUTPUTS = (*CODE, *REFERENCES, UNSUPPORTED_COMBINATION)
OF_TIMES = (*CODE, LATENCY_CLOCK_OR_LOAD, LATENCY_LAUNCH_OVERHEAD, LATENCY_OPERATOR, LATENCY_THREAD_COUNT)
CHANCE = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A cause that was given, the cells that it explains, and what was timed where it is one of times."""

    case: Case
    cause: Cause
    timed: Timed | None = None

    @property
    def cells(self) -> list[Cell]:
        return [cell for cell in self.case.cells if cell.row.id in self.cause.rows]

    @property
    def swapped(self) -> str | None:
        """What right and wrong went with where object code was swapped; of times that was not tried."""
        found = None if self.timed is not None else code.swap_of(self.case)
        return found[1].follows if found is not None else None

    @property
    def refused_alike(self) -> bool:
        alike = all(cell.sides[0].status == cell.sides[1].status for cell in self.cells)
        return self.cause.cause == UNSUPPORTED_COMBINATION and alike


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A factor that moved too, and was not varied alone: the class of cause that it would be, or CHANCE."""

    cause: str
    said: str
    parted_by: str
    seen: tuple[Seen, ...] = ()


def graded(case: Case, cause: Cause, timed: Timed | None = None) -> Cause:
    """The cause, as sure as what else moved lets it be, with its rivals as parts of its story."""
    question = Question(case=case, cause=cause, timed=timed)
    if cause.cause not in (OF_TIMES if timed is not None else OF_OUTPUTS) or case.alone or question.refused_alike:
        return cause
    looks = (_code,) if question.swapped == OBJECT else FACTORS  # that held all but the code fixed
    rivals = [rival for look in looks if (rival := look(question)) is not None]
    if not rivals:
        return cause
    capped = replace(cause, grade=worse(cause.grade, STRONG if cause.measured else SUGGESTIVE))
    chance = [
        Seen(text=f"not excluded: {rival.said}. What would part the two: {rival.parted_by}")
        for rival in rivals
        if rival.cause == CHANCE
    ]
    capped = replace(capped, evidence=(*capped.evidence, *chance))
    return told(capped, *(_part(question, each) for each in rivals if each.cause not in (CHANCE, *cause.causes)))


def _part(question: Question, rival: Rival) -> Cause:
    return make(
        question.case,
        rival.cause,
        SUGGESTIVE,
        f"{rival.said}. This moved together with what is called {question.cause.name}, and was not varied alone. What "
        f"would part the two: {rival.parted_by}.",
        question.cells,
        rival.seen,
        about=question.cause.about,
        command=question.cause.next_command,
    )


# -- the factors ------------------------------------------------------------------------------------------


def _code(question: Question) -> Rival | None:
    """Another build, or other machine code from the same."""
    case, cause = question.case, question.cause
    if cause.cause in CODE or not case.is_kernel or case.code.state != DIFFERS or question.swapped == PLACE:
        return None
    if cause.cause in REFERENCES and not any(_by_its_own_code(cell) for cell in question.cells):
        return None
    if cause.cause == LATENCY_CLOCK_OR_LOAD and question.timed is not None and question.timed.around.everywhere:
        return None  # a kernel's code slows no other target
    differences = code.build_differences(case)
    how = "was built otherwise here, to" if differences else "has a source that compiles to"
    return Rival(
        cause=BUILD_MOVED if differences else KERNEL_CODE_MOVED,
        said=f"{case.subject} {how} other machine code",
        parted_by="the same flags and compiler in both environments (`flags:` in matrix.yaml)"
        if differences
        else "the object code of each environment, run in the other"
        if question.timed is None
        else "a build of the same object code in both",
        seen=(case.code.seen, *differences),
    )


def _pytorch(question: Question) -> Rival | None:
    """Of a build that failed where something else goes into it too: its sources may ask for what that PyTorch lacks."""
    failed = any("build_failed" in (side.status for side in cell.sides) for cell in question.cells)
    if question.cause.cause != BUILD_MOVED or not failed or question.case.one_torch:
        return None
    return Rival(
        cause=UNSUPPORTED_COMBINATION,
        said="PyTorch's own headers and libraries are others too",
        parted_by="the same flags and compiler in both environments (`flags:` in matrix.yaml)",
    )


def _by_its_own_code(cell: Cell) -> bool:
    """Whether the kernel's own outputs moved, and are not PyTorch's own, bit for bit."""
    return cell.verdict_moved and cell.bits.state != SAME and not (cell.twins(0) and cell.twins(1))


def _variables(question: Question) -> Rival | None:
    case, cause = question.case, question.cause
    differing = [each for each in case.variables if cause.cause != LATENCY_THREAD_COUNT or each.name != THREADS]
    names = [each.text for each in differing]
    found = variables.tried(case) if case.is_kernel and question.timed is None else None
    if not names or (found is not None and found.follows == PLACE):
        return None
    return Rival(
        cause=ENVIRONMENT_CONFOUNDER,
        said=f"The environments differ in more than PyTorch's version: {listed(names)}",
        parted_by="the same variables in both environments (`variables:` in matrix.yaml)",
        seen=tuple(Seen(text=text) for text in names[:6]),
    )


def _threads(question: Question) -> Rival | None:
    """Of the CPU. They order sums too, and bring out races."""
    case, timed = question.case, question.timed
    one, two = (threads_told(case, name) for name in (case.baseline, case.environment))
    if case.device != "cpu" or one == two or not one or not two:
        return None
    if timed is not None and (question.cause.cause == LATENCY_THREAD_COUNT or at_work_alike(timed)):
        return None
    if timed is None and any(each.name == THREADS for each in case.variables):
        return None  # it is named as what it is
    return Rival(
        cause=ENVIRONMENT_CONFOUNDER if timed is None else LATENCY_THREAD_COUNT,
        said=f"There are {number(one, 'thread')} in the baseline's launches, {two} here",
        parted_by="as many threads in both environments (`variables: {OMP_NUM_THREADS: ...}` in matrix.yaml)",
    )


# Kinds of `Case.differences`, and what each can change: outputs of code that calls PyTorch, anybody's outputs on
# a CPU, anybody's anywhere, or times alone. What comes with PyTorch's own build, or goes into a kernel's, is not here.
OF_PYTORCH = (SETTING,)
OF_THE_HOST = ("libc",)
OF_THE_DEVICE = (GPU, "machine", "cpu_model", "cpu_flags_sha256", "cpu_capability")
OF_A_CALL = ("python", "numpy", EXECUTOR, "kernel_release")


def _surroundings(question: Question) -> Rival | None:
    case, timed = question.case, question.timed
    relevant: tuple[str, ...] = OF_THE_DEVICE
    if timed is not None:
        if timed.around.steady:
            return None  # they are every target's of the same launches, and some stood still
        relevant += (*OF_PYTORCH, *OF_THE_HOST, *OF_A_CALL)
    else:
        calls = not case.is_kernel or any(build is None or build.binds_itself for build in case.builds)
        relevant += (OF_PYTORCH if calls else ()) + (OF_THE_HOST if case.device == "cpu" else ())
    names = [each.text for each in case.differences if each.kind in relevant]
    if not names:
        return None
    return Rival(
        cause=ENVIRONMENT_CONFOUNDER,
        said=f"The environments differ in more than PyTorch's version: {listed(names)}",
        parted_by="an environment that differs in that alone",
        seen=tuple(Seen(text=text) for text in names[:6]),
    )


def _machine(question: Question) -> Rival | None:
    """Its clock, and who else was busy on it."""
    timed = question.timed
    if timed is None or timed.around.steady or question.cause.cause == LATENCY_CLOCK_OR_LOAD:
        return None
    seen = slower_machine(timed)
    if not seen:
        return None
    return Rival(
        cause=LATENCY_CLOCK_OR_LOAD,
        said=f"The machine was not the same: {seen[0].text}",
        parted_by="fresh launches on a quiet machine (--fresh)",
        seen=tuple(seen),
    )


def _chance(question: Question) -> Rival | None:
    """Outputs that differ from call to call differ between environments too, whatever moved."""
    if question.timed is not None:
        return None
    found = [(name, side) for cell in question.cells for name, side in _wavering(question, cell)]
    if not found:
        return None
    name, side = found[0]
    return Rival(
        cause=CHANCE,
        said=f"chance, for {name} gives other bits on the same inputs within one environment too "
        f"({number(side.repeats_differ, 'trial')} in {side.environment})",
        parted_by="the same environment a second time (`replica: 1` in matrix.yaml)",
    )


def _wavering(question: Question, cell: Cell) -> list[tuple[str, model.CorrectnessSide]]:
    if question.cause.cause not in REFERENCES or not question.case.is_kernel:
        sides = [(question.case.subject, side) for side in cell.sides] if question.cause.cause in REFERENCES else []
    else:
        sides = [(each.name, side) for each in cell.references for side in (each.base, each.this)]
    return [(name, side) for name, side in sides if side.repeats_differ > side.inputs_mutated]


FACTORS: tuple[Callable[[Question], Rival | None], ...] = (
    _code,
    _pytorch,
    _variables,
    _threads,
    _surroundings,
    _machine,
    _chance,
)
