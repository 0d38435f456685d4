"""The container engine, through Docker's SDK: the one module that imports it.

An engine may be anywhere: nothing here assumes that it sees this machine's files. What a cell reads goes in, and what
it leaves comes out, through the API.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import platform
import queue
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import docker
import docker.context.config
import docker.errors
import requests
import urllib3
from docker.context import ContextAPI
from docker.types import DeviceRequest, Ulimit
from docker.utils import kwargs_from_env

from harness.errors import HarnessError, InfrastructureError, Unrecorded

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 120.0
LABEL = "org.kernel-matrix"
OWNER = f"{LABEL}.owner"
UNREACHABLE = re.compile(r"no such host|dial tcp|i/o timeout|connection refused|Temporary failure in name resolution")
FULL_REMEDY = "free some: nox -s images -- remove; docker system prune"
NO_ENGINE_REMEDY = "start it (systemctl start docker), or check DOCKER_HOST and `docker context ls`"
GONE = (
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    ConnectionError,
    EOFError,
    TimeoutError,
)


class EngineGone(Unrecorded):
    """The engine does not answer, or not any more; `problem` is what the connection said."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the container engine does not answer: {problem[:300]}", NO_ENGINE_REMEDY)
        self.problem = problem


class EngineRefused(InfrastructureError):
    """The engine answers, and will not do it."""

    def __init__(self, problem: str) -> None:
        if "o space left on device" in problem:
            super().__init__(f"the container engine's disk is full: {problem}", FULL_REMEDY)
        else:
            super().__init__(f"the container engine refused: {problem}", "docker info; docker events")


class ImageMissing(HarnessError):
    """The engine has no such image, and cannot fetch it."""


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


@dataclass(frozen=True, kw_only=True)
class CellLimits:
    memory_bytes: int
    processes: int
    output_bytes: int
    output_files: int


def _contexts() -> str:
    return str(Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "contexts")


docker.context.config.get_context_dir = _contexts  # the SDK's own finds none where no config.json lies beside them


def endpoint() -> dict[str, Any]:
    """The client's arguments, as `docker` itself chooses: DOCKER_HOST, else DOCKER_CONTEXT, else the current context.

    InfrastructureError where the context does not exist, or certificates are missing.
    """
    name = os.environ.get("DOCKER_CONTEXT")
    try:
        if os.environ.get("DOCKER_HOST"):
            arguments: dict[str, Any] = kwargs_from_env()
            return arguments
        context = ContextAPI.get_context(name) if name else ContextAPI.get_current_context()
    except (docker.errors.DockerException, OSError, ValueError, KeyError) as error:
        raise InfrastructureError(f"how to reach the engine cannot be told: {error}", NO_ENGINE_REMEDY) from None
    if context is None:
        raise InfrastructureError(f"there is no Docker context {name!r}", "docker context ls")
    return {"base_url": context.Host, **({"tls": context.TLSConfig} if context.TLSConfig else {})}


def said(error: docker.errors.APIError) -> str:
    return " ".join(str(error.explanation or error).split())


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """EngineGone for what the SDK raises when nobody is there, EngineRefused for an answer that no caller expects."""
    try:
        yield
    except docker.errors.APIError as error:
        if error.status_code in (502, 503, 504) or "shutting down" in str(error).lower():
            raise EngineGone(str(error)) from None
        raise EngineRefused(said(error)) from None
    except docker.errors.DockerException as error:
        raise EngineGone(str(error)) from None
    except GONE as error:
        raise EngineGone(str(error)) from None


class Engine:
    """A connection. It may be used by several threads: each call makes its own client."""

    def __init__(self) -> None:
        self.arguments = endpoint()
        self.version = "auto"
        with answering(), self._client(CONNECT_TIMEOUT_S) as client:
            self.version = client.api.api_version
            self.info: dict[str, Any] = client.info()

    @contextlib.contextmanager
    def _client(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Iterator[docker.DockerClient]:
        ssh = str(self.arguments.get("base_url", "")).startswith("ssh://")
        client = docker.DockerClient(
            **self.arguments, version=self.version, timeout=timeout_s, **({"use_ssh_client": True} if ssh else {})
        )
        try:
            yield client
        finally:
            client.close()

    @property
    def address(self) -> str:
        return str(self.arguments.get("base_url") or "the default socket")

    def facts(self) -> EngineFacts:
        info = self.info
        devices = info.get("DiscoveredDevices") or []
        gpus = "nvidia" if "nvidia" in (info.get("Runtimes") or {}) else ""
        if any("nvidia.com/gpu" in str(device.get("ID", "")) for device in devices):
            gpus = gpus or "cdi"
        return EngineFacts(
            endpoint=self.address,
            version=str(info.get("ServerVersion", "")),
            machine=str(info.get("ID", "")),
            # The same kernel, memory and name, and no network in between: nothing else tells.
            local=not self.address.startswith(("tcp://", "ssh://", "http://", "https://"))
            and info.get("KernelVersion") == platform.release()
            and info.get("Name") == platform.node(),
            architecture=str(info.get("Architecture", "")),
            system=str(info.get("OperatingSystem", "")),
            kernel=str(info.get("KernelVersion", "")),
            processors=int(info.get("NCPU", 1)),
            memory_bytes=int(info.get("MemTotal", 0)),
            seccomp=any(
                "name=seccomp" in option and "unconfined" not in option for option in info.get("SecurityOptions") or []
            ),
            gpus=gpus,
        )

    def answers(self) -> bool:
        try:
            with answering(), self._client(CONNECT_TIMEOUT_S) as client:
                return bool(client.ping())
        except (EngineGone, docker.errors.APIError):
            return False

    # -- images -----------------------------------------------------------------------------------------------

    def image(self, reference: str) -> Image | None:
        with answering(), self._client() as client:
            try:
                return _image(client.api.inspect_image(reference))
            except docker.errors.ImageNotFound:
                return None

    def images(self) -> list[Image]:
        """Those that the harness made."""
        with answering(), self._client() as client:
            found = client.api.images(filters={"label": LABEL})
            return [_image(client.api.inspect_image(entry["Id"])) for entry in found]

    def remove_image(self, reference: str) -> None:
        with answering(), self._client() as client:
            client.api.remove_image(reference, noprune=False)

    def registry_problem(self, reference: str) -> str:
        """'' where the engine's registry has the image, else why not."""
        with answering(), self._client() as client:
            try:
                client.api.inspect_distribution(reference)
            except docker.errors.APIError as error:
                return "its registry cannot be reached" if UNREACHABLE.search(said(error)) else said(error)
        return ""

    def pull(self, reference: str, progress: Callable[[str], None]) -> None:
        with answering(), self._client(timeout_s=600) as client:
            try:
                for line in client.api.pull(reference, stream=True, decode=True):
                    progress(str(line.get("status", "")))
            except docker.errors.APIError as error:
                raise ImageMissing(f"the base image {reference} is not there: {said(error)}", NO_BASE_REMEDY) from None

    def build(
        self, context: IO[bytes], *, tag: str, arguments: Mapping[str, str], labels: Mapping[str, str],
        log: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Build an image from a tar with the engine's classic builder. BuildFailed with what it printed last.

        The build has the network of the engine's host: proxies on its loopback and private resolvers work there too.
        """
        with answering(), self._client(timeout_s=3600) as client:
            try:
                stream = client.api.build(
                    fileobj=context,
                    custom_context=True,
                    tag=tag,
                    buildargs=dict(arguments),
                    labels=dict(labels),
                    network_mode="host",
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
                for line in stream:
                    log(str(line.get("stream", "")))
                    if "error" in line:
                        log(str(line["error"]) + "\n")
                        raise BuildFailed(str(line["error"]))
            except docker.errors.APIError as error:
                raise BuildFailed(said(error)) from None

    def import_image(self, tar: str, *, tag: str, changes: Sequence[str]) -> None:
        """Make an image of a root file system. InfrastructureError where the engine refuses it."""
        repository, _, name = tag.partition(":")
        with answering(), self._client(timeout_s=3600) as client:
            answer = client.api.import_image_from_file(tar, repository=repository, tag=name, changes=list(changes))
            if '"error"' in answer:
                raise InfrastructureError(f"{tag}: the engine refused it: {answer[-300:]}", "docker system df")

    # -- cells ------------------------------------------------------------------------------------------------

    def leftovers(self) -> Iterator[tuple[str, str]]:
        """(container, owner) of every cell, whoever started it."""
        with answering(), self._client() as client:
            for entry in client.api.containers(all=True, filters={"label": OWNER}):
                yield entry["Id"], entry["Labels"][OWNER]

    def history(self, container: str, since: float) -> dict[str, str]:
        """What happened to a container, and with which exit status; nothing where the engine was started anew since."""
        with answering(), self._client() as client:
            events = client.api.events(
                since=int(since) - 1, until=int(time.time()) + 1, filters={"container": container}, decode=True
            )
            return {str(event["Action"]): str(event["Actor"]["Attributes"].get("exitCode", "")) for event in events}

    def remove_container(self, container: str) -> None:
        with answering(), self._client() as client, contextlib.suppress(docker.errors.APIError):
            client.api.remove_container(container, force=True, v=True)

    @contextlib.contextmanager
    def cell(
        self, image: str, keeper: str, arguments: Sequence[str], *, limits: CellLimits, input_bytes: int, owner: str,
        users: tuple[int, int], compiles: bool, gpus: str,
    ) -> Iterator[Cell]:  # fmt: skip
        """A confined container, for as long as the context lasts. `users`: the keeper's id and the verb's.

        No network, no capability, no new privilege, the engine's seccomp profile, a root file system that cannot be
        written, and two folders in memory: /in, the keeper's, and /out, the verb's.
        """
        keeper_id, verb_id = users
        room = max(64 << 20, 2 * input_bytes)
        execute = "exec" if compiles else "noexec"
        requests_ = {
            "nvidia": [DeviceRequest(count=-1, capabilities=[["gpu", "compute", "utility"]])],
            "cdi": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])],
        }
        with answering(), self._client() as client:
            try:
                host_config = client.api.create_host_config(
                    network_mode="none",
                    ipc_mode="none",
                    read_only=True,
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges:true"],
                    mem_limit=limits.memory_bytes,
                    memswap_limit=limits.memory_bytes,
                    pids_limit=limits.processes,
                    ulimits=[Ulimit(name="core", soft=0, hard=0)],
                    tmpfs={
                        "/in": f"rw,exec,nosuid,nodev,size={room},uid={keeper_id},gid={keeper_id},mode=0755",
                        "/out": f"rw,{execute},nosuid,nodev,size={limits.output_bytes},"
                        f"nr_inodes={limits.output_files},uid={verb_id},gid={verb_id},mode=1777",
                    },
                    log_config={"Type": "none"},
                    auto_remove=True,
                    device_requests=requests_.get(gpus),
                )
                created = client.api.create_container(
                    image,
                    entrypoint=["sh", "-c", keeper, "keeper"],
                    command=list(arguments),
                    user=f"{keeper_id}:{keeper_id}",
                    hostname="cell",
                    labels={OWNER: owner},
                    stdin_open=True,
                    working_dir="/out",
                    host_config=host_config,
                )["Id"]
            except docker.errors.ImageNotFound:
                raise InfrastructureError(
                    f"{image}: the engine has it no more", "start the same command again: it is built anew"
                ) from None
            cell = Cell(client, created)
            try:
                cell.attach()
                client.api.start(created)
                yield cell
            finally:
                cell.close()
                with contextlib.suppress(docker.errors.APIError, *GONE):
                    client.api.remove_container(created, force=True, v=True)


class BuildFailed(Exception):
    """What the builder printed last."""


class CellDied(Exception):
    """The cell ended before it gave back what its verb left."""


class Cell:
    """A running container, and the connection to its first process."""

    def __init__(self, client: docker.DockerClient, container: str) -> None:
        self.client, self.container, self.started = client, container, time.time()
        self.stream: Any = None
        self.frames: Iterator[tuple[int, bytes]] = iter(())
        self.buffer = b""
        self.complaints = b""

    def attach(self) -> None:
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self.stream = self.client.api.attach_socket(self.container, params=parameters)
        self.socket = getattr(self.stream, "_sock", self.stream)
        self.socket.settimeout(None)
        self.frames = _frames(self.socket.makefile("rb", 1 << 20))

    def close(self) -> None:
        """An engine that still has something to say to us would not let go of the container."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(OSError):
            self.socket.close()

    def send(self, parcel: IO[bytes]) -> None:
        """Send what goes in, and wait until the keeper has it."""
        parcel.seek(0)
        while block := parcel.read(1 << 20):
            self.socket.sendall(block)
        if self.line() != "ready":
            raise CellDied("the keeper did not take its parcel")

    def line(self) -> str:
        """The next line that the keeper printed; '' when it ended."""
        while b"\n" not in self.buffer:
            if not self._more():
                return ""
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode(errors="replace")

    def _more(self) -> bool:
        for kind, data in self.frames:
            if kind == 1:
                self.buffer += data
                return True
            self.complaints += data
        return False

    def run(
        self, command: Sequence[str], *, user: int, environment: Mapping[str, str], timeout_s: float,
        output: Callable[[bytes], None],
    ) -> tuple[int | None, bool]:  # fmt: skip
        """Run the verb: (exit status, or None where the container died under it; whether it ran out of time)."""
        api = self.client.api
        try:
            execution = api.exec_create(
                self.container, list(command), user=f"{user}:{user}", environment=dict(environment), workdir="/out"
            )["Id"]
        except docker.errors.APIError as error:
            raise CellDied(said(error)) from None
        ended: queue.Queue[BaseException | None] = queue.Queue()

        def listen() -> None:
            try:
                for data in api.exec_start(execution, stream=True):
                    output(data)
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        threading.Thread(target=listen, daemon=True).start()
        timed_out = False
        try:
            problem = ended.get(timeout=timeout_s)
        except queue.Empty:
            timed_out = True
            with contextlib.suppress(docker.errors.APIError):
                api.kill(self.container)
            problem = None
            with contextlib.suppress(queue.Empty):
                problem = ended.get(timeout=ANSWER_TIMEOUT_S)
        if problem is not None and not isinstance(problem, docker.errors.APIError):
            raise problem
        if timed_out:
            return None, True
        return self._exit_status(execution), False

    def _exit_status(self, execution: str) -> int | None:
        """None where the container is gone. The stream may end a moment before the engine knows how it ended."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                seen = self.client.api.exec_inspect(execution)
            except docker.errors.APIError:
                return None
            if not seen["Running"]:
                code = seen["ExitCode"]
                return None if code is None else int(code)
            time.sleep(0.02)
        return None

    def collect(self) -> tuple[dict[str, int], IO[bytes]]:
        """What the kernel counted (memory, processes), and a stream of the tar of what the verb left."""
        self.socket.sendall(b"done\n")
        counts: dict[str, int] = {}
        while (line := self.line()) != "parcel":
            key, _, number = line.partition(" ")
            if not number.isdigit():
                raise CellDied("the keeper did not give its parcel")
            counts[key] = max(int(number), counts.get(key, 0))
        return counts, io.BufferedReader(_Printed(self), 1 << 20)


def _frames(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """(1 for standard output or 2 for standard error, data): how the engine sends both over one connection."""
    while len(header := file.read(8)) == 8:
        kind, size_bytes = struct.unpack(">BxxxL", header)
        yield kind, file.read(size_bytes)


class _Printed(io.RawIOBase):
    """What the keeper prints, as a file."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self.cell.buffer:
            self.cell._more()
        size = min(len(target), len(self.cell.buffer))
        target[:size] = self.cell.buffer[:size]
        self.cell.buffer = self.cell.buffer[size:]
        return size


def _image(value: dict[str, Any]) -> Image:
    return Image(
        id=value["Id"],
        tags=tuple(value.get("RepoTags") or ()),
        labels=(value.get("Config") or {}).get("Labels") or {},
        layers=tuple((value.get("RootFS") or {}).get("Layers") or ()),
        size_bytes=int(value.get("Size", 0)),
        created=str(value.get("Created", "")),
    )


NO_BASE_REMEDY = (
    "pull or load it; or make one from Debian's packages: nox -s images -- base, "
    "then name it: --base-image kernel-matrix/base:bookworm-cuda12.4"
)
