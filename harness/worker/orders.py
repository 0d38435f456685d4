"""Timed orders of a target, as the process that measures it keeps them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Picked(NamedTuple):
    """An output of one call, with that call's inputs."""

    when: str  # a key of NOT_RIGHT
    arrays: list[Any]
    output: Any
    dtype: str


class Orders:
    """Timed orders of one kind, and what was looked at after some of them. Each is as likely to be judged."""

    def __init__(self) -> None:
        self.elapsed_ns: list[int] = []
        self.deliveries_ns: list[int] = []
        self.copies_ns: list[int] = []  # by the references, one after each delivery
        self.picked: list[Picked] = []
