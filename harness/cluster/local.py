"""All GPUs of this host at once, a shard on each; shards of the CPU one after another, beside no other."""

from __future__ import annotations

import itertools
import os
import queue
import subprocess
import threading
from collections.abc import Collection, Mapping

from harness.cluster.engine import State
from harness.cluster.shards import Shard
from harness.errors import InfrastructureError
from harness.gpu import VISIBLE, gpus


class Local:
    """Shards end with this process, and go on when the command is typed again."""

    name = "local"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._states: dict[str, State] = {}
        self._waiting: dict[str, queue.Queue[tuple[str, Shard]]] = {"cpu": queue.Queue(), "cuda": queue.Queue()}
        self._places: dict[str, list[str | None]] = {"cpu": [None], "cuda": [gpu.uuid for gpu in gpus()]}
        for device, places in self._places.items():
            for place in places:
                threading.Thread(target=self._work, args=(device, place), daemon=True).start()

    def submit(self, shard: Shard, avoid: Collection[str]) -> str:
        if not self._places[shard.device]:
            raise InfrastructureError(f"{shard.name}: this host has no GPU", "choose --device cpu, or: --on slurm")
        job = str(next(self._numbers))
        self._states[job] = State(status="queued")
        self._waiting[shard.device].put((job, shard))
        return job

    def states(self, jobs: Collection[str]) -> Mapping[str, State]:
        return {job: self._states[job] for job in jobs if job in self._states}

    def _work(self, device: str, place: str | None) -> None:
        while True:
            job, shard = self._waiting[device].get()
            variables = {VISIBLE: place} if place else {}
            self._states[job] = State(status="running", node=place or "this host")
            with open(shard.folder / "local.log", "ab") as log:
                subprocess.run(shard.command, stdout=log, stderr=log, env={**os.environ, **variables})
            self._states[job] = State(status="ended", node=place or "this host")
