"""What an audit finds out, on a pretended device: a number in memory, two streams, and the answer is that plus 100."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.worker.wire import Failed

TRIALS = [1, 2, 3, 4, 5]
NOTHING_KEPT = SimpleNamespace(add=lambda *_: False)


class Device:
    """What is enqueued on the current stream is done in turn when the host waits; on the side stream at once, unless it
    waits for the current one: then after it."""

    def __init__(self) -> None:
        self.current: list[Callable[[], None]] = []
        self.after: list[Callable[[], None]] = []

    def wait(self) -> None:
        for queue in (self.current, self.after):
            while queue:
                queue.pop(0)()


class Tensor:
    def __init__(self, device: Device, value: int = 0) -> None:
        self.device, self.value = device, value
        self.data = self

    def copy_(self, other: Tensor) -> None:
        self.device.current.append(lambda: setattr(self, "value", other.value))

    def clone(self) -> Tensor:
        copy = Tensor(self.device)
        copy.copy_(self)
        return copy

    def numel(self) -> int:
        return 1

    element_size = numel

    def bytes(self) -> bytes:
        self.device.wait()
        return bytes([self.value])


def sha256(value: int) -> str:
    return hashlib.sha256(bytes([value])).hexdigest()


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, without PyTorch."""
    kernels, tensors = ModuleType("kernels"), ModuleType("tensors")

    def checked(output: Any, _workload: Any, _device: str) -> Any:
        if not isinstance(output, Tensor):
            raise Failed("wrong", "returned a promise")
        return output

    vars(kernels).update(checked=checked)
    vars(tensors).update(
        flat=list,
        same_bits=lambda one, other: one.bytes() == other.bytes(),
        sha256=lambda t: hashlib.sha256(t.bytes()).hexdigest(),
    )
    import harness.worker

    for name, module in (("kernels", kernels), ("tensors", tensors)):
        monkeypatch.setitem(sys.modules, f"harness.worker.{name}", module)
        monkeypatch.setattr(harness.worker, name, module, raising=False)
    monkeypatch.delitem(sys.modules, "harness.worker.audit", raising=False)
    yield importlib.import_module("harness.worker.audit")
    sys.modules.pop("harness.worker.audit", None)
    if hasattr(harness.worker, "audit"):
        del harness.worker.audit


class Case:
    """A kernel that is sampled under audit, on the device that it is told."""

    def __init__(self, module: Any, kind: str) -> None:
        self.device = Device()
        self.inputs = Tensor(self.device, TRIALS[0])
        self.audit = module.Audit(
            SimpleNamespace(), kind, [self.inputs], lambda trial: [Tensor(self.device, TRIALS[trial])],
            module.Answers([sha256(value + 100) for value in TRIALS], kind, NOTHING_KEPT, "w", "kernel"),
        )  # fmt: skip

    def sample(self, call: Callable[[], Any], samples: int = 12, us: Callable[[], float] = lambda: 10.0) -> str:
        """As the samplers do."""
        taken = 0
        while True:
            ours = self.audit.begins(taken < samples)
            if not ours and taken >= samples:
                break
            self.audit.write()
            if self.audit.device == "cpu":
                self.device.wait()
            self.audit.keep(call())
            if ours:
                self.audit.ended(us())
            else:
                taken += 1
                self.audit.look()
        return str(self.audit.verdict())

    def computes(self) -> Tensor:
        out = Tensor(self.device)
        self.device.current.append(lambda: setattr(out, "value", self.inputs.value + 100))
        if self.audit.device == "cpu":
            self.device.wait()
        return out


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_who_computes_passes(audit: Any, kind: str) -> None:
    case = Case(audit, kind)
    assert case.sample(case.computes) == ""
    assert len(case.audit.new_us) == 4 and len(case.audit.known_us) == 4 * audit.KNOWN_CALLS + 1
    assert case.inputs.bytes() == bytes([TRIALS[0]]), "the row's inputs are there again"


def by_address(case: Case) -> Callable[[], Any]:
    kept = case.computes()
    return lambda: kept


def in_the_same_memory(case: Case) -> Callable[[], Any]:
    """What it is compared with is not the memory that it gives again."""
    out, calls = Tensor(case.device), itertools.count(1)

    def call() -> Tensor:
        out.value = case.inputs.value + 100 if next(calls) < 8 else 7
        return out

    return call


def changes_inputs(case: Case) -> Callable[[], Any]:
    def call() -> Tensor:
        out = case.computes()
        case.inputs.value = 99
        return out

    return call


def is_late(case: Case) -> Callable[[], Any]:
    """On a stream that waits for the current one, and that nobody waits for: into memory that holds an older answer."""
    out = Tensor(case.device, TRIALS[0] + 100)

    def call() -> Tensor:
        case.device.after.append(lambda: setattr(out, "value", case.inputs.value + 100))
        return out

    return call


@pytest.mark.parametrize(
    ("kind", "kernel", "said"),
    [
        ("cpu", by_address, "does not follow its inputs"),
        ("cuda", by_address, "does not follow its inputs"),
        ("cpu", in_the_same_memory, "its output"),
        ("cpu", lambda case: lambda: Tensor(case.device, 7), "its output"),
        ("cpu", lambda case: lambda: "promise", "in a timed call it returned a promise"),
        ("cpu", changes_inputs, "it changed its inputs when it was timed"),
        ("cuda", lambda case: lambda: Tensor(case.device, case.inputs.value + 100), "does not follow"),
        ("cuda", is_late, "does not follow"),
    ],
    ids=["by address", "on a GPU", "same memory", "skips the work", "a promise", "inputs", "does not wait", "is late"],
)
def test_who_does_not_compute_is_found_out(audit: Any, kind: str, kernel: Callable[..., Any], said: str) -> None:
    case = Case(audit, kind)
    assert said in case.sample(kernel(case), samples=200)


def test_each_trial_is_made_and_hashed_once(audit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(audit, "cpu")
    made, hashed = [], []
    elements, digest = case.audit.elements, audit.tensors.sha256
    case.audit.elements = lambda trial: (made.append(trial), elements(trial))[1]
    monkeypatch.setattr(audit.tensors, "sha256", lambda tensor: (hashed.append(1), digest(tensor))[1])
    assert case.audit.answers.holds(0, case.computes()), "as it is asked before the kernel is sampled"
    assert case.sample(case.computes) == ""
    assert sorted(made) == [0, 1, 2, 3, 4] and len(hashed) == 5
    large = Case(audit, "cpu")
    monkeypatch.setattr(audit, "KEPT_BYTES", {"cpu": 0})
    assert large.sample(large.computes) == "" and len(large.audit.pristine) == 1 and not large.audit.answers.seen


def test_who_keeps_answers_by_content_is_quick_where_it_has_been(audit: Any) -> None:
    case = Case(audit, "cpu")
    kept = {TRIALS[0]}
    took = 0.0

    def call() -> Tensor:
        nonlocal took
        took = 5.0 if case.inputs.value in kept else 400.0
        kept.add(case.inputs.value)
        return case.computes()

    said = case.sample(call, us=lambda: took)
    assert said.endswith("keeps its answers") and "5 us" in said and "400 us" in said


def test_a_slow_kernel_is_not_called_for_every_trial(audit: Any) -> None:
    case = Case(audit, "cpu")
    assert case.sample(case.computes, us=lambda: 3e6) == ""
    assert len(case.audit.new_us) == 1 and len(case.audit.known_us) == 2, "one other trial, and the row's own again"
    kept = Case(audit, "cpu")
    assert "does not follow its inputs" in kept.sample(by_address(kept), us=lambda: 9e6)


def test_noise_is_no_answer_that_was_kept(audit: Any) -> None:
    assert audit.keeps_answers([30.0, 40.0, 35.0], [10.0, 10.0, 14.0])
    assert not audit.keeps_answers([30.0, 40.0, 35.0], [10.0, 10.0, 900.0]), "calls on known ones are delayed too"
    assert not audit.keeps_answers([30.0, 12.0, 35.0], [10.0, 10.0, 10.0]), "one of them was not slow"
    assert not audit.keeps_answers([30.0, 40.0], [10.0, 10.0, 10.0]), "too few to tell"
    assert not audit.keeps_answers([30.0, 40.0, 35.0], [16.0, 12.0, 10.0])


def test_of_one_trial_outputs_are_looked_at_all_the_same(audit: Any) -> None:
    case = Case(audit, "cpu")
    case.audit.steps = [0]
    assert case.sample(lambda: Tensor(case.device, 7)) == audit.NOT_VALIDATED
