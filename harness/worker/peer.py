"""A process that computes, as the one that measures it sees it."""

from __future__ import annotations

import contextlib
from typing import Any, TypeVar

from . import channel, codec, protocol, sampling, wire
from .host import SIZE

R = TypeVar("R")
ASKED = 15  # times, of which the fastest counts: a busy machine makes an answer late, and none early


class Peer:
    """A process that computes. Every answer that is not one fails the target that it was asked about."""

    def __init__(self, connection: channel.Channel, memory: Any = channel.SharedMemory, lost: str = "") -> None:
        self.connection = connection
        self.memory = memory  # makes what both can map
        self.lost = lost  # why it is asked nothing any more
        self.asking_ns = 0  # what it takes at least to order nothing and be answered
        self.outbox: Any = None

    def ask(self, kind: bytes, payload: bytes = b"", file: int | None = None) -> bytes:
        """Return the payload of its answer; `wire.Failed`."""
        if self.lost:
            raise wire.Failed(protocol.NOT_RUN, self.lost)
        try:
            answer, content = self.connection.ask(kind, payload, file)
        except channel.Closed:
            self.lost = protocol.GONE
            raise wire.Failed(protocol.CRASHED, protocol.GONE) from None
        except channel.Unasked:
            self.lost = "its process answered what it was not asked"
            raise wire.Failed(protocol.WRONG, self.lost) from None
        if answer == channel.FAILED:
            raise self.read(wire.Outcome, content).to_error()
        return content

    def request(self, kind: bytes, message: wire.Request, file: int | None = None) -> bytes:
        return self.ask(kind, codec.to_bytes(message), file)

    def read(self, kind: type[R], content: bytes) -> R:
        """Return a message in an answer. `wire.Failed`."""
        try:
            return codec.from_bytes(kind, content)
        except (ValueError, RecursionError):
            raise wire.Failed(protocol.CRASHED, wire.UNREADABLE) from None

    def tell(self, kind: bytes) -> None:
        """An order without an answer: the next one finds out whether it is gone."""
        try:
            self.connection.tell(kind)
        except channel.Closed:
            self.lost = protocol.GONE

    def wait_until_ready(self) -> None:
        """Return once the process has imported what it needs and answers, or once it is known that it never will."""
        with contextlib.suppress(wire.Failed):
            self.ask(channel.TELL)

    def time_asking(self) -> int:
        """Return the nanoseconds that it takes at least to order nothing and be answered; 0 of one that is gone."""
        found = []
        with contextlib.suppress(wire.Failed):
            for _ in range(ASKED):
                began = sampling.clock_ns()
                self.ask(channel.WAKE, b"idle")
                found.append(sampling.clock_ns() - began)
        return min(found, default=0)

    def used(self) -> wire.ProcessUse | None:
        try:
            return self.read(wire.ProcessUse, self.ask(channel.TELL, b"idle"))
        except wire.Failed:
            return None

    def outbox_of(self, size_bytes: int) -> Any:
        """Return memory of so many bytes for copies of its outputs."""
        if self.outbox is None or self.outbox.size_bytes < size_bytes:
            self.outbox = None
            made = self.memory(size_bytes)
            try:
                self.ask(channel.OUTBOX, SIZE.pack(made.size_bytes), made.file)
            finally:
                made.close()
            self.outbox = made
        return self.outbox.map
