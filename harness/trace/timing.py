"""Times and memory of a script in both versions, and which operators a difference comes from.

Runs without a recorder and runs under a timer alternate, all in fresh processes. The regions whose time moved most
are written as problem files and then timed alone, by launches of a matrix of both versions.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.config.matrix import Matrix
from harness.errors import HarnessError
from harness.isolate.choose import Wanted
from harness.run.extend import Row as Launched
from harness.run.extend import times_of
from harness.run.folders import held, measure_lock
from harness.run.prepare import Options
from harness.schema.records import Device
from harness.schema.run_records import Selection
from harness.stats.medians import COLD
from harness.tools import cache_folder
from harness.trace.align import Alignment
from harness.trace.extract import Region, Written, write_matrix
from harness.trace.model import End, Trace
from harness.trace.prove import Say
from harness.trace.runs import Side
from harness.trace.times import (
    LEAST,
    MOVED,
    Compared,
    Indices,
    Measured,
    Row,
    Samples,
    compare,
    largest,
    rows_of,
    shares,
)
from harness.trace.wording import named
from harness.typed import words_of
from harness.worker import protocol
from harness.workflow.matrix import run_matrix

FOLDER = "timed"
ROUNDS = 5
SHOWN = 15  # rows of the table
LEAST_BYTES = 1 << 20  # by which an operator's need of memory must differ to be named
ALONE = 3  # rows that are named, and whose longest call is timed alone
Sides = tuple[Side, Side]
Made = TypeVar("Made")


def measure(
    good: Side, bad: Side, g: Trace, b: Trace, alignment: Alignment, matrix: Matrix, say: Say
) -> dict[str, Any]:
    """Facts of `Outcome.times`. `matrix`: of both versions; its thresholds decide."""
    sides, traces = (good, bad), (g, b)
    plain: tuple[list[End], list[End]] = ([], [])
    timed: tuple[list[tuple[End, list[str], list[int]]], ...] = ([], [])
    for number in range(ROUNDS):
        say(f"round {number + 1} of {ROUNDS}: both versions, without the recorder and under the timer")
        with held(measure_lock(cache_folder()), "another run is measuring on this machine; waiting for it"):
            _in_turns(number, sides, Side.plain, plain)
            _in_turns(number, sides, Side.timed, timed)
    say("the memory that each operator needs, once in each version")
    needed = [side.memory() for side in sides]

    def compared(one: Sequence[float], other: Sequence[float]) -> Compared:
        return compare([(one, other)], matrix.thresholds)[0]

    whole = compared(*([end.duration_s for end in ends] for ends in plain))
    found: dict[str, Any] = {
        "whole": whole.facts(),
        "memory": compared(*([end.peak_bytes for end in ends] for ends in plain)).facts(),
        "start_bytes": [ends[0].start_bytes for ends in plain],
        "timer": [
            compared([e.duration_s for e in p], [e.duration_s for e, *_ in t]).ratio
            for p, t in zip(plain, timed, strict=True)
        ],
        "rows": [],
        "all": None,
        "shown": None,
        "problem": "",
        "command": "",
        "memory_row": None,
    }
    for side, trace, runs, needs in zip(sides, traces, timed, needed, strict=True):
        every = [*(names for _, names, _ in runs), needs[0]]
        if any(names != [each.name for each in trace.operators] for names in every):
            found["problem"] = f"{side.version} does not call the same operators in every run"
            return found
    measured = [
        Measured(trace, [ns for *_, ns in runs], needs[1])
        for trace, runs, needs in zip(traces, timed, needed, strict=True)
    ]
    rows = rows_of(measured[0], measured[1], alignment, whole, matrix.thresholds)
    found["all"], found["shown"] = shares(rows, whole, SHOWN)
    found["rows"] = [_facts(row) for row in rows[:SHOWN]]
    needs_other = max(rows, key=lambda row: abs(row.peak_bytes[1] - row.peak_bytes[0]), default=None)
    if needs_other and abs(needs_other.peak_bytes[1] - needs_other.peak_bytes[0]) >= LEAST_BYTES:
        found["memory_row"] = _facts(needs_other)
    _alone(sides, measured, rows[:SHOWN], LEAST * max(whole.medians), found, matrix, say)
    return found


def _in_turns(number: int, sides: Sides, run: Callable[[Side], Made], results: Sequence[list[Made]]) -> None:
    """One run of each side; who is first alternates."""
    for place in (0, 1) if number % 2 == 0 else (1, 0):
        results[place].append(run(sides[place]))


def _facts(row: Row) -> dict[str, Any]:
    calls = [sum(bool(site[side]) for site in row.sites) for side in (0, 1)]
    return {
        "kind": row.kind,
        "line": row.line,
        "phase": row.phase,
        "calls": calls,
        "seconds": row.seconds.facts(),
        "peak_bytes": list(row.peak_bytes),
        "moved": False,
        "alone": None,
        "problem": "",
    }


def _alone(
    sides: Sides,
    measured: Sequence[Measured],
    rows: Sequence[Row],
    least_s: float,
    found: dict[str, Any],
    matrix: Matrix,
    say: Say,
) -> None:
    """Name the rows that moved by so much, and fill in `alone` of those of which both versions make a call."""
    moved = [
        place
        for place, row in enumerate(rows)
        if row.seconds.verdict in MOVED and abs(row.seconds.difference) >= least_s
    ]
    sites = dict[int, tuple[Indices, Indices]]()
    for place in moved[:ALONE]:
        found["rows"][place]["moved"] = True
        site = largest(rows[place], *(each.spent_ns[0] for each in measured))
        if all(site):
            sites[place] = site
        else:
            found["rows"][place]["problem"] = "one version alone calls it"
    if not sites:
        return
    good, bad = sides
    regions = _stored(sides, [each.trace for each in measured], {place: rows[place] for place in sites}, sites, say)
    folder = good.out / FOLDER
    written = write_matrix(list(regions.values()), good, bad, matrix, folder)
    times = dict[str, Samples]()
    problem = ""
    if written.path is not None:
        say(f"{len(sites) - len(written.errors)} of these regions alone, by {ROUNDS} launches of each version")
        options = options_of(written, good.bundle or bad.bundle)
        found["command"] = shlex.join(options.command)
        for side in sides:
            side.close()  # a run of the matrix ends all that this process has started
        try:
            times = launched(options, written.devices)
        except HarnessError as error:
            problem = str(error)
    seen = dict(zip(times, compare(list(times.values()), matrix.thresholds), strict=True))
    for place, name in zip(sites, written.names, strict=True):
        row = found["rows"][place]
        row["alone"] = seen[name].facts() if name in seen else None
        row["problem"] = "" if name in seen else written.errors.get(name) or problem or "its launches gave no times"


def _stored(
    sides: Sides, traces: Sequence[Trace], rows: dict[int, Row], sites: dict[int, tuple[Indices, Indices]], say: Say
) -> dict[int, Region]:
    """One call of each of these rows, with its inputs, as a region."""
    for own, (side, trace) in enumerate(zip(sides, traces, strict=True)):
        say(f"{side.version}, for the inputs of {len(sites)} regions whose time moved")
        side.record(
            programs=[
                {"name": f"time-{place}", "operators": list(site[own]), "keep": _kept(trace, site[own])}
                for place, site in sites.items()
            ]
        )
    good, bad = sides
    return {
        place: Region(
            row.kind,
            f"{named(row.kind)}: its time moved from PyTorch {good.version} to {bad.version}.",
            row.line,
            {"good": good.store / f"time-{place}.pt", "bad": bad.store / f"time-{place}.pt"},
        )
        for place, row in rows.items()
    }


def _kept(trace: Trace, indices: Indices) -> list[tuple[int, int]]:
    """The last output: whatever is kept, all is run."""
    return [(index, 0) for index in indices if trace.operators[index].outputs][-1:]


def options_of(written: Written, bundle: Path | None) -> Options:
    assert written.path is not None
    chosen = ["--executor", "venv"] if bundle is None else ["--bundle", str(bundle)]
    how = ["--device", ",".join(written.devices), "--launches", str(ROUNDS), *chosen]
    command = tuple(words_of("matrix", "--matrix", str(written.path), *how, nox=False))
    executor: Wanted = "venv" if bundle is None else "bundle"
    return Options(matrix_path=written.path, command=command, executor=executor, bundle=bundle, explain=False)


def launched(options: Options, devices: tuple[Device, ...]) -> dict[str, Samples]:
    """Seconds of a call of each problem file, by its name: medians of launches of both versions, of the same blocks.
    HarnessError where the matrix cannot be measured."""
    run, _ = run_matrix(options, Selection(devices=devices, launches=ROUNDS))
    record, times = run.load(), times_of(run.launches())
    found = dict[str, Samples]()
    for cell in (cell for cell in record.cells if cell.environment != record.baseline):
        subject = (cell.kernel, cell.device, cell.workload, protocol.MODEL)
        base, this = (times.get((each, *subject, COLD), {}) for each in (record.baseline, cell.environment))
        good, bad = Launched(subject=subject, base=base, this=this).before(ROUNDS)
        if good:
            name = next(each.name for each in record.workloads if each.id == cell.workload)
            found[name] = [time * 1e-6 for time in good], [time * 1e-6 for time in bad]
    return found
