"""PyTorch's operators, judged and timed by themselves, by the interpreters of real pinned environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.records import TargetResult
from harness.worker import codec, protocol
from tests.environments.verbs import TIMING, Environment

PASS = protocol.MODEL + protocol.BACKWARD  # its backward pass by itself

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]


def operator(name: str, *shapes: Any, **arguments: Any) -> dict[str, Any]:
    """Tensors by name where a shape is a pair of both."""
    given = [(shape[0], shape[1]) if isinstance(shape, tuple) else ("", shape) for shape in shapes]
    tensors = [{"tensors": [{"shape": shape}], "name": name, "several": False} for name, shape in given]
    return {"name": name, "tensors": tensors, "arguments": arguments}


def case_of(
    environment: Environment, folder: Path, asked: dict[str, Any], dtype: str = "float32", backward: bool = False
) -> dict[str, Any]:
    stored, case = environment.store(folder, "", trials=2, operator=asked, dtype=dtype)
    assert stored["status"] == "ok", stored["message"]
    case["problem"] |= {"file": "", "operator": asked, "backward": backward}
    return case


def judged(environment: Environment, case: dict[str, Any]) -> tuple[dict[str, Any], TargetResult]:
    found = environment.judge(case, None, [protocol.MODEL], subject=protocol.MODEL, power=False)
    return found, found["recipes"][0].targets[0]


def test_each_output_is_judged_by_its_name_and_ties_are_right(environments: list[Environment], tmp_path: Path) -> None:
    case = case_of(environments[0], tmp_path, operator("torch.topk", [64, 1024], k=9), "bfloat16")
    for environment in environments:
        result, target = judged(environment, case)
        assert (result["status"], result["message"]) == ("ok", ""), "which of equal elements is chosen is no fault"
        assert [(each.name, each.dtype, each.shape) for each in target.outputs] == [
            ("values", "bfloat16", [64, 9]),
            ("indices", "int64", [64, 9]),
        ]
        assert all(each.truth and each.truth.passed["rounding"] == 2 for each in target.outputs)


def test_gradients_are_outputs_with_a_truth_of_their_own(environments: list[Environment], tmp_path: Path) -> None:
    asked = operator("torch.nn.functional.layer_norm", ("input", [16, 96]), ("weight", [96]), normalized_shape=[96])
    case = case_of(environments[0], tmp_path, asked, backward=True)
    for environment in environments:
        result, target = judged(environment, case)
        assert result["status"] == "ok", result["message"]
        assert [each.name for each in target.outputs] == ["output", "grad of input", "grad of weight"]
        sizes = [each.truth.max_abs for each in target.outputs if each.truth]
        assert len(sizes) == 3 and all(size is not None and 0 < size < 1e-4 for size in sizes)


def laid_out(shape: list[int], strides: list[int], offset: int = 0, **more: Any) -> dict[str, Any]:
    return {"shape": shape, "strides": strides, "offset": offset, **more}


def of_tensors(name: str, *given: dict[str, Any], direction: str = "", **arguments: Any) -> dict[str, Any]:
    tensors = [{"tensors": [each]} for each in given]
    return {"name": name, "tensors": tensors, "arguments": arguments, "direction": direction}


@pytest.mark.parametrize(
    ("given", "layout"),
    [
        (laid_out([2, 3, 4, 5], [60, 1, 15, 3]), "channels_last"),
        (laid_out([6, 4], [1, 6]), "strides (1, 6)"),
        (laid_out([6, 4], [0, 1]), "strides (0, 1)"),
        (laid_out([6, 4], [9, 1], 3), "strides (9, 1)"),
        (laid_out([6, 4], [4, 1], 1), "contiguous"),
    ],
)
def test_inputs_lie_as_they_shall_where_they_are_judged_and_timed(
    environments: list[Environment], given: dict[str, Any], layout: str, tmp_path: Path
) -> None:
    case = case_of(environments[0], tmp_path, of_tensors("torch.Tensor.detach", given))
    digests = set()
    for environment in environments:
        result, target = judged(environment, case)
        assert (result["status"], result["message"]) == ("ok", "")
        assert [(each.layout, each.shape) for each in target.outputs] == [(layout, given["shape"])]
        digests |= {result["recipes"][0].input_sha256[0], target.outputs[0].output_sha256[0]}
        (row,) = timed(environment, case)
        assert (row["status"], row["message"]) == ("ok", "")
    assert len(digests) == 2, "the same numbers everywhere"


LOST = "overflows or underflows in an intermediate step"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_intermediate_infinity_is_no_rounding_error(
    environments: list[Environment], dtype: str, tmp_path: Path
) -> None:
    """PyTorch computes 2 ** 16 in float16 since its output has that type; 2.1.0 gave float32."""
    factors, powers = {"shape": [64, 64], "values": "uniform"}, {"shape": [64, 64], "values": "integers", "below": 17}
    case = case_of(environments[0], tmp_path, of_tensors("torch.ldexp", factors, powers), dtype)
    found = {}
    for environment in environments:
        result, target = judged(environment, case)
        (output,) = target.outputs
        found[output.dtype] = result["status"], target.leaves_range
        if result["status"] == protocol.WRONG:
            assert target.against[0].passed == {"kernelbench": 0, "rounding": 0, "strict": 0}
            assert target.against[0].nonfinite_trials == 2 and LOST in target.message
    wrong = (protocol.WRONG, 2) if dtype == "float16" else (protocol.OK, 0)
    assert found == {"float32": (protocol.OK, 0), dtype: wrong}


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        (of_tensors("torch.Tensor.add_", laid_out([6, 4], [1, 6]), {"shape": [6, 4]}), "tensor 1"),
        (of_tensors("torch.relu_", {"shape": [8, 16]}), "tensor 1"),
    ],
    ids=["add_", "relu_"],
)
@pytest.mark.parametrize("backward", [False, True])
def test_an_operator_in_place_is_right_and_what_it_writes_is_an_output(
    environments: list[Environment], asked: dict[str, Any], written: str, backward: bool, tmp_path: Path
) -> None:
    case = case_of(environments[0], tmp_path, asked, backward=backward)
    for environment in environments:
        result, target = judged(environment, case)
        assert (result["status"], result["message"]) == ("ok", "")
        assert target.writes == [written] and target.inputs_mutated == 0
        names = [each.name for each in target.outputs]
        gradients = [f"grad of tensor {number}" for number in range(1, len(asked["tensors"]) + 1)]
        assert names == (["output", f"written to {written}", *gradients] if backward else ["", f"written to {written}"])
        assert all(each.truth and each.truth.passed["rounding"] == 2 for each in target.outputs)
        assert all(row["status"] == "ok" for row in timed(environment, case))


def test_the_truth_is_that_of_contiguous_tensors(environments: list[Environment], tmp_path: Path) -> None:
    asked = of_tensors("torch.as_strided", laid_out([3, 4], [1, 3]), size=[3, 4], stride=[4, 1])
    result, _ = judged(environments[0], case_of(environments[0], tmp_path, asked))
    assert result["status"] == "wrong", "it reads memory as if it were contiguous"


@pytest.mark.parametrize(
    ("direction", "layout"),
    [
        ("", "contiguous"),
        ("sum", "strides (0, 0, 0, 0)"),
        ("channels_last", "channels_last"),
        ("transposed", "strides (60, 20, 1, 4)"),
    ],
)
def test_a_gradient_may_have_a_layout(
    environments: list[Environment], direction: str, layout: str, tmp_path: Path
) -> None:
    """An alias hands on the gradient that it is given. Another output is complex."""
    for name in ("torch.ops.aten.alias", "torch.fft.fft2"):
        asked = of_tensors(name, laid_out([2, 3, 4, 5], [60, 1, 15, 3]), direction=direction)
        case = case_of(environments[0], tmp_path, asked, backward=True)
        result, target = judged(environments[0], case)
        assert (result["status"], result["message"]) == ("ok", "")
        assert all(row["status"] == "ok" for row in timed(environments[0], case))
        assert name == "torch.fft.fft2" or target.outputs[1].layout == layout


def test_where_it_does_not_fit_the_output_it_is_not_run(environments: list[Environment], tmp_path: Path) -> None:
    asked = of_tensors("torch.exp", {"shape": [8]}, direction="transposed")
    result, _ = judged(environments[0], case_of(environments[0], tmp_path, asked, backward=True))
    assert result["status"] == protocol.NOT_RUN and "the shape [8] has no two" in result["message"]


def test_an_input_without_gradient_has_none(environments: list[Environment], tmp_path: Path) -> None:
    asked = of_tensors("torch.mul", {"shape": [8]}, {"shape": [8], "requires_grad": False})
    _, target = judged(environments[0], case_of(environments[0], tmp_path, asked, backward=True))
    assert [each.name for each in target.outputs] == ["output", "grad of tensor 1"]


# Coarse where it is called as users call it; neither for its truth nor for its yardstick, which are computed in a mode.
def test_a_transform_errs_by_its_passes(environments: list[Environment], tmp_path: Path) -> None:
    case = case_of(environments[0], tmp_path, operator("torch.fft.fft", [64, 4096]))
    result, _ = judged(environments[0], case)
    assert result["status"] == "ok", result["message"]
    deviation = (4 * 12 / 3) ** 0.5 * 2.0**-24  # of four roundings in each of twelve passes, each evenly spread
    assert [costs["row"] for costs in result["recipes"][0].costs] == pytest.approx([deviation] * 2, rel=0.2)


F = "torch.nn.functional."
MEETING = [
    operator(f"{F}conv2d", ("input", [32, 16, 16, 16]), ("weight", [16, 16, 7, 7]), ("bias", [16]), padding=3),
    operator(f"{F}conv_transpose2d", ("input", [4, 32, 14, 14]), ("weight", [32, 16, 5, 5]), padding=2),
    operator(f"{F}fold", [2, 200, 256], output_size=[16, 16], kernel_size=5, padding=2),
    operator(f"{F}avg_pool2d", [2, 8, 32, 32], kernel_size=5, stride=1),
    operator(
        f"{F}layer_norm",
        ("input", [512, 64]),
        ("weight", [64]),
        ("bias", [64]),
        normalized_shape=[64],
    ),
]


@pytest.mark.parametrize("asked", MEETING, ids=lambda asked: asked["name"].rpartition(".")[2])
def test_what_meets_in_an_output_is_added_in_its_dtype(
    environments: list[Environment], asked: dict[str, Any], tmp_path: Path
) -> None:
    case = case_of(environments[0], tmp_path, asked, "bfloat16", backward=True)
    for environment in environments:
        result, target = judged(environment, case)
        assert result["status"] == "ok", result["message"]
        worst = max(each.truth.max_units for each in target.outputs if each.truth and each.truth.max_units is not None)
        assert 0.6 < worst < 2.5, "as far off as the arithmetic that it is measured by"


COARSE = """
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
class Model(torch.nn.Module):
    def forward(self, x):
        coarse = x * 2 if _get_current_dispatch_mode() else (x * 2).half().float()
        return {"right": x * 2, "coarse": (coarse, 3)}
def get_inputs():
    return [torch.randn(8, 64)]
def get_init_inputs():
    return []
"""


def test_what_is_wrong_in_one_output_is_wrong_and_named(environments: list[Environment], tmp_path: Path) -> None:
    _, case = environments[0].store(tmp_path, COARSE, trials=2)
    result, target = judged(environments[0], case)
    passed = {each.name: each.truth and each.truth.passed["rounding"] for each in target.outputs}
    assert result["status"] == protocol.WRONG
    assert (passed["right"], passed["coarse.0"], passed["coarse.1"]) == (2, 0, 2)


def test_what_a_version_lacks_is_unsupported_there(environments: list[Environment], tmp_path: Path) -> None:
    case = case_of(environments[0], tmp_path, operator("torch.topkk", [8, 64], k=3))
    result, _ = judged(environments[0], case)
    assert result["status"] == protocol.UNSUPPORTED
    assert (
        result["failure"] == protocol.FailureKind.MISSING_OPERATOR and "did you mean torch.topk?" in result["message"]
    )


ENDS_IT = """
import os, time, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x if x.is_meta else {call}
def get_inputs():
    return [torch.randn(8, 64)]
def get_init_inputs():
    return []
"""


def test_in_a_batch_each_ends_by_itself(environments: list[Environment], tmp_path: Path) -> None:
    operators = {
        "right": operator("torch.topk", [64, 128], k=9),
        "refused": operator("torch.topk", [8, 8], k=9),
        "not there": operator("torch.topkk", [8, 64], k=3),
        "right too": operator("torch.abs", [8, 64]),
    }
    first, cases = environments[0], dict[str, dict[str, Any]]()
    for name, call in {"aborts": "os.abort()", "never ends": "time.sleep(600)", "raises": "1 / 0"}.items():
        (tmp_path / name).mkdir()
        cases[name] = first.store(tmp_path / name, ENDS_IT.format(call=call), trials=2)[1]
    for name, asked in operators.items():
        (tmp_path / name).mkdir()
        cases[name] = case_of(first, tmp_path / name, asked)
    own: dict[str, Any] = {"references": [protocol.MODEL], "subject": protocol.MODEL, "power": False}
    for environment in environments:
        requests = [{"version": codec.VERSION, **environment.judging(each, None, **own)} for each in cases.values()]
        answers = environment.result("batch", {"task": "judge", "requests": requests, "timeout_s": 30.0})["answers"]
        found = {name: each["result"] and each["result"]["status"] for name, each in zip(cases, answers, strict=True)}
        assert found == {
            "aborts": None,
            "never ends": None,
            "raises": protocol.UNSUPPORTED,
            "right": protocol.OK,
            "refused": protocol.UNSUPPORTED,
            "not there": protocol.UNSUPPORTED,
            "right too": protocol.OK,
        }
        assert [name for name, each in zip(cases, answers, strict=True) if each["timed_out"]] == ["never ends"]
        assert answers[1]["duration_s"] >= 30.0


BEFORE_IT_FORKS = """
import os
from worker import tasks
for name in ("judge", "store", "candidate"):
    tasks.prepared(name)
import torch
print(torch.cuda.is_initialized(), len(os.listdir("/proc/self/task")))
"""


def test_what_a_batch_forks_from_has_one_thread_and_no_cuda(environments: list[Environment]) -> None:
    for environment in environments:
        assert environment.script(BEFORE_IT_FORKS).split() == ["False", "1"]


def timed(environment: Environment, *cases: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of each case: of its calls, and where it has gradients of its backward pass by itself."""
    rows = [[case["id"], protocol.MODEL] for case in cases]
    rows += [[case["id"], PASS] for case in cases if case["problem"]["backward"]]
    request = {
        "workloads": list(cases),
        "seed": 0,
        "threads": 1,
        "device": "cpu",
        "rows": rows,
        "order_seed": 3,
        "expected_sha256": {},
        "timing": TIMING,
    }
    found = {(row["workload"], row["target"]): row for row in environment.result("time", request)["timings"]}
    return [found[workload, target] for workload, target in rows]


# Its passes sleep for so many seconds; what its backward pass does with the graph comes last.
PASSES = """
import time, torch
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep({forward})
        ctx.kept = [2.0]
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        time.sleep({backward})
        factor = ctx.kept[0]
        {last}
        return gradient * factor
class Model(torch.nn.Module):
    def forward(self, x):
        return Twice.apply(x)
def get_inputs():
    return [torch.randn(8, 64)]
def get_init_inputs():
    return []
"""


def passes(environment: Environment, folder: Path, last: str = "pass", **slow: float) -> list[dict[str, Any]]:
    """Rows of forward, of a step, and of the backward pass by itself."""
    text = PASSES.format(**{"forward": 0, "backward": 0, **slow}, last=last)
    stored, case = environment.store(folder, text)
    assert stored["status"] == "ok", stored["message"]
    case["problem"]["backward"] = False
    step = {**case, "id": "problem.backward", "problem": {**case["problem"], "backward": True}}
    return timed(environment, case, step)


@pytest.mark.parametrize("slow", ["forward", "backward"])
def test_a_slow_pass_is_slow_by_itself_and_in_a_step(
    environments: list[Environment], slow: str, tmp_path: Path
) -> None:
    for environment in environments:
        rows = passes(environment, tmp_path, **{slow: 0.02})
        assert all(row["status"] == "ok" for row in rows), rows
        forward, step, backward = (min(row["samples_us"]) for row in rows)
        assert step >= 20_000 and (forward >= 20_000, backward >= 20_000) == (slow == "forward", slow == "backward")


@pytest.mark.parametrize(
    ("last", "why"),
    [("ctx.kept.clear()", "list index out of range"), ("ctx.kept = [3.0]", "the second time it gives other gradients")],
)
def test_of_a_graph_that_serves_once_there_is_no_time_of_its_own(
    environments: list[Environment], last: str, why: str, tmp_path: Path
) -> None:
    for environment in environments:
        forward, step, backward = passes(environment, tmp_path, last)
        assert forward["status"] == step["status"] == "ok"
        assert backward["status"] == "not_run" and not backward["samples_us"]
        assert backward["message"] == f"backward cannot be called a second time on the same graph: {why}"


NAN_OF_ITS_OWN = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.where(torch.arange(64) == 3, x * (0.0 if x.dtype == torch.float64 else float("nan")), x)
def get_inputs():
    return [torch.rand(8, 64)]
def get_init_inputs():
    return []
"""


def test_a_model_s_own_nan_is_no_excuse_for_it(environments: list[Environment], tmp_path: Path) -> None:
    stored, case = environments[0].store(tmp_path, NAN_OF_ITS_OWN)
    assert stored["status"] == "ok"
    for environment in environments:
        assert judged(environment, case)[0]["status"] == "wrong"


@pytest.mark.slow
def test_what_is_generated_for_a_compiled_operator_is_collected_and_repeats(
    environments: list[Environment], tmp_path: Path
) -> None:
    """The whole of a first call: Inductor's output code and the machine code of its C++ kernel, in empty caches."""
    case = case_of(environments[0], tmp_path, operator("torch.nn.functional.gelu", [64, 64]))
    case["problem"] |= {"compiled": True}
    environment = environments[-1]
    found = []
    for name in ("one", "two"):
        (caches := tmp_path / name).mkdir()
        request = {"kernel": None, "workload": case, "seed": 1, "device": "cpu", "threads": 1, "caches": str(caches)}
        result = environment.result("compiled", request)
        assert result["status"] == "ok", result["message"]
        found.append({(each["kind"], each["name"]): each["sha256"] for each in result["generated"]})
    assert {kind for kind, _ in found[0]} == {"inductor", "so"} and found[0] == found[1]
