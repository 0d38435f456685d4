"""Requests to workers, made of JSON's own values."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.worker import codec, wire


def asked(verb: str, request: dict[str, Any]) -> Any:
    """A verb's request, read as a worker reads it."""
    return codec.read(wire.REQUESTS[verb], {"version": codec.VERSION, **request})


def made(**fields: Any) -> Any:
    """A request of no verb, for what carries requests and does not look into them."""
    return dataclasses.make_dataclass("Made", list(fields), bases=(wire.Request,))(**fields)
