"""How sure a cause can be, once for all rules: what else differs between the two sides, and explains as much.

A rule says what points to its cause. It does not know what else moved. Here every factor that differs between the two
environments, that could explain what the cause explains, and that no experiment and no observation excludes, is a
rival: the cause is then never proven, its card names the rival beside it, and what would separate the two. Where
the mechanism that the cause names was itself measured on both sides and accounts for the change, rivals are what may
have brought it, and it stays likely; where the two only moved together, it is possible.

An intervention outranks what moved together: swapped object code, or variables that were tried both ways, hold all but
one factor fixed, and what they held is no rival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from harness.worker import protocol
from reports.attribute import causes
from reports.attribute.cards import card
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Cause, Grade, Kind, combined, worse
from reports.attribute.cells import CellFacts
from reports.attribute.finding import Finding, Shown
from reports.attribute.times import TimeChange, torch_threads
from reports.attribute.trials import Follows
from reports.attribute.wording import listed
from reports.compare.differences import EXECUTOR, GPU, PACKAGES, SETTING, Difference
from reports.compare.factors import DIFFERS, SAME
from reports.model import Seen
from reports.text import apart, count_of, short

# What says why the two sides differ. Other causes are facts of one side, shown within it.
OF_OUTPUTS = (*causes.CODE, *causes.REFERENCES, Kind.UNSUPPORTED_COMBINATION)
OF_TIMES = (*causes.CODE, *causes.LATENCIES)


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """A cause that a rule gave, the cells that it explains, and the change of times where it is one of times."""

    case: CaseFacts
    cause: Cause
    change: TimeChange | None = None

    @property
    def kind(self) -> Kind:
        return self.cause.cause

    @property
    def cells(self) -> list[CellFacts]:
        return [cell for cell in self.case.cells if cell.row.id in self.cause.rows]

    @property
    def swapped(self) -> Follows:
        """What right and wrong followed where object code was swapped; of times that was not tried."""
        return self.case.swap_follows if self.change is None else Follows.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class AlsoMoved:
    """A factor that moved too, and was not varied by itself: the kind of cause that it would be, or None for chance."""

    kind: Kind | None
    text: str
    separated_by: str
    seen: tuple[Seen, ...] = ()


def graded(case: CaseFacts, cause: Cause, change: TimeChange | None = None) -> Cause:
    """Return the cause, as sure as what else moved lets it be, with its rivals as its parts."""
    given = Suspicion(case=case, cause=cause, change=change)
    if cause.cause not in (OF_OUTPUTS if change is None else OF_TIMES) or case.alone or _refused_alike(given):
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
    parts = [_part(given, rival.kind, rival) for rival in rivals if rival.kind and rival.kind not in cause.causes]
    return combined(replace(cause, grade=grade, evidence=(*cause.evidence, *chance)), *parts)


def _part(given: Suspicion, kind: Kind, rival: AlsoMoved) -> Cause:
    finding = Finding(
        cells=given.cells,
        shown=Shown.HINT,
        template="rival",
        seen=rival.seen,
        under=given.cause.under,
        command=given.cause.next_command,
        words={"rival": rival.text, "name": given.cause.name, "separated_by": rival.separated_by},
    )
    return replace(card(given.case, kind, finding, given.change), not_excluded=True, ruled_out=(), figures=())


def _refused_alike(given: Suspicion) -> bool:
    alike = all(cell.sides[0].status == cell.sides[1].status for cell in given.cells)
    return given.kind == Kind.UNSUPPORTED_COMBINATION and alike


# -- the factors ------------------------------------------------------------------------------------------

SAME_BUILD = "the same flags and compiler in both environments (flags, in matrix.yaml)"


def _code(given: Suspicion) -> AlsoMoved | None:
    """Another build, or other machine code from the same."""
    case, change = given.case, given.change
    if given.kind in causes.CODE or not case.is_kernel or case.code.state != DIFFERS or given.swapped is Follows.PLACE:
        return None
    if given.kind in causes.REFERENCES and not any(_by_its_own_code(cell) for cell in given.cells):
        return None
    if given.kind == Kind.LATENCY_CLOCK_OR_LOAD and change is not None and change.around.everywhere:
        return None  # a kernel's code slows no other target
    built = case.build_differences
    how, swap = "has a source that compiles to", "the object code of each environment, run in the other"
    if built:
        differ = "; ".join(short(seen.text, 120) for seen in built[:2])
        how, swap = f"had another build in {case.versions[1]} ({differ}), with", SAME_BUILD
    return AlsoMoved(
        kind=Kind.BUILD_MOVED if built else Kind.KERNEL_CODE_MOVED,
        text=f"{case.subject} {how} other machine code",
        separated_by=swap if change is None or built else "a build of the same object code in both",
        seen=(case.code.seen, *built),
    )


def _by_its_own_code(cell: CellFacts) -> bool:
    """Return whether the kernel's own outputs moved, and are not PyTorch's own, bit for bit."""
    return cell.verdict_moved and cell.bits.state != SAME and not (cell.twins(0) and cell.twins(1))


def _pytorch(given: Suspicion) -> AlsoMoved | None:
    """Of a build that failed where something else goes into it too: its sources may ask for what that PyTorch lacks."""
    failed = any("build_failed" in (side.status for side in cell.sides) for cell in given.cells)
    if given.kind != Kind.BUILD_MOVED or not failed or given.case.one_torch:
        return None
    text = "PyTorch's own headers and libraries differ too"
    return AlsoMoved(kind=Kind.UNSUPPORTED_COMBINATION, text=text, separated_by=SAME_BUILD)


def _more_differs(
    differing: Iterable[Difference], separated_by: str, kind: Kind = Kind.ENVIRONMENT_CONFOUNDER
) -> AlsoMoved | None:
    texts = [each.text for each in differing]
    if not texts:
        return None
    return AlsoMoved(
        kind=kind,
        text=f"The environments differ in more than PyTorch's version: {listed(texts)}",
        separated_by=separated_by,
        seen=tuple(Seen(text=text) for text in texts[:6]),
    )


def _variables(given: Suspicion) -> AlsoMoved | None:
    case = given.case
    if given.change is None and case.variables_follow is Follows.PLACE:
        return None
    differing = [v for v in case.variables if given.kind != Kind.LATENCY_THREAD_COUNT or v.name != protocol.THREADS]
    return _more_differs(differing, "the same variables in both environments (`variables:` in matrix.yaml)")


def _called_packages(given: Suspicion) -> list[Difference]:
    """Return those that matrix.yaml gives one of the environments, and numpy, for code that can call them."""
    case = given.case
    if not case.is_kernel or not (case.is_python or all(build and build.binds_itself for build in case.builds)):
        return []
    unmoved = case.unmoved_packages(times=given.change is not None)
    return [each for each in case.differences if each.kind in PACKAGES and (each.name or each.kind) not in unmoved]


def _packages(given: Suspicion) -> AlsoMoved | None:
    separated_by = "that package exchanged alone (the experiment component)"
    return _more_differs(_called_packages(given), separated_by, Kind.COMPONENT_MOVED)


def _threads(given: Suspicion) -> AlsoMoved | None:
    """Of the CPU. They order sums too, and bring out races."""
    case, change = given.case, given.change
    one, two = (torch_threads(case, name) for name in case.environments)
    if case.device != "cpu" or one == two or not one or not two:
        return None
    if change is not None and (given.kind == Kind.LATENCY_THREAD_COUNT or change.at_work_alike):
        return None
    if change is None and any(each.name == protocol.THREADS for each in case.variables):
        return None  # it is named as what it is
    return AlsoMoved(
        kind=Kind.ENVIRONMENT_CONFOUNDER if change is None else Kind.LATENCY_THREAD_COUNT,
        text=f"There are {apart(case.versions, count_of(one, 'thread'), two)}",
        separated_by="as many threads in both environments (`variables: {OMP_NUM_THREADS: ...}` in matrix.yaml)",
    )


# Kinds of `CaseFacts.differences`, and what each can change: outputs of code that calls PyTorch, any outputs on a CPU,
# any anywhere, or times alone. What comes with PyTorch's own build, or goes into a kernel's, is not here.
OF_THE_DEVICE = (GPU, "machine", "cpu_model", "cpu_flags_sha256", "cpu_capability")
OF_A_CALL = ("python", "numpy", EXECUTOR, "kernel_release")


def _surroundings(given: Suspicion) -> AlsoMoved | None:
    case, change = given.case, given.change
    if change is not None and change.around.steady:
        return None  # they are every target's of the same launches, and some stood still
    calls = not case.is_kernel or any(build is None or build.binds_itself for build in case.builds)
    relevant = {*OF_THE_DEVICE, *(OF_A_CALL if change is not None else ())}
    relevant |= {SETTING} if calls or change is not None else set()
    relevant |= {"libc"} if case.device == "cpu" or change is not None else set()
    told = {*case.unmoved_packages(times=change is not None), *(each.kind for each in _called_packages(given))}
    differing = [each for each in case.differences if each.kind in relevant - told]
    return _more_differs(differing, "an environment that differs in that alone")


def _generated(given: Suspicion) -> AlsoMoved | None:
    """Of what compiles at run time: other generated code, or code of which that is not known."""
    own = (Kind.COMPILED_CODE_MOVED, Kind.LATENCY_CLOCK_OR_LOAD, Kind.LATENCY_THREAD_COUNT)
    every = (cell.compiled for cell in given.cells if cell.compiled)
    made = next((each for each in every if each.state != SAME and (each.kinds or each.failed)), None)
    if made is None or given.kind in own or given.swapped is Follows.PLACE:
        return None
    return AlsoMoved(
        kind=Kind.COMPILED_CODE_MOVED,
        text=f"Other code {'was' if made.state == DIFFERS else 'may have been'} generated for it at run time",
        separated_by="the same call without torch.compile in both environments",
        seen=(Seen(text=made.generated_text, record=made.record),),
    )


def _machine(given: Suspicion) -> AlsoMoved | None:
    """Its clock, and who else was busy on it."""
    change = given.change
    if change is None or change.around.steady or given.kind == Kind.LATENCY_CLOCK_OR_LOAD:
        return None
    seen = list(change.loads_seen)
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


def _chance(given: Suspicion) -> AlsoMoved | None:
    """Outputs that differ from call to call differ between environments too, whatever moved."""
    case = given.case
    if given.change is not None or given.kind not in causes.REFERENCES:
        return None
    sides = [(case.subject, side) for cell in given.cells for side in cell.sides]
    if case.is_kernel:
        sides = [(r.name, side) for cell in given.cells for r in cell.references for side in (r.base, r.this)]
    for name, side in sides:
        if side.repeats_differ > side.inputs_mutated:
            trials = count_of(side.repeats_differ, "trial")
            how = f"gives other bits on the same inputs within one environment too ({trials} in {side.environment})"
            separated_by = "the same environment a second time (`replica: 1` in matrix.yaml)"
            return AlsoMoved(kind=None, text=f"chance, for {name} {how}", separated_by=separated_by)
    return None


FACTORS: tuple[Callable[[Suspicion], AlsoMoved | None], ...] = (
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
