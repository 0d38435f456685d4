"""Attention's ground truth and error scale in real PyTorch: against loops and slopes, healthy ones and faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.environments.verbs import Environment

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

OPTIONS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"kv_len": 20, "causal": True},
    {"kv_len": 50, "kv_heads": 2},
    {"mask": "padding", "kv_len": 50},
    {"mask": "empty_rows", "kv_heads": 3, "kv_len": 20},
    {"mask": "bias", "kv_heads": 1},
    {"dropout": 0.5, "mask": "random", "kv_heads": 2},
]
HEAD = """
import json, random, sys, tempfile
import numpy as np
import torch
from worker import agreement, attention_formula, dtypes, inputs, orders, power, truth, wire
from worker.attention import AttentionWorkload
from worker.excerpt import excerpt
SIZES = dict(id="x", batch=2, heads=6, seq_len=33, head_dim=16, scale=0.25, causal=False, recipes={"independent": 2})
OPTIONS = json.loads(sys.argv[1])
LIMITS = {"rounding": 4.0, "kernelbench": 1e-2, "strict": 1e-3}
RULE = power.DecidingRule(LIMITS, "rounding", [])

def workload(**options):
    return AttentionWorkload(wire.WorkloadRequest(**{**SIZES, "dtype": "float32", **options}))

def exact(asked, arrays):
    return asked.exact(arrays)
"""
LOOPS = """
def by_loops(asked, arrays):
    q, k, v = (dtypes.decode(array, asked.dtype).astype(np.float64) for array in arrays[:3])
    given = asked.given(arrays)
    seen, bias = (None, given.mask) if asked.mask == "bias" else (given.mask, None)
    out = np.zeros(q.shape)
    for b, h, i in np.ndindex(q.shape[:3]):
        shared = h // (q.shape[1] // k.shape[1])
        keys = [j for j in range(k.shape[2]) if not (asked.causal and j > i) and (seen is None or seen[b, 0, i, j])]
        if not keys:
            continue
        logits = asked.scale * k[b, shared, keys] @ q[b, h, i]
        if bias is not None:
            logits = logits + dtypes.decode(bias, asked.dtype)[b, 0, i, keys]
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        if given.keep is not None:
            weights = weights * given.keep[b, h, i, keys] / (1 - asked.dropout)
        out[b, h, i] = weights @ v[b, shared, keys]
    return out

for options in OPTIONS:
    for dtype in ("float16", "bfloat16", "float32"):
        for block in (1 << 22, 300):
            attention_formula.BLOCK_ELEMENTS = block
            asked = workload(dtype=dtype, **options)
            arrays = asked.arrays("independent", 0, 7)
            found, wanted = exact(asked, arrays)[""], by_loops(asked, arrays)
            assert np.abs(found - wanted).max() < 1e-12, (options, dtype)
            emulated = asked.emulations(arrays)[0][""]
            assert 0 < np.abs(emulated - wanted).max() < 40 * dtypes.UNIT_ROUNDOFF[dtype], (options, dtype)
"""
SLOPES = """
def forward(asked, tensors, given):
    rest = given._replace(**dict(zip("qkv", tensors)))
    return attention_formula.compute(asked, rest, lambda _: Arithmetic())[0][0]

from worker.emulation import Arithmetic
for options in OPTIONS:
    asked, plain = workload(backward=True, **options), workload(**options)
    arrays = asked.arrays("independent", 0, 7)
    given = asked.given([tensor.double() if tensor.is_floating_point() else tensor
                         for tensor in asked.arguments(arrays, "cpu")])
    found = exact(asked, arrays)
    assert np.abs(found["output"] - exact(plain, arrays[:-1])[""]).max() < 1e-14
    for place, name in enumerate(list(found)[1:]):
        step = 1e-6 * torch.from_numpy(np.random.default_rng(0).standard_normal(found[name].shape))
        sides = [(forward(plain, [t + sign * step if at == place else t for at, t in enumerate(given[:3])],
                          given._replace(d_out=None)) * given.d_out).sum() for sign in (1, -1)]
        slope, product = float(sides[0] - sides[1]) / 2, float((torch.from_numpy(found[name]) * step).sum())
        assert abs(slope - product) <= 1e-6 * abs(product) + 1e-12, (options, name, slope, product)
    for chosen in (asked, plain):
        parts = exact(chosen, arrays[: len(chosen.inputs)])
        output = np.concatenate([each.reshape(-1) for each in parts.values()]) if chosen.backward else parts[""]
        part, pick = excerpt(chosen, orders.Picked("timed", arrays[: len(chosen.inputs)], output, "float32"))
        got = part.split(pick.output)
        for name, values in exact(part, pick.arrays).items():
            assert np.abs(values - got[name]).max() < 1e-12, (options, name)
"""
HEALTHY = """
def online(q, k, v, dtype):
    split = np.zeros(q.shape, np.float32)
    total, largest = np.zeros((*q.shape[:3], 1), np.float32), np.full((*q.shape[:3], 1), -np.inf, np.float32)
    for part in reversed(range(8)):
        keys = slice(32 * part, 32 * part + 32)
        logits = (q @ k[:, :, keys].swapaxes(2, 3)) * np.float32(0.125)
        now = np.maximum(largest, logits.max(axis=3, keepdims=True))
        weights, factor = np.exp(logits - now), np.exp(largest - now)
        rounded = dtypes.quantise(weights, dtype).astype(np.float32)
        split, total = split * factor + rounded @ v[:, :, keys], total * factor + weights.sum(3, keepdims=True)
        largest = now
    return dtypes.decode(dtypes.encode(split / total, dtype), dtype)

for dtype in ("float16", "bfloat16", "float32"):
    asked = workload(dtype=dtype, batch=1, heads=2, seq_len=256, head_dim=64, scale=0.125)
    for recipe in ("independent", "shared_qkv", "large_logits"):
        arrays = asked.arrays(recipe, 0, 0)
        with tempfile.TemporaryDirectory() as folder:
            own = asked.truths(arrays, inputs.digest(arrays), truth.Cache(folder))[""]
        got = online(*(dtypes.decode(array, dtype) for array in arrays), dtype)
        found = agreement.compare(got, own.values, LIMITS, own.error_scale)
        assert found.passed["rounding"] and found.units < 2.5, (dtype, recipe, found.norms)
        scaled = asked.of_sizes((0, 0, 0, 0))
        scaled.scale *= 1.003
        short = [arrays[0], *(np.ascontiguousarray(array[:, :, :-1]) for array in arrays[1:])]
        shorter = workload(dtype=dtype, batch=1, heads=2, seq_len=256, head_dim=64, scale=0.125, kv_len=255)
        for wrong in (exact(scaled, arrays)[""], exact(shorter, short)[""]):
            found = agreement.compare(dtypes.quantise(wrong, dtype), own.values, LIMITS, own.error_scale)
            assert not found.passed["rounding"] or recipe == "shared_qkv", (dtype, recipe, found.norms)
"""
SENSITIVE = """
from worker.subjects import WorkloadTrial
def proven(asked):
    with tempfile.TemporaryDirectory() as folder:
        cache = truth.Cache(folder)
        return power.prove(WorkloadTrial(asked, "independent", 0, 0, cache), cache, RULE)

for options in OPTIONS:
    for backward in (False, True):
        asked = workload(dtype="bfloat16", seq_len=128, head_dim=64, scale=0.125, backward=backward, **options)
        found = proven(asked)
        assert all(each.seen for each in found if each.kind in ("zeros", "input", "stale")), [
            (each.name, each.units) for each in found if not each.seen]
one = workload(kv_len=1, backward=True)
arrays = one.arrays("independent", 0, 7)
found = exact(one, arrays)
assert not found["grad of q"].any() and not found["grad of k"].any() and found["grad of v"].any()
assert not power.undecidable(proven(one)), "where a gradient is zero, zeros are right"
"""
DECLARED = """
from worker import rounding
def measured(asked, arrays, *precision):
    with tempfile.TemporaryDirectory() as folder:
        return asked.truths(arrays, inputs.digest(arrays), truth.Cache(folder), precision)[""]

def units(values, own):
    return own.error_scale.units(own.error_scale.ruler.norms(values))

asked = workload(batch=1, heads=1, seq_len=128, head_dim=64, scale=0.125)
arrays = asked.arrays("independent", 0, 0)
plain = measured(asked, arrays)
for name, at_least in ((rounding.TF32_MATMUL, 20), (rounding.TF32X3_MATMUL, 1)):
    coarse = asked.emulations(arrays, [name])[0][""]
    declared = measured(asked, arrays, name)
    assert max(units(coarse, plain).values()) > at_least and max(units(coarse, declared).values()) <= 1
asked = workload(dtype="float16", batch=1, heads=1, seq_len=256, head_dim=64, scale=0.125)
arrays = asked.arrays("independent", 0, 0)
q, k, v = (array[0, 0] for array in arrays)
logits, added = np.zeros((256, 256), np.float16), np.zeros((256, 64), np.float16)
for at in range(64):
    logits += q[:, at, None] * k[:, at]
weights = np.exp(logits.astype(np.float32) * np.float32(0.125)).astype(np.float16)
for at in range(256):
    added += weights[:, at, None] * v[at]
coarse = (added / weights.sum(axis=1, dtype=np.float32)[:, None]).astype(np.float16)[None, None]
declared = measured(asked, arrays, rounding.FLOAT16_SUMS)
assert max(units(coarse, measured(asked, arrays)).values()) > 4 > max(units(coarse, declared).values())
"""


SCRIPTS = {"loops": LOOPS, "slopes": SLOPES, "healthy": HEALTHY, "sensitive": SENSITIVE, "declared": DECLARED}


@pytest.mark.parametrize("name", SCRIPTS)
def test_attention(environments: list[Environment], name: str) -> None:
    for environment in environments[: 1 if name in ("loops", "sensitive") else None]:
        environment.script(HEAD + SCRIPTS[name], json.dumps(OPTIONS))
