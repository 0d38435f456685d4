"""Faults in a kernel's memory are found where they are, and are not blamed where a rival is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema.experiment_records import CheckersRecord, ConditionResult
from harness.schema.storage import Run, load_record, save_record
from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from tests.unit.attributed import (
    FELL,
    UNSTEADY,
    WRONG,
    Known,
    called,
    check,
    checked,
    filled,
    first,
    of_both,
    of_kernel,
    on_gpu,
    spec,
    tried,
)
from tests.unit.experiments import (
    FOLLOWS,
    KERNEL,
    PATTERNS,
    SEED,
    STILL,
    checkers,
    conditions,
    dead,
    history,
    poison,
    result,
)
from tests.unit.spec import NEXT, Case, Spec
from tests.unit.synthetic_cells import sha

SHARED, GLOBAL, HOST = causes.UNINITIALISED
GPU = {"device": "cuda"}
CPU_STILL = {"output": STILL, "heap": STILL}
OF_SHARED = on_gpu(poison, {"shared": FOLLOWS, "output": STILL})
FELL_ON_GPU, WAVERS_ON_GPU = spec(FELL, device="cuda"), of_both(UNSTEADY, device="cuda")
WRONG_ON_GPU, FAILS, WAVERS = of_both(WRONG, device="cuda"), of_both(WRONG), of_both(UNSTEADY)
FRESH_DIFFERS = tried("predecessor", result("AA", 0.0), result("BB", before="fresh"))
MATH_DIFFERS = tried("predecessor", result("AA"), result("BB", 0.0, before="math"))
NAN = {"site": "shared", "pattern": "nan"}
CRASHES = Case(status="crashed", message="CUDA error: an illegal memory access")
AROUND = [
    *(result("AA", 0.0, site="around", pattern=name) for name in ("zero", "nan")),
    *(dead(site="around", pattern=name) for name in ("max", "random")),
]

MEMORY = {
    "shared memory decides the output": Known(FELL_ON_GPU, [OF_SHARED], SHARED, DECISIVE),
    "NaN from shared memory, though bits waver": Known(
        WAVERS_ON_GPU,
        [tried("poison", result("AB", site="shared", pattern="zero"), result("CD", 0.0, True, **NAN), device="cuda")],
        SHARED,
        STRONG,
    ),
    "bits waver until the memory is filled: no race": Known(WAVERS_ON_GPU, [OF_SHARED], SHARED, DECISIVE),
    "the output's own memory, on a GPU": Known(
        FELL_ON_GPU, [on_gpu(poison, {"shared": STILL, "output": FOLLOWS})], GLOBAL, DECISIVE
    ),
    "what the allocator hands out, on a GPU": Known(
        FELL_ON_GPU, [on_gpu(poison, {"workspace": FOLLOWS, "shared": STILL, "output": STILL})], GLOBAL, STRONG
    ),
    "the same, and memcheck sees no access out of bounds": Known(
        FELL_ON_GPU, [on_gpu(poison, {"workspace": FOLLOWS}), on_gpu(checkers, "memcheck")], GLOBAL, DECISIVE
    ),
    "initcheck finds it": Known(WRONG_ON_GPU, [on_gpu(checkers, "initcheck", "uninitialised")], GLOBAL, SUGGESTIVE),
    "elements are left unwritten": Known(of_both(Case(passed=0, units=9e9, unwritten=10), **GPU), [], GLOBAL, STRONG),
    "the heap": Known(FAILS, [filled(heap=FOLLOWS)], HOST, STRONG),
    "the stack, and the address checker is silent": Known(
        FAILS, [filled(stack=FOLLOWS), checked("address")], HOST, DECISIVE
    ),
    "the output's own memory, on a CPU": Known(spec(FELL), [filled(output=FOLLOWS, heap=STILL)], HOST, DECISIVE),
    "which NaN it is says nothing: other bits where NaN was put are as settled as any": Known(
        WAVERS,
        [
            tried(
                "poison",
                result("AA", site="heap", pattern="zero"),
                result("BB", 0.0, site="heap", pattern="max"),
                result("CD", 0.0, nonfinite=True, site="heap", pattern="nan"),
            ),
            checked("address"),
        ],
        HOST,
        DECISIVE,
    ),
    "what ran before is the symptom of memory that was not written": Known(
        FELL_ON_GPU,
        [OF_SHARED, tried("predecessor", result("AA"), result("BB", 0.0, before="flash"), device="cuda")],
        SHARED,
        also=[causes.PREDECESSOR_SENSITIVITY],
    ),
    "errors alike whatever ran before, and inputs that hide nothing": Known(
        FELL_ON_GPU,
        [
            OF_SHARED,
            tried("predecessor", *(result("AB", 0.0, before=name) for name in ("flash", "math")), device="cuda"),
            tried("inputs", result("A", 0.0), result("B", 0.0, label="Q = K = V", recipe="shared_qkv"), device="cuda"),
        ],
        SHARED,
        silent=["what ran before", "all the same"],
    ),
    "a race that no filling settles": Known(
        WAVERS, [filled(0.5, output=("AB", "CD", "EF", "GH"), heap=("IJ", "KL", "MN", "OP"))], causes.RACE, STRONG
    ),
    "a race that the thread checker sees": Known(WAVERS, [checked("thread", "race")], causes.RACE, DECISIVE),
    "a hazard in shared memory": Known(WAVERS_ON_GPU, [on_gpu(checkers, "racecheck", "race")], causes.RACE, DECISIVE),
    "repeats waver, fillings do not matter": Known(
        WAVERS, [filled(0.5, **CPU_STILL), tried("repeat", result("AABAA", 0.5))], causes.RACE, STRONG
    ),
    "the address checker names an access": Known(
        FAILS, [checked("address", "out_of_bounds")], causes.OUT_OF_BOUNDS, SUGGESTIVE
    ),
    "the same, from a checker that proved nothing": Known(
        FAILS, [checked("address", "out_of_bounds", works=None)], causes.OUT_OF_BOUNDS, SUGGESTIVE
    ),
    "what lies around the inputs decides": Known(
        FAILS, [filled(around=FOLLOWS, heap=FOLLOWS, output=STILL)], causes.OUT_OF_BOUNDS, DECISIVE, says=["reads"]
    ),
    "it follows the heap, and what lies around the inputs leaves its bits to chance": Known(
        WAVERS,
        [
            tried(
                "poison",
                result("AA", site="heap", pattern="zero"),
                result("CC", 0.0, site="heap", pattern="max"),
                result("AB", 0.0, site="around", pattern="zero"),
                result("CD", 0.0, nonfinite=True, site="around", pattern="nan"),
            )
        ],
        HOST,
        STRONG,
    ),
    "large numbers around the inputs end its process": Known(
        FAILS, [tried("poison", *AROUND)], causes.OUT_OF_BOUNDS, STRONG, says=["max crashed, random crashed"]
    ),
    "what lies behind was filled too: it is not uninitialised": Known(
        FAILS, [filled(heap=FOLLOWS), checked("address", "out_of_bounds")], causes.OUT_OF_BOUNDS, DECISIVE
    ),
    "the device says so as it dies": Known(of_both(CRASHES, **GPU), [], causes.OUT_OF_BOUNDS, STRONG),
    "right at the start of an allocation, wrong behind it": Known(
        FAILS, [tried("inputs", result("AA"), result("BB", 0.0, layout="offset"))], causes.OUT_OF_BOUNDS, STRONG
    ),
    "it depends on what ran before, and on no memory": Known(
        FAILS,
        [filled(0.0, **CPU_STILL), FRESH_DIFFERS, called("BB BB", "BB BB")],
        causes.PREDECESSOR_SENSITIVITY,
        DECISIVE,
    ),
    "a fresh process differs, and nobody asked whether another one does too": Known(
        FAILS, [filled(0.0, **CPU_STILL), FRESH_DIFFERS], causes.PREDECESSOR_SENSITIVITY, STRONG
    ),
    "it depends on what ran before; memory was not tried": Known(
        spec(FELL), [MATH_DIFFERS], causes.PREDECESSOR_SENSITIVITY, STRONG
    ),
    "it depends on what ran before although its code differs": Known(
        spec(FELL, machine_code={NEXT: "new"}, flags={NEXT: ("-O2",)}),
        [MATH_DIFFERS],
        causes.PREDECESSOR_SENSITIVITY,
        STRONG,
    ),
    "bits waver within rounding, and harm nothing": Known(
        of_both(Case(repeats_differ=9)), [], causes.NOTHING_MOVED, says=["not bit-repeatable"]
    ),
}


@pytest.mark.parametrize("name", MEMORY)
def test_a_fault_in_memory_is_found(name: str, tmp_path: Path) -> None:
    assert causes.WRONG_EVERYWHERE not in check(MEMORY[name], tmp_path).causes


def test_a_process_that_ends_under_one_pattern_alone_may_have_ended_by_chance(tmp_path: Path) -> None:
    by_chance = Known(FAILS, [tried("poison", *AROUND[:3])], causes.WRONG_EVERYWHERE, SUGGESTIVE)
    assert causes.OUT_OF_BOUNDS not in check(by_chance, tmp_path).causes


def test_what_was_kept_from_an_earlier_call_is_neither_memory_nor_bounds(tmp_path: Path) -> None:
    """What is kept by its address shows in a trial here and there, whatever the pattern."""
    right, stale = result("AA"), result("AA", 0.5)
    stale = replace(stale, output_sha256=[[sha("stale")] * 2, *stale.output_sha256[1:]])

    def under(found: ConditionResult, **condition: str) -> ConditionResult:
        told = replace(found.condition, label=" ".join(condition.values()), **condition)
        return replace(found, condition=told)

    patterns = [(pattern, right if pattern == "zero" else stale) for pattern in PATTERNS]
    found = first(
        tmp_path,
        FAILS,
        tried("poison", *(under(each, site="heap", pattern=pattern) for pattern, each in patterns)),
        tried("predecessor", stale, under(right, before="fresh"), under(right, before="math")),
        tried("inputs", right, under(stale, layout="offset")),
    )
    assert (found.causes, found.grade) == ((causes.PREDECESSOR_SENSITIVITY,), STRONG)


def test_bits_that_waver_without_filled_memory_are_undecided(tmp_path: Path) -> None:
    found = first(tmp_path, WAVERS)
    assert found.cause in (causes.UNDECIDED, causes.WRONG_EVERYWHERE) and found.grade != DECISIVE
    assert causes.RACE not in found.causes


def test_a_call_that_changed_its_inputs_is_no_race(tmp_path: Path) -> None:
    case = Case(passed=2, units=400.0, repeats_differ=7, mutated=10)
    assert causes.RACE not in first(tmp_path, of_both(case)).causes


@pytest.mark.parametrize("letters", [STILL, ("AA", "AA", "AA", "AB")])
def test_filled_memory_that_changes_nothing_blames_nobody(letters: tuple[str, ...], tmp_path: Path) -> None:
    results = [result(each, site="heap", pattern=name) for each, name in zip(letters, PATTERNS, strict=True)]
    assert [c.cause for c in of_kernel(tmp_path, spec(), tried("poison", *results))] == [causes.NOTHING_MOVED]


@pytest.mark.parametrize(
    ("made", "text", "races", "cause", "says"),
    [
        (WAVERS, "stack-use-after-scope, READ of size 4", True, causes.RACE, "has a race"),
        (WAVERS, "heap-buffer-overflow, READ of size 4", True, causes.OUT_OF_BOUNDS, "beyond its tensors"),
        (FAILS, "heap-use-after-free, READ of size 4", False, causes.OUT_OF_BOUNDS, "freed or is out of scope"),
    ],
    ids=["met too late by a thread of the race", "beyond a tensor beside a race", "its time is over"],
)
def test_what_kind_of_access_a_checker_names(
    made: Spec, text: str, races: bool, cause: str, says: str, tmp_path: Path
) -> None:
    def named(run: Run) -> None:
        checkers(run, "address", "out_of_bounds")
        path = run.experiment_path(NEXT, KERNEL, "cpu", SEED, "checkers")
        record = load_record(path, CheckersRecord)
        (told,) = record.results
        found = [("address", "out_of_bounds", text), *([("thread", "race", "data race")] if races else [])]
        results = [
            replace(told, tool=tool, findings=[replace(told.findings[0], kind=kind, text=words)])
            for tool, kind, words in found
        ]
        save_record(path, replace(record, results=results))

    lead = first(tmp_path, made, named)
    assert lead.cause == cause and says in lead.statement
    assert {causes.OUT_OF_BOUNDS, *([causes.RACE] if races else [])} <= set(lead.causes)


def test_a_card_says_who_left_what_is_read_and_which_inputs_hide_it(tmp_path: Path) -> None:
    before = [("flash", 2e5), ("math", 9e7)]
    sized = [replace(result("AB", 0.0, label=n, before=n), max_units=units) for n, units in before]
    inputs = [result("A", 0.0, label="independent"), result("B", label="Q = K = V", recipe="shared_qkv")]
    experiments = [OF_SHARED, tried("predecessor", *sized, **GPU), tried("inputs", *inputs, **GPU)]
    says = ["by what ran just before: flash 2e+05, math 9e+07", "these inputs hide it: Q = K = V"]
    found = check(Known(FELL_ON_GPU, experiments, SHARED, says=says), tmp_path)
    assert any("what ran just before" in figure.title for figure in found.figures)


@pytest.mark.parametrize(("first_call", "cause"), [("AA", causes.PREDECESSOR_SENSITIVITY), ("BB", GLOBAL)])
def test_what_the_first_call_writes_and_later_ones_leave_is_kept_state(
    first_call: str, cause: str, tmp_path: Path
) -> None:
    """The first call of a process is right, into an output that is poisoned: what stands there is not read by it."""

    def make(run: Run) -> None:
        poison(run, {"output": FOLLOWS, "shared": STILL, "workspace": STILL}, device="cuda")
        before = [result("BB", 0.0, before="math"), result(first_call, float(first_call == "AA"), before="fresh")]
        conditions(run, "predecessor", before, device="cuda")
        history(run, *[f"{first_call[0]}B BB"] * 2, wrong="B", device="cuda")

    left = Case(passed=0, units=9e9, unwritten=10)
    assert first(tmp_path, of_both(left, device="cuda"), make).cause == cause


def test_a_checker_that_names_an_access_rules_out_no_memory_that_nobody_filled(tmp_path: Path) -> None:
    access = on_gpu(checkers, "memcheck", "out_of_bounds")
    alone = first(tmp_path / "alone", WRONG_ON_GPU, access)
    filled_too = first(tmp_path / "filled", WRONG_ON_GPU, access, on_gpu(poison, {"shared": STILL, "output": STILL}))
    assert alone.cause == filled_too.cause == causes.OUT_OF_BOUNDS
    assert "uninitialised memory" not in {each.rival for each in alone.ruled_out}
    assert "uninitialised memory" in {each.rival for each in filled_too.ruled_out}
