"""All GPUs of this host at once, or those that CUDA_VISIBLE_DEVICES names, a shard on each; shards of the CPU one after
another, beside no other.
"""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from harness.cluster.engine import State
from harness.cluster.shards import Shard
from harness.errors import InfrastructureError
from harness.gpu import VISIBLE, gpus, named
from harness.schema.records import Device

Waiting = tuple[str, Shard]  # a job
SETPRIV = shutil.which("setpriv")  # ends a shard with this process; where there is none, it goes on by itself


class Local:
    """A shard ends with this process, also where that is killed, and goes on when the command is typed again."""

    name = "local"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._states: dict[str, State] = {}
        self._models = {gpu.uuid: gpu.name.lower() for gpu in named(gpus(), os.environ.get(VISIBLE))}
        self._turn = threading.Condition()
        self._left, self._running = Counter[Device](), Counter[Device]()  # jobs: not ended; running
        self._waiting: dict[str, queue.Queue[Waiting]] = {}  # of a kind of place: "cpu", or a GPU's name

    def submit(self, shard: Shard) -> str:
        uuids = [uuid for uuid, name in self._models.items() if shard.gpu.lower() in name]
        if shard.device == "cuda" and not uuids:
            what = f"GPU named {shard.gpu}" if shard.gpu else "GPU"
            raise InfrastructureError(f"{shard.name}: this host has no {what}", "choose --device cpu, or: --on slurm")
        kind = shard.gpu if shard.device == "cuda" else "cpu"
        if kind not in self._waiting:
            self._waiting[kind] = queue.Queue()
            for place in uuids if shard.device == "cuda" else [None]:
                threading.Thread(target=self._work, args=(self._waiting[kind], place), daemon=True).start()
        job = str(next(self._numbers))
        self._states[job] = State(status="queued")
        with self._turn:
            self._left[shard.device] += 1
        self._waiting[kind].put((job, shard))
        return job

    def states(self, jobs: Collection[str]) -> Mapping[str, State]:
        return {job: self._states[job] for job in jobs if job in self._states}

    def _work(self, waiting: queue.Queue[Waiting], place: str | None) -> None:
        while True:
            job, shard = waiting.get()
            node = place or "this host"
            with self._its_turn(shard.device):
                self._states[job] = State(status="running", node=node)
                try:
                    variables = {VISIBLE: place} if place else {}
                    with shard.log.open("ab") as log:
                        command = ["setpriv", "--pdeathsig", "TERM", *shard.command] if SETPRIV else shard.command
                        subprocess.run(command, stdout=log, stderr=log, env={**os.environ, **variables})
                finally:
                    self._states[job] = State(status="ended", node=node)

    @contextmanager
    def _its_turn(self, device: Device) -> Iterator[None]:
        """A GPU's launches take processors too: beside them nothing is measured on the CPU."""
        with self._turn:
            self._turn.wait_for(lambda: not self._running["cpu"] and (device == "cuda" or not self._left["cuda"]))
            self._running[device] += 1
        try:
            yield
        finally:
            with self._turn:
                self._running[device] -= 1
                self._left[device] -= 1
                self._turn.notify_all()
