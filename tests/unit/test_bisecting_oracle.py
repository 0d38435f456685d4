"""Whether two versions differ: pass rates as rates, times as whole intervals, and what is unclear asks for more."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from harness.schema.bisection_records import Aspect, CellSeen, Rate
from harness.schema.records import Status
from harness.search.bisect import plan
from harness.search.bisect.oracle import (
    LEVEL,
    LOOKS,
    TRIAL_FACTORS,
    classify,
    differing,
    judge,
    launch_counts,
)
from harness.search.ratio import ratio_of

EFFECT = {"cpu": 0.05, "cuda": 0.01}


def rates(status: Status = "ok", **recipes: tuple[int, int]) -> list[CellSeen]:
    found = {name: Rate(passed=passed, trials=trials) for name, (passed, trials) in recipes.items()}
    return [CellSeen(cell="small-fp32/cpu", status=status, rates=found)]


def times(low: float | None, high: float | None, device: str = "cpu", ratio: float = 1.0) -> list[CellSeen]:
    return [CellSeen(cell=f"small-fp32/{device}", status="ok", ratio=ratio, low=low, high=high, launches=5)]


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (rates(a=(20, 20)), rates(a=(0, 20)), True),
        (rates(a=(20, 20)), rates(a=(20, 20)), False),
        (rates(a=(100, 100)), rates(a=(19, 100)), True),
        (rates(a=(20, 20)), rates(a=(18, 20)), False),  # chance does that
        (rates(a=(200, 200)), rates(a=(180, 200)), True),  # and not that
        (rates(a=(20, 20), b=(5, 5)), rates(a=(20, 20), b=(0, 5)), True),
        (rates(a=(20, 20), b=(5, 5), c=(5, 5)), rates(a=(20, 20), b=(0, 5), c=(5, 5)), False),  # of three, too few
        (rates(a=(20, 20)), rates(b=(0, 20)), False),  # nothing in common
        (rates(), rates("unsupported"), True),
        (rates("crashed"), rates("unsupported"), True),
        (rates("unsupported"), rates("unsupported"), False),
        (rates("wrong", a=(0, 20)), rates("ok", a=(20, 20)), True),
    ],
)
def test_correctness_is_compared_as_a_rate(one: list[CellSeen], other: list[CellSeen], differ: bool) -> None:
    for left, right in ((one, other), (other, one)):
        assert differing(left, right, "correctness", EFFECT) == (["small-fp32/cpu"] if differ else [])


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (times(1, 1), times(1.06, 1.5), True),
        (times(1, 1), times(1.04, 1.5), False),  # not the whole interval
        (times(1, 1), times(0.5, 0.9), True),
        (times(1, 1), times(0.5, 0.96), False),
        (times(2.0, 3.0), times(1.0, 1.2), True),
        (times(1.0, 1.3), times(1.2, 1.5), False),  # they overlap
        (times(1, 1), times(None, None), False),  # too few launches for an interval
        (times(1, 1, "cuda"), times(1.02, 1.03, "cuda"), True),  # a GPU's smallest effect
        (times(1, 1), [CellSeen(cell="small-fp32/cpu", status="not_run")], False),
    ],
)
def test_latency_is_compared_as_a_whole_interval(one: list[CellSeen], other: list[CellSeen], differ: bool) -> None:
    for left, right in ((one, other), (other, one)):
        assert bool(differing(left, right, "latency", EFFECT)) == differ


def test_chance_is_shared_by_all_cells() -> None:
    """What one cell shows alone, one of forty does not."""
    one = [CellSeen(cell=f"{i}/cpu", status="ok", rates={"a": Rate(passed=8, trials=8)}) for i in range(40)]
    other = [replace(one[0], rates={"a": Rate(passed=2, trials=8)}), *one[1:]]
    assert differing(one[:1], other[:1], "correctness", EFFECT) == ["0/cpu"]
    assert differing(one, other, "correctness", EFFECT) == []


@pytest.mark.parametrize("count", [5, 6, 10, 20])
def test_the_interval_holds_what_the_exact_test_does_not_refuse(count: int) -> None:
    """Against SciPy's exact test of Mann and Whitney, of launches that were shifted by either end."""
    generator = np.random.default_rng(count)
    base, this = (generator.lognormal(mean, 0.1, count).tolist() for mean in (0.0, 0.3))
    ratio, low, high = ratio_of(base, this, LEVEL)
    assert low is not None and high is not None and low < ratio < high
    for end, outwards in ((low, 1 - 1e-9), (high, 1 + 1e-9)):
        inside, outside = (
            stats.mannwhitneyu(np.array(this) / (end * factor), base, method="exact").pvalue
            for factor in (1 / outwards, outwards)
        )
        assert outside <= LEVEL < inside


def test_too_few_launches_have_no_interval_and_the_fewest_that_can_decide_have_one() -> None:
    assert ratio_of([1.0] * 4, [2.0] * 4, LEVEL)[1:] == (None, None)
    assert launch_counts(1) == (5, 10, 20)
    for cells in (1, 5, 50):
        count = launch_counts(cells)[0]
        assert ratio_of([1.0] * count, [2.0] * count, LEVEL / cells)[1] is not None
        assert ratio_of([1.0] * (count - 1), [2.0] * (count - 1), LEVEL / cells)[1] is None


@pytest.mark.parametrize(
    ("differs_from", "left", "right", "known", "label"),
    [
        ({1}, 0, 1, {0, 1}, 0),
        ({0}, 0, 1, {0, 1}, 1),
        (set(), 0, 1, {0, 1}, None),  # like both: more is asked for
        ({0, 1}, 0, 1, {0, 1}, 2),  # like neither
        ({0, 2}, 0, 2, {0, 1, 2}, 1),  # like one that lies elsewhere: it comes back
        ({0, 1, 2}, 0, 2, {0, 1, 2}, 3),
        ({0, 1}, 0, 1, {0, 1, 2, 3}, 4),  # like two others at once says nothing of which
        (set(), 0, 0, {0, 1}, 0),
        ({0}, 0, 0, {0, 1}, 1),
    ],
)
def test_a_version_is_like_what_it_is_not_shown_to_differ_from(
    differs_from: set[int], left: int, right: int, known: set[int], label: int | None
) -> None:
    assert classify({other: other in differs_from for other in known}, left, right) == label


def judged(seen: list[CellSeen], first: dict[int, list[CellSeen]], what: Aspect, *, last: bool = False) -> int | None:
    return judge(seen, first, (0, 1), what, EFFECT, last=last)


def test_what_is_not_shown_to_differ_but_looks_so_is_looked_at_again() -> None:
    """Seen on a real release: it refused nothing, as the bad one, and was wrong on one recipe, which five trials of it
    could not show beside two other recipes."""
    bad, odd = rates(a=(20, 20), b=(5, 5), c=(5, 5)), rates("wrong", a=(19, 20), b=(5, 5), c=(0, 5))
    first = {0: rates("unsupported"), 1: bad}
    assert differing(odd, bad, "correctness", EFFECT) == []
    assert judged(odd, first, "correctness") is None
    assert judged(rates("wrong", a=(38, 40), b=(10, 10), c=(0, 10)), first, "correctness") == 2
    assert judged(odd, first, "correctness", last=True) == 1, "at the last look what is shown decides"
    assert judged(rates(a=(19, 20), b=(5, 5), c=(5, 5)), first, "correctness") == 1


def test_a_ratio_that_looks_like_another_is_measured_again() -> None:
    first = {0: times(1, 1), 1: times(1.8, 2.0, ratio=1.9)}
    wide, near = times(0.64, 1.67, ratio=1.09), times(0.8, 1.2, ratio=1.01)
    assert judged(wide, first, "latency") is None
    assert judged(wide, first, "latency", last=True) == judged(near, first, "latency") == 0


def simulate(draw: Callable[[int, int], list[CellSeen]], count: int, what: Aspect = "correctness") -> list[int | None]:
    """Labels of a whole bisection whose versions answer by chance: `draw(version, look)`."""
    labels: list[int | None] = [None] * count
    first: dict[int, list[CellSeen]] = {}
    for look in range(LOOKS):
        ends = draw(0, look), draw(count - 1, look)
        if differing(*ends, what, EFFECT):
            break
    else:
        return [0, *labels[1:-1], 0]
    first[0], first[1] = ends
    labels[0], labels[-1] = 0, 1
    while (index := plan.next_version(labels)) is not None:
        neighbours = plan.neighbours(labels, index)
        label = None
        for number in range(look, LOOKS):
            seen = draw(index, number)
            label = judge(seen, first, neighbours, what, EFFECT, last=number == LOOKS - 1)
            if label is not None:
                first.setdefault(label, seen)
                break
        labels[index] = plan.UNKNOWN if label is None else label
    return labels


def flaky(generator: random.Random, trials: int, share: Callable[[int], float]) -> Callable[[int, int], list[CellSeen]]:
    """Versions each of whose trials pass by chance, in a share of them."""

    def draw(version: int, look: int) -> list[CellSeen]:
        count = trials * TRIAL_FACTORS[look]
        return rates(a=(sum(generator.random() < share(version) for _ in range(count)), count))

    return draw


@pytest.mark.parametrize(("good", "bad"), [(1.0, 0.2), (0.9, 0.3), (0.1, 0.7), (1.0, 0.7)])
def test_a_flaky_step_is_found_or_bracketed(good: float, bad: float) -> None:
    """Pass rates that vary by chance: a step is named that is not there in few bisections, and the true one lies in
    what is said in nearly all."""
    generator = random.Random(7)
    wrong = exact = 0
    bisections = 150
    for _ in range(bisections):
        count = generator.randint(3, 20)
        step = generator.randint(1, count - 1)
        draw = flaky(generator, 20, lambda version, step=step: good if version < step else bad)  # type: ignore[misc]
        found = plan.steps(simulate(draw, count))
        wrong += any(not before < step <= after for before, after in found)
        exact += found == [(step - 1, step)]
    assert wrong / bisections <= 0.1, f"{wrong} of {bisections} bisections name a step that is not there"
    assert exact / bisections >= 0.75, f"{exact} of {bisections} find it"


def test_two_flaky_steps_are_both_told() -> None:
    draw = flaky(random.Random(3), 40, lambda version: 1.0 if version < 4 else 0.5 if version < 9 else 0.0)
    assert sum(plan.steps(simulate(draw, 14)) == [(3, 4), (8, 9)] for _ in range(60)) >= 50


def test_times_that_vary_are_bisected() -> None:
    """Launches that spread by 6%, as on a shared machine, and a step of 1.5 times."""
    generator = np.random.default_rng(5)
    right = wrong = 0
    for _ in range(60):
        step = int(generator.integers(1, 11))

        def draw(version: int, look: int, step: int = step) -> list[CellSeen]:
            if version == 0:
                return times(1, 1)
            count = launch_counts(1)[look]
            base = generator.lognormal(0, 0.06, count).tolist()
            this = (generator.lognormal(0, 0.06, count) * (1.5 if version >= step else 1.0)).tolist()
            ratio, low, high = ratio_of(base, this, LEVEL)
            return times(low, high, ratio=ratio)

        found = plan.steps(simulate(draw, 11, "latency"))
        right += found == [(step - 1, step)]
        wrong += any(not before < step <= after for before, after in found)
    assert right >= 55 and wrong <= 2, (right, wrong)


def test_no_difference_is_no_step() -> None:
    generator = random.Random(11)
    for _ in range(50):
        assert not plan.steps(simulate(lambda version, look: rates(a=(generator.randint(15, 17), 20)), 9))
