"""Whether the code under test replaced something that the measurement relies on: a clock, a function of PyTorch.

`Snapshot` remembers, before that code is loaded, what each name in the modules below means; `replaced` tells what
means something else now. Only what could be called then is looked at: modules gain names, and PyTorch fills in
constants, for good reasons.

It sees what Python code does through names. It does not see what is put back before we look, what native code writes
into memory, or what is done to objects that are found without a name. Only a process outside can bear witness to that:
in a launch `measuring` does.
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

RELIED_ON = (
    "builtins",
    "contextlib",
    "gc",
    "hashlib",
    "io",
    "json",
    "math",
    "os",
    "random",
    "tempfile",
    "time",
    "traceback",
    "numpy",
    "torch",
    "torch._C._nn",
    "torch._tensor",
    "torch.backends.cuda",
    "torch.cuda",
    "torch.cuda.graphs",
    "torch.cuda.streams",
    "torch.nn",
    "torch.nn.attention",
    "torch.nn.functional",
    "torch.nn.modules.module",
)
# PyTorch's compiler wraps these when it is first used.
CHANGED_BY_RIGHT = (
    "torch.manual_seed",
    "torch.nn.modules.module.Module.__init__",
    "torch.nn.modules.module.Module.__setstate__",
)
ALSO = (property, classmethod, staticmethod, types.GetSetDescriptorType, types.ModuleType)
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: the attributes of other classes cannot be set from Python


def _ours() -> list[str]:
    package = __package__ + "."
    names = [name for name in sys.modules if name.startswith(package)]
    if getattr(sys.modules["__main__"], "__package__", None) == __package__:
        names.append("__main__")
    return names


def _code(value: object) -> types.CodeType | None:
    """Replacing a function's code is as good as replacing the function."""
    return value.__code__ if isinstance(value, types.FunctionType) else None


class Owner:
    """A module or class: what could be called in it, and which names of others a new name in it would hide."""

    def __init__(self, owner: Any, name: str, is_ours: bool) -> None:
        self.owner = owner
        self.name = name
        self.names = set(vars(owner))
        self.callables = [
            (key, value, _code(value))
            for key, value in vars(owner).items()
            if callable(value) or isinstance(value, ALSO)
        ]
        self.behind = set(vars(builtins)) if is_ours else set()
        if isinstance(owner, type):
            self.behind = {key for base in type.mro(owner)[1:] for key in vars(base)}

    def replaced(self) -> list[str]:
        now = vars(self.owner)
        changed = [key for key, value, code in self.callables if now.get(key) is not value or code is not _code(value)]
        changed += sorted((set(now) - self.names) & self.behind)
        return [name for name in (f"{self.name}.{key}" for key in changed) if name not in CHANGED_BY_RIGHT]


class Snapshot:
    """What the names mean now. It costs some milliseconds, and so does each look."""

    def __init__(self) -> None:
        ours = _ours()
        self.modules = {name: sys.modules[name] for name in [*RELIED_ON, *ours] if name in sys.modules}
        owners = {name: Owner(module, name, name in ours) for name, module in self.modules.items()}
        for module in self.modules.values():
            for value in list(vars(module).values()):
                name = f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else ""
                if name and value.__flags__ & HEAP_TYPE and name not in owners:
                    owners[name] = Owner(value, name, False)
        self.owners = list(owners.values())

    def replaced(self) -> str:
        """One line that names what was replaced; empty where nothing was."""
        found = [f"sys.modules[{name!r}]" for name, known in self.modules.items() if sys.modules.get(name) is not known]
        for owner in self.owners:
            found.extend(owner.replaced())
        if not found:
            return ""
        return f"replaced {found[0]}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else "")
