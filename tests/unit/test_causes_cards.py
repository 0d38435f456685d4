"""A card contradicts nothing: over every committed record, and over generated ones."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.attribute import Cause, causes, explained
from reports.attribute.causes import DECISIVE, EXCLUDES, NAMES, STRONG, SUGGESTIVE, RuledOut, combined
from reports.render.explanations import explanations
from tests.unit.attributed import Make, by, called, causes_of, tried
from tests.unit.committed import committed
from tests.unit.experiments import FOLLOWS, STILL, checkers, clean, poison, profiles, result, swap, variables
from tests.unit.spec import BASE, NEXT, Case, Spec
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
        open_ = [each for each in cause.parts if f'it changed together with "{cause.name}"' in each.statement]
        if cause.grade == DECISIVE and open_:
            found.append(f"{cause.cause} is decisive beside {open_[0].cause}, which was not varied alone")
    return found


UNNAMED = re.compile(r"\b(baseline|here)\b")  # where a version should stand


def sentences(cause: Cause) -> list[str]:
    columns = [column for figure in cause.figures for column in figure.columns]
    seen = [each.text for each in cause.evidence]
    return [cause.statement, *seen, *(each.how for each in cause.ruled_out), *columns]


def test_over_every_committed_run(tmp_path: Path) -> None:
    runs = committed(tmp_path)
    assert len(runs) >= 9
    for run in runs:
        for card in explanations(explained(run)):
            assert not contradictions(card.causes), run.name
            assert not [text for cause in card.causes for text in sentences(cause) if UNNAMED.search(text)], run.name


LETTERS = ["".join(letters) for letters in itertools.product("AB", repeat=4)] + ["AAXX", "AXAX", "ABCD"]
CHECKERS = [("address", "out_of_bounds"), ("thread", "race"), ("racecheck", ""), ("initcheck", "uninitialised")]
PLACES = tuple(itertools.product((BASE, NEXT), repeat=2))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Spec, list[Make]]:
    """A run of one workload in two environments, and experiments on it that say whatever they like."""

    def pick(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    def maybe() -> bool:
        return draw(st.booleans())

    def case() -> Case:
        passed, status = pick(4, 4, 3, 0), pick(*["ok"] * 5, "unsupported", "crashed")
        return Case(
            passed=passed,
            units=1.2 if passed == 4 else pick(1.9, 30.0, 400.0),
            status=status,
            message="" if status == "ok" else pick("no code for it", "died by SIGSEGV"),
            bits=pick("", "", "new"),
            repeats_differ=pick(0, 0, 2),
            unwritten=pick(0, 0, 0, 2),
            slowdown=pick(1.0, 1.0, 1.5, 0.6),
            hot_slowdown=pick(None, 1.0),
            agrees=pick(None, 4, 1),
        )

    device = pick("cpu", "cuda")
    made = Spec(
        trials=4,
        launches=6,
        spread=0.002,
        workloads=("seed-fp16",),
        device=device,
        cases={(name, target, "seed-fp16"): case() for name in (BASE, NEXT) for target in ("kernel", "math")},
        machine_code=pick({}, {NEXT: "new"}),
        flags=pick({}, {NEXT: ("-O1",)}),
        variables=pick({}, {NEXT: {"MKL_CBWR": "AVX2"}}),
        threads=pick({}, {BASE: 4, NEXT: 2}),
        settings=pick({}, {NEXT: {"float32_matmul_precision": "medium"}}),
        busy_processors=pick({}, {BASE: 1.0, NEXT: 1.0}, {BASE: 1.9, NEXT: 1.0}),
        enqueue_us=pick({}, {NEXT: 500.0}),
        own_binding=maybe(),
    )
    experiments: list[Make] = []
    if maybe():
        experiments.append(by(clean, device=device))
    elif maybe():
        sites = {site: pick(STILL, FOLLOWS) for site in ("output", "heap", "shared")}
        experiments.append(by(poison, sites, device=device))
    if maybe():
        experiments.append(by(swap, pick(*LETTERS), device=device, right=pick("A", "AB", "")))
    if maybe():
        experiments.append(by(checkers, *pick(*CHECKERS), works=maybe(), device=device))
    if maybe():
        offset = result(pick("AA", "AB"), pick(0.0, 1.0), layout="offset")
        experiments.append(tried("inputs", result("AA"), offset, device=device))
    if maybe():
        words = [pick("AA BB", "AB BB", "BA BB") for _ in range(2)]
        experiments.append(called(*words, wrong="B", device=device))
    if device == "cpu" and maybe():
        experiments.append(by(variables, {place: maybe() for place in PLACES}))
    if maybe():
        experiments.append(by(profiles, "kernel", *pick((SOFTMAX, SAFE), (SAFE, SOFTMAX)), device=device))
    return made, experiments


@settings(max_examples=40)
@given(worlds())
def test_over_generated_records(world: tuple[Spec, list[Make]]) -> None:
    check(world)


@pytest.mark.slow
@settings(max_examples=150)
@given(worlds())
def test_over_many_generated_records(world: tuple[Spec, list[Make]]) -> None:
    check(world)


def check(world: tuple[Spec, list[Make]]) -> None:
    made, experiments = world
    with tempfile.TemporaryDirectory() as folder:
        for card in explanations(causes_of(Path(folder), made, *experiments)):
            assert not contradictions(card.causes)


# -- one story --------------------------------------------------------------------------------------------


def cause(name: str, grade: str = STRONG, **changes: Any) -> Cause:
    values: dict[str, Any] = {
        "about": causes.CORRECTNESS,
        "kernel": "k",
        "reference": "",
        "workloads": (),
        "device": "cuda",
        "environment": NEXT,
        "baseline": BASE,
        "statement": name,
        "evidence": (),
    }
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
