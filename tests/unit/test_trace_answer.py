"""The command's words, the sentences of an answer, and the page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import InputError
from harness.trace.diverge import Site
from harness.trace.judge import compare_arrays, find_coarsest, measure_error, rank
from harness.trace.model import (
    Accuracy,
    DivergingKind,
    OneRaised,
    OperatorKind,
    Raised,
    Reason,
    ScriptEnd,
    Trace,
    TraceSummary,
    TraceVerdict,
    Truth,
    Value,
    load_summary,
    save_summary,
)
from harness.trace.runs import load_requirements, make_matrix, parse_script
from harness.trace.trace import require_undisturbed
from reports.render.trace_page import describe, render, render_terminal
from tests.unit.test_trace_diverge import op, trace

POOL = OneRaised(
    version="2.5.0",
    other="2.1.0",
    text="RuntimeError: not implemented for 'Long'",
    source="return pool(x, 2)",
    where=Raised("mine.py:6", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"),
    other_returned=True,
)
OWN = replace(POOL, where=Raised("mine.py:6"), text="ValueError: no")
GELU, REGION = OperatorKind(("gelu",), ("gelu",)), OperatorKind(("a",), ("b",), is_region=True)
INCORRECT = Accuracy(Truth.ONE_CORRECT, exact_difference=0.0, good_units=1.0, bad_units=900.0)
OTHERS = [["mine.py:7", "y = norm(x)"], *([f"mine.py:{number}", "z = gelu(y)"] for number in range(20, 40))]


def cause(kind: OperatorKind | str, index: int = 4, **more: Any) -> DivergingKind:
    place = {"line": "mine.py:7", "source": "y = norm(x)", "module": "Net.norm", "phase": "forward", "function": ""}
    kind = OperatorKind((kind,), (kind,)) if isinstance(kind, str) else kind
    fields = {**place, "reason": Reason.VALUES, "changes": [], "instances": 2, **more}
    return DivergingKind(kind=kind, index=index, **fields)


def save(folder: Path, verdict: TraceVerdict, *causes: DivergingKind, **more: Any) -> TraceSummary:
    """Return a summary as its page reads it."""
    outcome = TraceSummary("2.1.0", "2.5.0", ["python", "mine.py"], verdict=verdict, causes=list(causes))
    outcome.counts = {"good": 3, "bad": 3, "matched": 3, "differing": 1}
    outcome.ended, outcome.numbers, outcome.tensors = {"good": "", "bad": ""}, 0.0, 0.0
    outcome.comes_back, outcome.left = verdict == TraceVerdict.PROVEN, 0.1
    outcome.seconds = {"2.1.0": (1.0, 2.0)}
    for name, value in more.items():
        setattr(outcome, name, value)
    save_summary(outcome, folder)
    return load_summary(folder)


def say(folder: Path, verdict: TraceVerdict, *causes: DivergingKind, **more: Any) -> str:
    """Return the answer's rows as one text."""
    return "\n".join(": ".join(row) for row in describe(save(folder, verdict, *causes, **more)))


def test_a_proven_cause_names_line_operator_effect_and_what_to_do(tmp_path: Path) -> None:
    found = save(tmp_path, TraceVerdict.PROVEN, cause("norm", judged=INCORRECT), numbers=0.02, tensors=math.inf)
    assert describe(found)[:-1] == [
        ("", "The first diverging operator is at mine.py:7 (Net.norm): norm"),
        ("Line", "mine.py:7: y = norm(x)"),
        (
            "Right",
            "2.5.0 is incorrect, 2.1.0 is correct (error against float64, in rounding units (limit 32): 1 in 2.1.0, "
            "900 in 2.5.0).",
        ),
        (
            "Result",
            "The end result differs: the numbers by up to 0.02 relative, the tensors by an amount that cannot be "
            "measured.",
        ),
        ("Proof", "With its outputs of 2.1.0 substituted in 2.5.0, the end result is 2.1.0's bit for bit."),
    ]
    assert describe(found)[-1][0] == "Do"


@pytest.mark.parametrize(
    ("verdict", "causes", "more", "said"),
    [
        (TraceVerdict.UNCHANGED, [], {}, "Of 3 matched operators none"),
        (
            TraceVerdict.DOES_NOT_REPEAT,
            [],
            {"not_repeatable": ["In 2.5.0, bmm at a.py:3 does not repeat"]},
            "bmm at a.py:3",
        ),
        (TraceVerdict.NO_EFFECT, [cause("norm")], {}, "norm gives other bits"),
        (
            TraceVerdict.RAISED,
            [],
            {"raised": POOL},
            "at mine.py:6, in adaptive_avg_pool2d: RuntimeError: not implemented",
        ),
        (TraceVerdict.RAISED, [], {"raised": POOL}, "In 2.1.0 the same operator, _adaptive_avg_pool2d, is given"),
        (TraceVerdict.RAISED, [], {"raised": POOL}, "Line: mine.py:6: return pool(x, 2)"),
        (TraceVerdict.RAISED, [], {"raised": replace(POOL, other_returned=False)}, "Why: 2.1.0 goes on from there."),
        (TraceVerdict.RAISED, [cause("gelu")], {"raised": POOL}, "Other bits of gelu are not why"),
        (TraceVerdict.NOT_EXPLAINED, [], {"raised": OWN}, "2.5.0 raises an exception at mine.py:6: ValueError: no"),
        (TraceVerdict.NOT_EXPLAINED, [], {"raised": OWN}, "The script raises it"),
        (
            TraceVerdict.NOT_EXPLAINED,
            [],
            {"ended": {"good": "", "bad": "exit code 3"}},
            "2.1.0: ends well; 2.5.0: exit co",
        ),
        (TraceVerdict.NOT_EXPLAINED, [], {"numbers": 0.5}, "came in outside of PyTorch"),
        (TraceVerdict.POSSIBLE, [cause("norm")], {}, "a difference is left (up to 0.1 relative)"),
        (TraceVerdict.POSSIBLE, [cause(REGION)], {"comes_back": None}, "could not be substituted"),
        (TraceVerdict.PROVEN, [cause(REGION, 2), cause("gelu", 9)], {}, "(Net.norm): b in place of a"),
        (TraceVerdict.PROVEN, [cause(OperatorKind((), ("a",), True))], {}, "a, which only the bad version calls"),
        (TraceVerdict.PROVEN, [cause("gelu", others=OTHERS)], {}, "Line: mine.py:20: z = gelu(y)"),
        (TraceVerdict.PROVEN, [cause("gelu", others=OTHERS)], {}, "Line: and 9 more"),
        (TraceVerdict.PROVEN, [cause("gelu", phase="backward")], {}, "at the backward of mine.py:7"),
        (
            TraceVerdict.PROVEN,
            [cause("expand", function="cosine_similarity")],
            {},
            "cosine_similarity, by its operator exp",
        ),
        (TraceVerdict.PROVEN, [cause("_softmax", function="softmax")], {}, "(Net.norm): _softmax"),
        (
            TraceVerdict.PROVEN,
            [cause("add", reason=Reason.ARGUMENTS, changes=["1 and 2"])],
            {},
            "other arguments: 1 and 2.",
        ),
        (TraceVerdict.PROVEN, [cause("add", reason=Reason.ARGUMENTS)], {}, "Do: Pass the argument"),
        (TraceVerdict.PROVEN, [cause("rand", reason=Reason.DRAWS)], {}, "Do: Do not compare by seeds"),
        (TraceVerdict.PROVEN, [cause("mm", reason=Reason.LAYOUT)], {}, "Do: Its inputs have other strides"),
        (TraceVerdict.PROVEN, [cause("mm", judged=INCORRECT)], {}, "Do: Report it to PyTorch"),
        (
            TraceVerdict.PROVEN,
            [cause("mm", judged=replace(INCORRECT, good_units=50.0, bad_units=1.0))],
            {},
            "Do: Keep 2.5.0",
        ),
        (TraceVerdict.PROVEN, [cause("mm", judged=rank(1, 2))], {}, "Do: Accept it"),
        (TraceVerdict.PROVEN, [cause("mm", judged=rank(100, 200))], {}, "Do: Both are inaccurate"),
        (
            TraceVerdict.PROVEN,
            [cause("mm", judged=Accuracy(Truth.OTHER_MEANING, exact_difference=0.5))],
            {},
            "are 0.5 apart",
        ),
        (
            TraceVerdict.PROVEN,
            [cause("mm", judged=Accuracy(Truth.OTHER_MEANING, exact_difference=0.5))],
            {},
            "Do: Decide",
        ),
        (
            TraceVerdict.PROVEN,
            [cause("mm", judged=Accuracy(Truth.OTHER_MEANING, exact_difference=math.inf))],
            {},
            "one has finite",
        ),
        (TraceVerdict.PROVEN, [cause("mm", judged=Accuracy(Truth.NOT_RUN, "no"))], {}, "Alone it cannot run: no"),
        (
            TraceVerdict.PROVEN,
            [cause("mm", judged=replace(INCORRECT, is_deterministic=False))],
            {},
            "same bits every time",
        ),
    ],
)
def test_every_answer_says_what_to_do_and_is_a_page(
    verdict: TraceVerdict, causes: list[DivergingKind], more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    text = say(tmp_path, verdict, *causes, **more, notes=["<script>alert(1)</script>"])
    assert said in text and "\nDo: " in text and "\n: " not in text
    page = render(tmp_path).read_text()
    assert "<script" not in page and "http://" not in page and "https://" not in page
    headline = describe(load_summary(tmp_path))[0][1]
    assert headline in render_terminal(load_summary(tmp_path))


def test_every_truth_is_a_sentence(tmp_path: Path) -> None:
    facts = {"detail": "why", "exact_difference": 0.5, "good_units": 40.0, "bad_units": 50.0}
    for truth in set(Truth) - {Truth.NOT_JUDGED}:
        assert "\nRight: " in say(tmp_path, TraceVerdict.PROVEN, cause("mm", judged=Accuracy(truth, **facts)))  # type: ignore[arg-type]


def test_it_is_judged_by_the_coarsest_type_that_a_version_computes_in() -> None:
    def in_steps(*kinds: str) -> Trace:
        return trace(*(replace(op("cast"), outputs=(Value("x", f"{kind}[4]", (1,)),)) for kind in kinds))

    site = Site(good=(0, 1), bad=(0,), kind=OperatorKind(("cast", "mm"), ("mm",), is_region=True))
    assert find_coarsest(site, in_steps("bfloat16", "float32"), in_steps("float32")) == "bfloat16"
    assert find_coarsest(site, in_steps("int64", "float32"), in_steps("float32")) == "float32"


def test_errors_are_in_units_of_correct_rounding() -> None:
    truth = np.linspace(1, 2, 1000).reshape(10, 100)
    rounded = truth.astype(np.float32).astype(np.float64)
    assert 0.5 < measure_error(rounded, truth, "float32") <= 1
    assert measure_error(rounded + 1e-3, truth, "float32") > 1000
    assert measure_error(np.where(truth > 1.5, np.nan, rounded), truth, "float32") > 1e9
    assert measure_error(rounded + 1e-3, truth, "bfloat16") < 1
    ranks = {(1, 2): Truth.BOTH_ACCURATE, (1, 2000): Truth.ONE_CORRECT, (900, 1000): Truth.ONE_NEARER}
    assert {units: rank(*units).truth for units in ranks} == ranks
    assert rank(math.inf, math.nan).truth == Truth.ONE_NEARER


def test_what_is_infinite_in_both_is_no_difference() -> None:
    one = np.array([1.0, -np.inf, np.nan])
    assert compare_arrays(one, one) == 0 and compare_arrays(one, np.array([2.0, -np.inf, np.nan])) == 1
    assert compare_arrays(one, np.array([1.0, -9.0, np.nan])) == math.inf


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["node", "x.js"], "only Python scripts"),
        ([], "no command"),
        (["python", "-c", "pass"], "options of Python"),
        (["python", "gone.py"], "no such file"),
    ],
)
def test_what_is_no_script_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_script(words)
    assert parse_script(["python", "-m", "mine.train", "-x"]).target == "mine.train"
    assert parse_script(["pytest", "tests/t.py::test_a"]).kind == "module"


def test_requirements_are_exact_and_of_both_versions(tmp_path: Path) -> None:
    pins = tmp_path / "r.txt"
    pins.write_text("# mine\nscipy==1.14.1\ntorch==2.0\n")
    assert load_requirements(pins) == ["scipy==1.14.1"]
    pins.write_text("scipy>=1\n")
    with pytest.raises(InputError, match=r"r\.txt:1"):
        load_requirements(pins)
    with pytest.raises(InputError, match="No such file"):
        load_requirements(tmp_path / "gone.txt")
    with pytest.raises(InputError, match=r"2\.1 or newer"):
        make_matrix(tmp_path / "matrix.yaml", ("2.0.1", "2.5.0"), [])
    matrix = make_matrix(tmp_path / "matrix.yaml", ("2.1.0", "2.5.0"), ["numpy==1.25.0", "scipy==1.14.1"])
    assert [spec.torch for spec in matrix.environments] == ["2.1.0", "2.5.0"]
    assert "numpy==1.25.0" in matrix.packages and "numpy==1.26.4" not in matrix.packages
    same = make_matrix(tmp_path / "matrix.yaml", ("host", "host"), [])
    assert [spec.replica for spec in same.environments] == [0, 1]


def test_a_script_that_the_recorder_breaks_is_refused() -> None:
    error = ScriptEnd(code=1, exception="RuntimeError: no subclass")
    require_undisturbed("2.1.0", error, error)
    with pytest.raises(InputError, match="RuntimeError: no subclass; else: exit code 0"):
        require_undisturbed("2.1.0", ScriptEnd(), error)
