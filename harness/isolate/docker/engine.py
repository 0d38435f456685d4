"""The engine: what it says of itself, its images, and its containers as a whole."""

from __future__ import annotations

import contextlib
import datetime
import platform
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import docker
import docker.errors

from harness.errors import InfrastructureError
from harness.isolate.docker.connection import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    GONE,
    EngineGone,
    answering,
    endpoint,
    reason_of,
)

LABEL = "org.kernel-matrix"
OWNER = f"{LABEL}.owner"
LINK_VOLUME, LINK_OPTIONS = "kernel-matrix-link-", "size=1m,mode=1777,nosuid,nodev,noexec"
UNREACHABLE = re.compile(r"no such host|dial tcp|i/o timeout|connection refused|Temporary failure in name resolution")
NO_BASE_REMEDY = (
    "pull or load it; or make one from Debian's packages: nox -s images -- base, "
    "then name it: --base-image kernel-matrix/base:bookworm-cuda12.4"
)


class BuildFailed(Exception):
    """What the builder printed last."""


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


class Engine:
    """The engine. It may be used by several threads: each call makes its own client."""

    def __init__(self) -> None:
        self.arguments = endpoint()
        self.version = "auto"
        with answering(), self.client(CONNECT_TIMEOUT_S) as client:
            self.version = client.api.api_version
            self.info: dict[str, Any] = client.info()
        self.lost: set[str] = set()  # containers that could not be removed, since the engine had gone

    @contextlib.contextmanager
    def client(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Iterator[docker.DockerClient]:
        client = docker.DockerClient(**self.arguments, version=self.version, timeout=timeout_s)
        client.api.trust_env = False  # REQUESTS_CA_BUNDLE would replace the engine's own certificate authority
        try:
            yield client
        finally:
            client.close()

    @property
    def address(self) -> str:
        return str(self.arguments.get("base_url") or "the default socket")

    def answers(self) -> bool:
        try:
            with answering(), self.client(CONNECT_TIMEOUT_S) as client:
                return bool(client.ping())
        except InfrastructureError:
            return False

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
            # The same kernel, memory and name, and no network in between: there is no better sign.
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

    def image(self, reference: str) -> Image | None:
        with answering(), self.client() as client:
            try:
                return _image(client.api.inspect_image(reference))
            except docker.errors.ImageNotFound:
                return None

    def images(self) -> list[Image]:
        """Those that the harness made."""
        with answering(), self.client() as client:
            entries = client.api.images(filters={"label": LABEL})
            return [_image(client.api.inspect_image(entry["Id"])) for entry in entries]

    def remove_image(self, reference: str) -> None:
        with answering(), self.client() as client:
            client.api.remove_image(reference, noprune=False)

    def registry_problem(self, reference: str) -> str:
        """'' where the engine's registry has the image, else why not."""
        with answering(), self.client() as client:
            try:
                client.api.inspect_distribution(reference)
            except docker.errors.APIError as error:
                return "its registry cannot be reached" if UNREACHABLE.search(reason_of(error)) else reason_of(error)
        return ""

    def pull(self, reference: str) -> None:
        """InfrastructureError where the engine cannot fetch it."""
        with answering(), self.client(timeout_s=600) as client:
            try:
                lines = client.api.pull(reference, stream=True, decode=True)
                problem = next((str(line["error"]) for line in lines if "error" in line), "")
            except docker.errors.APIError as error:
                problem = reason_of(error)
        if problem:
            raise InfrastructureError(f"the base image {reference} is not there: {problem}", NO_BASE_REMEDY)

    def build(
        self,
        context: IO[bytes],
        *,
        tag: str,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        log: Callable[[str], None],
    ) -> None:
        """Build an image from a tar with the engine's classic builder. BuildFailed with what it printed last.

        The build has the network of the engine's host: proxies on its loopback and private resolvers work there too.
        """
        with answering(), self.client(timeout_s=3600) as client:
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
                raise BuildFailed(reason_of(error)) from None

    def import_image(self, tar: str, *, tag: str, changes: Sequence[str]) -> None:
        """Make an image of a root file system. InfrastructureError where the engine refuses it."""
        repository, _, name = tag.partition(":")
        with answering(), self.client(timeout_s=3600) as client:
            answer = client.api.import_image_from_file(tar, repository=repository, tag=name, changes=list(changes))
            if '"error"' in answer:
                raise InfrastructureError(f"{tag}: the engine refused it: {answer[-300:]}", "docker system df")

    @contextlib.contextmanager
    def exported(self, image: str, owner: str) -> Iterator[Iterator[bytes]]:
        """The root file system of an image, as the pieces of a tar. `owner`: as of a sandbox, if this process dies."""
        with answering(), self.client(timeout_s=600) as client:
            container = client.api.create_container(image, command=["true"], labels={OWNER: owner})["Id"]
            try:
                yield client.api.export(container, chunk_size=1 << 20)
            finally:
                with contextlib.suppress(docker.errors.APIError, *GONE):
                    client.api.remove_container(container, force=True, v=True)

    def leftovers(self) -> Iterator[tuple[str, str]]:
        """(container, owner) of every sandbox, of any process."""
        with answering(), self.client() as client:
            for entry in client.api.containers(all=True, filters={"label": OWNER}):
                yield entry["Id"], entry["Labels"][OWNER]

    @contextlib.contextmanager
    def linking(self, owner: str) -> Iterator[str]:
        """The name of a volume in memory that containers share."""
        with answering(), self.client() as client:
            options = {"type": "tmpfs", "device": "tmpfs", "o": LINK_OPTIONS}
            name = f"{LINK_VOLUME}{secrets.token_hex(8)}"
            client.api.create_volume(name, "local", options, labels={OWNER: owner})
        try:
            yield name
        finally:
            self.remove_volume(name)

    def volumes(self) -> Iterator[tuple[str, str]]:
        """(volume, owner) of every volume that `linking` made, in any process."""
        with answering(), self.client() as client:
            for entry in client.api.volumes(filters={"label": OWNER})["Volumes"] or ():
                yield entry["Name"], entry["Labels"][OWNER]

    def remove_volume(self, volume: str) -> None:
        """One that cannot be removed now is found by its owner later."""
        with contextlib.suppress(docker.errors.APIError, EngineGone), answering(), self.client() as client:
            client.api.remove_volume(volume, force=True)

    def history(self, container: str) -> dict[str, str]:
        """What happened to a container, and with which exit status; nothing where the engine was started anew since."""
        with answering(), self.client() as client:
            # The engine's own clock, which need not be this machine's; its memory of events ends at its start.
            now = re.sub(r"\.\d+", "", client.info()["SystemTime"]).replace("Z", "+00:00")
            until = int(datetime.datetime.fromisoformat(now).timestamp()) + 1
            events = client.api.events(since=1, until=until, filters={"container": container}, decode=True)
            return {str(event["Action"]): str(event["Actor"]["Attributes"].get("exitCode", "")) for event in events}

    def remove_container(self, container: str) -> None:
        with answering(), self.client() as client, contextlib.suppress(docker.errors.APIError):
            client.api.remove_container(container, force=True, v=True)

    def remove_lost(self) -> None:
        """An engine that was killed does not always remove, once it is back, what it was to remove."""
        for container in tuple(self.lost):
            self.remove_container(container)
            self.lost.discard(container)


def _image(value: dict[str, Any]) -> Image:
    return Image(
        id=value["Id"],
        tags=tuple(value.get("RepoTags") or ()),
        labels=(value.get("Config") or {}).get("Labels") or {},
        layers=tuple((value.get("RootFS") or {}).get("Layers") or ()),
        size_bytes=int(value.get("Size", 0)),
        created=str(value.get("Created", "")),
    )
