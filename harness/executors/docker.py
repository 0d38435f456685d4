"""Executor `docker`: an environment is an image, and each task runs in a fresh, confined container of it: a sandbox.

A sandbox has no network, no capability and no root; it sees the image, which it cannot write, what the task was given,
which it cannot write either, and one folder of its own, from which only what was asked for is taken back.

A container is created, filled by `docker cp`, started, waited for, read by `docker cp`, and removed. One whose harness
was killed ends at its time limit; the next run of the harness removes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, Interrupted, Unrecorded
from harness.executors import Answer, Task, Variables
from harness.executors.base import BaseExecutor, keep_wheels, kept_wheels
from harness.executors.engine import (
    LONG_TIMEOUT_S,
    NO_ENGINE_REMEDY,
    OWNER,
    Engine,
    EngineGone,
    EngineRefused,
    engine_variables,
)
from harness.executors.images import RECIPE, base_identity, build_image, image_key
from harness.executors.process import Ended, is_orphan, owner, run_child, tail
from harness.executors.sandbox import (
    ENVIRONMENT,
    LINK,
    PYTHON,
    TASK_USER,
    SandboxLimits,
    bring_back,
    sandbox_paths,
    sandbox_variables,
    signalled,
    unconfined,
)
from harness.executors.transfer import Refused, pack, relocate, unpack
from harness.gpu import handed_on
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import GIB
from harness.worker import codec, protocol

AWAY_S = 90.0  # how long the engine may be away
TRIES = 3
TASK = RECIPE / "task.sh"
COUNTS = ".limits"  # the file that it writes
TOO_LARGE = (os.strerror(errno.EFBIG), os.strerror(errno.ENOSPC))
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")  # `docker` would pass on a user's
GPU_OPTIONS = {
    "nvidia": ['--gpus=all,"capabilities=gpu,compute,utility"'],
    "cdi": ["--device=nvidia.com/gpu=all"],
    # An engine whose default runtime is NVIDIA's hands GPUs over unasked.
    "": ["--env=NVIDIA_VISIBLE_DEVICES=void"],
}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What the kernel counted of a sandbox: processes that it killed for want of memory, and forks that it refused."""

    memory_kills: int = 0
    refused_processes: int = 0


def read_counts(text: str) -> Counts:
    """Read what docker/task.sh writes: lines of files of a control group, after the file's name."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, _, number = line.rpartition(" ")
        if number.isdigit():
            found[key] = int(number)
    # A machine that has no memory left kills too: only where this group was at its own limit was that the reason.
    most, limit = found.get("memory.max_usage_in_bytes", 0), found.get("memory.limit_in_bytes", 1)
    was_at_limit = found.get("memory.events max", 0) > 0 or most >= limit
    kills = found.get("memory.events oom_kill", 0) + found.get("memory.oom_control oom_kill", 0)
    return Counts(
        memory_kills=kills if was_at_limit else 0,
        refused_processes=found.get("pids.events max", 0),
    )


def sweep(engine: Engine) -> int:
    """Remove the sandboxes that a crash left behind; their number."""
    orphans = [container for container, named in engine.owned("container") if is_orphan(named)]
    for container in orphans:
        engine.remove("container", container)
    for volume, named in list(engine.owned("volume")):
        if is_orphan(named):
            engine.remove("volume", volume)
    return len(orphans)


class DockerExecutor(BaseExecutor):
    name = "docker"
    holds_back = False  # its standard input would be a stream over the engine's socket

    def __init__(
        self,
        engine: Engine,
        root: Path,
        cache: Path,
        threads: int,
        *,
        limits: SandboxLimits,
        gpus: str = "",
        verify: bool = False,
        variables: Variables | None = None,
    ) -> None:
        """`verify`: check every file of every wheel, also of an image that was checked before."""
        super().__init__(cache, threads, variables)
        self.engine, self.root, self.limits, self.gpus, self.verify = engine, root, limits, gpus, verify
        self.owner = owner()
        self._images: dict[str, str] = {}
        left = sweep(engine)
        if left:
            print(f"removed {left} containers that an earlier crash left behind")

    def folder(self, environment: EnvironmentRecord) -> Path:
        return ENVIRONMENT

    def binds(self, environment: str) -> bool:
        return self.engine.facts().local and bool(self.engine.info.get("CPUSet"))

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        assert pins is not None
        return image_key(environment, pins, base_identity(self.engine, environment.spec.base_image))

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        try:
            return super().prepare(environment, pins)
        except EngineGone as error:
            raise self._gone(error) from None

    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[Observation, bool, str]:
        assert pins is not None
        base = base_identity(self.engine, environment.spec.base_image)
        image, reused = build_image(self.engine, environment, pins, cache=self.cache, base=base)
        self._refuse_if_stopped()
        self._images[environment.id] = image.id
        proof = self.cache / "images" / f"{image.id.partition(':')[2][:32]}.wheels.json"
        remedy = f"remove it and start again: docker rmi {image.tags[0] if image.tags else image.id}"
        observed = self._observe(environment, verify=self.verify or kept_wheels(proof) is None, remedy=remedy)
        problem = unconfined(observed.confinement, self.limits)
        if problem:
            raise InfrastructureError(f"its container is not confined: {problem}", "check the engine: docker info")
        if self.gpus and not observed.gpus:
            raise InfrastructureError(
                f"the engine was asked to hand over GPUs ({self.gpus}), and PyTorch sees none inside",
                "docker run --rm --gpus all with the same image and nvidia-smi; or --executor venv",
            )
        keep_wheels(proof, observed, remedy)
        return observed, reused, image.id

    @contextlib.contextmanager
    def linking(self, _environment: str) -> Iterator[Path]:
        with contextlib.ExitStack() as stack:
            try:
                volume = stack.enter_context(self.engine.linking(self.owner))
            except EngineGone as error:
                raise self._gone(error) from None
            yield Path("/", volume)

    def run(self, task: Task) -> Answer:
        for attempt in range(1, TRIES + 1):
            self._refuse_if_stopped()
            shutil.rmtree(task.scratch, ignore_errors=True)
            task.scratch.mkdir(parents=True)
            try:
                self.engine.remove_lost()
                return self._attempt(task)
            except EngineGone as error:
                if self._stopped.is_set():
                    raise Interrupted() from None
                if attempt == TRIES or not self._returns():
                    raise self._gone(error) from None
                if (
                    task.terms.link is not None
                ):  # the task that it worked with has lost it: who started both begins anew
                    lost = Ended(returncode=-signal.SIGKILL, timed_out=False, duration_s=0.0, log=tail(task.log))
                    return Answer(result=None, ended=lost)
            except EngineRefused:
                self._refuse_if_stopped()  # its container was removed under it
                raise
            finally:
                shutil.rmtree(task.scratch, ignore_errors=True)
        raise AssertionError("unreachable")

    def _gone(self, error: EngineGone) -> Unrecorded:
        return Unrecorded(
            f"the container engine at {self.engine.address} went away: {error.problem[:300]}",
            f"{NO_ENGINE_REMEDY}; then start the same command again: it goes on from here",
        )

    def _returns(self) -> bool:
        """Wait for the engine."""
        print(f"the container engine does not answer; waiting up to {AWAY_S:.0f} s for it", flush=True)
        deadline = time.monotonic() + AWAY_S
        while time.monotonic() < deadline and not self._stopped.is_set():
            if self.engine.answers():
                return True
            time.sleep(0.5)
        return False

    def _attempt(self, task: Task) -> Answer:
        places, outputs = sandbox_paths(task, self.root)
        started = time.monotonic()
        container = self._create(task)
        try:
            self._fill(container, task, places, outputs)
            ended = run_child(
                ["docker", "start", "--attach", container],
                cwd=task.scratch,
                log=task.log,
                timeout_s=task.terms.timeout_s,
                environment=engine_variables(),
                until=task.terms.until,
            )
            self._refuse_if_stopped()
            answer = self._read(container, task, outputs, ended)
        finally:
            if not self.engine.remove("container", container):
                self.engine.lost.add(container)
        self._refuse_if_stopped()
        overhead_s = time.monotonic() - started - answer.ended.duration_s
        return replace(answer, ended=replace(answer.ended, overhead_s=overhead_s))

    def _create(self, task: Task) -> str:
        """Create a task's container, and return its id."""
        limits = self.limits
        private = ["--cgroupns=private"] if self.engine.info.get("CgroupVersion") == "2" else []
        bound = [f"--cpuset-cpus={','.join(map(str, task.terms.processors))}"] if task.terms.processors else []
        link = [f"--volume={task.terms.link.name}:{LINK}"] if task.terms.link else []
        options = [
            "--network=none",
            "--ipc=none",
            "--read-only",
            "--volume=/in",
            "--volume=/out",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges:true",
            f"--user={TASK_USER}:{TASK_USER}",
            "--hostname=sandbox",
            "--workdir=/out",
            "--log-driver=none",
            "--ulimit=core=0:0",
            f"--ulimit=fsize={limits.output_bytes}:{limits.output_bytes}",
            f"--memory={limits.memory_bytes}",
            f"--memory-swap={limits.memory_bytes}",
            f"--pids-limit={limits.processes}",
            f"--label={OWNER}={self.owner}",
            *(f"--env={name}=" for proxy in PROXIES for name in (proxy, proxy.lower())),
            *(f"--env={name}={value}" for name, value in self._variables(task).items()),
        ]
        command = [PYTHON, "-m", "worker", task.name, "/in/request.json", "/out/result.json"]
        image = self._images[task.environment]
        try:
            return self.engine.call(
                *["create", *options, *private, *bound, *link, *GPU_OPTIONS[self.gpus]],
                *["--entrypoint=sh", image, "-c", TASK.read_text(), "task", *command],
            ).strip()
        except EngineRefused:
            if self.engine.image(image) is not None:
                raise
        raise InfrastructureError(
            f"{image}: the engine has it no more", "start the same command again: it is built anew"
        )

    def _fill(self, container: str, task: Task, places: Mapping[str, str], outputs: Mapping[str, Path]) -> None:
        """Copy in what a task reads, and what earlier tasks left where it writes."""
        request = relocate(codec.dump(task.request), places)
        contents: list[tuple[str, Path | bytes]] = [
            ("/in/worker", self.worker),
            ("/in/request.json", json.dumps(request, allow_nan=False).encode()),  # in its order: recipes have one
            *((relocate(str(path), places), path) for path in task.reads if path.exists()),
        ]
        shared = [name for name, path in outputs.items() if path in task.reads]
        for place in ("/in/", "/out/"):
            below = [(name.removeprefix(place), source) for name, source in contents if name.startswith(place)]
            if below or (shared and place == "/out/"):
                with tempfile.TemporaryFile(dir=task.scratch) as archive:
                    pack(archive, below, shared=shared if place == "/out/" else ())
                    self.engine.call("cp", "-", f"{container}:{place}", stdin=archive, timeout_s=LONG_TIMEOUT_S)

    def _variables(self, task: Task) -> dict[str, str]:
        given = sandbox_variables(self.threads) | (handed_on() if self.gpus else {})
        return {**given, **task.terms.variables_of(task.environment, self.variables)}

    def _read(self, container: str, task: Task, outputs: Mapping[str, Path], ended: Ended) -> Answer:
        """Read how a container ended, and what it left. EngineGone where the engine ended it."""
        if ended.timed_out:
            return Answer(result=None, ended=replace(ended, peak_bytes=None))
        found = self.engine.find("container", container)
        state: dict[str, Any] = found["State"] if found else {"Status": "gone"}
        if state.get("Error"):
            raise EngineRefused(state["Error"])
        if state["Status"] != "exited":
            raise EngineGone(f"a container is {state['Status']}: {ended.last_line}")
        ended = replace(ended, peak_bytes=None, duration_s=_seconds_of(state))
        names = {"result.json": task.scratch / "result.json", COUNTS: task.scratch / COUNTS}
        names |= {name: task.scratch / "out" / name for name in outputs}
        refused = self._copy_out(container, names)
        counts_there = names[COUNTS].is_file()
        counts = read_counts(names[COUNTS].read_text(errors="replace") if counts_there else "")
        for name, target in outputs.items():
            if not refused:
                bring_back(names[name], target)
        result = protocol.read_result(names["result.json"]) if state["ExitCode"] == 0 and not refused else None
        killed_by = refused or self._limit(task, counts, result, oom=bool(state["OOMKilled"]) and not counts_there)
        ended = replace(ended, returncode=signalled(state["ExitCode"]), killed_by=killed_by)
        return Answer(result=None if killed_by else result, ended=ended)

    def _copy_out(self, container: str, places: Mapping[str, Path]) -> str:
        """Copy what was asked for out of a container; '', or the limit that it went over."""
        with subprocess.Popen(
            ["docker", "cp", f"{container}:/out/.", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as copy:
            assert copy.stdout is not None and copy.stderr is not None
            most_bytes = self.limits.output_bytes + protocol.MOST_RESULT_BYTES
            try:
                unpack(copy.stdout, places, limit_bytes=most_bytes, limit_files=self.limits.output_files)
            except Refused as error:
                copy.kill()
                return f"its output limit: it {error}"
            except tarfile.TarError as error:
                copy.kill()
                raise EngineGone(f"what a container left has no end: {error}") from None
        return ""

    def _limit(self, task: Task, counts: Counts, result: dict[str, Any] | None, *, oom: bool) -> str:
        """Name the limit that a task ran into; '' for none."""
        if oom or counts.memory_kills:
            return f"its memory limit of {self.limits.memory_bytes / GIB:.3g} GiB"
        failed = result is None or result.get("status") in (protocol.CRASHED, protocol.BUILD_FAILED)
        printed = str((result or {}).get("message", "")) + tail(task.log)
        if failed and any(text in printed for text in TOO_LARGE):
            return f"its output limit of {self.limits.output_bytes / GIB:.3g} GiB"
        if failed and counts.refused_processes:
            return f"its limit of {self.limits.processes} processes"
        return ""

    def stop(self) -> None:
        super().stop()
        with contextlib.suppress(EngineGone):
            for container, named in list(self.engine.owned("container")):
                if named == self.owner:
                    self.engine.remove("container", container)


def _seconds_of(state: Mapping[str, Any]) -> float:
    """Return how long a container ran, by the engine's clock."""
    began, over = (_epoch_s(state[name]) for name in ("StartedAt", "FinishedAt"))
    return max(0.0, over - began)


def _epoch_s(text: str) -> float:
    """Read a time of RFC 3339 in UTC, whose fraction has any number of digits."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
