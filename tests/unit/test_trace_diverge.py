"""Two traces matched; where they diverge, what is propagation, and what is substituted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.trace.align import Region, align, find_gaps, match
from harness.trace.diverge import Feed, Guard, Site, compare_traces
from harness.trace.model import UNKNOWN, OperatorCall, Reason, ScriptEnd, Slot, Trace, Value
from harness.trace.results import Result, compare_sketches, distance, find_result, pair_tensors
from harness.trace.substitute import (
    Experiment,
    find_diverging,
    find_first_unstable,
    find_unstable,
    request_outputs,
    request_substitution,
)

FLOAT = "float32[4]"


def op(
    name: str,
    reads: Sequence[tuple[str, Slot | None]] = (),
    gives: Sequence[str] = (),
    line: str = "s.py:1",
    strides: Sequence[int] = (1,),
    **more: Any,
) -> OperatorCall:
    """`reads`: digest and source of each input; `gives`: digest of each output. `trace` gives it an index."""
    return OperatorCall(
        index=-1,
        name=name,
        phase="forward",
        module="",
        line=line,
        inputs=tuple(Value(digest, FLOAT, tuple(strides), source) for digest, source in reads),
        outputs=tuple(Value(digest, FLOAT, (1,), None, 0 if digest else None) for digest in gives),
        **more,
    )


def trace(*operators: OperatorCall, alive: Sequence[Slot] = (), **end: Any) -> Trace:
    numbered = tuple(replace(operator, index=index) for index, operator in enumerate(operators))
    return Trace(numbered, ScriptEnd(alive=tuple(alive), **end), np.ones((1, 64)))


START = op("randn", gives=["x"])


def chain(norm: str, mm: str, **end: Any) -> Trace:
    return trace(
        START,
        op("norm", [("x", (0, 0))], [norm]),
        op("mm", [(norm, (1, 0)), ("w", None)], [mm]),
        op("sum", [(mm, (2, 0))], [f"s{mm}"]),
        **end,
    )


def sites(good: Trace, bad: Trace) -> dict[str, Site]:
    return {str(site.kind): site for site in compare_traces(good, bad, align(good, bad))}


def diverging(good: Trace, bad: Trace) -> list[str]:
    return [kind for kind, site in sites(good, bad).items() if site.diverges]


# -- align ------------------------------------------------------------------------------------------------------------

CAST = trace(
    op("mul", gives=["x"]),
    op("cos32", [("x", (0, 0))], ["c"]),
    op("cast", [("c", (1, 0))], ["h"], "s.py:3"),
    op("sin32", [("x", (0, 0))], ["s"]),
    op("cast", [("s", (3, 0))], ["g"], "s.py:3"),
)
CAST_BEFORE = trace(
    op("mul", gives=["x"]),
    op("cast", [("x", (0, 0))], ["y"], "s.py:2"),
    op("cos16", [("y", (1, 0))], ["h"]),
    op("sin16", [("y", (1, 0))], ["g"]),
)
READ = op("add", [("m", (1, 0))], ["a"])


@pytest.mark.parametrize(
    ("good", "bad", "regions"),
    [
        pytest.param(
            trace(op("a"), op("softmax", gives=["1"]), op("c")),
            trace(op("a"), op("safe_softmax", gives=["1"]), op("mul", gives=["2"]), op("c")),
            [(1, 2, 1, 3)],
            id="what was replaced is a region",
        ),
        pytest.param(
            trace(op("a"), op("cast"), op("softmax"), op("z")),
            trace(op("a"), op("softmax"), op("cast"), op("z")),
            [(1, 3, 1, 3)],
            id="another order is one region",
        ),
        pytest.param(
            trace(op("gelu", line="s.py:3")),
            trace(op("gelu", line="s.py:5")),
            [],
            id="branches on other lines are matched by name",
        ),
        pytest.param(
            trace(START),
            trace(replace(START, outputs=(Value("x", "float32[5]", (1,)),))),
            [(0, 1, 0, 1)],
            id="what reads nothing is known by what it makes",
        ),
        pytest.param(CAST, CAST_BEFORE, [(1, 5, 1, 4)], id="a cast before is not the cast behind"),
        pytest.param(
            trace(START, op("mm16", [("x", (0, 0))], ["m"]), READ),
            trace(START, op("mm32", [("x", (0, 0))], ["m"]), READ, op("t", [("m", (1, 0))], [""])),
            [(1, 3, 1, 4)],
            id="views of what a region made belong to it",
        ),
    ],
)
def test_traces_are_aligned(good: Trace, bad: Trace, regions: list[tuple[int, int, int, int]]) -> None:
    expected = tuple(Region(range(i, j), range(k, n)) for i, j, k, n in regions)
    assert align(good, bad).regions == expected


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.lists(st.sampled_from("abcd"), max_size=40))
def test_pairs_are_equal_and_ascend_and_regions_are_the_rest(good: list[str], bad: list[str]) -> None:
    pairs = match(good, bad)
    assert all(good[i] == bad[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    rest = find_gaps(pairs, len(good), len(bad))
    assert len(pairs) + sum(len(region.good) for region in rest) == len(good)
    assert len(pairs) + sum(len(region.bad) for region in rest) == len(bad)


class Key(str):
    """Counts how often keys are looked at."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        Key.looks += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Key.looks += 1
        return str.__hash__(self)


def test_twenty_thousand_operators_are_matched_in_few_looks() -> None:
    """Repeat keys, with a layer that appeared in every step, and another one that was replaced."""
    step = [f"op{number % 37}" for number in range(1000)]
    good = step * 20
    bad = [*step[:500], "extra", "extra", *step[500:900], "other", *step[901:]] * 20
    pairs = match(list(map(Key, good)), list(map(Key, bad)))
    assert Key.looks < 30 * len(good)
    assert len(pairs) > 19_900


# -- compare ----------------------------------------------------------------------------------------------------------


def attend(extra: str) -> Trace:
    return trace(op("attend", gives=["o", extra]), op("sum", [("o", (0, 0))], ["s"]))


def region(name: str, gives: str, reads: Sequence[tuple[str, Slot | None]] = (("x", (0, 0)),)) -> Trace:
    return trace(START, op(name, reads, [gives]), op("sum", [(gives, (1, 0))], [f"s{gives}"]))


def behind(digest: str, name: str) -> Trace:
    made = op(name, [(digest, (0, 0))], [f"y{digest}"])
    return trace(op("norm", gives=[digest]), made, op("sum", [(f"y{digest}", (1, 0))], [f"s{digest}"]))


def slope(argument: str, number: str) -> Trace:
    return trace(
        START,
        op("_local_scalar_dense", [("x", (0, 0))], value=number),
        op("leaky", [("x", (0, 0))], [f"y{argument}"], scalars=(argument,)),
        op("sum", [(f"y{argument}", (2, 0))], ["s"]),
    )


def shown(name: str, digest: str, **more: Any) -> Trace:
    return trace(START, op(name, [("x", (0, 0))], [""], **more), op("sum", [(digest, (1, 0))], [f"s{digest}"]))


def packed(given_: str, scalar: str, made: str) -> Trace:
    read = op("packed", [("x", (0, 0)), (given_, None)], [made], scalars=(scalar,))
    return trace(START, read, op("sum", [(made, (1, 0))], [f"s{made}"]))


@pytest.mark.parametrize(
    ("good", "bad", "kinds"),
    [
        pytest.param(chain("n1", "m1"), chain("n2", "m2"), ["norm"], id="the rest is propagation"),
        pytest.param(chain("n", "m"), chain("n", "m"), [], id="nothing differs"),
        pytest.param(attend("lse1"), attend("lse2"), [], id="an output that is not read"),
        pytest.param(region("a", "y"), region("b", "y"), [], id="a region that gives the same"),
        pytest.param(region("a", "y1"), region("b", "y2"), ["a -> b"], id="a region that gives others"),
        pytest.param(behind("n1", "a"), behind("n2", "b"), ["norm"], id="a region behind a difference"),
        pytest.param(slope("0.1", "7"), slope("0.2", "7"), ["leaky"], id="another argument"),
        pytest.param(slope("0.1", "7"), slope("0.2", "8"), [], id="an argument behind a number that changed"),
        pytest.param(
            shown("slice", "x0", scalars=("0",)),
            shown("slice", "x1", scalars=("1",)),
            ["slice -> slice"],
            id="a view of other elements",
        ),
        pytest.param(packed("w", "2", "p1"), packed("w", "2", "p2"), ["packed"], id="all inputs are known"),
        pytest.param(packed(UNKNOWN, "2", "p1"), packed(UNKNOWN, "2", "p2"), [], id="an input that cannot be read"),
        pytest.param(packed("w", UNKNOWN, "p1"), packed("w", UNKNOWN, "p2"), [], id="an argument that cannot be read"),
        pytest.param(
            region("math", "y1", [("x", (0, 0)), (UNKNOWN, None)]),
            region("flash", "y2", [("x", (0, 0)), (UNKNOWN, None)]),
            [],
            id="a region with an input that cannot be read",
        ),
    ],
)
def test_equal_inputs_and_other_outputs_diverge(good: Trace, bad: Trace, kinds: list[str]) -> None:
    assert diverging(good, bad) == kinds


def test_propagation_is_seen_as_such() -> None:
    found = sites(chain("n1", "m1"), chain("n2", "m2"))
    assert found["mm"].differs and not found["mm"].inputs_equal and not found["randn"].differs


def test_reasons_are_arguments_draws_and_strides() -> None:
    def draw(digest: str, state: str, stride: int) -> Trace:
        return trace(
            op("uniform", gives=[digest], generator=state),
            op("f", [("c", None)], [f"f{stride}"], strides=[stride]),
            op("add", [(digest, (0, 0)), (f"f{stride}", (1, 0))], ["s"]),
        )

    found = sites(draw("a", "g", 1), draw("b", "g", 2))
    assert found["uniform"].diverges and found["uniform"].reason == Reason.DRAWS
    assert found["f"].diverges and found["f"].reason == Reason.LAYOUT
    assert sites(slope("0.1", "7"), slope("0.2", "7"))["leaky"].reason == Reason.ARGUMENTS
    assert diverging(draw("a", "g", 1), draw("b", "h", 1)) == [], "the script's own generator is in another state"


# -- substitute -------------------------------------------------------------------------------------------------------


def request(site: Site) -> dict[str, Any]:
    return request_substitution([site], [site.kind], "DIR")


def test_outputs_of_a_region_are_substituted_where_its_inputs_are_the_same() -> None:
    good = region("math", "p1")
    scale, flash = op("scale", [("x", (0, 0))], ["q"]), op("flash", [("q", (1, 0))], ["p2"])
    site = sites(good, trace(START, scale, flash, op("sum", [("p2", (2, 0))], ["s2"])))["math -> scale, flash"]
    assert site.kind.is_region and site.outputs == (((1, 0), (2, 0)),) and site.guards == (Guard(1, 0, "x"),)
    assert request(site) == {"puts": [[2, 0, "DIR/1-0.pt", 0]], "feeds": [], "guards": [[1, 0, "x", 0]]}
    assert request_outputs([site], [site.kind]) == [(1, 0)]


def test_a_step_that_vanished_is_substituted_where_it_was_read() -> None:
    good = trace(START, op("norm", [("x", (0, 0))], ["n"]), op("mm", [("n", (1, 0))], ["m1"]))
    site = sites(good, trace(START, op("mm", [("x", (0, 0))], ["m2"])))["norm -> nothing"]
    assert site.diverges and site.feeds == (Feed(Guard(1, 0, "x"), (1, 0)),)
    assert request(site) == {"puts": [], "feeds": [[1, 0, "DIR/1-0.pt", 0]], "guards": [[1, 0, "x", 0]]}
    assert request_outputs([site], [site.kind]) == [(1, 0)]


def test_what_a_view_shows_is_not_overwritten() -> None:
    good = trace(START, op("t", [("x", (0, 0))], [""]), op("mm", [("xT", (1, 0))], ["m1"]))
    flip = trace(START, op("flip", [("x", (0, 0))], [""]), op("mm", [("xF", (1, 0))], ["m2"]))
    site = sites(good, flip)["t -> flip"]
    assert site.guards == (Guard(1, 0, "x"),) and site.feeds == (Feed(Guard(2, 0, ""), (1, 0)),)
    site = sites(good, trace(START, op("mm", [("x", (0, 0))], ["m2"])))["t -> nothing"]
    assert site.diverges and not site.outputs and [feed.good for feed in site.feeds] == [(1, 0)]


def test_what_does_not_repeat_is_no_cause() -> None:
    good, bad, again = chain("n1", "m1"), chain("n2", "m2"), chain("n3", "m3")
    unstable = find_unstable(bad, again)
    assert unstable == {1, 2, 3}
    assert not find_diverging(compare_traces(good, bad, align(good, bad)), unstable)
    first = find_first_unstable(bad, again)
    assert first is not None and str(first.kind) == "norm"
    assert find_first_unstable(good, good) is None


class Version:
    """A version whose runs are these traces, in order."""

    version, store = "V", Path("STORE")

    def __init__(self, *runs: Trace) -> None:
        self.runs, self.requests = list(runs), list[dict[str, Any]]()

    def record(self, **request: Any) -> Trace:
        self.requests.append(request)
        return self.runs.pop(0)


def prove(runs: Sequence[Trace], good: Trace, bad: Trace) -> Any:
    giver, taker = Version(*[good] * len(runs)), Version(*runs)
    proof = Experiment(giver, taker, good, bad, lambda text: None).prove(set())  # type: ignore[arg-type]
    return proof, giver, taker


def test_an_operator_behind_another_joins_and_all_that_is_substituted_is_stored() -> None:
    good, bad, between = chain("n1", "m1"), chain("n2", "m2"), chain("n1", "m2")
    proof, giver, taker = prove([between, good, bad, between], good, bad)
    assert proof.comes_back and proof.left == 0 and list(map(str, proof.kinds)) == ["norm", "mm"]
    assert [request["store"] for request in giver.requests] == [[(1, 0)], [(1, 0), (2, 0)]]
    assert [row[:2] for row in taker.requests[1]["puts"]] == [[1, 0], [2, 0]]


def test_what_is_not_needed_is_left_out_and_what_is_left_is_said() -> None:
    good, bad, between = chain("n1", "m1"), chain("n2", "m2"), chain("n1", "m2")
    proof, _, _ = prove([between, good, good], good, bad)
    assert proof.comes_back and list(map(str, proof.kinds)) == ["mm"], "without norm it comes back, too"
    proof, _, _ = prove([bad], good, bad)
    assert proof.comes_back is False and list(map(str, proof.kinds)) == ["norm"]


# -- results ----------------------------------------------------------------------------------------------------------


def hold(*lines: str, kind: str = FLOAT) -> Result:
    makers = [op("m", gives=["x"], line=line) for line in lines]
    result = find_result(trace(*makers, op("z", gives=["z"]), alive=[(place, 0) for place in range(len(lines))]))
    return replace(result, tensors=tuple(replace(held, type=kind) for held in result.tensors))


FEW, OTHER_TYPE = hold("s.py:1", "s.py:3"), hold("s.py:1", "s.py:3", kind="float64[4]")
READ_TENSORS = replace(OTHER_TYPE, tensors=tuple(replace(held, is_read=True) for held in OTHER_TYPE.tensors))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(hold("s.py:1", "s.py:2", "s.py:3"), 0.0, id="one version holds more"),
        pytest.param(hold("s.py:1", "s.py:4"), 0.0, id="the line of another branch"),
        pytest.param(hold("s.py:3", "s.py:1"), 0.0, id="another order of the lines"),
        pytest.param(OTHER_TYPE, math.inf, id="another type in both"),
        pytest.param(READ_TENSORS, 0.0, id="what was computed from it is compared"),
    ],
)
def test_tensors_are_paired(other: Result, expected: float) -> None:
    assert FEW.equals(other) is (expected == 0) and distance(FEW, other) == expected


def test_what_one_version_holds_is_told() -> None:
    pairs = pair_tensors(FEW, hold("s.py:1", "s.py:2", "s.py:3"))
    assert not pairs.good_only and [held.line for held in pairs.bad_only] == ["forward s.py:2"]


def test_the_end_result_is_numbers_exceptions_and_what_was_left() -> None:
    one, other = find_result(chain("n", "m1")), find_result(chain("n", "m2"))
    assert not one.equals(other) and one.equals(one)
    raised = find_result(chain("n", "m1", code=1, exception="ValueError: no"))
    assert not one.equals(raised) and distance(one, raised) == math.inf
    wanted, had = (find_result(trace(op("_local_scalar_dense", value=value))) for value in ("1.0", "2.0"))
    assert distance(wanted, had) == 0.5


def test_a_sketch_estimates_the_norm_and_never_hides_what_is_not_finite() -> None:
    one = np.ones(64)
    assert compare_sketches(one, one) == 0 and compare_sketches(one, one * 1.5) == 0.5
    assert compare_sketches(one, np.full(64, np.nan)) == math.inf
