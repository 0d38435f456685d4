"""`python -m tests.cluster.campaign.stand_in matrix ...`: the real command, and real jobs, in which a stand-in answers
for PyTorch (`tests.faults.scripted`). Launches are on the GPU of the node, which `nvml.c` makes up, and take a while.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from harness.cli import matrix as matrix_verb
from harness.cli.main import main
from harness.cluster.shards import Shard
from harness.config.plan import PlannedEnvironment
from harness.gpu import gpus
from harness.interrupts import keep_interrupts
from harness.isolate import Answer, Task
from harness.run import prepare
from harness.worker import protocol
from harness.workflow import matrix as workflow
from tests.faults import scripted

LAUNCH_S = 1.0
LEDGER = "launched.txt"  # of a shard's project: each launch that began, its run, and the GPU that it saw


class StandIn(scripted.ScriptedExecutor):
    def _install(self, environment: PlannedEnvironment, pins: Path, folder: Path) -> None:
        super()._install(environment, pins, folder)
        place = folder / "venv" / "bin" / "settings.json"
        settings = protocol.read_json(str(place))
        protocol.write_json(str(place), {**settings, "each_launch_s": LAUNCH_S})

    def run(self, task: Task) -> Answer:
        if task.name == "time":
            with (self.root / LEDGER).open("a") as file:
                seen, log = os.environ.get("CUDA_VISIBLE_DEVICES", ""), task.log
                file.write(f"{log.parents[2].name} {seen} {log.parent.name} {log.stem}\n")
        return super().run(task)


def patch() -> None:
    report = matrix_verb.report_run
    scripted.patch()
    matrix_verb.report_run = report
    prepare.gpus = gpus
    workflow.make_executor = lambda choice, limits, plan, root, cache: StandIn(root, cache, plan.threads)
    real: Any = Shard.command
    Shard.command = property(lambda shard: [_own(word) for word in real.fget(shard)])  # type: ignore[assignment]


def _own(word: str) -> str:
    return "tests.cluster.campaign.stand_in" if word == "harness" else word


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    keep_interrupts()
    patch()
    sys.exit(main(sys.argv[1:]))
