"""What runs shards: the few calls that a queue must have. `slurm` and `local` are two; another one is a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.cluster.shards import Shard


@dataclass(frozen=True, kw_only=True)
class State:
    """Of a job. `ended`: it is not in the queue any more, however it went: what it left tells that."""

    status: Literal["queued", "running", "ended"]
    node: str = ""
    why: str = ""  # it is still queued


class Engine(Protocol):
    name: str

    def submit(self, shard: Shard) -> str:
        """Queue a shard's command: the job's id. InfrastructureError where it is refused."""

    def states(self, jobs: Collection[str]) -> Mapping[str, State]:
        """By id; of those that nobody knows any more, none."""
