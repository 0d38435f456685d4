"""Faults in a kernel's memory are found where they are, and are not blamed where a rival is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.schema.experiment_records import CheckersRecord, ConditionResult
from harness.schema.storage import Run, load_record, save_record
from reports.attribute.causes import (
    DECISIVE,
    NOTHING_MOVED,
    OUT_OF_BOUNDS,
    PREDECESSOR_SENSITIVITY,
    RACE,
    STRONG,
    UNDECIDED,
    UNINITIALISED_GLOBAL,
    UNINITIALISED_HOST,
    UNINITIALISED_SHARED,
    WRONG_EVERYWHERE,
)
from tests.unit.attributed import FELL, UNSTEADY, WRONG, Make, both, first, of_kernel, on_gpu, spec
from tests.unit.experiments import FOLLOWS, KERNEL, SEED, STILL, checkers, conditions, history, poison, result
from tests.unit.spec import NEXT, Case, Spec
from tests.unit.synthetic_cells import sha

MEMORY: dict[str, tuple[Spec, tuple[Make, ...], str, str]] = {
    "shared memory decides the output": (
        spec(FELL, device="cuda"), (on_gpu(poison, {"shared": FOLLOWS, "output": STILL}),), UNINITIALISED_SHARED,
        DECISIVE,
    ),
    "NaN from shared memory, though bits waver": (
        spec(*both("kernel", UNSTEADY), device="cuda"),
        (
            on_gpu(
                conditions, "poison",
                [
                    result("AB", site="shared", pattern="zero"),
                    result("CD", 0.0, nonfinite=True, site="shared", pattern="nan"),
                ],
            ),
        ),
        UNINITIALISED_SHARED, STRONG,
    ),
    "bits waver until the memory is filled: no race": (
        spec(*both("kernel", UNSTEADY), device="cuda"), (on_gpu(poison, {"shared": FOLLOWS, "output": STILL}),),
        UNINITIALISED_SHARED, DECISIVE,
    ),
    "the output's own memory, on a GPU": (
        spec(FELL, device="cuda"), (on_gpu(poison, {"shared": STILL, "output": FOLLOWS}),), UNINITIALISED_GLOBAL,
        DECISIVE,
    ),
    "what the allocator hands out, on a GPU": (
        spec(FELL, device="cuda"), (on_gpu(poison, {"workspace": FOLLOWS, "shared": STILL, "output": STILL}),),
        UNINITIALISED_GLOBAL, STRONG,
    ),
    "the same, and memcheck sees no access out of bounds": (
        spec(FELL, device="cuda"), (on_gpu(poison, {"workspace": FOLLOWS}), on_gpu(checkers, "memcheck")),
        UNINITIALISED_GLOBAL, DECISIVE,
    ),
    "initcheck finds it": (
        spec(*both("kernel", WRONG), device="cuda"), (on_gpu(checkers, "initcheck", "uninitialised"),),
        UNINITIALISED_GLOBAL, DECISIVE,
    ),
    "elements are left unwritten": (
        spec(*both("kernel", Case(passed=0, units=9e9, unwritten=10)), device="cuda"), (), UNINITIALISED_GLOBAL, STRONG,
    ),
    "the heap": (
        spec(*both("kernel", WRONG)), (lambda run: poison(run, {"heap": FOLLOWS}),), UNINITIALISED_HOST, STRONG,
    ),
    "the stack, and the address checker is silent": (
        spec(*both("kernel", WRONG)),
        (lambda run: poison(run, {"stack": FOLLOWS}), lambda run: checkers(run, "address")), UNINITIALISED_HOST,
        DECISIVE,
    ),
    "the output's own memory, on a CPU": (
        spec(FELL), (lambda run: poison(run, {"output": FOLLOWS, "heap": STILL}),), UNINITIALISED_HOST, DECISIVE,
    ),
    "a race that no filling settles": (
        spec(*both("kernel", UNSTEADY)),
        (lambda run: poison(run, {"output": ("AB", "CD", "EF", "GH"), "heap": ("IJ", "KL", "MN", "OP")}, passed=0.5),),
        RACE, STRONG,
    ),
    "a race that the thread checker sees": (
        spec(*both("kernel", UNSTEADY)), (lambda run: checkers(run, "thread", "race"),), RACE, DECISIVE,
    ),
    "a hazard in shared memory": (
        spec(*both("kernel", UNSTEADY), device="cuda"), (on_gpu(checkers, "racecheck", "race"),), RACE, DECISIVE,
    ),
    "repeats waver, fillings do not matter": (
        spec(*both("kernel", UNSTEADY)),
        (
            lambda run: poison(run, {"output": STILL, "heap": STILL}, passed=0.5),
            lambda run: conditions(run, "repeat", [result("AABAA", 0.5)]),
        ),
        RACE, STRONG,
    ),
    "the address checker names an access": (
        spec(*both("kernel", WRONG)), (lambda run: checkers(run, "address", "out_of_bounds"),), OUT_OF_BOUNDS, DECISIVE,
    ),
    "the same, from a checker that proved nothing": (
        spec(*both("kernel", WRONG)), (lambda run: checkers(run, "address", "out_of_bounds", works=None),),
        OUT_OF_BOUNDS, STRONG,
    ),
    "what lies behind was filled too: it is not uninitialised": (
        spec(*both("kernel", WRONG)),
        (lambda run: poison(run, {"heap": FOLLOWS}), lambda run: checkers(run, "address", "out_of_bounds")),
        OUT_OF_BOUNDS, DECISIVE,
    ),
    "the device says so as it dies": (
        spec(*both("kernel", Case(status="crashed", message="CUDA error: an illegal memory access")), device="cuda"),
        (), OUT_OF_BOUNDS, STRONG,
    ),
    "right at the start of an allocation, wrong behind it": (
        spec(*both("kernel", WRONG)),
        (lambda run: conditions(run, "inputs", [result("AA"), result("BB", 0.0, layout="offset")]),), OUT_OF_BOUNDS,
        STRONG,
    ),
    "it depends on what ran before, and on no memory": (
        spec(*both("kernel", WRONG)),
        (
            lambda run: poison(run, {"output": STILL, "heap": STILL}, passed=0.0),
            lambda run: conditions(run, "predecessor", [result("AA", 0.0), result("BB", before="fresh")]),
            lambda run: history(run, "BB BB", "BB BB"),
        ),
        PREDECESSOR_SENSITIVITY, DECISIVE,
    ),
    "a fresh process differs, and nobody asked whether another one does too": (
        spec(*both("kernel", WRONG)),
        (
            lambda run: poison(run, {"output": STILL, "heap": STILL}, passed=0.0),
            lambda run: conditions(run, "predecessor", [result("AA", 0.0), result("BB", before="fresh")]),
        ),
        PREDECESSOR_SENSITIVITY, STRONG,
    ),
    "it depends on what ran before; memory was not tried": (
        spec(FELL), (lambda run: conditions(run, "predecessor", [result("AA"), result("BB", 0.0, before="math")]),),
        PREDECESSOR_SENSITIVITY, STRONG,
    ),
    "it depends on what ran before although its code differs": (
        spec(FELL, machine_code={NEXT: "new"}, flags={NEXT: ("-O2",)}),
        (lambda run: conditions(run, "predecessor", [result("AA"), result("BB", 0.0, before="math")]),),
        PREDECESSOR_SENSITIVITY, STRONG,
    ),
}  # fmt: skip


def kept_from_an_earlier_call(run: Run) -> None:
    """As a kernel shows it that keeps something by its address: a trial here and there, whatever the pattern."""
    right, stale = result("AA"), result("AA", 0.5)
    stale = stale.model_copy(update={"output_sha256": [[sha("stale")] * 2, *stale.output_sha256[1:]]})

    def under(found: ConditionResult, **condition: str) -> ConditionResult:
        told = found.condition.model_copy(update={"label": " ".join(condition.values()), **condition})
        return found.model_copy(update={"condition": told})

    patterns = [("zero", right), ("nan", stale), ("max", stale), ("random", stale)]
    conditions(run, "poison", [under(found, site="heap", pattern=pattern) for pattern, found in patterns])
    conditions(run, "predecessor", [stale, under(right, before="fresh"), under(right, before="math")])
    conditions(run, "inputs", [right, under(stale, layout="offset")])


def test_what_was_kept_from_an_earlier_call_is_neither_memory_nor_bounds(tmp_path: Path) -> None:
    found = first(tmp_path, spec(*both("kernel", WRONG)), kept_from_an_earlier_call)
    assert (found.causes, found.grade) == ((PREDECESSOR_SENSITIVITY,), STRONG)


def test_which_nan_it_is_says_nothing(tmp_path: Path) -> None:
    """Other bits, each of them NaN, where NaN was put: as settled as any."""

    def heap(run: Run) -> None:
        results = [result("AA", site="heap", pattern="zero"), result("BB", 0.0, site="heap", pattern="max")]
        conditions(run, "poison", [*results, result("CD", 0.0, nonfinite=True, site="heap", pattern="nan")])
        checkers(run, "address")

    found = first(tmp_path, spec(*both("kernel", UNSTEADY)), heap)
    assert (found.cause, found.grade) == (UNINITIALISED_HOST, DECISIVE)


def test_what_ran_before_is_the_symptom_of_memory_that_was_not_written(tmp_path: Path) -> None:
    def before(run: Run) -> None:
        conditions(run, "predecessor", [result("AA"), result("BB", 0.0, before="flash")], device="cuda")

    found = of_kernel(tmp_path, spec(FELL, device="cuda"), on_gpu(poison, {"shared": FOLLOWS, "output": STILL}), before)
    assert [cause.cause for cause in found] == [UNINITIALISED_SHARED]
    assert [part.cause for part in found[0].parts] == [PREDECESSOR_SENSITIVITY]


def test_bits_that_waver_without_filled_memory_are_undecided(tmp_path: Path) -> None:
    found = first(tmp_path, spec(*both("kernel", UNSTEADY)))
    assert found.cause in (UNDECIDED, WRONG_EVERYWHERE) and found.grade != DECISIVE
    assert RACE not in found.causes


def test_a_call_that_changed_its_inputs_is_no_race(tmp_path: Path) -> None:
    case = Case(passed=2, units=400.0, repeats_differ=7, mutated=10)
    assert RACE not in first(tmp_path, spec(*both("kernel", case))).causes


def test_bits_that_waver_within_rounding_harm_nothing(tmp_path: Path) -> None:
    found = of_kernel(tmp_path, spec(*both("kernel", Case(repeats_differ=9))))
    assert [cause.cause for cause in found] == [NOTHING_MOVED]
    assert "not bit-repeatable" in found[0].statement


@pytest.mark.parametrize("letters", [STILL, ("AA", "AA", "AA", "AB")])
def test_filled_memory_that_changes_nothing_blames_nobody(letters: tuple[str, ...], tmp_path: Path) -> None:
    def still(run: Run) -> None:
        results = [
            result(each, site="heap", pattern=name)
            for each, name in zip(letters, ("zero", "nan", "max", "random"), strict=True)
        ]
        conditions(run, "poison", results)

    assert [cause.cause for cause in of_kernel(tmp_path, spec(), still)] == [NOTHING_MOVED]


def checked_twice(run: Run, *found: tuple[str, str, str]) -> None:
    """One record of several tools: (tool, kind, text), each proven by its control."""
    for tool, kind, _ in found:
        checkers(run, tool, kind)
    path = run.experiment_path(NEXT, KERNEL, "cpu", SEED, "checkers")
    record = load_record(path, CheckersRecord)
    told = record.results[0]
    results = [
        told.model_copy(
            update={"tool": tool, "findings": [told.findings[0].model_copy(update={"kind": kind, "text": text})]}
        )
        for tool, kind, text in found
    ]
    save_record(path, record.model_copy(update={"results": results}))


@pytest.mark.parametrize(
    ("text", "cause", "says"),
    [
        ("stack-use-after-scope, READ of size 4", RACE, "has a race"),
        ("heap-buffer-overflow, READ of size 4", OUT_OF_BOUNDS, "beyond its tensors"),
    ],
)
def test_what_a_thread_meets_too_late_is_part_of_its_race(text: str, cause: str, says: str, tmp_path: Path) -> None:
    race = ("thread", "race", "data race")
    made = spec(*both("kernel", UNSTEADY))
    found = first(tmp_path, made, lambda run: checked_twice(run, ("address", "out_of_bounds", text), race))
    assert found.cause == cause and says in found.statement and {RACE, OUT_OF_BOUNDS} <= set(found.causes)


def test_memory_whose_time_is_over_is_not_called_beyond_a_tensor(tmp_path: Path) -> None:
    given = ("address", "out_of_bounds", "heap-use-after-free, READ of size 4")
    found = first(tmp_path, spec(*both("kernel", WRONG)), lambda run: checked_twice(run, given))
    assert found.cause == OUT_OF_BOUNDS and "freed or is out of scope" in found.statement


def test_a_card_says_who_left_what_is_read_and_which_inputs_hide_it(tmp_path: Path) -> None:
    def sized(label: str, units: float) -> ConditionResult:
        return result("AB", 0.0, label=label, before=label).model_copy(update={"max_units": units})

    inputs = [result("A", 0.0, label="independent"), result("B", label="Q = K = V", recipe="shared_qkv")]
    found = first(
        tmp_path,
        spec(FELL, device="cuda"),
        on_gpu(poison, {"shared": FOLLOWS, "output": STILL}),
        on_gpu(conditions, "predecessor", [sized("flash", 2e5), sized("math", 9e7)]),
        on_gpu(conditions, "inputs", inputs),
    )
    told = [seen.text for seen in found.evidence]
    assert found.cause == UNINITIALISED_SHARED
    assert any("by what ran before: flash 2e+05, math 9e+07" in text for text in told)
    assert any("right all the same with Q = K = V: a test" in text for text in told)
    assert any("what ran before" in figure.title for figure in found.figures)


def test_errors_alike_whatever_ran_before_say_nothing(tmp_path: Path) -> None:
    same = [result("AB", 0.0, label=name, before=name) for name in ("flash", "math")]
    told = first(
        tmp_path,
        spec(FELL, device="cuda"),
        on_gpu(poison, {"shared": FOLLOWS, "output": STILL}),
        on_gpu(conditions, "predecessor", same),
        on_gpu(conditions, "inputs", [result("A", 0.0), result("B", 0.0, label="Q = K = V", recipe="shared_qkv")]),
    )
    assert not any("what ran before" in seen.text or "all the same" in seen.text for seen in told.evidence)


@pytest.mark.parametrize(("first_call", "cause"), [("AA", PREDECESSOR_SENSITIVITY), ("BB", UNINITIALISED_GLOBAL)])
def test_what_the_first_call_writes_and_later_ones_leave_is_kept_state(
    first_call: str, cause: str, tmp_path: Path
) -> None:
    """The first call of a process is right, into an output that is poisoned: what stands there is not read by it."""

    def make(run: Run) -> None:
        poison(run, {"output": FOLLOWS, "shared": STILL, "workspace": STILL}, device="cuda")
        before = [result("BB", 0.0, before="math"), result(first_call, float(first_call == "AA"), before="fresh")]
        conditions(run, "predecessor", before, device="cuda")
        calls = [f"{first_call[0]}B BB", f"{first_call[0]}B BB"]
        history(run, *calls, wrong="B", device="cuda")

    left = Case(passed=0, units=9e9, unwritten=10)
    found = first(tmp_path, spec(*both("kernel", left), device="cuda"), make)
    assert found.cause == cause
