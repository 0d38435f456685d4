"""Contexts whose parts are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.run.context import Context


class FakeContext(SimpleNamespace):
    """What a test gives, with the methods of a `Context` that make tasks of it. Keys are named after their kind."""

    task, scratch, hold = Context.task, Context.scratch, Context.hold

    def key(self, kind: str, **place: Any) -> str:
        return kind
