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
        self._models = {gpu.uuid: gpu.name.lower() for gpu in gpus()}
        self._waiting: dict[str, queue.Queue[tuple[str, Shard]]] = {}  # of a kind of place: "cpu", or a GPU's name

    def submit(self, shard: Shard, avoid: Collection[str]) -> str:
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
        self._waiting[kind].put((job, shard))
        return job

    def states(self, jobs: Collection[str]) -> Mapping[str, State]:
        return {job: self._states[job] for job in jobs if job in self._states}

    def _work(self, waiting: queue.Queue[tuple[str, Shard]], place: str | None) -> None:
        while True:
            job, shard = waiting.get()
            variables = {VISIBLE: place} if place else {}
            self._states[job] = State(status="running", node=place or "this host")
            with open(shard.folder / "local.log", "ab") as log:
                subprocess.run(shard.command, stdout=log, stderr=log, env={**os.environ, **variables})
            self._states[job] = State(status="ended", node=place or "this host")
