"""What happened to one kernel, operator or reference: its outputs, times and memory over all versions and workloads.

The sentences are macros of reports/templates/subject.txt.j2. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from packaging.version import InvalidVersion
from packaging.version import Version as Number

from harness.worker import protocol
from harness.worker.protocol import Fault
from reports import model
from reports.compare.memory import memory_open
from reports.compare.outputs import by_other_type, lacks_operator, notes_text
from reports.compare.properties import differs_though_right, unrepeatable
from reports.compare.rows import correctness_moved
from reports.load.groups import grouped
from reports.model import Comparison, CorrectnessSide, Judged, Latency, LatencySide
from reports.sentences import sentence
from reports.text import end_text, time_text, together


class State(str, Enum):
    """What is said of a subject, worst first."""

    BROKE = "broke"
    WRONG = "wrong"
    UNREPEATABLE = "not repeatable"
    DOES_NOT_RUN = "does not run"
    LATENT = "latent bug"  # it passes every trial, and a fault in it is proven all the same
    COMPUTES_ELSE = "computes something else"
    DRAWS_ELSE = "draws other numbers"
    LESS_EXACT = "less exact"
    RETYPED = "other type"
    SLOWER = "slower"
    MORE_MEMORY = "more memory"
    ABSENT = "not run"
    UNDECIDED = "undecided"
    NEARLY = "time changed slightly"
    REFUSED = "refused"
    OPEN_TIME = "right but time undecided"
    FIXED = "fixed"
    SUPPORTED = "newly supported"
    MORE_EXACT = "more exact"
    FASTER = "faster"
    LESS_MEMORY = "less memory"
    RIGHT = "right"  # and nothing to compare with
    FINE = "fine"

    __str__ = str.__str__

    @property
    def rank(self) -> int:
        return ORDER.index(self)

    @property
    def is_worse(self) -> bool:
        """Return whether something got worse, or is wrong."""
        return self.rank < State.NEARLY.rank and self is not State.ABSENT


ORDER = tuple(State)
NOT_RUN = "not_run"


class End(str, Enum):
    """What one side came to, worst first."""

    WRONG = "wrong"
    WRONG_WHEN_TIMED = "wrong when timed"  # right when it was validated
    UNREPEATABLE = "not repeatable"  # which `deterministic: true` asks for, though every output is within tolerance
    UNBUILT = "does not build"
    UNLOADED = "does not load"
    CRASHES = "crashes"
    TIMES_OUT = "times out"
    KILLED = "is killed"
    CRASHES_WHEN_TIMED = "crashes when timed"
    TIMES_OUT_WHEN_TIMED = "times out when timed"
    KILLED_WHEN_TIMED = "is killed when timed"
    REFUSED = "refused"
    NOT_THERE = "not there"  # refused, since this PyTorch has no such operator
    ABSENT = "not run"
    SKIPPED = "skipped"  # not run, for no fault of its own
    OPEN = "cannot be judged"
    RIGHT = "right"

    __str__ = str.__str__


ENDS = {
    protocol.OK: End.RIGHT,
    protocol.WRONG: End.WRONG,
    protocol.BUILD_FAILED: End.UNBUILT,
    protocol.UNSUPPORTED: End.REFUSED,
    protocol.UNDECIDABLE: End.OPEN,
    protocol.CRASHED: End.CRASHES,
    protocol.TIMED_OUT: End.TIMES_OUT,
    protocol.KILLED: End.KILLED,
}
WHEN_TIMED = {
    protocol.WRONG: End.WRONG_WHEN_TIMED,
    protocol.CRASHED: End.CRASHES_WHEN_TIMED,
    protocol.TIMED_OUT: End.TIMES_OUT_WHEN_TIMED,
    protocol.KILLED: End.KILLED_WHEN_TIMED,
}
BAD = frozenset(list(End)[: list(End).index(End.REFUSED)])
WRONGS = frozenset({End.WRONG, End.WRONG_WHEN_TIMED})
END_COLOURS = {
    **dict.fromkeys((*WRONGS, End.UNREPEATABLE), model.FAILING),
    **dict.fromkeys((End.REFUSED, End.NOT_THERE), model.UNSUPPORTED),
    **dict.fromkeys((End.ABSENT, End.SKIPPED), NOT_RUN),
    End.OPEN: model.UNDECIDED,
    End.RIGHT: model.PASS,
}
UNKNOWN = (State.UNDECIDED, State.OPEN_TIME)
SAID = 2  # clauses of a line
COARSE = 0.1  # the smallest effect that counts, from which a time that did not change is told with it


def find_end(side: CorrectnessSide) -> End:
    if side.when_timed:
        return WHEN_TIMED[side.status]
    if side.unloaded:
        return End.UNLOADED
    if side.status == protocol.OK and side.off_stream:
        return End.WRONG
    if side.status == protocol.WRONG and differs_though_right(side):
        return End.UNREPEATABLE
    return ENDS.get(side.status, End.ABSENT)


def end_word(side: CorrectnessSide) -> End:
    """Return the same for people: an operator that a version lacks is not refused there, and what kernel-matrix could
    not measure was skipped."""
    end = find_end(side)
    if end is End.ABSENT and side.fault is not Fault.SUBJECT:
        return End.SKIPPED
    return End.NOT_THERE if end is End.REFUSED and lacks_operator(side) else end


def correctness_word(row: Comparison) -> str:
    """Return what to call a verdict whose own word is wrong: what only does not repeat is not wrong."""
    found = {find_end(row.correctness.baseline), find_end(row.correctness.this)}
    return End.UNREPEATABLE if End.UNREPEATABLE in found <= {End.UNREPEATABLE, End.RIGHT} else ""


def sides_of(rows: Iterable[Comparison]) -> dict[str, CorrectnessSide]:
    """Return both sides of one subject on one workload by environment, the baseline first."""
    found: dict[str, CorrectnessSide] = {}
    for row in rows:
        if not row.alone:
            found.setdefault(row.baseline, _with_timed(row.correctness.baseline, [each.baseline for each in row.timed]))
        found[row.environment] = _with_timed(row.correctness.this, [each.this for each in row.timed])
    return found


def _with_timed(side: CorrectnessSide, timed: Iterable[LatencySide]) -> CorrectnessSide:
    """Return what was right in validation with what its launches found."""
    for each in timed if find_end(side) is End.RIGHT else ():
        status = protocol.WRONG if each.wrong_output else each.status
        if status in WHEN_TIMED:
            ended: dict[str, Any] = {"message": each.message, "log_excerpt": "", "ended_after_s": each.ended_after_s}
            return replace(side, status=status, when_timed=True, **ended)
    return side


def by_workload(rows: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    return grouped((row.workload, row) for row in rows)


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """One subject in one version: its outputs, and its time against the baseline's; each with a verdict for colour. Its
    memory, where that moved."""

    outputs: str
    verdict: str
    time: str = ""
    time_verdict: str = ""
    memory: str = ""
    memory_verdict: str = ""


class Tail(Enum):
    """What is said after how the versions' outputs ended."""

    NONE = ""
    CHANCE = "chance"
    NOT_KNOWN = "not known"
    MORE_OFTEN = "more often"
    MAYBE_MORE_OFTEN = "maybe more often"
    NOT_CAUSED = "not caused"


@dataclass(frozen=True, kw_only=True)
class OutputsFound:
    """What came of one workload in all versions. `lead`: what happened in `places`; `ends`: how each version ended."""

    state: State
    ends: tuple[tuple[str, End], ...]
    lead: str = ""
    places: tuple[str, ...] = ()
    tail: Tail = Tail.NONE


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One thing to say of a subject, and the comparisons that it is about."""

    state: State
    text: str
    rows: tuple[Comparison, ...]


Moved = tuple[Comparison, str, Judged]  # with the mode of the time, or "memory"


def distance(judged: Judged) -> float:
    """Return how far a ratio is from 1."""
    return abs(math.log(judged.ratio or 1.0))


class Subject:
    """One subject's rows, none of which is of an A/A control. `names`: of environments; `same_build`: nothing is known
    of another build, which may be why it moved. `faults`: those that are proven, whatever trials say."""

    def __init__(
        self,
        rows: Sequence[Comparison],
        names: Mapping[str, str],
        same_build: bool = True,
        faults: Sequence[str] = (),
    ) -> None:
        self.rows, self.names, self.same_build = rows, names, same_build
        self.workloads = by_workload(rows)
        ends = [(row, set(map(find_end, sides_of([row]).values()))) for row in rows]
        self.right_rows = [row for row, found in ends if found == {End.RIGHT}]
        self.ran_rows = [row for row, found in ends if found <= {End.RIGHT, End.OPEN}]  # whose times count
        passes = any(End.RIGHT in found for _, found in ends) and not any(found & BAD for _, found in ends)
        self.faults = tuple(faults) if passes else ()
        # What is known is said first, and what is well of outputs before times.
        every = [*self._clauses_on_outputs(), *self._clauses_on_measures(), *self._clauses_on_open_times()]
        least = State.NEARLY.rank
        self.clauses = sorted(every, key=lambda each: (each.state in UNKNOWN, min(each.state.rank, least)))
        self.state = min((each.state for each in every), key=ORDER.index)
        times = [timed for row in rows for timed in row.timed]
        if self.state is State.RIGHT and all(each.verdict == model.PASS for each in times) and not rows[0].alone:
            self.state = State.FINE

    @property
    def base(self) -> str:
        return self.names.get(self.rows[0].baseline, self.rows[0].baseline)

    @property
    def text(self) -> str:
        """Return the first of what is said; `more` is the rest."""
        said = "; ".join(each.text for each in self.clauses[:SAID])
        if self.state is not State.FINE:
            return said
        effect = max(timed.min_effect for row in self.rows for timed in row.timed)
        in_memory = all(row.memory.verdict == model.PASS for row in self.rows)
        return sentence("subject", "fine", said, effect if effect >= COARSE else None, in_memory)

    @property
    def more(self) -> list[str]:
        sides = [pair for row in self.rows for pair in sides_of([row]).items()]
        return [
            *(each.text for each in self.clauses[SAID:]),
            *notes_text(sides, self.where),
            *unrepeatable(self.rows),
        ]

    def where(self, environments: Sequence[str], ends: Mapping[str, Sequence[CorrectnessSide]] = {}) -> str:
        """Return in which versions something is so, such as "in 2.1.0 and in 2.5.0". `ends`: by environment, those of
        processes that ended there, of which it then says after how long they did."""
        ended = {name: text for name, known in ends.items() if (text := end_text(known))}
        if len(environments) > 2 and len(environments) == len(self.names) and not ended:
            return f"in all {len(environments)} versions"
        return together(f"in {self.names.get(name, name)}{ended.get(name, '')}" for name in environments)

    def on(self, rows: Iterable[Comparison]) -> str:
        """Return on which workloads, where these are not all."""
        names = list(by_workload(rows))
        if len(names) == len(self.workloads):
            return ""
        return f" on {names[0]}" if len(names) == 1 else f" on {len(names)} of {len(self.workloads)} workloads"

    def place(self, rows: Sequence[Comparison]) -> str:
        """Return the versions in which these moved: since the first, or in each."""
        names = [name for name in self.names if any(row.environment == name for row in rows)]
        if self.same_build and self._is_since(names, rows):
            return f"since {self.names[names[0]]}"
        return self.where(names)

    def _is_since(self, names: Sequence[str], rows: Sequence[Comparison]) -> bool:
        """Return whether it is so of every workload in each of these versions, they are the last, and versions
        ascend."""
        order = list(self.names)
        if list(names) != order[order.index(names[0]) :]:
            return False
        if any({row.environment for row in own} != set(names) for own in by_workload(rows).values()):
            return False
        try:
            numbers = [Number(self.names[name]) for name in order]
        except InvalidVersion:
            return False
        return numbers == sorted(numbers)

    def _clause(self, state: State, macro: str, rows: Iterable[Comparison], /, **facts: Any) -> Clause:
        own = tuple({row.id: row for row in rows}.values())
        return Clause(state=state, rows=own, text=sentence("subject", macro, subject=self, rows=own, **facts))

    # -- outputs

    def _clauses_on_outputs(self) -> list[Clause]:
        clauses = []
        if self.faults:
            passing = {
                name for row in self.rows for name, side in sides_of([row]).items() if find_end(side) is End.RIGHT
            }
            places = [name for name in self.names if name in passing]
            clauses.append(self._clause(State.LATENT, "latent", self.rows, places=places))
        found: dict[OutputsFound, list[Comparison]] = {}
        for rows in self.workloads.values():
            found.setdefault(self._judge_outputs(rows), []).extend(rows)
        for outputs, rows in found.items():
            if not (self.faults and outputs.state is State.RIGHT):
                clauses.append(self._clause(outputs.state, "outputs", rows, found=outputs))
        for text, rows in by_other_type(self.rows, self.names).items():
            clauses.append(self._clause(State.RETYPED, "retyped", rows, text=text))
        return clauses

    def _judge_outputs(self, rows: Sequence[Comparison]) -> OutputsFound:
        """Judge one workload."""
        sides = sides_of(rows)
        found = {name: find_end(side) for name, side in sides.items()}
        verdicts = {row.environment: row.correctness.verdict for row in rows}
        made = partial(OutputsFound, ends=tuple((name, end_word(side)) for name, side in sides.items()))
        first, *others = found.values()
        ends = set(found.values())

        def places_of(*wanted: End) -> tuple[str, ...]:
            return tuple(name for name, end in found.items() if end in wanted)

        if another := [row for row in rows if row.correctness.verdict in model.ANOTHER_MEANING]:
            state = State.DRAWS_ELSE if another[0].correctness.meaning is None else State.COMPUTES_ELSE
            return made(state=state, places=tuple(row.environment for row in another))
        if ends & BAD:
            return self._judge_bad(found, verdicts, made)
        if first in (End.RIGHT, End.OPEN) and End.REFUSED in others:
            return made(state=State.BROKE, lead="no longer supported", places=places_of(End.REFUSED)[:1])
        if End.ABSENT in ends:
            # Of one environment that was evaluated alone nothing is compared, and something is known.
            is_right = first is End.ABSENT and set(others) == {End.RIGHT}
            return made(state=State.RIGHT if is_right else State.ABSENT)
        if ends == {End.REFUSED}:
            return made(state=State.REFUSED)
        if first is End.REFUSED:
            new = places_of(End.RIGHT, End.OPEN)[:1]
            return made(state=State.SUPPORTED, lead="newly supported", places=new)
        if End.OPEN in ends or (not rows[0].alone and model.UNDECIDED in verdicts.values()):
            return made(state=State.UNDECIDED)
        for verdict, state in ((model.LESS_EXACT, State.LESS_EXACT), (model.MORE_EXACT, State.MORE_EXACT)):
            if changed := tuple(name for name in verdicts if verdicts[name] == verdict):
                return made(state=state, places=changed)
        return made(state=State.RIGHT)

    def _judge_bad(
        self, found: Mapping[str, End], verdicts: Mapping[str, str], made: Callable[..., OutputsFound]
    ) -> OutputsFound:
        """Judge what is wrong, or has no output, in some version."""
        names = list(found)
        first, *others = found.values()
        ends = set(found.values())
        stops = (set(others) & BAD) - WRONGS - {End.UNREPEATABLE}
        if first is End.RIGHT or (first is End.OPEN and stops and not set(others) & WRONGS):
            broke = [name for name in names if found[name] in BAD and verdicts.get(name) in model.WORSE]
            if broke:
                return made(state=State.BROKE, lead="broke", places=(broke[0],))
            return made(state=State.WRONG, tail=Tail.CHANCE)
        if first in (End.ABSENT, End.OPEN):
            return made(state=State.WRONG, tail=Tail.NOT_KNOWN)
        worst = State.UNREPEATABLE if End.UNREPEATABLE in ends else State.DOES_NOT_RUN
        worst = State.WRONG if ends & WRONGS else worst
        if first is End.REFUSED or not others:
            return made(state=worst)
        if set(others) == {End.RIGHT}:
            if first in (End.UNBUILT, End.UNLOADED):
                lead = "builds" if first is End.UNBUILT else "loads"
                return made(state=State.FIXED, lead=lead, places=tuple(names[1:]))
            if all(verdict == model.FIXED for verdict in verdicts.values()):
                return made(state=State.FIXED, lead="fixed", places=(names[1],))
            return made(state=worst, tail=Tail.CHANCE)
        if len(ends) > 1:
            return made(state=worst)
        if often := tuple(name for name, verdict in verdicts.items() if verdict == model.REGRESSED):
            return made(state=State.WRONG, tail=Tail.MORE_OFTEN, places=often)
        if first in (End.WRONG, End.UNREPEATABLE) and model.UNDECIDED in verdicts.values():
            return made(state=State.WRONG, tail=Tail.MAYBE_MORE_OFTEN)
        return made(state=worst, tail=Tail.NOT_CAUSED)

    # -- times and memory, of right outputs alone

    def _clauses_on_measures(self) -> list[Clause]:
        timed: list[Moved] = [(row, mode, each) for row in self.ran_rows for mode, each in row.modes.items()]
        used: list[Moved] = [(row, "memory", row.memory) for row in self.ran_rows]
        about = [each for each in timed if each[2].verdict == model.ABOUT and not each[0].alone]
        slower = [each for each in about if (each[2].ratio or 1.0) >= 1]
        groups = (
            (State.SLOWER, [each for each in timed if each[2].verdict == model.REGRESSED]),
            (State.FASTER, [each for each in timed if each[2].verdict == model.IMPROVED]),
            (State.NEARLY, slower),
            (State.NEARLY, [each for each in about if each not in slower]),
            (State.MORE_MEMORY, [each for each in used if each[2].verdict == model.REGRESSED]),
            (State.LESS_MEMORY, [each for each in used if each[2].verdict == model.IMPROVED]),
        )
        return [self._clause_on_measure(state, moved) for state, moved in groups if moved]

    def _clause_on_measure(self, state: State, moved: Sequence[Moved]) -> Clause:
        """Tell the one that moved farthest. What is slower in its backward pass is a slower step, too, unless that was
        not seen."""
        told = [each for each in moved if each[1] != model.BACKWARD] or moved
        told = sorted(told, key=lambda each: -distance(each[2]))
        rows = [row for row, _, _ in told]
        return self._clause(
            state,
            "measure",
            (row for row, _, _ in moved),
            state=state,
            told=tuple({row.id: row for row in rows}.values()),
            place=self.place(rows),
            judged=told[0][2],
            modes=list({mode for _, mode, _ in told}),
            parts=next((row.parts for row in rows if row.parts), ""),
            least=max(each.min_effect for _, _, each in moved) if state is State.NEARLY else None,
        )

    def _clauses_on_open_times(self) -> list[Clause]:
        undecided = self.open_times
        seen = [timed for _, timed in undecided if timed.ratio is not None]
        farthest = max(seen, key=distance, default=None)
        rows = [row for row, _ in undecided]
        return [self._clause(State.OPEN_TIME, "open_time", rows, farthest=farthest, seen=seen)] if rows else []

    @property
    def open_times(self) -> list[tuple[Comparison, Latency]]:
        """Return times of right outputs that are undecided."""
        rows = [row for row in self.ran_rows if not row.alone]
        return [(row, timed) for row in rows for timed in row.timed if timed.verdict == model.UNDECIDED]

    # -- the grid

    def cell(self, environment: str) -> GridCell:
        """Return one version's outputs and times over all workloads."""
        rows = [row for row in self.rows if environment in (row.environment, row.baseline)]
        counted = Counter(end_word(sides_of(own)[environment]) for own in by_workload(rows).values())
        worst = next((end for end in End if counted[end]), End.ABSENT)
        is_latent = worst is End.RIGHT and bool(self.faults)
        own = [row for row in rows if row.environment == environment and not row.alone]
        rate = sides_of(rows[:1])[environment].rate if len(self.workloads) == 1 and rows else None
        moved = any(row.correctness.verdict in model.WORSE and correctness_moved(row) for row in own)
        verdict = END_COLOURS.get(worst, model.BROKEN)
        if moved and worst not in (End.ABSENT, End.SKIPPED):
            verdict = model.REGRESSED
        elif is_latent:
            verdict = model.FAILING
        another = next((each for row in own if (each := row.correctness.verdict) in model.ANOTHER_MEANING), "")
        outputs = sentence("subject", "cell", worst, counted, is_latent, another, rate)
        if own:
            right = [row for row in own if row in self.right_rows] or own
            return GridCell(outputs=outputs, verdict=another or verdict, **_time_cell(right), **_memory_cell(right))
        medians = {row.latency.baseline.median_us for row in rows} - {None}
        one = next(iter(medians)) if len(self.workloads) == 1 and medians else None
        return GridCell(outputs=outputs, verdict=verdict, time=time_text(one) if one else "")


def _worst(measured: Iterable[Judged]) -> Judged:
    return min(measured, key=lambda each: (model.VERDICTS.index(each.verdict), -distance(each)))


def _time_cell(rows: Sequence[Comparison]) -> dict[str, str]:
    """Return the worst of each row's times."""
    measured = [[timed for timed in row.timed if timed.ratio] for row in rows]
    times = [min(own, key=lambda each: model.VERDICTS.index(each.verdict)) for own in measured if own]
    if not times:
        return {}
    is_wrong = any(side.wrong_output for each in times for side in (each.baseline, each.this))
    text = sentence("subject", "time", times, is_wrong)
    return {"time": text} if is_wrong else {"time": text, "time_verdict": _worst(times).verdict}


def _memory_cell(rows: Sequence[Comparison]) -> dict[str, str]:
    """Return where it moved, or may have, of all rows the one that moved farthest."""
    moved = [row.memory for row in rows if row.memory.verdict in (model.REGRESSED, model.IMPROVED)]
    moved = moved or [row.memory for row in rows if memory_open(row)]
    if not moved:
        return {}
    worst = _worst(moved)
    return {"memory": sentence("subject", "memory", worst), "memory_verdict": worst.verdict}


def places_text(
    subject: Subject, places: Iterable[tuple[str, str]], ends: Mapping[str, Sequence[CorrectnessSide]] = {}
) -> str:
    """Return on which workloads and in which versions something is so."""
    workloads, environments = (list(dict.fromkeys(each)) for each in zip(*places, strict=True))
    return f"{listed_text(workloads)}, {subject.where(environments, ends)}"


def listed_text(names: Iterable[str]) -> str:
    """Return workloads, or how many."""
    every = list(dict.fromkeys(names))
    return ", ".join(every) if len(every) < 4 else f"{len(every)} workloads"
