"""The rule on problem files: what used to pass and is wrong, what used to fail and is right, what decides nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.worker import protocol
from tests.environments.verbs import Environment

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

FILE = """import torch
F = torch.nn.functional

class {name}(torch.nn.Module):
    def forward(self, {names}):
        return {computed}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
ROWS = "torch.randn(64, 1024)"
HEADS = ", ".join(["torch.randn(1, 2, 128, 64)"] * 3)
PRODUCT = "torch.randn(64, 4096), torch.randn(4096, 64)"
SOFTMAX, NORM = "F.softmax(x, -1)", "F.layer_norm(x, (1024,))"
ATTENTION = "F.scaled_dot_product_attention(x, y, z)"
TRUNCATED = "(lambda f: f(x) @ f(y))(lambda t: (t.view(torch.int32) & -8192).view(torch.float32))"
ONE_BY_ONE = "__import__('functools').reduce(lambda s, k: s + x[:, k, None] * y[k], range(4096), torch.zeros(64, 64))"
SPLIT = "sum((x[:, i::8] @ y[i::8] for i in reversed(range(8))), torch.zeros(64, 64))"


def judged(
    environment: Environment, dtype: str, model: str, inputs: str, solution: str, folder: Path, **asked: Any
) -> dict[str, Any]:
    names = ", ".join("xyz"[: inputs.count("torch.rand")])
    stored, case = environment.store(
        folder, FILE.format(name="Model", names=names, computed=model, inputs=inputs), trials=2, dtype=dtype
    )
    assert stored["status"] == "ok", stored["message"]
    new = folder / "solution.py"
    new.write_text(FILE.format(name="ModelNew", names=names, computed=solution, inputs=inputs))
    candidate, _ = environment.candidate(case, model=str(new))
    return environment.judge(case, candidate, [protocol.MODEL], **asked)


def agreements(result: dict[str, Any]) -> dict[str, Any]:
    return {target.target: target.against[0] for target in result["recipes"][0].targets}


@pytest.mark.parametrize(
    ("dtype", "model", "inputs", "solution"),
    [
        ("bfloat16", SOFTMAX, ROWS, "torch.zeros_like(x)"),
        ("bfloat16", ATTENTION, HEADS, "torch.zeros_like(x)"),
        ("bfloat16", NORM, ROWS, "x"),
        ("bfloat16", "x @ y", PRODUCT, "x[:, :-512] @ y[:-512]"),
        ("bfloat16", SOFTMAX, ROWS, "(F.softmax(x.float(), -1) * 1.003).to(x.dtype)"),
        ("float16", "F.gelu(x)", ROWS, "F.relu(x)"),
        ("float16", NORM, ROWS, "x"),
    ],
    ids=["softmax zeros", "attention zeros", "norm input", "an eighth of K", "scaled 0.3%", "gelu relu", "norm fp16"],
)
def test_what_is_wrong_fails_and_the_model_itself_passes(
    environments: list[Environment], tmp_path: Path, dtype: str, model: str, inputs: str, solution: str
) -> None:
    result = judged(environments[-1], dtype, model, inputs, solution, tmp_path)
    found = agreements(result)
    assert result["status"] == "wrong", result["message"]
    assert found["kernel"].passed["rounding"] == 0 and found["kernel"].max_units > 8
    assert found["model"].passed["rounding"] == 2 and found["model"].max_units < 2
    power = {wrong.name: wrong for wrong in result["recipes"][0].power}
    assert power["zeros"].seen and len(power) >= 4


@pytest.mark.parametrize("solution", [ONE_BY_ONE, SPLIT, "x @ y"], ids=["one by one", "split", "as PyTorch does"])
def test_the_order_of_additions_is_no_fault(environments: list[Environment], tmp_path: Path, solution: str) -> None:
    for index, environment in enumerate(environments):
        (folder := tmp_path / str(index)).mkdir()
        result = judged(environment, "float32", "x @ y", PRODUCT, solution, folder)
        assert result["status"] == "ok", result["message"]
        assert agreements(result)["kernel"].max_units < 2.5


def test_tf32_is_right_where_it_is_declared(environments: list[Environment], tmp_path: Path) -> None:
    for name, declared, status in (("plain", None, "wrong"), ("declared", ["tf32_matmul", "tf32_convolution"], "ok")):
        (tmp_path / name).mkdir()
        result = judged(environments[0], "float32", "x @ y", PRODUCT, TRUNCATED, tmp_path / name, precision=declared)
        assert result["status"] == status, result["message"]
        assert result["precision"] == ([] if declared is None else ["tf32_convolution", "tf32_matmul"])
        said = "it would pass as declared `precision: {products: tf32}`" in result["message"]
        assert said is (declared is None)


def test_sums_in_float16_are_right_where_they_are_declared(environments: list[Environment], tmp_path: Path) -> None:
    solution = ONE_BY_ONE.replace("torch.zeros(64, 64)", "torch.zeros(64, 64, dtype=x.dtype)")
    for name, declared, status in (("plain", None, "wrong"), ("declared", ["float16_sums"], "ok")):
        (tmp_path / name).mkdir()
        result = judged(environments[-1], "float16", "x @ y", PRODUCT, solution, tmp_path / name, precision=declared)
        assert result["status"] == status, result["message"]


@pytest.mark.parametrize(
    ("model", "inputs", "solution", "status"),
    [
        ("1 / torch.relu(x)", ROWS, "1 / torch.relu(x)", "ok"),
        ("1 / torch.relu(x)", ROWS, "(1 / torch.relu(x)).clamp(max=1e30)", "wrong"),
        ("torch.log(x)", ROWS, "torch.log(x)", "ok"),
        ("torch.log(x)", ROWS, "torch.log(x.abs())", "wrong"),
        ("torch.relu(x)", "torch.rand(64, 256)", "torch.relu(x)", "undecidable"),
        ("torch.relu(x - 9)", ROWS, "torch.relu(x - 9)", "undecidable"),
        ("x.argmax(-1)", ROWS, "x.argmax(-1)", "ok"),
        ("x.argmax(-1)", ROWS, "x.argmin(-1)", "wrong"),
        ("x > 1", ROWS, "x > 1", "ok"),
        ("x[:0]", ROWS, "x[:0]", "undecidable"),
        ("F.dropout(x)", ROWS, "F.dropout(x)", "ok"),
        ("F.dropout(x) * 1e-6", ROWS, "F.dropout(x) * 1e-6", "undecidable"),
        ("torch.unique(x.round()) * 2.0", ROWS, "torch.unique(x.round()) * 2", "ok"),
    ],
)
def test_outputs_of_all_kinds_have_an_honest_status(
    environments: list[Environment], tmp_path: Path, model: str, inputs: str, solution: str, status: str
) -> None:
    """Infinities, NaN, zeros, indices, masks, nothing at all, what has no truth, and what stays exact."""
    result = judged(environments[0], "float32", model, inputs, solution, tmp_path)
    assert result["status"] == status, result["message"]


EMPTY = """
import torch
from worker import emulation
query, value = torch.ones(1, 2, 3, 0), torch.arange(24.0).reshape(1, 2, 3, 4)
with emulation.Attention(emulation.Arithmetic()):
    found = torch.nn.functional.scaled_dot_product_attention(query, query, value)
assert torch.allclose(found, value.mean(-2, keepdim=True).expand_as(found)), found
"""


def test_the_truth_of_attention_without_elements_is_the_mean_of_the_values(environments: list[Environment]) -> None:
    for environment in environments:
        environment.script(EMPTY)


TF32 = """
import torch
from worker import arithmetic, emulation, rounding
image, weight = torch.ones(1, 2, 5, 5) + 2.0**-12, torch.ones(3, 2, 3, 3)
image.requires_grad_()
with emulation.Arithmetic(arithmetic.Realisation(0), [rounding.TF32_CONVOLUTION]):
    found = torch.nn.functional.conv2d(image, weight)
    found.sum().backward()
assert torch.all(found.detach() == 18) and torch.all(image.grad[0, 0, 2] == torch.tensor([9., 18., 27., 18., 9.]))
"""


IN_PARTS = """
import torch
from worker import arithmetic, emulation, rounding
def outputs(*precision, realisation=0):
    leaves = [torch.randn(1, 2, 64, 32, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in range(3)]
    with emulation.doing(emulation.Arithmetic(arithmetic.Realisation(realisation), precision)), torch.enable_grad():
        found = torch.nn.functional.scaled_dot_product_attention(*leaves)
        found.backward(torch.ones_like(found))
    return [found.detach(), *(leaf.grad for leaf in leaves)]
plain, again, other = outputs(), outputs(), outputs(rounding.TF32X3_ATTENTION)
for one, same, split in zip(plain, again, other):
    apart = ((split - one).norm() / one.norm()).item()
    assert torch.equal(one, same) and 2.0**-25 < apart < 2.0**-18, apart
def twice(*leaves):
    return torch.func.vmap(torch.nn.functional.scaled_dot_product_attention)(*(leaf[None] for leaf in leaves))
leaves = [torch.randn(1, 2, 64, 32, generator=torch.Generator().manual_seed(n)) for n in range(3)]
# Without rounding attention is PyTorch's own, which 2.1.0 cannot vectorise.
with emulation.doing(emulation.Arithmetic(arithmetic.Realisation(0), [rounding.TF32X3_ATTENTION])):
    assert torch.allclose(twice(*leaves)[0].float(), plain[0], atol=1e-4)
assert (other[0] * plain[0]).sum() < (plain[0] ** 2).sum()
left, right = torch.randn(3, 8), torch.randn(8, 4)
with emulation.Arithmetic(arithmetic.Realisation(0)):
    alone = left @ right
with emulation.Arithmetic(arithmetic.Realisation(0), [rounding.TF32X3_ATTENTION]):
    assert torch.equal(left @ right, alone)
with emulation.Arithmetic(arithmetic.Realisation(0), [rounding.TF32X3_MATMUL]):
    assert not torch.equal(left @ right, alone)
"""


SPLITS = """
from worker import judging, rounding, subjects, tensors, wire
def judged(dtype, device, *ran, precision=None, name="default"):
    request = wire.WorkloadRequest(id="w", dtype=dtype, recipes={"independent": 1}, batch=1, heads=1, seq_len=8,
                                   head_dim=8, causal=False, scale=1.0)
    asked = type("Request", (), {"device": device, "precision": precision})
    return judging.judged_as(asked, subjects.parse_workload(request), name, ran)
EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
tensors.capability = lambda device: (9, 0) if device == "cuda" else (0, 0)
assert judged("float32", "cuda", EFFICIENT) == [rounding.TF32X3_MATMUL]
others = [judged("float32", "cuda", "aten::_scaled_dot_product_attention_math"), judged("bfloat16", "cuda", EFFICIENT),
          judged("float32", "cpu", EFFICIENT), judged("float32", "cuda", EFFICIENT, precision=[], name="kernel")]
assert others == [[]] * 4, others
declared = [rounding.TF32X3_MATMUL]
assert judged("float32", "cuda", precision=declared, name="kernel") == declared
tensors.capability = lambda device: (7, 5)
assert judged("float32", "cuda", EFFICIENT) == []

import tempfile
from worker import truth
request = wire.WorkloadRequest(id="w", dtype="float32", recipes={"independent": 1}, batch=1, heads=1, seq_len=128,
                               head_dim=64, causal=False, scale=0.125)
asked, limits = subjects.parse_workload(request), {"rounding": 1.5, "strict": 1e-3, "kernelbench": 1e-4}
with tempfile.TemporaryDirectory() as folder:
    trial = subjects.WorkloadTrial(asked, "independent", 0, 0, truth.Cache(folder))
    found = {"": judging.TargetOutput(asked.emulations(trial.arrays, declared)[0][""].astype("float32"), "float32")}
    assert judging.would_pass(trial, found, limits, []) == declared
    trial.truth(declared)  # as a reference is judged
    assert judging.would_pass(trial, found, limits, []) == declared
    assert judging.would_pass(trial, found, limits, declared) == [rounding.TF32_CONVOLUTION, rounding.TF32_MATMUL]
"""


def test_the_efficient_backend_is_judged_as_what_it_computes(environments: list[Environment]) -> None:
    for environment in environments:
        environment.script(SPLITS)


def test_float32_products_inside_attention_are_emulated_as_three_of_tf32(environments: list[Environment]) -> None:
    for environment in environments:
        environment.script(IN_PARTS)


def test_a_convolution_with_gradients_is_emulated_in_tf32(environments: list[Environment]) -> None:
    for environment in environments:
        environment.script(TF32)
