"""Slurm whose nodes share no file system with this machine: a shard goes to its node by sbcast, with a packed bundle
where the node has not unpacked that yet, and its records come back through srun: `carry.sh`.

Each job is an allocation that a process on this machine holds. It outlives the command, but not this machine's start.
Before its time is over its step is ended, and what it had recorded comes back; what it had when its node died is lost.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from harness.cluster.shards import Shard
from harness.cluster.slurm import Option, Slurm, remedy
from harness.errors import InfrastructureError, InputError
from harness.isolate.bundle.manifest import COMPLETE, CONTENTS
from harness.isolate.bundle.once import contents, own_folder

SCRIPT = Path(__file__).with_name("carry.sh")
ALLOCATED = re.compile(r"job allocation (\d+)")
BACK = "TERM@60"  # so many seconds before its end a job stops measuring; Slurm may say so a minute earlier
ANSWER_S = 60.0  # of salloc: queued, granted or refused
BUNDLE = {"--bundle", "--executor"}  # the node's own


class Carry(Slurm):
    """`bundle`: a packed one. InputError where it is not, InfrastructureError where there is no Slurm here."""

    name = "carry"
    programs = ("salloc", "sbcast", "srun", "squeue", "scancel", "sinfo")

    def __init__(self, options: Mapping[str, Option], bundle: Path | None) -> None:
        super().__init__(options)
        if bundle is None or not (bundle / CONTENTS).is_file() or (bundle / COMPLETE).is_file():
            raise InputError("--carry: nodes need a packed bundle", "nox -s bundle makes one: --bundle DIR")
        self.bundle = bundle.resolve()
        self.unpacked, _ = contents(self.bundle / CONTENTS)

    def submit(self, shard: Shard, avoid: Collection[str]) -> str:
        options = {"signal": BACK, **self._asked(shard, avoid), "nodes": 1, "job-name": f"km-{shard.name}"}
        words = [f"--{name}" + ("" if value is True else f"={value}") for name, value in options.items()]
        path = shard.log
        path.touch()
        begin = path.stat().st_size
        with path.open("ab") as log:
            child = subprocess.Popen(
                [
                    "salloc",
                    *words,
                    "sh",
                    str(SCRIPT),
                    str(shard.folder),
                    str(self.bundle),
                    self.unpacked,
                    str(own_folder()),
                    *_without_place(shard.arguments()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            said = path.read_bytes()[begin:].decode("utf-8", "replace")
            if found := ALLOCATED.search(said):
                return found[1]
            if child.poll() is not None:
                raise InfrastructureError(f"Slurm refused the shard {shard.name}: {said.strip()[-400:]}", remedy(said))
            time.sleep(0.1)
        child.terminate()  # it takes its request back
        child.wait()
        raise InfrastructureError(f"salloc gave no answer within {ANSWER_S:.0f} s", "look at sinfo; type it again")


def _without_place(words: list[str]) -> list[str]:
    """Without where environments are: the node's own bundle names itself."""
    return [word for word, before in zip(words, ["", *words], strict=False) if not {word, before} & BUNDLE]
