"""Executor `docker`: an environment is an image, and each task runs in a fresh, confined container of it: a sandbox.

A sandbox has no network, no capability and no root; it sees the image, which it cannot write, what the task was given,
which it cannot write either, and one folder of its own, from which only what was asked for is taken back.

A container is created, filled by `docker cp`, started, waited for, read by `docker cp`, and removed. One whose harness
was killed ends soon after its time limit (docker/task.sh); the next run of the harness removes it.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, Interrupted, Unrecorded
from harness.executors import Answer, Task, Variables
from harness.executors.base import BaseExecutor
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
from harness.executors.process import Ended, is_orphan, owner, signalled
from harness.executors.sandbox import (
    ENVIRONMENT,
    LINK,
    PYTHON,
    TASK_USER,
    SandboxLimits,
    bring_back,
    run_task,
    sandbox_paths,
    sandbox_variables,
)
from harness.executors.transfer import TransferRefused, pack, relocate, unpack
from harness.gpu import handed_on
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import GIB
from harness.worker import codec, protocol

TASK = RECIPE / "task.sh"
RESULT = "result.json"
OVERTIME_S = 60.0  # after a task's limit, in which whoever waits for it ends it first
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")  # `docker` would pass on a user's
GPU_OPTIONS = {
    "nvidia": ['--gpus=all,"capabilities=gpu,compute,utility"'],
    "cdi": ["--device=nvidia.com/gpu=all"],
    # An engine whose default runtime is NVIDIA's hands GPUs over unasked.
    "": ["--env=NVIDIA_VISIBLE_DEVICES=void"],
}


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
        variables: Variables | None = None,
    ) -> None:
        super().__init__(cache, threads, variables)
        self.engine, self.root, self.limits, self.gpus = engine, root, limits, gpus
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
        return self._prove(environment, proof, remedy, self.limits), reused, image.id

    def _needs_gpu(self) -> bool:
        return bool(self.gpus)

    @contextlib.contextmanager
    def linking(self, _environment: str) -> Iterator[Path]:
        with contextlib.ExitStack() as stack:
            try:
                volume = stack.enter_context(self.engine.linking(self.owner))
            except EngineGone as error:
                raise self._gone(error) from None
            yield Path("/", volume)

    def run(self, task: Task) -> Answer:
        self._refuse_if_stopped()
        shutil.rmtree(task.scratch, ignore_errors=True)
        task.scratch.mkdir(parents=True)
        try:
            return self._run_in_container(task)
        except EngineGone as error:
            if self._stopped.is_set():
                raise Interrupted() from None
            raise self._gone(error) from None
        except EngineRefused:
            self._refuse_if_stopped()  # its container was removed under it
            raise
        finally:
            shutil.rmtree(task.scratch, ignore_errors=True)

    def _gone(self, error: EngineGone) -> Unrecorded:
        return Unrecorded(
            f"the container engine at {self.engine.address} went away: {error.problem[:300]}",
            f"{NO_ENGINE_REMEDY}; then start the same command again: it goes on from here",
        )

    def _run_in_container(self, task: Task) -> Answer:
        places, outputs = sandbox_paths(task, self.root)
        started = time.monotonic()
        container = self._create(task)
        try:
            self._fill(container, task, places, outputs)
            attach = ["docker", "start", "--attach", container]
            ended = run_task(task, attach, engine_variables(self.engine.environment))
            self._refuse_if_stopped()
            answer = self._read(container, task, outputs, ended)
        finally:
            self.engine.remove("container", container)
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
        limit_s = math.ceil(task.terms.timeout_s + OVERTIME_S)
        command = [str(limit_s), PYTHON, "-m", "worker", task.name, "/in/request.json", f"/out/{RESULT}"]
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
            return Answer(result=None, ended=ended)
        found = self.engine.find("container", container)
        state: dict[str, Any] = found["State"] if found else {"Status": "gone"}
        if state.get("Error"):
            raise EngineRefused(state["Error"])
        if state["Status"] != "exited":
            raise EngineGone(f"a container is {state['Status']}: {ended.last_line}")
        left = {name: task.scratch / "left" / name for name in (RESULT, *outputs)}
        killed_by = self._copy_out(container, left)
        if not killed_by:
            for name, target in outputs.items():
                bring_back(left[name], target)
        if state["OOMKilled"]:
            killed_by = f"its memory limit of {self.limits.memory_bytes / GIB:.3g} GiB"
        result = protocol.read_result(left[RESULT]) if state["ExitCode"] == 0 and not killed_by else None
        return Answer(result=result, ended=replace(ended, returncode=signalled(state["ExitCode"]), killed_by=killed_by))

    def _copy_out(self, container: str, places: Mapping[str, Path]) -> str:
        """Copy what was asked for out of a container; '', or the limit that it went over."""
        most_bytes = self.limits.output_bytes + protocol.MOST_RESULT_BYTES
        try:
            with self.engine.stream("cp", f"{container}:/out/.", "-") as copy:
                unpack(copy, places, limit_bytes=most_bytes, limit_files=self.limits.output_files)
        except TransferRefused as error:
            return f"its output limit: it {error}"
        except tarfile.TarError as error:
            raise EngineGone(f"what a container left has no end: {error}") from None
        return ""

    def stop(self) -> None:
        super().stop()
        with contextlib.suppress(EngineGone):
            for container, named in list(self.engine.owned("container")):
                if named == self.owner:
                    self.engine.remove("container", container)
