"""How sure a cause can be, once for all rules: what else differs between the two sides, and explains as much.

A rule says what points to its cause. It does not know what else moved. Here every factor that differs between the two
environments, that could explain what the cause explains, and that no experiment and no observation excludes, is a
rival: the cause is then never decisive, its card names the rival beside it, and what would separate the two. Where
the mechanism that the cause names was itself measured on both sides and accounts for the change, rivals are what may
have brought it, and it stays strong; where the two only moved together, it is suggested.

An intervention outranks what moved together: swapped object code, or variables that were tried both ways, hold all but
one factor fixed, and what they held is no rival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.worker import protocol
from reports.attribute import causes
from reports.attribute.cards import Shown, card
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Cause, Grade, Kind, combined, worse
from reports.attribute.cells import CellFacts
from reports.attribute.evidence import in_words, listed, load_seen, number
from reports.attribute.times import TimeChange, torch_threads
from reports.attribute.trials import Follows
from reports.attribute.words import Says
from reports.compare.differences import EXECUTOR, GPU, PACKAGES, SETTING, Difference
from reports.compare.factors import DIFFERS, SAME
from reports.model import CorrectnessSide, Seen
from reports.text import apart

# What says why the two sides differ. Other causes are facts of one side, shown within it.
OF_OUTPUTS = (*causes.CODE, *causes.REFERENCES, Kind.UNSUPPORTED_COMBINATION)
OF_TIMES = (*causes.CODE, *causes.LATENCIES)


@dataclass(frozen=True, kw_only=True)
class Given:
    """A cause that a rule gave, the cells that it explains, and the change of times where it is one of times."""

    case: CaseFacts
    cause: Cause
    change: TimeChange | None = None

    @property
    def cells(self) -> list[CellFacts]:
        return [cell for cell in self.case.cells if cell.row.id in self.cause.rows]

    @property
    def swapped(self) -> Follows:
        """What right and wrong followed where object code was swapped; of times that was not tried."""
        return self.case.swap_follows if self.change is None else Follows.UNKNOWN

    @property
    def refused_alike(self) -> bool:
        alike = all(cell.sides[0].status == cell.sides[1].status for cell in self.cells)
        return self.cause.cause == Kind.UNSUPPORTED_COMBINATION and alike


@dataclass(frozen=True, kw_only=True)
class AlsoMoved:
    """A factor that moved too, and was not varied by itself: the kind of cause that it would be, or None for chance."""

    kind: Kind | None
    text: str
    separated_by: str
    seen: tuple[Seen, ...] = ()


def graded(case: CaseFacts, cause: Cause, change: TimeChange | None = None) -> Cause:
    """Return the cause, as sure as what else moved lets it be, with its rivals as its parts."""
    given = Given(case=case, cause=cause, change=change)
    if cause.cause not in (OF_OUTPUTS if change is None else OF_TIMES) or case.alone or given.refused_alike:
        return cause
    factors = (_code,) if given.swapped is Follows.FACTOR else FACTORS  # that held all but the code fixed
    if change is None and case.told_follows is Follows.FACTOR:
        factors = ()  # that held everything
    rivals = [rival for factor in factors if (rival := factor(given)) is not None]
    if not rivals:
        return cause
    chance = [
        Seen(text=f"not excluded: {rival.text}. To tell the two apart: {rival.separated_by}")
        for rival in rivals
        if rival.kind is None
    ]
    grade = worse(cause.grade, Grade.LIKELY if cause.measured else Grade.POSSIBLE)
    parts = [
        card(
            case,
            rival.kind,
            Shown.HINT,
            Says.RIVAL,
            given.cells,
            rival.seen,
            about=cause.about,
            under=cause.under,
            command=cause.next_command,
            rival=rival.text,
            name=cause.name,
            separated_by=rival.separated_by,
        )
        for rival in rivals
        if rival.kind is not None and rival.kind not in cause.causes
    ]
    capped = replace(cause, grade=grade, evidence=(*cause.evidence, *chance))
    return combined(capped, *(replace(part, not_excluded=True, ruled_out=()) for part in parts))


# -- the factors ------------------------------------------------------------------------------------------

SAME_BUILD = "the same flags and compiler in both environments (flags, in matrix.yaml)"


def _code(given: Given) -> AlsoMoved | None:
    """Another build, or other machine code from the same."""
    case, cause = given.case, given.cause
    if cause.cause in causes.CODE or not case.is_kernel or case.code.state != DIFFERS or given.swapped is Follows.PLACE:
        return None
    if cause.cause in causes.REFERENCES and not any(_by_its_own_code(cell) for cell in given.cells):
        return None
    if cause.cause == Kind.LATENCY_CLOCK_OR_LOAD and given.change is not None and given.change.around.everywhere:
        return None  # a kernel's code slows no other target
    swap = "the object code of each environment, run in the other"
    differ = in_words(case.build_differences)
    how = f"had another build in {case.versions[1]} ({differ}), with" if differ else "has a source that compiles to"
    return AlsoMoved(
        kind=Kind.BUILD_MOVED if case.build_differences else Kind.KERNEL_CODE_MOVED,
        text=f"{case.subject} {how} other machine code",
        separated_by=SAME_BUILD
        if case.build_differences
        else swap
        if given.change is None
        else "a build of the same object code in both",
        seen=(case.code.seen, *case.build_differences),
    )


def _pytorch(given: Given) -> AlsoMoved | None:
    """Of a build that failed where something else goes into it too: its sources may ask for what that PyTorch lacks."""
    failed = any("build_failed" in (side.status for side in cell.sides) for cell in given.cells)
    if given.cause.cause != Kind.BUILD_MOVED or not failed or given.case.one_torch:
        return None
    text = "PyTorch's own headers and libraries differ too"
    return AlsoMoved(kind=Kind.UNSUPPORTED_COMBINATION, text=text, separated_by=SAME_BUILD)


def _by_its_own_code(cell: CellFacts) -> bool:
    """Whether the kernel's own outputs moved, and are not PyTorch's own, bit for bit."""
    return cell.verdict_moved and cell.bits.state != SAME and not (cell.twins(0) and cell.twins(1))


def _more_differs(differing: list[Difference], separated_by: str) -> AlsoMoved | None:
    if not differing:
        return None
    texts = [each.text for each in differing]
    return AlsoMoved(
        kind=Kind.ENVIRONMENT_CONFOUNDER,
        text=f"The environments differ in more than PyTorch's version: {listed(texts)}",
        separated_by=separated_by,
        seen=tuple(Seen(text=text) for text in texts[:6]),
    )


def _variables(given: Given) -> AlsoMoved | None:
    case = given.case
    if given.change is None and case.variables_follow is Follows.PLACE:
        return None
    differing = [
        v for v in case.variables if given.cause.cause != Kind.LATENCY_THREAD_COUNT or v.name != protocol.THREADS
    ]
    return _more_differs(differing, "the same variables in both environments (`variables:` in matrix.yaml)")


def _called_packages(given: Given) -> list[Difference]:
    """Those that matrix.yaml gives one of the environments, and numpy, for code that can call them."""
    case = given.case
    if not case.is_kernel or not (case.is_python or all(build and build.binds_itself for build in case.builds)):
        return []
    unmoved = case.unmoved_packages(times=given.change is not None)
    differing = [each for each in case.differences if each.kind in PACKAGES]
    return [each for each in differing if (each.name or each.kind) not in unmoved]


def _packages(given: Given) -> AlsoMoved | None:
    found = _more_differs(_called_packages(given), "that package exchanged alone (the experiment component)")
    return None if found is None else replace(found, kind=Kind.COMPONENT_MOVED)


def _threads(given: Given) -> AlsoMoved | None:
    """Of the CPU. They order sums too, and bring out races."""
    case, change = given.case, given.change
    one, two = (torch_threads(case, name) for name in case.environments)
    if case.device != "cpu" or one == two or not one or not two:
        return None
    if change is not None and (given.cause.cause == Kind.LATENCY_THREAD_COUNT or change.at_work_alike):
        return None
    if change is None and any(each.name == protocol.THREADS for each in case.variables):
        return None  # it is named as what it is
    return AlsoMoved(
        kind=Kind.ENVIRONMENT_CONFOUNDER if change is None else Kind.LATENCY_THREAD_COUNT,
        text=f"There are {apart(case.versions, number(one, 'thread'), two)}",
        separated_by="as many threads in both environments (`variables: {OMP_NUM_THREADS: ...}` in matrix.yaml)",
    )


# Kinds of `CaseFacts.differences`, and what each can change: outputs of code that calls PyTorch, any outputs on a CPU,
# any anywhere, or times alone. What comes with PyTorch's own build, or goes into a kernel's, is not here.
OF_PYTORCH = (SETTING,)
OF_THE_HOST = ("libc",)
OF_THE_DEVICE = (GPU, "machine", "cpu_model", "cpu_flags_sha256", "cpu_capability")
OF_A_CALL = ("python", "numpy", EXECUTOR, "kernel_release")


def _surroundings(given: Given) -> AlsoMoved | None:
    case, change = given.case, given.change
    relevant: tuple[str, ...] = OF_THE_DEVICE
    if change is not None:
        if change.around.steady:
            return None  # they are every target's of the same launches, and some stood still
        relevant += (*OF_PYTORCH, *OF_THE_HOST, *OF_A_CALL)
    else:
        calls = not case.is_kernel or any(build is None or build.binds_itself for build in case.builds)
        relevant += (OF_PYTORCH if calls else ()) + (OF_THE_HOST if case.device == "cpu" else ())
    told = (*case.unmoved_packages(times=change is not None), *(each.kind for each in _called_packages(given)))
    differing = [each for each in case.differences if each.kind in relevant and each.kind not in told]
    return _more_differs(differing, "an environment that differs in that alone")


def _generated(given: Given) -> AlsoMoved | None:
    """Of what compiles at run time: other generated code, or code of which that is not known."""
    own = (Kind.COMPILED_CODE_MOVED, Kind.LATENCY_CLOCK_OR_LOAD, Kind.LATENCY_THREAD_COUNT)
    every = (cell.compiled for cell in given.cells if cell.compiled)
    made = next((each for each in every if each.state != SAME and (each.kinds or each.failed)), None)
    if made is None or given.cause.cause in own or given.swapped is Follows.PLACE:
        return None
    differs = made.state == DIFFERS
    return AlsoMoved(
        kind=Kind.COMPILED_CODE_MOVED,
        text=f"Other code {'was' if differs else 'may have been'} generated for it at run time",
        separated_by="the same call without torch.compile in both environments",
        seen=(Seen(text=made.generated_text, record=made.record),),
    )


def _machine(given: Given) -> AlsoMoved | None:
    """Its clock, and who else was busy on it."""
    change = given.change
    if change is None or change.around.steady or given.cause.cause == Kind.LATENCY_CLOCK_OR_LOAD:
        return None
    seen = load_seen(change)
    if change.clock_moved:
        base, this = given.case.versions
        seen.append(Seen(text=f"the GPU's clock in {this} is {change.clock:.2f} times that in {base}"))
    if not seen:
        return None
    return AlsoMoved(
        kind=Kind.LATENCY_CLOCK_OR_LOAD,
        text=f"The machine was not in the same state: {seen[0].text}",
        separated_by="fresh launches on a quiet machine (--fresh)",
        seen=tuple(seen),
    )


def _chance(given: Given) -> AlsoMoved | None:
    """Outputs that differ from call to call differ between environments too, whatever moved."""
    if given.change is not None or given.cause.cause not in causes.REFERENCES:
        return None
    wavering = [
        (name, side)
        for cell in given.cells
        for name, side in _referred(given.case, cell)
        if side.repeats_differ > side.inputs_mutated
    ]
    if not wavering:
        return None
    name, side = wavering[0]
    trials = number(side.repeats_differ, "trial")
    how = f"gives other bits on the same inputs within one environment too ({trials} in {side.environment})"
    separated_by = "the same environment a second time (`replica: 1` in matrix.yaml)"
    return AlsoMoved(kind=None, text=f"chance, for {name} {how}", separated_by=separated_by)


def _referred(case: CaseFacts, cell: CellFacts) -> list[tuple[str, CorrectnessSide]]:
    """The references that a cause is about, on both sides."""
    if not case.is_kernel:
        return [(case.subject, side) for side in cell.sides]
    return [(each.name, side) for each in cell.references for side in (each.base, each.this)]


FACTORS: tuple[Callable[[Given], AlsoMoved | None], ...] = (
    _code,
    _pytorch,
    _variables,
    _packages,
    _threads,
    _surroundings,
    _generated,
    _machine,
    _chance,
)
