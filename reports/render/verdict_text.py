"""What happened to one kernel or reference, in words: its outputs and times over all versions and workloads. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.version import InvalidVersion
from packaging.version import Version as Number

from harness.worker import protocol
from harness.worker.protocol import FailureKind, Fault
from reports import model
from reports.compare.meaning import meaning_text
from reports.compare.memory import memory_text
from reports.compare.outputs import by_other_type, notes_text
from reports.compare.properties import differs_though_right, unrepeatable
from reports.compare.rows import correctness_moved
from reports.model import Comparison, CorrectnessSide, Latency, LatencySide
from reports.render.grid import GridCell, memory_cell, moved_text, time_cell
from reports.text import change_text, end_text, memory_change, percent, rate_text, time_text, together

# What one side came to.
RIGHT, WRONG, UNBUILT, UNLOADED, REFUSED = "right", "wrong", "does not build", "does not load", "refused"
UNREPEATABLE = "not repeatable"  # which `deterministic: true` asks for, though every output is within tolerance
OPEN, ABSENT = "cannot be judged", "not run"
SKIPPED = "skipped"  # in words: not run, for no fault of its own
NOT_THERE = "not there"
STOPPED = {protocol.CRASHED: "crashes", protocol.TIMED_OUT: "times out", protocol.KILLED: "is killed"}
# Right when it was validated, and not when it was timed.
WHEN_TIMED = {status: f"{word} when timed" for status, word in {protocol.WRONG: WRONG, **STOPPED}.items()}
BY_CHANCE = ": it is undecided whether the upgrade or chance did it"
WRONGS = (WRONG, WHEN_TIMED[protocol.WRONG])
BAD = (*WRONGS, UNREPEATABLE, UNBUILT, UNLOADED, *STOPPED.values(), *list(WHEN_TIMED.values())[1:])

# Worst first: the state of a subject, and the verdict whose colour it has.
BROKE, LESS_EXACT, SLOWER, UNDECIDED, NEARLY, OPEN_TIME, DOES_NOT_RUN, FIXED, SUPPORTED, MORE_EXACT, FASTER, FINE = (
    "broke",
    "less exact",
    "slower",
    "undecided",
    "time changed slightly",
    "right but time undecided",
    "does not run",
    "fixed",
    "newly supported",
    "more exact",
    "faster",
    "fine",
)
COMPUTES_ELSE, DRAWS_ELSE = "computes something else", "draws other numbers"
MORE_MEMORY, LESS_MEMORY, RETYPED = "more memory", "less memory", "other type"
LATENT = "latent bug"  # it passes every trial, and a fault in it is proven all the same
NOT_RUN = "not_run"
STATES = {
    BROKE: model.REGRESSED,
    WRONG: model.FAILING,
    UNREPEATABLE: model.FAILING,
    DOES_NOT_RUN: model.BROKEN,
    LATENT: model.FAILING,
    COMPUTES_ELSE: model.MEANING_CHANGED,
    DRAWS_ELSE: model.OTHER_DRAWS,
    LESS_EXACT: model.LESS_EXACT,
    RETYPED: model.OTHER_TYPE,
    SLOWER: model.REGRESSED,
    MORE_MEMORY: model.REGRESSED,
    ABSENT: NOT_RUN,
    UNDECIDED: model.UNDECIDED,
    NEARLY: model.ABOUT,
    REFUSED: model.UNSUPPORTED,
    OPEN_TIME: model.PASS,
    FIXED: model.FIXED,
    SUPPORTED: model.NEWLY_SUPPORTED,
    MORE_EXACT: model.MORE_EXACT,
    FASTER: model.IMPROVED,
    LESS_MEMORY: model.IMPROVED,
    RIGHT: model.PASS,  # and nothing to compare with
    FINE: model.PASS,
}
ORDER = tuple(STATES)
COLOURS = {
    RIGHT: model.PASS,
    **dict.fromkeys((*WRONGS, UNREPEATABLE, LATENT), model.FAILING),
    REFUSED: model.UNSUPPORTED,
    NOT_THERE: model.UNSUPPORTED,
    OPEN: model.UNDECIDED,
    ABSENT: NOT_RUN,
    SKIPPED: NOT_RUN,
}


UNKNOWN = (UNDECIDED, OPEN_TIME)
SAID = 2  # clauses of a line
COARSE = 0.1  # the smallest effect that counts, from which a time that did not change is told with it


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One thing to say of a subject, and the comparisons that it is about."""

    state: str
    text: str
    rows: tuple[Comparison, ...]


def outcome(side: CorrectnessSide) -> str:
    if side.status in STOPPED:
        return STOPPED[side.status]
    if side.unloaded:
        return UNLOADED
    if side.status in WHEN_TIMED.values():
        return side.status
    if side.status == protocol.OK and side.off_stream:
        return WRONG
    if side.status == protocol.WRONG and differs_though_right(side):
        return UNREPEATABLE
    known = {protocol.OK: RIGHT, protocol.WRONG: WRONG, protocol.BUILD_FAILED: UNBUILT, protocol.UNSUPPORTED: REFUSED}
    return known.get(side.status, OPEN if side.status == protocol.UNDECIDABLE else ABSENT)


def correctness_word(row: Comparison) -> str:
    """'' where the verdict's own word says it: what only does not repeat is not wrong."""
    found = {outcome(row.correctness.baseline), outcome(row.correctness.this)}
    return UNREPEATABLE if UNREPEATABLE in found <= {UNREPEATABLE, RIGHT} else ""


def outcome_text(side: CorrectnessSide) -> str:
    """The same for people: an operator that a version lacks is not refused there, and what kernel-matrix could not
    measure was skipped."""
    word = outcome(side)
    if word == ABSENT and side.fault is not Fault.SUBJECT:
        return SKIPPED
    return NOT_THERE if word == REFUSED and side.failure is FailureKind.MISSING_OPERATOR else word


def most_of(side: CorrectnessSide) -> int:
    """Return how much is shown of its message, in characters: what says what to do is shown whole."""
    return 300 if side.fault is Fault.SUBJECT else 1000


def sides(rows: Iterable[Comparison]) -> dict[str, CorrectnessSide]:
    """By environment, the baseline first; of one subject on one workload."""
    found: dict[str, CorrectnessSide] = {}
    for row in rows:
        if not row.alone:
            timed = [each.baseline for each in row.timed]
            found.setdefault(row.baseline, _with_timed(row.correctness.baseline, timed))
        found[row.environment] = _with_timed(row.correctness.this, [each.this for each in row.timed])
    return found


def _with_timed(side: CorrectnessSide, timed: Iterable[LatencySide]) -> CorrectnessSide:
    """What was right in validation, with what its launches found: the status is then one of WHEN_TIMED."""
    if outcome(side) != RIGHT:
        return side
    for each in timed:
        status = protocol.WRONG if each.wrong_output else each.status
        if status in WHEN_TIMED:
            return replace(
                side,
                status=WHEN_TIMED[status],
                message=each.message,
                ended_after_s=each.ended_after_s,
            )
    return side


def by_workload(rows: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    found: dict[str, list[Comparison]] = {}
    for row in rows:
        found.setdefault(row.workload, []).append(row)
    return found


class Told:
    """What is said of one subject's rows, none of which is of an A/A control. `names`: of environments; `same_build`:
    nothing is known of another build, which may be why it moved. `faults`: those that are proven, whatever trials
    say."""

    def __init__(
        self,
        rows: Sequence[Comparison],
        names: Mapping[str, str],
        same_build: bool = True,
        faults: Sequence[str] = (),
    ) -> None:
        self.rows, self.names, self.same_build = rows, names, same_build
        self.workloads = by_workload(rows)
        outcomes = [(row, set(map(outcome, sides([row]).values()))) for row in rows]
        self.right_rows = [row for row, found in outcomes if found == {RIGHT}]
        self.ran_rows = [row for row, found in outcomes if found <= {RIGHT, OPEN}]  # whose times count
        passes = any(RIGHT in found for _, found in outcomes) and not any(found & set(BAD) for _, found in outcomes)
        self.faults = tuple(faults) if passes else ()
        # What is known is said first, and what is well of outputs before times.
        least = ORDER.index(NEARLY)
        types = by_other_type(rows, names).items()
        typed = [Clause(state=RETYPED, text=text + self.on(own), rows=tuple(own)) for text, own in types]
        outputs = [each for each in self._outputs() if not (self.faults and each.state == RIGHT)]
        every = [*self._latent(), *outputs, *typed, *self._times(), *self._memory()]
        self.clauses = sorted(every, key=lambda each: (each.state in UNKNOWN, min(ORDER.index(each.state), least)))
        state = min((each.state for each in every), key=ORDER.index)
        times = [timed for row in rows for timed in row.timed]
        fine = state == RIGHT and all(timed.verdict == model.PASS for timed in times) and not rows[0].alone
        self.state = FINE if fine else state

    @property
    def text(self) -> str:
        """The first of what is said; `more` is the rest."""
        said = "; ".join(each.text for each in self.clauses[:SAID])
        if self.state != FINE:
            return said
        effect = max(timed.min_effect for row in self.rows for timed in row.timed)
        fast = "as fast" + (f" to within {percent(effect)}" if effect >= COARSE else "")
        if any(row.memory.verdict != model.PASS for row in self.rows):
            return f"fine: {said}, and {fast}"
        return f"fine: {said}, {fast}, and in as much memory"

    @property
    def more(self) -> list[str]:
        own = [pair for row in self.rows for pair in sides([row]).items()]
        return [*(c.text for c in self.clauses[SAID:]), *notes_text(own, self.where), *unrepeatable(self.rows)]

    def where(self, environments: Sequence[str], ends: Mapping[str, Sequence[CorrectnessSide]] = {}) -> str:
        """Return in which versions something is so, such as "in 2.1.0 and in 2.5.0". `ends`: by environment, those of
        processes that ended there, of which it then says after how long they did."""
        ended = {name: text for name, known in ends.items() if (text := end_text(known))}
        if len(environments) > 2 and len(environments) == len(self.names) and not ended:
            return f"in all {len(environments)} versions"
        return together(f"in {self.names.get(name, name)}{ended.get(name, '')}" for name in environments)

    def on(self, rows: Sequence[Comparison]) -> str:
        """The workloads, where these are not all."""
        names = list(by_workload(rows))
        if len(names) == len(self.workloads):
            return ""
        return f" on {names[0]}" if len(names) == 1 else f" on {len(names)} of {len(self.workloads)} workloads"

    # -- outputs

    def _latent(self) -> list[Clause]:
        if not self.faults:
            return []
        passing = {name for row in self.rows for name, side in sides([row]).items() if outcome(side) == RIGHT}
        where = self.where([name for name in self.names if name in passing])
        proven = f"{together(self.faults)} {'is' if len(self.faults) == 1 else 'are'} proven"
        text = f"latent bug: every trial passes {where}, and {proven}"
        return [Clause(state=LATENT, text=text, rows=tuple(self.rows))]

    def _outputs(self) -> list[Clause]:
        found: dict[tuple[str, str, str], list[Comparison]] = {}
        for rows in self.workloads.values():
            found.setdefault(self._of_outputs(rows), []).extend(rows)
        return [
            Clause(state=state, text=f"{text}{self.on(rows)}{more}", rows=tuple(rows))
            for (state, text, more), rows in found.items()
        ]

    def _states(self, found: Mapping[str, str]) -> str:
        """right in 2.1.0, wrong in 2.5.0 and in 2.11.0."""
        words = dict.fromkeys(found.values())
        return ", ".join(f"{word} {self.where([name for name in found if found[name] == word])}" for word in words)

    def _of_outputs(self, rows: Sequence[Comparison]) -> tuple[str, str, str]:
        """Of one workload: the state, and what to say before and after the workload's name."""
        found = {name: outcome(side) for name, side in sides(rows).items()}
        first, *others = found.values()
        verdicts = {row.environment: row.correctness.verdict for row in rows}
        said = {name: outcome_text(side) for name, side in sides(rows).items()}
        if another := [row for row in rows if row.correctness.verdict in model.ANOTHER_MEANING]:
            return self._another_meaning(another)
        states, moved = self._states(said), {name for name in verdicts if verdicts[name] in model.WORSE}
        if any(word in BAD for word in found.values()):
            stops = [word for word in others if word in BAD and word not in (*WRONGS, UNREPEATABLE)]
            if first != RIGHT and not (first == OPEN and stops and not set(others) & set(WRONGS)):
                return self._bad_at_first(found, states, verdicts)
            broke = [name for name in found if found[name] in BAD and name in moved]
            if broke:
                return BROKE, f"broke {self.where(broke[:1])}", f": {states}"
            return WRONG, states, BY_CHANCE
        if first in (RIGHT, OPEN) and REFUSED in others:
            gone = [name for name in found if found[name] == REFUSED]
            return BROKE, f"no longer supported {self.where(gone[:1])}", f": {states}"
        if ABSENT in found.values():
            # Of one environment that was evaluated alone nothing is compared, and something is known.
            return (RIGHT if first == ABSENT and set(others) == {RIGHT} else ABSENT), states, ""
        if set(found.values()) == {REFUSED}:
            return REFUSED, states, ""
        if first == REFUSED and {RIGHT, OPEN} & set(others):
            new = [name for name in found if found[name] in (RIGHT, OPEN)]
            return SUPPORTED, f"newly supported {self.where(new[:1])}", f": {states}"
        if OPEN in found.values() or (not rows[0].alone and model.UNDECIDED in verdicts.values()):
            return UNDECIDED, f"correctness undecided: {states}", ""
        for verdict, state in ((model.LESS_EXACT, LESS_EXACT), (model.MORE_EXACT, MORE_EXACT)):
            if changed := [name for name in verdicts if verdicts[name] == verdict]:
                return state, f"right, {state} {self.where(changed)} than in {self.names[rows[0].baseline]}", ""
        return RIGHT, states, ""

    def _another_meaning(self, rows: Sequence[Comparison]) -> tuple[str, str, str]:
        """Of one workload in the versions in which it is so; told by the first of them."""
        row, where = rows[0], self.where([row.environment for row in rows])
        base, meaning = self.names[row.baseline], row.correctness.meaning
        if meaning is None:
            return DRAWS_ELSE, f"draws other numbers from the same seed {where} than in {base}", ""
        values = meaning_text(meaning, base, self.names[row.environment])
        return COMPUTES_ELSE, f"computes something else {where} than in {base}", f": {values}"

    def _bad_at_first(self, found: Mapping[str, str], states: str, verdicts: Mapping[str, str]) -> tuple[str, str, str]:
        """What is wrong or has no output somewhere, and was not right in the baseline."""
        first, *others = found.values()
        if first in (ABSENT, OPEN):
            return WRONG, states, ": whether the upgrade did it is not known"
        words = set(found.values())
        worst = WRONG if words & set(WRONGS) else UNREPEATABLE if UNREPEATABLE in words else DOES_NOT_RUN
        if first == REFUSED or not others:
            return worst, states, ""
        if first in (UNBUILT, UNLOADED) and set(others) == {RIGHT}:
            return FIXED, f"{'builds' if first == UNBUILT else 'loads'} {self.where(list(found)[1:])}", f": {states}"
        if set(others) == {RIGHT}:
            fixed = all(verdict == model.FIXED for verdict in verdicts.values())
            since = f"fixed {self.where(list(found)[1:2])}"
            return (FIXED, since, f": {states}") if fixed else (worst, states, BY_CHANCE)
        if len(set(found.values())) > 1:
            return worst, states, ""
        often = [name for name, verdict in verdicts.items() if verdict == model.REGRESSED]
        if often:
            return WRONG, states, f", and more often {self.where(often)}"
        if first in (WRONG, UNREPEATABLE) and model.UNDECIDED in verdicts.values():
            return WRONG, states, ": it was wrong before; whether more often now is undecided"
        return worst, states, ": the upgrade did not cause it"

    # -- times, of right outputs alone

    def _times(self) -> list[Clause]:
        found: list[Clause] = []
        for verdict, state in ((model.REGRESSED, SLOWER), (model.IMPROVED, FASTER)):
            moved = [
                (row, mode, timed)
                for row in self.ran_rows
                for mode, timed in row.modes.items()
                if timed.verdict == verdict
            ]
            if moved:
                own = {row.id: row for row, _, _ in moved}
                found.append(Clause(state=state, text=self._moved(moved, state), rows=tuple(own.values())))
        return [*found, *self._nearly(), *self._open_times()]

    def _nearly(self) -> list[Clause]:
        """What changed by about the threshold, slower and faster apart: in which direction, how far, how sure."""
        about = [
            (row, mode, timed)
            for row in self.ran_rows
            for mode, timed in row.modes.items()
            if timed.verdict == model.ABOUT and not row.alone
        ]
        found = []
        for state in (SLOWER, FASTER):
            moved = [each for each in about if ((each[2].ratio or 1.0) >= 1) == (state == SLOWER)]
            if moved:
                least = max(timed.min_effect for _, _, timed in moved)
                text = f"{self._moved(moved, state)}, about the smallest effect that counts ({percent(least)})"
                rows = {row.id: row for row, _, _ in moved}
                found.append(Clause(state=NEARLY, text=text, rows=tuple(rows.values())))
        return found

    def _open_times(self) -> list[Clause]:
        undecided = [
            (row, timed)
            for row in self.ran_rows
            for timed in row.timed
            if timed.verdict == model.UNDECIDED and not row.alone
        ]
        if not undecided:
            return []
        rows = list({row.id: row for row, _ in undecided}.values())
        seen = [timed for _, timed in undecided if timed.ratio is not None]
        farthest = max(seen, key=lambda each: abs(math.log(each.ratio or 1.0)), default=None)
        ratio = f": {change_text(farthest)}{', where it differs most' * (len(seen) > 1)}" if farthest else ""
        text = f"whether its time changed is undecided{self.on(rows)}{ratio}"
        return [Clause(state=OPEN_TIME, text=text, rows=tuple(rows))]

    def _moved(self, moved: Sequence[tuple[Comparison, str, Latency]], state: str) -> str:
        """34% slower since 2.5.0 [30%, 38%]; of several the one that moved farthest. What is slower in its backward
        pass is a slower step, too, unless that was not seen."""
        moved = [each for each in moved if each[1] != model.BACKWARD] or moved
        moved = sorted(moved, key=lambda each: -abs(math.log(each[2].ratio or 1.0)))
        rows, timed = [row for row, _, _ in moved], moved[0][2]
        parts = next((f" ({row.parts})" for row in rows if row.parts), "")
        alone = "backward alone " if moved[0][1] == model.BACKWARD else ""
        up = "up to " if len({row.id for row in rows}) > 1 else ""
        graph = " (replayed as a CUDA graph)" if all(mode == model.HOT for _, mode, _ in moved) else ""
        changed = moved_text(timed, "less time" if state == FASTER else state)
        return f"{alone}{up}{changed} {self._place(rows)}{graph}{self.on(rows)}{parts}"

    def _place(self, rows: Sequence[Comparison]) -> str:
        """The versions in which these moved: since the first, or in each."""
        names = [name for name in self.names if any(row.environment == name for row in rows)]
        if self.same_build and self._is_since(names, rows):
            return f"since {self.names[names[0]]}"
        return self.where(names)

    # -- memory, of right outputs alone

    def _memory(self) -> list[Clause]:
        found = []
        for verdict, state in ((model.REGRESSED, MORE_MEMORY), (model.IMPROVED, LESS_MEMORY)):
            rows = [row for row in self.ran_rows if row.memory.verdict == verdict]
            if rows:
                most = max((row.memory for row in rows), key=lambda each: abs(math.log(each.ratio or 1.0)))
                up = "up to " if len(rows) > 1 else ""
                text = f"uses {up}{memory_text(most)} {self._place(rows)}{self.on(rows)} ({memory_change(most)})"
                found.append(Clause(state=state, text=text, rows=tuple(rows)))
        return found

    def _is_since(self, names: Sequence[str], rows: Sequence[Comparison]) -> bool:
        """Whether it is so of every workload in each of these versions, they are the last, and versions ascend."""
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

    # -- the grid

    def cell(self, environment: str) -> GridCell:
        """One version's outputs and times over all workloads."""
        rows = [row for row in self.rows if environment in (row.environment, row.baseline)]
        own_sides = [sides([row])[environment] for row in {row.workload: row for row in rows}.values()]
        counted = Counter(map(outcome_text, own_sides))
        order = (*BAD, REFUSED, NOT_THERE, ABSENT, SKIPPED, OPEN, RIGHT)
        worst = next((word for word in order if counted[word]), ABSENT)
        worst = LATENT if worst == RIGHT and self.faults else worst
        text = worst if len(counted) < 2 or worst == LATENT else f"{worst} on {counted[worst]} of {counted.total()}"
        own = [row for row in rows if row.environment == environment and not row.alone]
        right = [row for row in own if row in self.right_rows] or own
        if len(self.workloads) == 1 and rows and (rate := sides(rows[:1])[environment].rate):
            text += f", {rate_text(rate)} trials pass" if rate.passed < rate.trials else ""
        moved = any(row.correctness.verdict in model.WORSE and correctness_moved(row) for row in own)
        broke = moved and worst not in (ABSENT, SKIPPED)
        verdict = model.REGRESSED if broke else COLOURS.get(worst, model.BROKEN)
        for row in own:
            if row.correctness.verdict in model.ANOTHER_MEANING:  # each is right by its own float64
                verdict = row.correctness.verdict
                text = COMPUTES_ELSE if verdict == model.MEANING_CHANGED else DRAWS_ELSE
        if not own:
            medians = {row.latency.baseline.median_us for row in rows} - {None}
            one = next(iter(medians)) if len(self.workloads) == 1 and medians else None
            return GridCell(outputs=text, verdict=verdict, time=time_text(one) if one else "")
        return GridCell(outputs=text, verdict=verdict, **time_cell(right), **memory_cell(right))
