"""Where an operator is called: the user's file and line, the function that the line calls, module path and phase."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import sys
import sysconfig
import weakref
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_TORCH_MODULES = os.path.join(_TORCH, "nn", "modules") + os.sep
_AUTOGRAD = os.path.abspath(torch.autograd.__file__)
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = "site-packages" + os.sep


class FrameStep(NamedTuple):
    """Where a frame is: its code, the offset of its last instruction, and its line."""

    code: CodeType
    offset: int
    line: int


# -- the function that a line calls -----------------------------------------------------------------------------------


def name_called(steps: list[FrameStep]) -> str:
    """Return the function that the first, outermost step calls: an operator is often only a part of it, as `expand` is
    of `cosine_similarity`. A module of PyTorch's own is looked into: `Linear` calls `linear`. Empty where the place of
    the call cannot be found, or is no call by a name."""
    place = 0
    while place + 1 < len(steps) and steps[place + 1].code.co_filename.startswith(_TORCH_MODULES):
        place += 1
    return _name_called_at(steps[place], steps[place + 1].code.co_name if place + 1 < len(steps) else "")


@functools.lru_cache(maxsize=None)
def _name_called_at(step: FrameStep, inner: str) -> str:
    """Return the name. `inner`: the function whose frame was entered there; empty where it is not Python's."""
    source = _read_source(step)
    tree = _parse(f"({source})") if source else None
    if tree is not None and tree.body and isinstance(tree.body[0], ast.Expr):
        return _name_of_call(tree.body[0].value)
    return inner


def _read_source(step: FrameStep) -> str:
    """Return the text of what runs there: the expression since Python 3.11, the line before."""
    file = step.code.co_filename
    if not hasattr(step.code, "co_positions"):
        return linecache.getline(file, step.line).strip()
    positions = list(step.code.co_positions())
    first, last, start, end = positions[step.offset // 2] if step.offset // 2 < len(positions) else (None,) * 4
    if first is None or last is None or start is None or end is None:
        return ""
    lines = [linecache.getline(file, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _name_of_call(node: ast.AST) -> str:
    """Return the last part of the name that is called; empty for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def calls_pytorch(frame: Any, step: FrameStep) -> bool:
    """Return whether a frame was calling something of PyTorch's that has no frame of its own: only the name tells."""
    code = frame.f_code
    if "CALL" not in dis.opname[code.co_code[step.offset]]:
        return False
    root = _read_source(step).lstrip("(").partition("(")[0].partition(".")[0].strip()
    names = code.co_names + code.co_varnames + code.co_freevars
    return root in names and is_pytorchs({**frame.f_globals, **frame.f_locals}.get(root))


def is_pytorchs(value: object) -> bool:
    """Return whether a value is PyTorch, one of its modules, or what such a module defines."""
    name = getattr(value, "__name__" if isinstance(value, type(torch)) else "__module__", None)
    is_own = isinstance(name, str) and name.partition(".")[0] == "torch"
    return is_own or getattr(getattr(value, "__self__", None), "__module__", "") == "torch._C"


# -- the user's line --------------------------------------------------------------------------------------------------


class Lines:
    """File, line and called function of the first frame outside of PyTorch, the standard library and the tracer."""

    def __init__(self) -> None:
        self.files: dict[str, str | None] = {}  # file name to its name in the trace; None where it is passed over
        self.folder = os.getcwd() + os.sep

    def locate_call(self) -> tuple[str, str, bool]:
        """Return the line that runs, the function that it calls, and whether autograd was started there and called the
        operator by itself. A function's own backward, and a checkpoint's second forward, are lines that autograd
        called."""
        frame: Any = sys._getframe(2)
        by_autograd = False
        steps: list[FrameStep] = []  # the innermost first
        while frame is not None:
            code: CodeType = frame.f_code
            if not code.co_filename.startswith(OWN):
                steps.append(FrameStep(code, frame.f_lasti, frame.f_lineno))
            name = self.name_file(code.co_filename)
            if name is not None:
                return f"{name}:{frame.f_lineno}", name_called(steps[::-1]), by_autograd
            by_autograd = by_autograd or code.co_filename == _AUTOGRAD
            frame = frame.f_back
        return "", "", by_autograd

    def locate_error(self, error: BaseException) -> tuple[str, str, bool]:
        """Return the user's line that an exception came through last, the function that it calls, and whether PyTorch
        raised the exception in there, not the line itself."""
        steps: list[FrameStep] = []
        frame: Any = None
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if self.name_file(code.co_filename) is not None:
                frame, steps = trace.tb_frame, []
            if not code.co_filename.startswith(OWN):
                steps.append(FrameStep(code, trace.tb_lasti, trace.tb_lineno))
            trace = trace.tb_next
        if frame is None:
            return "", "", False
        if len(steps) == 1:
            by_pytorch = calls_pytorch(frame, steps[0])
        else:
            by_pytorch = any(step.code.co_filename.startswith(_TORCH) for step in steps)
        return f"{self.name_file(steps[0].code.co_filename)}:{steps[0].line}", name_called(steps), by_pytorch

    def name_file(self, file: str) -> str | None:
        """Return a file's name, the same in both environments, whose site-packages are different folders; None for a
        file that is no user's."""
        if file not in self.files:
            self.files[file] = self._shorten(file)
        return self.files[file]

    def _shorten(self, file: str) -> str | None:
        path = os.path.abspath(file)
        if file.startswith("<") or path.startswith((OWN, _TORCH)):
            return None
        if _SITE in path:
            return path[path.index(_SITE) :]
        if path.startswith(_STDLIB):
            return None
        return path[len(self.folder) :] if path.startswith(self.folder) else path


# -- module and phase ------------------------------------------------------------------------------------------------


class Modules:
    """Qualified names of the modules whose forward is running, from the outermost one's `named_modules`."""

    def __init__(self) -> None:
        self.stack: list[tuple[Any, str]] = []
        self.names: Any = weakref.WeakKeyDictionary()  # outermost module to the names of all below it, by id
        self.hooks = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
        ]

    @property
    def path(self) -> str:
        return self.stack[-1][1] if self.stack else ""

    def _enter(self, module: Any, inputs: Any) -> None:
        self.stack.append((module, self._name(module)))

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        while self.stack and self.stack.pop()[0] is not module:
            pass

    def _name(self, module: Any) -> str:
        kind = type(module).__name__
        if not self.stack:
            self.names[module] = {id(child): name for name, child in module.named_modules()}
            return kind
        outermost, path = self.stack[0]
        name = self.names[outermost].get(id(module))
        return f"{self.stack[-1][1]}.{kind}" if name is None else f"{path}.{name}"


class Places:
    """The place of every operator as it is called. Line, function and module of one that autograd calls are those of
    the forward call, by autograd's sequence number."""

    def __init__(self) -> None:
        self.lines, self.modules = Lines(), Modules()
        self.forward: dict[int, tuple[str, str, str]] = {}  # sequence number to line, function and module
        self.optimizer_depth = 0
        self.hooks = [
            optimizers.register_optimizer_step_pre_hook(self._enter_step),
            optimizers.register_optimizer_step_post_hook(self._leave_step),
        ]

    def locate(self) -> dict[str, str]:
        """Return line, function, phase and module path of what is called."""
        line, function, module = "", "", self.modules.path
        phase = "optimizer" if self.optimizer_depth else "forward"
        if torch._C._current_graph_task_id() != -1:
            phase = "backward"
            line, function, by_autograd = self.lines.locate_call()
            node = torch._C._current_autograd_node() if by_autograd else None
            known = None if node is None else self.forward.get(node._sequence_nr())
            line, function, module = known or (line, function, module)
        if not line:
            line, function, _ = self.lines.locate_call()
        if torch.is_grad_enabled():
            self.forward.setdefault(torch._C._autograd._get_sequence_nr() - 1, (line, function, module))
        return {"line": line, "function": function, "phase": phase, "module": module}

    def close(self) -> None:
        """Remove the hooks."""
        for hook in (*self.hooks, *self.modules.hooks):
            hook.remove()

    def _enter_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.optimizer_depth += 1

    def _leave_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.optimizer_depth -= 1
