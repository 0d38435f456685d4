"""Made-up records of experiments, written as the harness writes real ones. Outputs are named by letters: the same
letter is the same bits, in every trial; several letters are what repeats of one call gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from harness.schema.experiment_records import (
    CheckerFinding,
    CheckerResult,
    CheckersRecord,
    Condition,
    ConditionResult,
    ConditionsRecord,
    ExperimentFactor,
    FactorRecord,
    FactorResult,
    Line,
    OperatorTime,
    ProfileRecord,
)
from harness.schema.storage import Run, save_record
from harness.worker.protocol import FailureKind
from tests.unit.spec import BASE, NEXT
from tests.unit.synthetic_cells import sha

KERNEL, SEED, TRIALS = "attention_scalar", "seed-fp16", 3
WHEN: dict[str, Any] = {"started_utc": "2025-01-01T01:00:00+00:00", "duration_s": 9.0, "key": sha("experiment")}


def result(
    outputs: str,
    passed: float = 1.0,
    nonfinite: bool = False,
    label: str = "",
    scales: bool | None = None,
    **condition: Any,
) -> ConditionResult:
    """`outputs`: a letter for each repeat. `passed`: the share of runs within tolerance."""
    runs = TRIALS * len(outputs)
    told = label or " ".join(map(str, condition.values())) or "as validated"
    return ConditionResult(
        status="ok" if passed == 1 else "wrong",
        condition=Condition(label=told, **condition),
        runs=runs,
        passed=round(passed * runs),
        nonfinite=runs if nonfinite else 0,
        max_units=None if nonfinite else 1.1 if passed == 1 else 412.0,
        output_sha256=[[sha(trial, letter) for letter in outputs] for trial in range(TRIALS)],
        input_sha256=[sha("in", trial) for trial in range(TRIALS)],
        within=[[passed == 1] * len(outputs)] * TRIALS if passed in (0, 1) else [],
        scales=scales,
    )


def conditions(
    run: Run,
    experiment: str,
    results: Sequence[ConditionResult],
    environment: str = NEXT,
    device: str = "cpu",
    workload: str = SEED,
) -> None:
    record = ConditionsRecord(
        status="ok",
        experiment=experiment,
        environment=environment,
        kernel=KERNEL,
        workload=workload,
        device=device,
        results=list(results),
        **WHEN,
    )
    save_record(run.experiment_path(environment, KERNEL, device, workload, experiment), record)


def history(
    run: Run,
    *processes: str,
    wrong: str = "",
    recipe: str = "independent",
    environment: str = NEXT,
    device: str = "cpu",
) -> None:
    """The same calls in several fresh processes: of each a word for each trial, with a letter for each of its calls.
    `wrong` are the letters of wrong outputs."""
    results = []
    for number, words in enumerate(processes, start=1):
        within = [[letter not in wrong for letter in word] for word in words.split()]
        right = [verdict for trial in within for verdict in trial]
        results.append(
            ConditionResult(
                status="ok" if all(right) else "wrong",
                condition=Condition(label=f"process {number}", recipe=recipe, before="fresh", process=number),
                runs=len(right),
                passed=sum(right),
                output_sha256=[[sha(trial, letter) for letter in word] for trial, word in enumerate(words.split())],
                input_sha256=[sha("in", trial) for trial in range(len(within))],
                within=within,
            )
        )
    conditions(run, "history", results, environment, device)


def dead(**condition: Any) -> ConditionResult:
    message = "the process that called it died by SIGSEGV"
    failure = FailureKind.SIGNAL
    return ConditionResult(
        status="crashed", message=message, failure=failure, condition=Condition(label="dead", **condition)
    )


def factor(
    in_run: Run,
    name: ExperimentFactor,
    results: Sequence[FactorResult],
    environments: tuple[str, str] = (BASE, NEXT),
    device: str = "cpu",
    kernel: str = KERNEL,
    **more: Any,
) -> None:
    """The record of a factor experiment of two environments, the baseline first."""
    base, this = environments
    record = FactorRecord(
        status="ok",
        factor=name,
        baseline=base,
        environment=this,
        kernel=kernel,
        workload=SEED,
        device=device,
        results=list(results),
        **WHEN,
        **more,
    )
    save_record(in_run.experiment_path(this, kernel, device, SEED, record.name), record)


def outcome(
    home: str,
    level: str,
    letter: str,
    right: str = "A",
    *,
    target: str = "kernel",
    runs: int = TRIALS,
    **more: Any,
) -> FactorResult:
    """What one of the four gave: a letter names its outputs. X: its process died. `right`: those within tolerance."""
    if letter == "X":
        return FactorResult(
            status="crashed", message="the process died by SIGSEGV", home=home, level=level, target=target, **more
        )
    return FactorResult(
        status="ok" if letter in right else "wrong",
        home=home,
        level=level,
        target=target,
        runs=runs,
        passed=runs if letter in right else 0,
        output_sha256=[sha(trial, letter) for trial in range(TRIALS)],
        **more,
    )


def crossed(
    run: Run, name: ExperimentFactor, right: Mapping[tuple[str, str], bool | None], bits: Sequence[str] = "AAAA"
) -> None:
    """Whether the kernel is right, by where it ran and whose level of the factor it had; None where its first call
    ended the process. `bits`: its outputs, in the same order."""
    results = [
        outcome(home, level, "X" if told is None else letter, letter if told else "", runs=2 * TRIALS)
        for ((home, level), told), letter in zip(right.items(), bits, strict=True)
    ]
    factor(run, name, results)


def variables(run: Run, right: Mapping[tuple[str, str], bool | None], bits: Sequence[str] = "AAAA") -> None:
    crossed(run, ExperimentFactor.VARIABLES, right, bits)


def version(run: Run, right: Mapping[tuple[str, str], bool | None]) -> None:
    crossed(run, ExperimentFactor.VERSION, right)


PATTERNS = ("zero", "nan", "max", "random")


def poison(run: Run, sites: Mapping[str, Sequence[str]], device: str = "cpu", passed: float = 1.0, **more: Any) -> None:
    """`sites`: for each, the outputs under zero, NaN, the largest value and a random pattern. Where they follow the
    pattern, all but zero are wrong."""
    results = []
    for site, outputs in sites.items():
        moved = len(set(outputs)) > 1
        for pattern, letters in zip(PATTERNS, outputs, strict=True):
            share = (1.0 if pattern == "zero" else 0.0) if moved else passed
            results.append(result(letters, share, site=site, pattern=pattern))
    conditions(run, "poison", results, device=device, **more)


STILL = ("AA", "AA", "AA", "AA")
FOLLOWS = ("AA", "BB", "CC", "DE")  # what is random is so each time


def clean(run: Run, device: str = "cpu", passed: float = 1.0) -> None:
    """Every experiment made, and nothing found."""
    sites = ("shared", "output", "workspace") if device == "cuda" else ("output", "stack", "heap")
    poison(run, dict.fromkeys(sites, STILL), device=device, passed=passed)
    before = [result("AA", passed, before=name) for name in ("", "math", "unrelated", "fresh")]
    conditions(run, "predecessor", before, device=device)
    conditions(run, "repeat", [result("A" * 8, passed), result("A" * 8, passed, load="beside")], device=device)


def swap(
    run: Run, letters: str, environments: tuple[str, str] = (BASE, NEXT), device: str = "cpu", right: str = "A"
) -> None:
    """`letters`: outputs of the baseline's code at home and away, then of the other's away and at home."""
    base, this = environments
    places = [(base, base), (this, base), (base, this), (this, this)]
    pairs = zip(places, letters, strict=True)
    results = [outcome(*place, letter, right, runtime="libgomp.so.1") for place, letter in pairs]
    factor(run, ExperimentFactor.CODE, results, environments, device)


EXCHANGED = ((BASE, BASE), (NEXT, BASE), (BASE, NEXT), (NEXT, NEXT))  # home, and whose package


def exchanged(
    run: Run,
    packages: Mapping[str, str],
    times_us: Mapping[str, Sequence[float | None]] = MappingProxyType({}),
    peaks_bytes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    *,
    kernel: str = KERNEL,
    target: str = "kernel",
) -> None:
    """By package, outputs with the baseline's in both environments, then with the other's in both. -: a pair that does
    not load. `times_us`: likewise, the medians of launches; and `peaks_bytes`."""
    for package, letters in packages.items():
        results = []
        for number, ((home, level), letter) in enumerate(zip(EXCHANGED, letters, strict=True)):
            if letter == "-":
                broken = FactorResult(status="broken", message="libdemo.so.1 is not there", home=home, level=level)
                results.append(broken)
                continue
            time_us = times_us[package][number] if package in times_us else None
            seen = outcome(
                home,
                level,
                letter,
                target=target,
                environment=f"{home}-x",
                times_us=[time_us * (1 + 0.01 * each) for each in range(5)] if time_us else [],
                peaks_bytes=[peaks_bytes[package][number]] * 3 if package in peaks_bytes else [],
            )
            results.append(seen)
        factor(
            run,
            ExperimentFactor.PACKAGE,
            results,
            kernel=kernel,
            package=package,
            versions={BASE: "1.0", NEXT: "2.0"},
            run="r",
            timed=bool(times_us or peaks_bytes),
        )


def checkers(
    run: Run,
    tool: str,
    kind: str = "",
    *,
    works: bool | None = True,
    environment: str = NEXT,
    device: str = "cpu",
    where: str = "attention.cpp:41",
) -> None:
    """One checker's result; `kind` empty: it found nothing. `works`: it found the fault that was planted for it."""
    found = [CheckerFinding(kind=kind, text=f"{kind} in forward", where=where, count=3)] if kind else []
    said = CheckerResult(
        status="ok", tool=tool, control="planted fault", control_found=works, findings=found, command=f"run {tool}"
    )
    record = CheckersRecord(
        status="ok",
        environment=environment,
        kernel=KERNEL,
        workload=SEED,
        device=device,
        results=[said],
        **WHEN,
    )
    save_record(run.experiment_path(environment, KERNEL, device, SEED, "checkers"), record)


def profiles(
    run: Run,
    target: str,
    base: Mapping[str, tuple[float, float]],
    this: Mapping[str, tuple[float, float]],
    device: str = "cpu",
    kind: str = "operator",
    threads: tuple[int, int] = (2, 2),
    ends: bool = False,
    lines: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    as_model: tuple[bool | None, bool | None] = (None, None),
    texts: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Operators by name: calls, and microseconds of their own, per call of the target. `ends`: in the other
    environment with an exception. `lines`: those that ran, with their `texts`, and `as_model`: whether making it draws
    as the model."""
    for place, (environment, operators) in enumerate(((BASE, base), (NEXT, this))):
        record = ProfileRecord(
            status="crashed" if ends and environment == NEXT else "ok",
            environment=environment,
            kernel=KERNEL,
            target=target,
            workload=SEED,
            device=device,
            threads=threads[place],
            profiled_calls=20,
            lines=[Line(number=number, text=texts.get(number, f"text of {number}")) for number in lines[place]],
            draws_as_model=as_model[place],
            operators=[
                OperatorTime(name=name, kind=kind, calls=calls, self_us=self_us)
                for name, (calls, self_us) in operators.items()
            ],
            **WHEN,
        )
        save_record(run.experiment_path(environment, KERNEL, device, SEED, f"profile-{target}"), record)
