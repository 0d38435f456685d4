"""Which operators of a script are recorded: those below a module, those of some steps, or all.

Step N is everything between the end of the N-th call of `optimizer.step` and the end of the next one; step 0 begins
with the script. Calls inside of another call of `optimizer.step` do not count.
"""

from __future__ import annotations

import difflib
from typing import Any

NAMED = 8  # modules in a message


class Part:
    """As a request has it: `only`, a module's path, and `steps`, the first one and the one behind the last, or None."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.only: str = request.get("only") or ""
        self.first: int
        self.stop: int | None
        self.first, self.stop = request.get("steps") or (0, None)
        self.is_all = not self.only and not self.first and self.stop is None
        self.step = 0
        self.modules: dict[str, bool] = {}  # paths that were seen, and whether they are below `only`

    def has(self, module: str) -> bool:
        """Whether an operator of this module is recorded, if it is called now."""
        if self.step < self.first or (self.stop is not None and self.step >= self.stop):
            return False
        if not self.only:
            return True
        if module not in self.modules:
            self.modules[module] = is_below(module, self.only)
        return self.modules[module]

    def missed(self) -> str:
        """Why nothing was recorded."""
        steps = f"optimizer.step was called {self.step} times"
        if not self.only or not self.modules:
            return f"--steps: no operator ran in these steps; {steps}"
        names = sorted({path.partition(".")[2] or path for path in self.modules} - {""})
        near = difflib.get_close_matches(self.only, names, NAMED, 0)
        return f"--only {self.only}: no operator ran below such a module; there are {', '.join(near) or 'none'}"


def is_below(module: str, only: str) -> bool:
    """Whether a path, which begins with the outermost module's class, is that module or below it. The class may be left
    out: `encoder.layers.3` is the same as `Net.encoder.layers.3`."""
    return any(f"{path}.".startswith(f"{only}.") for path in (module, module.partition(".")[2]))
