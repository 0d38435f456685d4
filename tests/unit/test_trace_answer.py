"""The command's words, the sentences of an answer, and the page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.errors import InputError
from harness.trace import answer
from harness.trace import outcome as o
from harness.trace.ends import relative
from harness.trace.environments import make_matrix, parse_requirements
from harness.trace.judge import _relative, _sentence, _units, coarsest
from harness.trace.localise import ARGUMENTS, VALUES, Site
from harness.trace.model import End, Trace, Value
from harness.trace.outcome import Cause, Judged, Outcome, RaisedThere
from harness.trace.runs import parse_script
from harness.trace.trace import require_undisturbed
from reports.trace.page import render, terminal
from tests.unit.traced import op, trace

POOL = RaisedThere(
    version="2.5.0",
    text="RuntimeError: not implemented for 'Long'",
    line="mine.py:6",
    source="return pool(x, 2)",
    function="adaptive_avg_pool2d",
    operator="_adaptive_avg_pool2d",
    by_pytorch=True,
    returned=True,
)
COUNTS = {"good": 3, "bad": 3, "matched": 3, "regions": 0, "differing": 1}


def cause(kind: str, index: int, **given: object) -> Cause:
    usual = {"line": "mine.py:7", "source": "y = norm(x)", "module": "Net.norm", "phase": "forward", "why": VALUES}
    fixed = {"instances": 2, "share": 1.0, "bad_index": index, "judged": Judged()}
    return Cause(kind=kind, **{**usual, **fixed, **given})  # type: ignore[arg-type]


def outcome(verdict: str, *causes: Cause, **given: object) -> Outcome:
    found = Outcome(good="2.1.0", bad="2.5.0", command=["python", "mine.py"], verdict=verdict, causes=list(causes))
    found.counts, found.ended = COUNTS, {"good": "", "bad": ""}
    for name, value in given.items():
        setattr(found, name, value)
    answer.write(found)
    return found


def test_a_proven_cause_names_line_operator_effect_and_what_to_do() -> None:
    judged = Judged("2.5.0 is wrong, 2.1.0 is right.", exact_difference=0.0, good_units=1.0, bad_units=900.0)
    found = outcome(
        o.PROVEN, cause("norm", 4, judged=judged), numbers=0.02, tensors=math.inf, comes_back=True, reverse=True
    )
    assert found.answer == "The versions part at mine.py:7 (Net.norm): norm"
    assert found.rest[:-1] == [
        ["Line", "mine.py:7: y = norm(x)"],
        ["Right", "2.5.0 is wrong, 2.1.0 is right."],
        [
            "Result",
            "The end result differs: the numbers by up to 0.02 relative, the tensors by an amount that "
            "cannot be measured.",
        ],
        [
            "Proof",
            "With its outputs of 2.1.0 put into 2.5.0, the end result is 2.1.0's bit for bit; and the reverse holds.",
        ],
    ]
    assert found.rest[-1][0] == "Do" and found.rest[-1][1].startswith("Report it to PyTorch")


def test_it_is_judged_by_the_coarsest_type_that_a_version_computes_in() -> None:
    def in_steps(*kinds: str) -> Trace:
        return trace(*(replace(op("cast"), outputs=(Value("x", f"{kind}[4]", (1,)),)) for kind in kinds))

    site = Site(good=(0, 1), bad=(0,), kind="cast, mm -> mm")
    assert coarsest(site, in_steps("bfloat16", "float32"), in_steps("float32")) == "bfloat16"
    assert coarsest(site, in_steps("int64", "float32"), in_steps("float32")) == "float32"


def test_of_several_the_one_with_the_largest_share_comes_first_and_the_earliest_is_told() -> None:
    found = outcome(o.PROVEN, cause("gelu", 9), cause("a -> b", 2, share=0.1), comes_back=True, reverse=True)
    assert found.answer == "Most of the difference comes in at mine.py:7 (Net.norm): gelu"
    assert ["Also", "The versions part before it, at mine.py:7 (Net.norm): b in place of a."] in found.rest
    assert [label for label, _ in found.rest].count("Line") == 1, "a line is shown once"
    partly = outcome(o.PROVEN, cause("gelu", 9), comes_back=True, reverse=False, reverse_with=["a -> b"])
    proof = next(sentence for label, sentence in partly.rest if label == "Proof")
    assert proof.endswith("the reverse holds only with outputs of b in place of a put in, too.")
    others = [["mine.py:7", "y = norm(x)"], *([f"mine.py:{number}", "z = gelu(y)"] for number in range(20, 40))]
    lines = [line for label, line in outcome(o.PROVEN, cause("gelu", 9, others=others)).rest if label == "Line"]
    assert lines[:2] == ["mine.py:7: y = norm(x)", "mine.py:20: z = gelu(y)"] and lines[-1] == "and 9 more"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (outcome(o.NOTHING_MOVED), "Of 3 matched operators none"),
        (outcome(o.DOES_NOT_REPEAT, not_repeatable=["In 2.5.0, bmm at a.py:3 does not repeat"]), "No cause is named"),
        (outcome(o.NO_EFFECT, cause("norm", 1)), "norm gives other bits"),
        (outcome(o.RAISED, raised=POOL), "adaptive_avg_pool2d"),
        (outcome(o.NOT_EXPLAINED, numbers=0.5), "came in outside of PyTorch"),
        (outcome(o.NOT_EXPLAINED, ended={"good": "", "bad": "ValueError: no"}), "2.5.0: ValueError: no"),
        (outcome(o.NOT_PROVEN, cause("norm", 1), comes_back=False, left=0.1), "this is not all of it"),
        (outcome(o.NOT_PROVEN, cause("norm -> nothing", 1)), "could not be put back, so this is not proven"),
    ],
)
def test_every_verdict_is_a_page_and_says_what_to_do(found: Outcome, said: str, tmp_path: Path) -> None:
    found.cost = {"2.1.0": {"plain_s": 1.0, "recorded_s": 2.0, "operators": 3}}
    found.growth, found.notes = [[0, 0.0], [1, math.inf]], ["<script>alert(1)</script>"]
    o.save(found, tmp_path)
    page = render(tmp_path).read_text()
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert said in " ".join([found.answer, *(text for _, text in found.rest)]) and dict(found.rest)["Do"]
    assert said in terminal(o.load(tmp_path))


def test_an_exception_of_one_version_is_the_answer() -> None:
    found = outcome(o.RAISED, raised=POOL, ended={"good": "", "bad": POOL.text})
    assert found.answer == (
        "2.5.0 raises an exception at mine.py:6, in adaptive_avg_pool2d: RuntimeError: not implemented for 'Long'"
    )
    assert ["Line", "mine.py:6: return pool(x, 2)"] in found.rest
    assert dict(found.rest)["Why"] == (
        "In 2.1.0 the same operator, _adaptive_avg_pool2d, is given the same bits, and returns."
    )
    beside = outcome(o.RAISED, cause("gelu", 1), raised=replace(POOL, returned=False))
    assert dict(beside.rest)["Why"] == "2.1.0 goes on from there."
    assert "with them put back the exception stays" in dict(beside.rest)["Also"]
    own = replace(POOL, function="", operator="", by_pytorch=False, text="ValueError: no")
    script = outcome(o.NOT_EXPLAINED, raised=own)
    assert script.answer == "2.5.0 raises an exception at mine.py:6: ValueError: no"
    assert "The script raises it, not PyTorch." in dict(script.rest)["Why"]


def test_the_function_that_the_line_calls_is_named_before_its_parts() -> None:
    found = outcome(o.PROVEN, cause("expand", 4, function="cosine_similarity"), comes_back=True, reverse=True)
    assert found.answer.endswith("mine.py:7 (Net.norm): cosine_similarity, by its operator expand")
    same = outcome(o.PROVEN, cause("_softmax", 4, function="softmax"), comes_back=True, reverse=True)
    assert same.answer.endswith(": _softmax")


def test_other_arguments_are_to_be_passed() -> None:
    found = outcome(o.PROVEN, cause("add", 1, why=ARGUMENTS), comes_back=True)
    assert found.rest[-1][1].startswith("Pass the argument")


def test_errors_are_in_units_of_correct_rounding() -> None:
    truth = np.linspace(1, 2, 1000).reshape(10, 100)
    rounded = truth.astype(np.float32).astype(np.float64)
    assert 0.5 < _units(rounded, truth, "float32") <= 1
    assert _units(rounded + 1e-3, truth, "float32") > 1000
    assert _units(np.where(truth > 1.5, np.nan, rounded), truth, "float32") > 1e9
    assert _units(rounded + 1e-3, truth, "bfloat16") < 1
    assert _sentence([1, 2], "A", "B").startswith("Both are as exact")
    assert _sentence([1, 2000], "A", "B").startswith("B is wrong, A is right")
    assert _sentence([900, 1000], "A", "B").startswith("A is nearer")


def test_what_is_infinite_in_both_is_no_difference() -> None:
    one = np.array([1.0, -np.inf, np.nan])
    assert _relative([one], [one]) == 0 and _relative([one], [np.array([2.0, -np.inf, np.nan])]) == 1
    assert _relative([one], [np.array([1.0, -9.0, np.nan])]) == math.inf


def test_a_sketch_estimates_the_norm_and_never_hides_what_is_not_finite() -> None:
    one = np.ones(64)
    assert relative(one, one) == 0 and relative(one, one * 1.5) == 0.5
    assert relative(one, np.full(64, np.nan)) == math.inf


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


def test_modules_pytest_and_exact_requirements_are_taken(tmp_path: Path) -> None:
    assert parse_script(["python", "-m", "mine.train", "-x"]).target == "mine.train"
    assert parse_script(["pytest", "tests/t.py::test_a"]).package == "pytest"
    assert parse_requirements("# mine\nscipy==1.14.1\ntorch==2.0\n", "r.txt") == ["scipy==1.14.1"]
    with pytest.raises(InputError, match=r"r\.txt:1"):
        parse_requirements("scipy>=1\n", "r.txt")
    with pytest.raises(InputError, match=r"2\.1 or newer"):
        make_matrix(tmp_path / "matrix.yaml", ("2.0.1", "2.5.0"), [])
    matrix = make_matrix(tmp_path / "matrix.yaml", ("2.1.0", "2.5.0"), ["numpy==1.25.0", "scipy==1.14.1"])
    assert [spec.torch for spec in matrix.environments] == ["2.1.0", "2.5.0"]
    assert "numpy==1.25.0" in matrix.packages and "numpy==1.26.4" not in matrix.packages


def test_a_script_that_the_recorder_breaks_is_refused() -> None:
    require_undisturbed("2.1.0", End(code=1, exception="ValueError: x"), End(code=1, exception="ValueError: x"))
    with pytest.raises(InputError, match="RuntimeError: no subclass; else: exit code 0"):
        require_undisturbed("2.1.0", End(), End(code=1, exception="RuntimeError: no subclass"))
