"""The code under test: loaded from what was built, and called by its convention.

An extension module has one of two forms:

* ``forward(q, k, v, out, causal, scale)`` writes `out`; this is the default.
* ``forward(q, k, v, causal, scale)`` returns the output; the module says so: ``RETURNS_OUTPUT = True``
  (``m.attr("RETURNS_OUTPUT") = true;`` in its binding).

A problem's kernel is a Python file that defines ``ModelNew``. A plain shared object with the C entry point of
csrc/attention.h is called without a binding: `centry`.
"""

import contextlib
import copy
import importlib.machinery
import importlib.util
import os
import traceback
from typing import Any

import torch

from . import protocol, tensors

EXCERPT_CHARACTERS = 8000
MESSAGE_CHARACTERS = 500
_detach = torch.Tensor.detach


class KernelFailure(Exception):
    """The code under test failed; `status` is one of the protocol's."""

    def __init__(self, status, message, excerpt=""):
        super().__init__(message)
        self.status = status
        self.message = message
        self.excerpt = excerpt


def failure(error, doing):
    """A KernelFailure from an exception that the code under test raised while `doing`."""
    status = protocol.UNSUPPORTED if issubclass(type(error), NotImplementedError) else protocol.CRASHED
    lines = said(lambda: error).strip().splitlines() or ["(no message)"]
    message = f"{doing} raised {type_name(error)}: {lines[0]}"[:MESSAGE_CHARACTERS]
    excerpt = said(traceback.format_exc)
    return KernelFailure(status, message, excerpt[-EXCERPT_CHARACTERS:])


def said(make):
    """Text from the code under test, whatever that does when it is asked: printable, and of our own type."""
    try:
        text = str.__str__(str(make()))  # what __str__ returns may be of a subclass
    except BaseException:
        text = "(its text cannot be had)"
    if len(text) > 2 * EXCERPT_CHARACTERS:
        text = f"{text[:EXCERPT_CHARACTERS]}\n[...]\n{text[-EXCERPT_CHARACTERS:]}"
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def type_name(value):
    return said(lambda: _name_of(type(value)))[:MESSAGE_CHARACTERS]


_name_of = type.__dict__["__name__"].__get__  # a metaclass may have another


@contextlib.contextmanager
def blamed(doing):
    """Whatever is raised in here, SystemExit and our own exceptions included, is the code under test's failure."""
    try:
        yield
    except BaseException as error:
        raise failure(error, doing) from None


def load_extension(path: str) -> Any:
    name = os.path.basename(path).split(".")[0]
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path, loader=loader))
    loader.exec_module(module)
    return module


class Extension:
    """A kernel from an extension module, for one attention workload."""

    def __init__(self, artifact, workload):
        with blamed(f"loading {os.path.basename(artifact)}"):
            module = load_extension(artifact)
            self.forward = module.forward
            self.returns = bool(getattr(module, "RETURNS_OUTPUT", False))
            self.chooses = getattr(module, "choice", None)
        self.rest = (bool(workload.causal), float(workload.scale))

    def on(self, workload):
        """The same kernel for a workload that has another scale."""
        found = copy.copy(self)
        found.rest = (bool(workload.causal), float(workload.scale))
        return found

    def bind(self, arguments, *, anew=False, fill=tensors.poison):
        """A function of no arguments that runs the kernel once and gives its output, poisoned before any run.

        `anew`: every call gives an output of its own, as a reference's does, and none is poisoned. `fill` poisons.
        """
        q, k, v = arguments
        if self.returns:
            tensors.leave_poison_behind(q.numel() * q.element_size(), q.device, fill)
            return lambda: self.forward(q, k, v, *self.rest)
        if anew:
            return lambda: self._into(torch.empty_like(q), arguments)
        out = fill(torch.empty_like(q))

        return lambda: self._into(out, arguments)

    def choice(self, arguments):
        """Which of several ways the kernel says that it takes, in one line; empty where it does not say."""
        if self.chooses is None:
            return ""
        return said(lambda: self.chooses(arguments[0], *self.rest))[:MESSAGE_CHARACTERS]

    def _into(self, out, arguments):
        self.forward(*arguments, out, *self.rest)
        return out


class Model:
    """A kernel from a problem's ``ModelNew``."""

    def __init__(self, path, workload, device):
        self.origin = path, workload, device
        self.make()

    def make(self):
        """ModelNew, or another one in its place."""
        path, workload, device = self.origin
        with blamed("constructing ModelNew"):
            self.model, self.note = workload.model(path, "ModelNew", device)
            self.given = bool(self.model.state_dict()) and not self.note  # the stored weights

    def on(self, _workload):
        return self

    def cast(self, dtype):
        """Its weights and buffers to another type, for good."""
        with blamed(f"casting ModelNew to {dtype}"):
            self.model.to(dtype=getattr(torch, dtype))

    def bind(self, arguments, *, anew=False, fill=tensors.poison):
        size = sum(a.numel() * a.element_size() for a in arguments if isinstance(a, torch.Tensor))
        device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), "cpu")
        tensors.leave_poison_behind(size, device, fill)
        return lambda: self.model(*arguments)


def load(kernel, workload):
    """The request's kernel, ready to bind; KernelFailure."""
    device = kernel.device
    if device == "cuda" and not torch.cuda.is_available():
        raise KernelFailure(protocol.NOT_RUN, "PyTorch sees no CUDA device here")
    if kernel.model_new:
        if workload.problem is None:
            raise KernelFailure(protocol.NOT_RUN, "a ModelNew needs a workload with a problem file")
        return Model(kernel.model_new, workload, device)
    if workload.problem is not None:
        raise KernelFailure(protocol.NOT_RUN, "a problem file's kernel is a Python file with ModelNew")
    if kernel.library:
        from . import centry

        return centry.Library(kernel.library, workload)
    return Extension(kernel.artifact, workload)


def checked(output, workload, device):
    """The output, once it is what the workload demands, as a tensor object of ours; KernelFailure otherwise.

    A subclass of torch.Tensor decides by itself what it answers, so it is asked nothing. That holds for
    torch.nn.Parameter: no operator returns one, so who does returns what it kept and not what it computed.
    """
    if type(output) is not torch.Tensor:
        kind = "a subclass of torch.Tensor" if issubclass(type(output), torch.Tensor) else "not a tensor"
        raise KernelFailure(protocol.WRONG, f"returned {type_name(output)}, {kind}; expected {workload.expected()}")
    output = _detach(output)  # a tensor's own attributes, which can hide its methods, stay behind
    if output.layout is not torch.strided:
        raise KernelFailure(protocol.WRONG, f"returned a tensor of layout {output.layout}; expected torch.strided")
    shape, dtype = tuple(output.shape), tensors.dtype_name(output)
    if output.device.type != device or not workload.fits(shape, dtype):
        raise KernelFailure(
            protocol.WRONG,
            f"returned {shape} {dtype} on {output.device.type}; expected {workload.expected()} on {device}",
        )
    return output
