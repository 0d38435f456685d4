"""The code under test: loaded from what was built, and called by its convention.

An extension module has one of two forms:

* ``forward(q, k, v, out, causal, scale)`` writes `out`; this is the default.
* ``forward(q, k, v, causal, scale)`` returns the output; the module says so: ``RETURNS_OUTPUT = True``
  (``m.attr("RETURNS_OUTPUT") = true;`` in its binding).

Workloads with options (`AttentionWorkload.options`) are for those alone that have ``forward_options`` too: the same
with four arguments more: the boolean mask, the additive mask, the draws of dropout, each None where there is none, and
the factor 1 / (1 - p) of dropout. NotImplementedError refuses.

Workloads with gradients are for those alone that have ``backward(q, k, v, d_out, out, dq, dk, dv, causal, scale, mask,
bias, keep, keep_scale)``, which writes the output and the gradients along `d_out`, whatever form `forward` has.

A problem's kernel is a Python file that defines ``ModelNew``. `shared_object` has the plain C interface.
"""

from __future__ import annotations

import copy
import importlib.machinery
import importlib.util
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterable, Union

import torch

from . import problem_files, protocol, tensors, text, wire
from .blame import enters_subject
from .failures import blamed, failure

if TYPE_CHECKING:
    from .attention import AttentionWorkload
    from .problem import ProblemWorkload
    from .subjects import Workload

__all__ = ["Extension", "Kernel", "ModelKernel", "blamed", "checked", "failure"]
Call = Callable[[], Any]  # runs the kernel once, and gives its output
Fill = Callable[[Any], Any]  # puts a pattern into a tensor, and gives the tensor

_detach = torch.Tensor.detach


@enters_subject
def load_extension(path: str) -> Any:
    name = os.path.basename(path).split(".")[0]
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Extension:
    """A kernel from an extension module, for one attention workload."""

    note = ""  # on what ran
    forward: Callable[..., Any]
    forward_options: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    chooses: Callable[..., object] | None

    @enters_subject
    def __init__(self, artifact: str, workload: AttentionWorkload) -> None:
        with blamed(protocol.LOADING + os.path.basename(artifact)):
            module = load_extension(artifact)
            self.forward = module.forward
            self.returns = bool(getattr(module, "RETURNS_OUTPUT", False))
            self.chooses = getattr(module, "choice", None)
            self.forward_options = getattr(module, "forward_options", None)
            self.backward = getattr(module, "backward", None)
        self._take(workload)

    def _take(self, workload: AttentionWorkload) -> None:
        """`wire.Failed` where it has no code for the workload's options, or for gradients."""
        self.workload = workload
        self.call = self.forward
        if workload.backward:
            if self.backward is None:
                words = "it has no attention_backward (in Python backward), and the workload asks for gradients"
                raise wire.Failed(protocol.UNSUPPORTED, words)
            self.call, self.returns = self.backward, False
        elif workload.options:
            if self.forward_options is None:
                words = "it has no attention_forward_options (in Python forward_options), and the workload has options"
                raise wire.Failed(protocol.UNSUPPORTED, f"{words}: {workload.options}")
            self.call = self.forward_options

    def on(self, workload: Workload) -> Extension:
        """Return the same kernel for a workload that has another scale."""
        assert workload.problem is None
        found = copy.copy(self)
        found._take(workload)
        return found

    def _rest(self, mask: Any = None, keep: Any = None) -> tuple[Any, ...]:
        """The arguments after the tensors."""
        workload = self.workload
        plain = bool(workload.causal), float(workload.scale)
        if not (workload.options or workload.backward):
            return plain
        masks = (None, mask) if workload.mask == "bias" else (mask, None)
        return (*plain, *masks, keep, workload.keep_scale)

    def bind(self, arguments: list[Any], *, anew: bool = False, fill: Fill = tensors.poison, out: Any = None) -> Call:
        """A function of no arguments that runs the kernel once and gives its output, poisoned before any run.

        `anew`: every call gives an output of its own, as a reference's does, and none is poisoned. `fill` poisons.
        `out`: where the output goes, where the kernel is given that.
        """
        q, k, v, mask, keep, d_out = self.workload.given(arguments)
        read, rest = [q, k, v] if d_out is None else [q, k, v, d_out], self._rest(mask, keep)
        if self.returns:
            tensors.leave_poison_behind(q.numel() * q.element_size(), q.device, fill)
            return enters_subject(lambda: self.call(*read, *rest))

        def room() -> Any:
            return torch.empty_like(q) if d_out is None else q.new_empty(self.workload.expected_output()[0])

        @enters_subject
        def write(to: Any, parts: Iterable[Any]) -> Any:
            self.call(*read, *parts, *rest)
            return to

        def split(to: Any) -> tuple[Any, list[Any]]:
            return to, list(self.workload.split(to).values())

        if anew:
            return lambda: write(*split(room()))
        return partial(write, *split(fill(room()) if out is None else out))

    def choice(self, arguments: list[Any]) -> str:
        """Return which of several ways the kernel says that it takes, in one line; empty where it does not say."""
        chooses = None if self.workload.options or self.workload.backward else self.chooses
        if chooses is None:
            return ""
        return text.said(lambda: chooses(arguments[0], *self._rest()))[: protocol.MESSAGE_CHARACTERS]


class ModelKernel:
    """A kernel from a problem's ``ModelNew``, or from another class of a file."""

    def __init__(self, path: str, workload: ProblemWorkload, device: str, name: str = "ModelNew") -> None:
        self.origin, self.name = (path, workload, device), name
        self.make()

    def make(self) -> None:
        """ModelNew, or another one in its place."""
        path, workload, device = self.origin
        with blamed(protocol.CONSTRUCTING):
            self.model, self.note = workload.model(path, self.name, device)
            self.given = bool(self.model.state_dict()) and not self.note  # the stored weights

    def on(self, _workload: Workload) -> ModelKernel:
        return self

    @enters_subject
    def cast(self, dtype: str) -> None:
        """Its weights and buffers to another type, for good."""
        with blamed(f"casting ModelNew to {dtype}"):
            self.model.to(dtype=getattr(torch, dtype))

    def bind(self, arguments: list[Any], *, anew: bool = False, fill: Fill = tensors.poison, out: Any = None) -> Call:
        size = sum(a.numel() * a.element_size() for a in arguments if isinstance(a, torch.Tensor))
        device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), "cpu")
        tensors.leave_poison_behind(size, device, fill)
        given = problem_files.lay_out(self.origin[1].operator, arguments)
        return enters_subject(lambda: self.model(*given))


Kernel = Union[Extension, ModelKernel]


def checked(output: Any, workload: Workload, device: str) -> Any:
    """The output, once it is what the workload demands, as a tensor object of ours; `wire.Failed` otherwise.

    A subclass of torch.Tensor decides by itself what it answers, so it is asked nothing. That holds for
    torch.nn.Parameter: no operator returns one, so who does returns what it kept and not what it computed.
    """

    def refuse(found: str, expected: str) -> wire.Failed:
        message = f"returned {found}; expected {expected}"
        return wire.Failed(protocol.WRONG, message, failure=protocol.FailureKind.OTHER_TYPE)

    if type(output) is not torch.Tensor:
        kind = "a subclass of torch.Tensor" if issubclass(type(output), torch.Tensor) else "not a tensor"
        name = "None" if output is None else text.type_name(output)
        raise refuse(f"{name}, {kind}", workload.expected())
    output = _detach(output)  # a tensor's own attributes, which can hide its methods, stay behind
    if output.layout is not torch.strided:
        raise refuse(f"a tensor of layout {output.layout}", "torch.strided")
    shape, dtype = tuple(output.shape), tensors.dtype_name(output)
    if output.device.type != device or not workload.fits(shape, dtype):
        raise refuse(f"{shape} {dtype} on {output.device.type}", f"{workload.expected()} on {device}")
    return output
