"""A card contradicts nothing: over every committed record, and over generated ones."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.schema.storage import Run
from reports.attribute import Cause, causes, explained
from reports.attribute.causes import DECISIVE, EXCLUDES, NAMES, STRONG, SUGGESTIVE, RuledOut, combined
from reports.render.explanations import explanations
from tests.unit.committed import committed
from tests.unit.experiments import (
    FOLLOWS,
    STILL,
    checkers,
    clean,
    conditions,
    history,
    poison,
    profiles,
    result,
    swap,
    variables,
)
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run
from tests.unit.timed import SAFE, SOFTMAX

SAME_BITS = ("the same bits in both", "gives the same bits in all")
OTHER_BITS = (
    "the kernel is not bit-repeatable",
    "is not bit-repeatable: its runs",
    "repeated calls gave other bits",
    "the second run gave other bits",
)


def contradictions(causes: Sequence[Cause]) -> list[str]:
    """What a reader would find on one card, of this subject, that cannot both be so."""
    found = []
    for cause in causes:
        story = (cause, *cause.parts)
        ruled_out = {name for each in story for ruled in each.ruled_out for name in ruled.causes}
        found += [f"{name} is told and ruled out" for name in ruled_out & {each.cause for each in story}]
        words = " ".join([each.statement for each in story] + [seen.text for each in story for seen in each.evidence])
        if any(each in words for each in SAME_BITS) and any(each in words for each in OTHER_BITS):
            found.append(f"the same bits, and other bits: {words}")
        if any(part.cause == cause.cause and part.grade == SUGGESTIVE for part in cause.parts):
            found.append(f"{cause.cause} is said twice")
        open_ = [each for each in cause.parts if f"together with what is called {cause.name}," in each.statement]
        if cause.grade == DECISIVE and open_:
            found.append(f"{cause.cause} is decisive beside {open_[0].cause}, which was not varied alone")
    return found


def test_over_every_committed_run(tmp_path: Path) -> None:
    runs = committed(tmp_path)
    assert len(runs) >= 9
    for run in runs:
        told_ = explained(run)
        for card in explanations(told_):
            assert not contradictions([*card.causes]), run.name


LETTERS = ["".join(letters) for letters in itertools.product("AB", repeat=4)] + ["AAXX", "AXAX", "ABCD"]
Make = Callable[[Run], None]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Spec, list[Make]]:
    """A run of one workload in two environments, and experiments on it that say whatever they like."""
    maybe = st.booleans()
    device = draw(st.sampled_from(["cpu", "cuda"]))

    def case() -> Case:
        passed = draw(st.sampled_from([4, 4, 3, 0]))
        status = draw(st.sampled_from(["ok"] * 5 + ["unsupported", "crashed"]))
        return Case(
            passed=passed,
            units=1.2 if passed == 4 else draw(st.sampled_from([1.9, 30.0, 400.0])),
            status=status,
            message="" if status == "ok" else draw(st.sampled_from(["no code for it", "died by SIGSEGV"])),
            bits=draw(st.sampled_from(["", "", "new"])),
            repeats_differ=draw(st.sampled_from([0, 0, 2])),
            unwritten=draw(st.sampled_from([0, 0, 0, 2])),
            slowdown=draw(st.sampled_from([1.0, 1.0, 1.5, 0.6])),
            hot_slowdown=draw(st.sampled_from([None, 1.0])),
            agrees=draw(st.sampled_from([None, 4, 1])),
        )

    made = Spec(
        trials=4,
        launches=6,
        spread=0.002,
        workloads=("seed-fp16",),
        device=device,
        cases={(name, target, "seed-fp16"): case() for name in (BASE, NEXT) for target in ("kernel", "math")},
        machine_code=draw(st.sampled_from([{}, {NEXT: "new"}])),
        flags=draw(st.sampled_from([{}, {NEXT: ("-O1",)}])),
        variables=draw(st.sampled_from([{}, {NEXT: {"MKL_CBWR": "AVX2"}}])),
        threads=draw(st.sampled_from([{}, {BASE: 4, NEXT: 2}])),
        settings=draw(st.sampled_from([{}, {NEXT: {"float32_matmul_precision": "medium"}}])),
        busy_processors=draw(st.sampled_from([{}, {BASE: 1.0, NEXT: 1.0}, {BASE: 1.9, NEXT: 1.0}])),
        enqueue_us=draw(st.sampled_from([{}, {NEXT: 500.0}])),
        own_binding=draw(maybe),
    )
    experiments: list[Make] = []
    if draw(maybe):
        experiments.append(lambda run: clean(run, device=device))
    elif draw(maybe):
        patterns = draw(st.lists(st.sampled_from([STILL, FOLLOWS]), min_size=3, max_size=3))
        sites = dict(zip(("output", "heap", "shared"), patterns, strict=True))
        experiments.append(lambda run: poison(run, sites, device=device))
    if draw(maybe):
        letters, right = draw(st.sampled_from(LETTERS)), draw(st.sampled_from(["A", "AB", ""]))
        experiments.append(lambda run: swap(run, letters, device=device, right=right))
    if draw(maybe):
        tool, kind = draw(
            st.sampled_from(
                [("address", "out_of_bounds"), ("thread", "race"), ("racecheck", ""), ("initcheck", "uninitialised")]
            )
        )
        works = draw(maybe)
        experiments.append(lambda run: checkers(run, tool, kind, works=works, device=device))
    if draw(maybe):
        masks = [
            result("AA"),
            result(draw(st.sampled_from(["AA", "AB"])), draw(st.sampled_from([0.0, 1.0])), layout="offset"),
        ]
        experiments.append(lambda run: conditions(run, "inputs", masks, device=device))
    if draw(maybe):
        words = draw(st.lists(st.sampled_from(["AA BB", "AB BB", "BA BB"]), min_size=2, max_size=2))
        experiments.append(lambda run: history(run, *words, wrong="B", device=device))
    if device == "cpu" and draw(maybe):
        tried = dict(
            zip(itertools.product((BASE, NEXT), repeat=2), draw(st.lists(maybe, min_size=4, max_size=4)), strict=True)
        )
        experiments.append(lambda run: variables(run, dict(tried)))
    if draw(maybe):
        sides = draw(st.sampled_from([(SOFTMAX, SAFE), (SAFE, SOFTMAX)]))
        experiments.append(lambda run: profiles(run, "kernel", *sides, device=device))
    return made, experiments


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_over_generated_records(world: tuple[Spec, list[Make]]) -> None:
    made, experiments = world
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder), made)
        for experiment in experiments:
            experiment(run)
        for card in explanations(explained(run.folder)):
            assert not contradictions(card.causes)


# -- one story --------------------------------------------------------------------------------------------


def cause(name: str, grade: str = STRONG, **changes: Any) -> Cause:
    values: dict[str, Any] = {
        "about": causes.CORRECTNESS, "kernel": "k", "reference": "", "workloads": (), "device": "cuda",
        "environment": NEXT, "baseline": BASE, "statement": name, "evidence": (),
    }  # fmt: skip
    return Cause(cause=name, grade=grade, **values | changes)


NO_RACE = RuledOut(rival="a race", how="racecheck found nothing")


def test_a_card_that_tells_what_it_rules_out_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="names and rules out: race"):
        cause(causes.OUT_OF_BOUNDS, ruled_out=(NO_RACE,), parts=(cause(causes.RACE),))
    with pytest.raises(ValueError, match="race"):
        replace(cause(causes.OUT_OF_BOUNDS, ruled_out=(NO_RACE,)), parts=(cause(causes.RACE),))
    with pytest.raises(ValueError, match="say in EXCLUDES"):
        RuledOut(rival="something else", how="")


def test_one_story_leaves_out_the_words_that_rule_out_what_it_tells() -> None:
    lead = cause(causes.OUT_OF_BOUNDS, ruled_out=(NO_RACE,))
    story = combined(lead, cause(causes.RACE), cause(causes.RACE, SUGGESTIVE))
    assert (story.causes, story.ruled_out) == ((causes.OUT_OF_BOUNDS, causes.RACE), ())
    alone = combined(lead, cause(causes.UNINITIALISED_GLOBAL))
    assert alone.ruled_out == (NO_RACE,)


def test_every_word_of_what_is_ruled_out_stands_for_known_causes() -> None:
    assert all(name in NAMES for causes in EXCLUDES.values() for name in causes)
