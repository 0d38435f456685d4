"""Times and memory of a script in both versions, and which operators a difference comes from.

Runs without a recorder and runs under a timer alternate, all in fresh processes. The regions whose time moved most
then run alone, from their stored inputs, in fresh processes that alternate too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from harness.trace.align import Alignment
from harness.trace.model import End, Trace
from harness.trace.prove import Say
from harness.trace.runs import Side
from harness.trace.times import Compared, Indices, Row, largest, rows_of, shares

ROUNDS = 5
SHOWN = 15  # rows of the table
ALONE = 3  # rows that are named, and whose longest call runs alone
LEAST = 0.02  # of the script's time, that such a row moved by
Sides = tuple[Side, Side]
Made = TypeVar("Made")


def measure(good: Side, bad: Side, g: Trace, b: Trace, alignment: Alignment, say: Say) -> dict[str, Any]:
    """Facts of `Outcome.times`."""
    sides, traces = (good, bad), (g, b)
    plain: tuple[list[End], list[End]] = ([], [])
    timed: tuple[list[tuple[End, list[str], list[int]]], ...] = ([], [])
    for number in range(ROUNDS):
        say(f"round {number + 1} of {ROUNDS}: both versions, without the recorder and under the timer")
        _in_turns(number, sides, Side.plain, plain)
        _in_turns(number, sides, Side.timed, timed)
    whole = _compared([[end.duration_s for end in ends] for ends in plain])
    found: dict[str, Any] = {
        "whole": whole.facts(),
        "memory": _compared([[end.peak_bytes for end in ends] for ends in plain]).facts(),
        "start_bytes": [ends[0].start_bytes for ends in plain],
        "timer": [_compared([[e.duration_s for e in p], [e.duration_s for e, *_ in t]]).ratio for p, t in
                  zip(plain, timed, strict=True)],
        "rows": [], "all": None, "shown": None, "problem": "",
    }  # fmt: skip
    for side, trace, runs in zip(sides, traces, timed, strict=True):
        if any(names != [each.name for each in trace.operators] for _, names, _ in runs):
            found["problem"] = f"{side.version} does not call the same operators in every run"
            return found
    spent = [[ns for *_, ns in runs] for runs in timed]
    rows = rows_of(g, b, alignment, *spent)
    found["all"], found["shown"] = shares(rows, whole, SHOWN)
    found["operators"] = _compared([[sum(ns) * 1e-9 for ns in runs] for runs in spent]).facts()
    found["output_bytes"] = [sum(row.output_bytes[side] for row in rows) for side in (0, 1)]
    found["rows"] = [_facts(row) for row in rows[:SHOWN]]
    moved = [place for place, row in enumerate(rows[:SHOWN])
             if row.seconds.is_decided and abs(row.seconds.difference) >= LEAST * max(whole.medians)]  # fmt: skip
    sites = dict[int, tuple[Indices, Indices]]()
    for place in moved[:ALONE]:
        found["rows"][place]["moved"] = True
        site = largest(rows[place], spent[0][0], spent[1][0])
        if all(site):
            sites[place] = site
        else:
            found["rows"][place]["problem"] = "one version alone calls it"
    if sites:
        _alone(sides, traces, sites, found["rows"], say)
    return found


def _in_turns(number: int, sides: Sides, run: Callable[[Side], Made], results: Sequence[list[Made]]) -> None:
    """One run of each side; who is first alternates."""
    for place in (0, 1) if number % 2 == 0 else (1, 0):
        results[place].append(run(sides[place]))


def _compared(samples: Sequence[Sequence[float]]) -> Compared:
    return Compared(tuple(samples[0]), tuple(samples[1]))


def _facts(row: Row) -> dict[str, Any]:
    calls = [sum(bool(site[side]) for site in row.sites) for side in (0, 1)]
    return {
        "kind": row.kind, "line": row.line, "phase": row.phase, "calls": calls, "seconds": row.seconds.facts(),
        "output_bytes": list(row.output_bytes), "moved": False, "alone": None, "program": "", "problem": "",
    }  # fmt: skip


def _alone(
    sides: Sides, traces: tuple[Trace, Trace], sites: dict[int, tuple[Indices, Indices]], rows: list[dict[str, Any]],
    say: Say,
) -> None:  # fmt: skip
    """Fill in `alone` of these rows, of which one call is stored and run again."""
    names = {place: f"time-{place}" for place in sites}
    for side, trace, own in zip(sides, traces, (0, 1), strict=True):
        say(f"{side.version}, for the inputs of {len(sites)} regions whose time moved")
        side.record(programs=[
            {"name": names[place], "operators": list(site[own]), "keep": _kept(trace, site[own])}
            for place, site in sites.items()
        ])  # fmt: skip
    results: tuple[list[dict[str, Any]], ...] = ([], [])
    say(f"these regions alone, {ROUNDS} times in each version")

    def run(side: Side) -> dict[str, Any]:
        return side.time_programs([side.store / f"{name}.pt" for name in names.values()])

    for number in range(ROUNDS):
        _in_turns(number, sides, run, results)
    for place, name in names.items():
        every = [[run[name] for run in runs] for runs in results]
        errors = [each["error"] for runs in every for each in runs if each["error"]]
        if errors:
            rows[place]["problem"] = errors[0]
            continue
        rows[place]["program"] = name
        rows[place]["alone"] = _compared([[each["median_s"] for each in runs] for runs in every]).facts()


def _kept(trace: Trace, indices: Indices) -> list[tuple[int, int]]:
    """The last output: whatever is kept, all is run."""
    return [(index, 0) for index in indices if trace.operators[index].outputs][-1:]
