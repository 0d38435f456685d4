"""The loop of a process that computes: it carries out one order after another, until whoever measures is gone."""

from __future__ import annotations

import contextlib
import gc
from typing import Callable, Mapping

from . import channel, protocol, wire
from .host import Callee

AWAKE_S = 0.1  # at most, before an order


def host(request: wire.HostRequest) -> wire.Outcome:
    """Serve whoever measures, until that ends."""
    connection = channel.connect(request.link)  # before PyTorch is imported, which takes seconds
    serve(connection, request)
    return wire.Outcome(protocol.OK)


def serve(connection: channel.Channel, request: wire.HostRequest) -> None:
    if request.device == "cuda":
        from .device_host import DeviceCallee

        callee: Callee = DeviceCallee(request)
    else:
        callee = Callee(request)
    gc.collect()
    gc.freeze()
    answers = callee.answers()
    silent: Mapping[bytes, Callable[[], None]] = {channel.FORGET: callee.forget, channel.METER: callee.meter}
    with contextlib.suppress(channel.Closed):
        while True:
            kind, token, payload, file = connection.receive()
            if kind in silent:
                silent[kind]()
                continue
            answer, content = callee.answered(answers[kind], payload, file)
            connection.send(answer, token, content)
            if (kind, answer) == (channel.WAKE, channel.DONE):
                connection.poll(AWAKE_S)
