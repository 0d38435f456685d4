"""Which version is asked next, and whether two versions differ: steps are found within the bound, chance names none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.schema.bisection_records import CellSeen, PassCount, Probe, ProbeVerdict, Release
from harness.schema.records import Status
from harness.search.bisect.steps import ERROR_RATE, Probes, find_differing, most_environments
from harness.search.bisect.subject import REPLICATES
from harness.stats.effects import compare_launches
from tests.unit.test_bisection import question


def rates(status: Status = "ok", **shares: tuple[int, int]) -> list[CellSeen]:
    found = {name: PassCount(passed=passed, trials=trials) for name, (passed, trials) in shares.items()}
    return [CellSeen(cell="small-fp32/cpu", status=status, rates=found)]


def times(low: float | None, high: float | None, effect: float = 0.05, ratio: float = 1.0) -> list[CellSeen]:
    seen = CellSeen(cell="small-fp32/cpu", status="ok", ratio=ratio, low=low, high=high, min_effect=effect)
    return [seen]


@pytest.mark.parametrize(
    ("cells", "others", "differ"),
    [
        (rates(a=(20, 20)), rates(a=(0, 20)), True),
        (rates(a=(20, 20)), rates(a=(20, 20)), False),
        (rates(a=(20, 20)), rates(a=(18, 20)), False),  # chance does that
        (rates(a=(200, 200)), rates(a=(180, 200)), True),  # and not that
        (rates(a=(20, 20), b=(5, 5)), rates(a=(20, 20), b=(0, 5)), True),
        (rates(a=(20, 20), b=(5, 5), c=(5, 5)), rates(a=(20, 20), b=(1, 5), c=(5, 5)), False),  # of three, too few
        (rates(a=(20, 20)), rates(b=(0, 20)), False),  # nothing in common
        (rates(), rates("unsupported"), True),
        (rates("crashed"), rates("unsupported"), True),
        (rates("unsupported"), rates("unsupported"), False),
        (rates(a=(20, 20)), rates("not_run"), False),  # the harness's own failure says nothing
        (rates("wrong", a=(0, 20)), rates("ok", a=(20, 20)), True),
        (times(1, 1), times(1.06, 1.5), True),
        (times(1, 1), times(1.04, 1.5), False),  # not the whole interval
        (times(1, 1), times(0.5, 0.9), True),
        (times(1, 1), times(0.5, 0.96), False),
        (times(2.0, 3.0), times(1.0, 1.2), True),
        (times(1.0, 1.3), times(1.2, 1.5), False),  # they overlap
        (times(1, 1), times(None, None), False),  # one replicate has no interval
        (times(1, 1, 0.01), times(1.02, 1.03, 0.01), True),  # a GPU's smallest effect
    ],
)
def test_rates_are_compared_as_rates_and_times_as_whole_intervals(
    cells: list[CellSeen], others: list[CellSeen], differ: bool
) -> None:
    for left, right in ((cells, others), (others, cells)):
        assert find_differing(left, right) == (["small-fp32/cpu"] if differ else [])


def test_chance_is_shared_by_all_cells() -> None:
    """What one cell shows alone, one of forty does not."""
    one = [CellSeen(cell=f"{i}/cpu", status="ok", rates={"a": PassCount(passed=8, trials=8)}) for i in range(40)]
    other = [replace(one[0], rates={"a": PassCount(passed=2, trials=8)}), *one[1:]]
    assert find_differing(one[:1], other[:1]) == ["0/cpu"] and find_differing(one, other) == []


# -- which version is next -----------------------------------------------------------------------------------------


def bisect(
    draw: Callable[[int], list[CellSeen] | None],
    count: int,
    *,
    every: bool = False,
    skipped: frozenset[int] = frozenset(),
) -> tuple[list[tuple[int, int]], list[int], bool]:
    """Return steps, versions asked and whether it is monotonic, of a whole bisection; `draw` says what is seen of a
    version, None where it has no answer."""
    releases = [Release(version=str(index), skipped="x" * (index in skipped)) for index in range(count)]
    probes = Probes(question(releases=releases, good="0", bad=str(count - 1), every=every))
    asked = [0, count - 1]
    good, bad = draw(0) or [], draw(count - 1) or []
    verdict = ProbeVerdict.BAD if find_differing(good, bad) else ProbeVerdict.GOOD
    probes.by_version = {
        "0": Probe(version="0", verdict=ProbeVerdict.GOOD, cells=good),
        str(count - 1): Probe(version=str(count - 1), verdict=verdict, cells=bad),
    }
    while (version := probes.next_version()) is not None:
        assert int(version) not in asked, "a version is asked twice"
        asked.append(int(version))
        cells = draw(int(version))
        verdict = ProbeVerdict.SKIPPED if cells is None else probes.find_verdict(version, cells)
        probes.by_version[version] = Probe(version=version, verdict=verdict, cells=cells or [])
    record = probes.conclude()
    return [(int(step.before), int(step.after)) for step in record.steps], asked, record.monotonic


def labelled(labels: Sequence[int | None]) -> Callable[[int], list[CellSeen] | None]:
    """Return versions that differ where their labels do; None: without an answer."""
    values = [None if label is None else 2.0**label for label in labels]
    return lambda version: None if (value := values[version]) is None else times(value, value)


def test_one_step_is_found_at_every_position_of_every_length_within_the_bound() -> None:
    assert [most_environments(count) for count in (2, 3, 4, 5, 8, 9, 11)] == [3, 4, 4, 5, 5, 6, 6]
    for count in range(2, 40):
        for first_bad in range(1, count):
            draw = labelled([int(index >= first_bad) for index in range(count)])
            steps, asked, monotonic = bisect(draw, count)
            assert steps == [(first_bad - 1, first_bad)] and monotonic
            assert len(asked) <= most_environments(count), (count, first_bad)


@given(st.integers(2, 60), st.data())
def test_skipped_and_unknown_versions_leave_the_step_bracketed(count: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, count - 1))
    between = st.frozensets(st.integers(1, max(1, count - 2)))
    skipped, unknown = ({*data.draw(between)} - {0, count - 1} for _ in range(2))
    labels = [None if i in unknown else int(i >= first_bad) for i in range(count)]
    [(before, after)], asked, _ = bisect(labelled(labels), count, skipped=frozenset(skipped))
    assert before < first_bad <= after and not skipped & set(asked)
    assert all(i in skipped | unknown for i in range(before + 1, after)), "what could be asked was not"
    assert len(asked) <= most_environments(count - len(skipped)) + len(unknown & set(asked))


@given(st.integers(3, 60), st.data())
def test_two_steps_are_both_found_when_the_middle_is_unlike_both_ends(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, count - 2))
    second = data.draw(st.integers(first + 1, count - 1))
    labels = [0 if index < first else 2 if index < second else 1 for index in range(count)]
    steps, asked, _ = bisect(labelled(labels), count)
    assert steps == [(first - 1, first), (second - 1, second)]
    assert len(asked) <= 2 * most_environments(count)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=30))
def test_every_version_is_asked_once_where_all_are_wanted(labels: list[int]) -> None:
    steps, asked, _ = bisect(labelled(labels), len(labels), every=True)
    assert sorted(asked) == list(range(len(labels)))
    changes = sum(index > 0 and labels[index - 1] != label for index, label in enumerate(labels))
    assert len(steps) == changes


# -- versions that answer by chance --------------------------------------------------------------------------------


def flaky(generator: random.Random, trials: int, share: Callable[[int], float]) -> Callable[[int], list[CellSeen]]:
    """Versions each of whose trials pass by chance, in a share of them."""
    return lambda version: rates(a=(sum(generator.random() < share(version) for _ in range(trials)), trials))


@pytest.mark.parametrize(("good", "bad"), [(1.0, 0.2), (0.9, 0.3), (0.1, 0.7), (1.0, 0.7)])
def test_a_flaky_step_is_found_or_bracketed(good: float, bad: float) -> None:
    """Pass rates that vary by chance: few bisections name a step that is not there, and most name the one that is."""
    generator = random.Random(7)
    wrong = exact = 0
    for _ in range(150):
        count = generator.randint(3, 20)
        step = generator.randint(1, count - 1)
        found, _, _ = bisect(flaky(generator, 80, lambda version, step=step: good if version < step else bad), count)  # type: ignore[misc]
        wrong += any(not before < step <= after for before, after in found)
        exact += found == [(step - 1, step)]
    assert wrong <= 15 and exact >= 112, (wrong, exact)


def test_two_flaky_steps_are_both_told_and_no_difference_is_no_step() -> None:
    draw = flaky(random.Random(3), 100, lambda version: 1.0 if version < 4 else 0.5 if version < 9 else 0.0)
    assert sum(bisect(draw, 14)[0] == [(3, 4), (8, 9)] for _ in range(60)) >= 50
    generator = random.Random(11)
    assert not any(bisect(lambda version: rates(a=(generator.randint(15, 17), 20)), 9)[0] for _ in range(50))


def test_times_that_vary_are_bisected() -> None:
    """Replicates that spread by 6%, as on a shared machine, and a step of 1.5 times."""
    generator = np.random.default_rng(5)
    right = wrong = 0
    for _ in range(60):
        step = int(generator.integers(1, 11))

        def draw(version: int, step: int = step) -> list[CellSeen]:
            if version == 0:
                return times(1, 1)
            base, this = (generator.lognormal(0, 0.06, REPLICATES) for _ in range(2))
            pair = base.tolist(), (this * (1.5 if version >= step else 1.0)).tolist()
            [estimate] = compare_launches([pair], 1 - ERROR_RATE)
            return times(estimate.low, estimate.high, ratio=estimate.ratio)

        found, _, _ = bisect(draw, 11)
        right += found == [(step - 1, step)]
        wrong += any(not before < step <= after for before, after in found)
    assert right >= 55 and wrong <= 2, (right, wrong)
