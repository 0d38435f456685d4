"""Where two traces part, what is propagation, and what is put back."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.trace.align import align
from harness.trace.ends import Result, distance, held_by_one, result_of
from harness.trace.localise import ARGUMENTS, DRAWS, LAYOUT, Feed, Guard, Site, entry, examine
from harness.trace.model import UNKNOWN, End, Trace
from harness.trace.prove import Experiment, first_unrepeated, origins, requests, share, stored, unstable_operators
from tests.unit.traced import FLOAT, op, trace


def sites(good: Trace, bad: Trace) -> dict[str, Site]:
    return {site.kind: site for site in examine(good, bad, align(good, bad))}


def chain(norm: str, mm: str, **options: object) -> Trace:
    return trace(
        op("randn", gives=["x"]),
        op("norm", [("x", (0, 0))], [norm]),
        op("mm", [(norm, (1, 0)), ("w", None)], [mm]),
        op("sum", [(mm, (2, 0))], [f"s{mm}"]),
        **options,  # type: ignore[arg-type]
    )


def test_equal_inputs_and_other_outputs_are_the_origin_and_the_rest_is_propagation() -> None:
    found = sites(chain("n1", "m1"), chain("n2", "m2"))
    assert [kind for kind, site in found.items() if site.is_origin] == ["norm"]
    assert found["mm"].differs and not found["mm"].inputs_equal
    assert not found["randn"].differs


def test_nothing_differs_where_nothing_moved() -> None:
    assert not any(site.differs for site in sites(chain("n", "m"), chain("n", "m")).values())


def test_a_step_that_vanished_is_put_back_where_it_was_read() -> None:
    start = op("randn", gives=["x"])
    good = trace(start, op("norm", [("x", (0, 0))], ["n"]), op("mm", [("n", (1, 0))], ["m1"]))
    bad = trace(start, op("mm", [("x", (0, 0))], ["m2"]))
    site = sites(good, bad)["norm -> nothing"]
    assert site.is_origin and site.feeds == (Feed(Guard(1, 0, "x"), (1, 0)),)
    assert stored([site], [site.kind]) == {1: [0]}
    asked = requests([site], [site.kind], "DIR")
    assert asked == {"puts": {}, "feeds": {1: [[0, "DIR/1-0.pt", 0]]}, "guards": {1: [[0, "x", 0]]}}


def test_a_view_is_named_and_what_it_shows_is_not_overwritten() -> None:
    start = op("randn", gives=["x"])
    good = trace(start, op("t", [("x", (0, 0))], [""]), op("mm", [("xT", (1, 0))], ["m1"]))
    bad = trace(start, op("flip", [("x", (0, 0))], [""]), op("mm", [("xF", (1, 0))], ["m2"]))
    site = sites(good, bad)["t -> flip"]
    assert site.guards == (Guard(1, 0, "x"),) and site.feeds == (Feed(Guard(2, 0, ""), (1, 0)),)
    bad = trace(start, op("mm", [("x", (0, 0))], ["m2"]))
    site = sites(good, bad)["t -> nothing"]
    assert site.is_origin and not site.outputs and [feed.good for feed in site.feeds] == [(1, 0)]


def test_a_view_of_other_elements_is_an_origin() -> None:
    one, other = (
        trace(
            op("randn", gives=["x"]),
            op("slice", [("x", (0, 0))], [""], scalars=[first]),
            op("sum", [(shown, (1, 0))], [f"s{first}"]),
        )
        for first, shown in (("0", "x0"), ("1", "x1"))
    )
    assert sites(one, other)["slice -> slice"].is_origin


def test_what_no_operator_made_is_told_where_it_comes_in() -> None:
    one, other = (trace(op("mm", [(data, None)], [f"m{data}"], line="s.py:4")) for data in "ab")
    assert entry(one, other, align(one, other)) == ("data that no operator made", "s.py:4")
    one, other = (trace(op("rand", gives=[state], generator=state)) for state in "ab")
    assert entry(one, other, align(one, other)) == ("the random generator's state", "s.py:1")
    assert entry(one, one, align(one, one)) == ("", "")


def test_an_output_that_nobody_reads_is_no_origin() -> None:
    def one(extra: str) -> Trace:
        return trace(op("attend", gives=["o", extra]), op("sum", [("o", (0, 0))], ["s"]))

    assert not any(site.is_origin for site in sites(one("lse1"), one("lse2")).values())


def test_a_region_with_equal_inputs_and_other_outputs_is_an_origin_with_its_guard() -> None:
    good = trace(op("randn", gives=["x"]), op("math", [("x", (0, 0))], ["p1"]), op("sum", [("p1", (1, 0))], ["s1"]))
    bad = trace(
        op("randn", gives=["x"]),
        op("scale", [("x", (0, 0))], ["q"]),
        op("flash", [("q", (1, 0))], ["p2"]),
        op("sum", [("p2", (2, 0))], ["s2"]),
    )
    site = sites(good, bad)["math -> scale, flash"]
    assert site.is_origin and site.is_region
    assert site.outputs == (((1, 0), (2, 0)),)
    assert site.guards == (Guard(1, 0, "x"),)
    asked = requests([site], [site.kind], "DIR")
    assert asked == {"puts": {2: [[0, "DIR/1-0.pt", 0]]}, "feeds": {}, "guards": {1: [[0, "x", 0]]}}
    assert stored([site], [site.kind]) == {1: [0]}


def test_a_region_that_gives_the_same_is_none() -> None:
    good = trace(op("randn", gives=["x"]), op("a", [("x", (0, 0))], ["y"]), op("sum", [("y", (1, 0))], ["s"]))
    bad = trace(op("randn", gives=["x"]), op("b", [("x", (0, 0))], ["y"]), op("sum", [("y", (1, 0))], ["s"]))
    assert not sites(good, bad)["a -> b"].differs


def test_a_region_behind_a_difference_is_propagation() -> None:
    good = trace(op("norm", gives=["n1"]), op("a", [("n1", (0, 0))], ["y1"]), op("sum", [("y1", (1, 0))], ["s1"]))
    bad = trace(op("norm", gives=["n2"]), op("b", [("n2", (0, 0))], ["y2"]), op("sum", [("y2", (1, 0))], ["s2"]))
    found = sites(good, bad)
    assert found["norm"].is_origin and not found["a -> b"].is_origin and found["a -> b"].differs


def test_another_argument_is_an_origin_but_not_behind_a_number_that_moved() -> None:
    def one(slope: str, number: str) -> Trace:
        return trace(
            op("randn", gives=["x"]),
            op("_local_scalar_dense", [("x", (0, 0))], value=number),
            op("leaky", [("x", (0, 0))], [f"y{slope}"], scalars=[slope]),
            op("sum", [(f"y{slope}", (2, 0))], ["s"]),
        )

    site = sites(one("0.1", "7"), one("0.2", "7"))["leaky"]
    assert site.is_origin and site.why == ARGUMENTS
    assert not sites(one("0.1", "7"), one("0.2", "8"))["leaky"].is_origin


def test_draws_and_strides_are_told() -> None:
    def one(drawn: str, state: str, stride: int) -> Trace:
        return trace(
            op("uniform", gives=[drawn], generator=state),
            op("f", [("c", None)], [f"f{stride}"], strides=[stride]),
            op("add", [(drawn, (0, 0)), (f"f{stride}", (1, 0))], ["s"]),
        )

    found = sites(one("a", "g", 1), one("b", "g", 2))
    assert found["uniform"].is_origin and found["uniform"].why == DRAWS
    assert found["f"].is_origin and found["f"].why == LAYOUT
    assert not sites(one("a", "g", 1), one("b", "h", 1))["uniform"].is_origin


def test_what_does_not_repeat_is_no_cause() -> None:
    good, bad = chain("n1", "m1"), chain("n2", "m2")
    unstable = unstable_operators(bad, chain("n3", "m3"))
    assert unstable == {1, 2, 3}
    assert not origins(examine(good, bad, align(good, bad)), unstable)
    first = first_unrepeated(bad, chain("n3", "m3"))
    assert first is not None and first.kind == "norm"
    assert first_unrepeated(good, good) is None


class Replayer:
    """A version whose runs are these traces, in order."""

    version, store = "V", Path("STORE")

    def __init__(self, *runs: Trace) -> None:
        self.runs, self.asked = list(runs), list[dict[str, Any]]()

    def record(self, **request: Any) -> Trace:
        self.asked.append(request)
        return self.runs.pop(0)


def test_a_tensor_that_one_version_alone_holds_is_no_difference_and_one_of_another_type_is() -> None:
    def held(*lines: str, kind: str = FLOAT) -> Result:
        one = trace(
            *(op("m", gives=["x"], line=line) for line in lines),
            op("z", gives=["z"]),
            alive=[(place, 0) for place in range(len(lines))],
        )
        return replace(result_of(one), digests=tuple((kind, digest) for _, digest in result_of(one).digests))

    few, many = held("s.py:1", "s.py:3"), held("s.py:1", "s.py:2", "s.py:3")
    assert few.equals(many) and distance(few, many) == 0.0
    assert held_by_one(few, many) == [(1, 1, "forward s.py:2")]
    assert few.equals(held("s.py:1", "s.py:4"))  # the line of another branch
    assert few.equals(held("s.py:3", "s.py:1"))  # another order of the lines
    other = held("s.py:1", "s.py:3", kind="float64[4]")
    assert not few.equals(other) and distance(few, other) == math.inf
    assert few.equals(replace(other, read=(True,) * len(other.read)))  # what was computed from it is compared


def test_an_origin_behind_another_joins_and_all_that_is_put_back_is_stored() -> None:
    good, bad, between = chain("n1", "m1"), chain("n2", "m2"), chain("n1", "m2")
    giver, taker = Replayer(good, good), Replayer(between, good, between, bad)
    proof = Experiment(giver, taker, good, bad, lambda text: None).prove(set())  # type: ignore[arg-type]
    assert proof.comes_back and proof.kinds == ["norm", "mm"] and not proof.dropped
    assert [asked["store"] for asked in giver.asked] == [{1: [0]}, {1: [0], 2: [0]}]
    assert taker.asked[1]["puts"].keys() == giver.asked[1]["store"].keys()


def test_the_end_result_is_numbers_exceptions_and_what_was_left() -> None:
    one, other = result_of(chain("n", "m1")), result_of(chain("n", "m2"))
    assert not one.equals(other) and one.equals(one)
    raised = result_of(chain("n", "m1", end=End(code=1, exception="ValueError: no")))
    assert not one.equals(raised) and distance(one, raised) == math.inf
    numbers = [result_of(trace(op("_local_scalar_dense", value=value))) for value in ("1.0", "2.0", "1.5")]
    assert distance(numbers[0], numbers[1]) == 0.5
    wanted, had, between = numbers
    assert share(wanted, had, had, wanted) == 1
    assert round(share(wanted, had, had, between) or 0, 3) == 0.333
    assert round(share(wanted, had, between, wanted) or 0, 3) == 0.667


def test_what_cannot_be_read_may_differ_and_blames_nobody() -> None:
    def one(given: str, scalar: str, made: str) -> Trace:
        packed = op("packed", [("x", (0, 0)), (given, None)], [made], scalars=[scalar])
        return trace(op("randn", gives=["x"]), packed, op("sum", [(made, (1, 0))], [f"s{made}"]))

    def origins_of(given: str, scalar: str) -> list[str]:
        found = sites(one(given, scalar, "p1"), one(given, scalar, "p2"))
        return [kind for kind, site in found.items() if site.is_origin]

    assert origins_of("w", "2") == ["packed"]
    assert origins_of(UNKNOWN, "2") == origins_of("w", UNKNOWN) == []


def test_a_region_that_is_given_what_cannot_be_read_is_no_origin() -> None:
    def one(name: str, given: str) -> Trace:
        read = op(name, [("x", (0, 0)), (given, None)], [name])
        return trace(op("randn", gives=["x"]), read, op("sum", [(name, (1, 0))], [f"s{name}"]))

    for given, expected in (("w", True), (UNKNOWN, False)):
        found = sites(one("math", given), one("flash", given))
        assert found["math -> flash"].is_origin is expected
