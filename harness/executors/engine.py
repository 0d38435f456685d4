"""The container engine, by the program `docker`: nothing else starts it.

An engine may be anywhere: nothing here assumes that it sees this machine's files. The program finds it, as always, by
DOCKER_HOST, DOCKER_CONTEXT or the current context.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.errors import InfrastructureError, Unrecorded
from harness.tools import output_of

LABEL = "org.kernel-matrix"
OWNER = f"{LABEL}.owner"
LINK_VOLUME, LINK_OPTIONS = "kernel-matrix-link-", "size=1m,mode=1777,nosuid,nodev,noexec"
CONNECT_TIMEOUT_S = 15.0
ANSWER_TIMEOUT_S = 120.0
LONG_TIMEOUT_S = 3600.0  # of what moves an image
REGISTRY_TIMEOUT_S = 30.0
MOST_WORDS = 600  # characters of what a command printed
GPU_KIND = "nvidia.com/gpu"  # as CDI calls it
ENGINE_VARIABLES = (
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
    "SSH_AUTH_SOCK",
)
FULL_REMEDY = "free some: nox -s images -- remove; docker system prune"
NO_ENGINE_REMEDY = "start it (systemctl start docker), or check DOCKER_HOST and `docker context ls`"
NO_PROGRAM_REMEDY = "install the docker command: apt-get install docker-cli (docker.io before Debian 13)"
NO_BASE_REMEDY = (
    "pull or load it; or make one from Debian's packages: nox -s images -- base, "
    "then name it: --base-image kernel-matrix/base:bookworm-cuda12.4"
)


class EngineGone(Unrecorded):
    """The engine does not answer, or not any more; `problem` is what `docker` said."""

    def __init__(self, problem: str, remedy: str = NO_ENGINE_REMEDY) -> None:
        super().__init__(f"the container engine does not answer: {problem[:300]}", remedy)
        self.problem = problem


class EngineRefused(InfrastructureError):
    """The engine answers, and will not do it."""

    def __init__(self, problem: str) -> None:
        if "o space left on device" in problem:
            super().__init__(f"the container engine's disk is full: {problem}", FULL_REMEDY)
        else:
            super().__init__(f"the container engine refused: {problem}", "docker info; docker events")


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What the engine says of itself."""

    endpoint: str
    version: str
    machine: str  # the engine's own id
    local: bool  # whether it runs on this machine
    architecture: str
    system: str
    kernel: str
    processors: int
    memory_bytes: int
    seccomp: bool
    gpus: str  # how it hands GPUs over: "nvidia", "cdi", or "" where it cannot

    @property
    def name(self) -> str:
        return f"Docker {self.version}" + ("" if self.local else f" at {self.endpoint}")


@dataclass(frozen=True, kw_only=True)
class Image:
    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    layers: tuple[str, ...]
    size_bytes: int
    created: str


def engine_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what names the engine, for a process whose environment is otherwise clean."""
    return {name: environment[name] for name in ENGINE_VARIABLES if name in environment}


def find_address() -> str:
    named = os.environ.get("DOCKER_HOST")
    return named or (output_of(["docker", "context", "inspect", "--format={{.Endpoints.docker.Host}}"]) or "").strip()


class Engine:
    """The engine that was named when this was made. Several threads may use it."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.address = find_address() or "the default socket"
        self.info: dict[str, Any] = json.loads(self._run("info", "--format={{json .}}", timeout_s=CONNECT_TIMEOUT_S))
        if errors := self.info.get("ServerErrors"):
            raise EngineGone("; ".join(errors))

    def _run(self, *words: str, timeout_s: float, stdin: IO[bytes] | None = None) -> str:
        """Return what a command of `docker` prints. EngineGone where it fails."""
        if stdin is not None:
            stdin.seek(0)
        try:
            done = subprocess.run(
                ["docker", *words],
                stdin=stdin or subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env=self.environment,
            )
        except FileNotFoundError:
            raise EngineGone("there is no program docker on the PATH", NO_PROGRAM_REMEDY) from None
        except subprocess.TimeoutExpired:
            raise EngineGone(f"docker {words[0]} took longer than {timeout_s:.0f} s") from None
        if done.returncode:
            raise EngineGone(" ".join(done.stderr.decode(errors="replace").split())[-MOST_WORDS:])
        return done.stdout.decode(errors="replace")

    def call(self, *words: str, timeout_s: float = ANSWER_TIMEOUT_S, stdin: IO[bytes] | None = None) -> str:
        """Return what a command of `docker` prints. EngineGone where no engine answers, else EngineRefused."""
        try:
            return self._run(*words, timeout_s=timeout_s, stdin=stdin)
        except EngineGone as error:
            if self.answers():
                raise EngineRefused(error.problem) from None
            raise

    @contextlib.contextmanager
    def stream(self, *words: str) -> Iterator[IO[bytes]]:
        """Give what a command of `docker` prints, of any length. It is ended where nobody reads to the end; EngineGone
        where it fails."""
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(["docker", *words], stdout=subprocess.PIPE, stderr=said, env=self.environment)
            assert process.stdout is not None
            try:
                with process.stdout:
                    yield process.stdout
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
            said.seek(0)
            if process.returncode:
                raise EngineGone(" ".join(said.read().decode(errors="replace").split())[-MOST_WORDS:])

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return what the engine knows of an image or a container; None where it has none of that name."""
        try:
            found: list[dict[str, Any]] = json.loads(self.call(kind, "inspect", name))
        except EngineRefused:
            return None
        return found[0]

    def answers(self) -> bool:
        try:
            self._run("version", "--format={{.Server.Version}}", timeout_s=CONNECT_TIMEOUT_S)
        except EngineGone:
            return False
        return True

    def facts(self) -> EngineFacts:
        info = self.info
        # The same kernel, memory and name, and no network in between: there is no better sign.
        local = (
            not self.address.startswith(("tcp://", "ssh://", "http://", "https://"))
            and info.get("KernelVersion") == platform.release()
            and info.get("Name") == platform.node()
        )
        return EngineFacts(
            endpoint=self.address,
            version=str(info.get("ServerVersion", "")),
            machine=str(info.get("ID", "")),
            local=local,
            architecture=str(info.get("Architecture", "")),
            system=str(info.get("OperatingSystem", "")),
            kernel=str(info.get("KernelVersion", "")),
            processors=int(info.get("NCPU", 1)),
            memory_bytes=int(info.get("MemTotal", 0)),
            seccomp=any(
                "name=seccomp" in option and "unconfined" not in option for option in info.get("SecurityOptions") or []
            ),
            gpus=find_gpu_way(info, local=local),
        )

    def image(self, reference: str) -> Image | None:
        found = self.find("image", reference)
        return None if found is None else read_image(found)

    def images(self) -> list[Image]:
        """Return those that the harness made."""
        ids = self.call("image", "ls", "--quiet", "--no-trunc", f"--filter=label={LABEL}").split()
        if not ids:
            return []
        return [read_image(found) for found in json.loads(self.call("image", "inspect", *dict.fromkeys(ids)))]

    def remove_image(self, reference: str) -> None:
        self.call("image", "rm", reference)

    def registry_problem(self, reference: str) -> str:
        """Return why no registry has the image; '' where one has."""
        try:
            self._run("manifest", "inspect", reference, timeout_s=REGISTRY_TIMEOUT_S)
        except EngineGone as error:
            return error.problem
        return ""

    def pull(self, reference: str) -> None:
        """InfrastructureError where the engine cannot fetch it."""
        try:
            self.call("pull", "--quiet", reference, timeout_s=LONG_TIMEOUT_S)
        except EngineRefused as error:
            raise InfrastructureError(
                f"the base image {reference} is not there: {error.message}", NO_BASE_REMEDY
            ) from None

    def import_image(self, tar: Path, *, tag: str, changes: Sequence[str]) -> None:
        """Make an image of a root file system."""
        options = [f"--change={change}" for change in changes]
        self.call("import", *options, str(tar), tag, timeout_s=LONG_TIMEOUT_S)

    def owned(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield (name, owner) of every container, or every volume, of any process of the harness."""
        words = ["ps", "--all", "--no-trunc"] if kind == "container" else ["volume", "ls"]
        name = "{{.ID}}" if kind == "container" else "{{.Name}}"
        listed = self.call(*words, f"--filter=label={OWNER}", f'--format={name} {{{{.Label "{OWNER}"}}}}')
        for line in listed.splitlines():
            found, _, owner = line.partition(" ")
            yield found, owner

    @contextlib.contextmanager
    def linking(self, owner: str) -> Iterator[str]:
        """Give the name of a volume in memory that containers share."""
        name = f"{LINK_VOLUME}{secrets.token_hex(8)}"
        options = [f"--opt={each}" for each in ("type=tmpfs", "device=tmpfs", f"o={LINK_OPTIONS}")]
        self.call("volume", "create", *options, f"--label={OWNER}={owner}", name)
        try:
            yield name
        finally:
            self.remove("volume", name)

    def remove(self, kind: str, name: str) -> None:
        """Remove a container or a volume. What stays, since the engine has gone, is found by its owner later."""
        words = ["rm", "--force", "--volumes"] if kind == "container" else ["volume", "rm", "--force"]
        with contextlib.suppress(EngineGone, EngineRefused):  # the second of what is gone already, or in use still
            self.call(*words, name)


def find_gpu_way(info: Mapping[str, Any], *, local: bool) -> str:
    """Return how an engine hands GPUs over: by NVIDIA's runtime, or by a CDI specification; '' where it cannot."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return "nvidia"
    devices = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or []]
    if any(GPU_KIND in device for device in devices):
        return "cdi"
    folders = info.get("CDISpecDirs") or [] if local else []  # an engine before 28.3 lists no devices
    files = [path for folder in folders for path in Path(folder).glob("*") if path.suffix in (".json", ".yaml")]
    return "cdi" if any(GPU_KIND in path.read_text(errors="replace") for path in files) else ""


def read_image(value: Mapping[str, Any]) -> Image:
    return Image(
        id=value["Id"],
        tags=tuple(value.get("RepoTags") or ()),
        labels=(value.get("Config") or {}).get("Labels") or {},
        layers=tuple((value.get("RootFS") or {}).get("Layers") or ()),
        size_bytes=int(value.get("Size", 0)),
        created=str(value.get("Created", "")),
    )
