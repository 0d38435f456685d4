"""Where an operator is called: the user's file and line, the function that is called there, the module path, the phase,
and whether that is in the part that is recorded."""

from __future__ import annotations

import os
import sys
import sysconfig
import weakref
from types import CodeType
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from .calls import Calls, Step, in_pytorch
from .part import Part

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_AUTOGRAD = os.path.abspath(torch.autograd.__file__)
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = "site-packages" + os.sep


class Lines:
    """File, line and called function of the first frame outside of PyTorch, the standard library and the tracer."""

    def __init__(self) -> None:
        self.files: dict[str, str | None] = {}  # file name to its name in the trace; None where it is passed over
        self.folder = os.getcwd() + os.sep
        self.calls = Calls()

    def here(self) -> tuple[str, str, bool]:
        """The line, the function that it calls, and whether autograd was started there and called the operator by
        itself. A function's own backward, and a checkpoint's second forward, are lines that autograd called."""
        frame: Any = sys._getframe(2)
        by_autograd = False
        inner: list[Step] = []
        while frame is not None:
            code: CodeType = frame.f_code
            name = self._named(code.co_filename)
            if not code.co_filename.startswith(OWN):
                inner.append((code, frame.f_lasti, frame.f_lineno))
            if name is not None:
                return f"{name}:{frame.f_lineno}", self.calls.name(reversed(inner)), by_autograd
            by_autograd = by_autograd or code.co_filename == _AUTOGRAD
            frame = frame.f_back
        return "", "", by_autograd

    def of(self, error: BaseException) -> tuple[str, str, bool]:
        """The user's line that an exception came through last, the function that it calls, and whether PyTorch raised
        the exception in there, not the line itself."""
        trace, users = error.__traceback__, None
        while trace is not None:
            users = trace if self._named(trace.tb_frame.f_code.co_filename) is not None else users
            trace = trace.tb_next
        if users is None:
            return "", "", False
        inside: list[Step] = []
        trace = users
        while trace is not None:
            code = trace.tb_frame.f_code
            if not code.co_filename.startswith(OWN):
                inside.append((code, trace.tb_lasti, trace.tb_lineno))
            trace = trace.tb_next
        name = self._named(inside[0][0].co_filename)
        raised = any(code.co_filename.startswith(_TORCH) for code, _, _ in inside)
        if len(inside) == 1:
            raised = in_pytorch(users.tb_frame, users.tb_lasti)
        return f"{name}:{users.tb_lineno}", self.calls.name(inside), raised

    def _named(self, file: str) -> str | None:
        name = self.files.get(file, "")
        if name == "":
            name = self.files[file] = self._name(file)
        return name

    def _name(self, file: str) -> str | None:
        """As it is called in both environments, whose site-packages are different folders."""
        path = os.path.abspath(file)
        if file.startswith("<") or path.startswith((OWN, _TORCH)):
            return None
        if _SITE in path:
            return path[path.index(_SITE) :]
        if path.startswith(_STDLIB):
            return None
        return path[len(self.folder) :] if path.startswith(self.folder) else path


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

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def _enter(self, module: Any, inputs: Any) -> None:
        self.stack.append((module, self._name(module)))

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        while self.stack and self.stack.pop()[0] is not module:
            pass

    def _name(self, module: Any) -> str:
        kind = type(module).__name__
        if not self.stack:
            self.names[module] = {id(each): name for name, each in module.named_modules()}
            return kind
        outermost = self.stack[0][0]
        name = self.names[outermost].get(id(module))
        return f"{self.stack[-1][1]}.{kind}" if name is None else f"{self.stack[0][1]}.{name}"


class Places:
    """Of every operator as it is called. The line, function and module of one that autograd calls are those of the
    forward call, by autograd's sequence number."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.lines = Lines()
        self.modules, self.part = Modules(), Part(request)
        self.forward: dict[int, tuple[str, str, str]] = {}  # sequence number to (line, function, module)
        self.optimizing = 0
        self.hooks = [
            optimizers.register_optimizer_step_pre_hook(self._enter_step),
            optimizers.register_optimizer_step_post_hook(self._leave_step),
        ]

    def here(self) -> dict[str, str] | None:
        """Line, function, phase and module path of what is called; None outside of the part that is recorded."""
        line, called, module, phase = "", "", self.modules.path, "optimizer" if self.optimizing else "forward"
        if torch._C._current_graph_task_id() != -1:
            phase = "backward"
            line, called, by_autograd = self.lines.here()
            node = torch._C._current_autograd_node() if by_autograd else None
            known = self.forward.get(node._sequence_nr()) if node is not None else None
            line, called, module = known or (line, called, module)
        inside = self.part.has(module)
        if inside and not line:
            line, called, _ = self.lines.here()
        if torch.is_grad_enabled():
            self.forward.setdefault(torch._C._autograd._get_sequence_nr() - 1, (line, called, module))
        return {"l": line, "f": called, "p": phase, "m": module} if inside else None

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.modules.close()

    def _enter_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.optimizing += 1

    def _leave_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.optimizing -= 1
        self.part.step += not self.optimizing
