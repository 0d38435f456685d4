"""Messages to workers and from them, made of JSON's own values."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from harness.worker import codec, wire


def asked(verb: str, request: dict[str, Any]) -> Any:
    """A verb's request, read as a worker reads it."""
    return codec.read(wire.TASKS[verb].request, {"version": codec.VERSION, **request})


def answered(result: Any = None, **fields: Any) -> dict[str, Any]:
    """What a worker writes: a result, or one of these fields."""
    return {
        "version": codec.VERSION,
        **(dataclasses.asdict(result) if dataclasses.is_dataclass(result) else result or fields),
    }


def left(path: Path) -> dict[str, Any]:
    """What a worker wrote, without its version: as a part of a request."""
    return {name: value for name, value in json.loads(path.read_text()).items() if name != "version"}


def made(**fields: Any) -> Any:
    """A request of no verb, for what carries requests and does not look into them."""
    return type("Made", (wire.Request,), {"__annotations__": dict.fromkeys(fields, Any)})(**fields)
