"""Sandboxes: confined containers, one for each process that is not trusted."""

from __future__ import annotations

import contextlib
import io
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import docker
import docker.errors
from docker.types import DeviceRequest, Ulimit

from harness.errors import InfrastructureError
from harness.isolate.docker.connection import ANSWER_TIMEOUT_S, GONE, answering, reason_of
from harness.isolate.docker.engine import OWNER, Engine
from harness.isolate.process import LastWords
from harness.isolate.sandbox import LINK, SandboxLimits

MOST_COMPLAINTS = 4000  # bytes
LOOK_S = 0.2  # between looks at whether a task is needed still


@contextlib.contextmanager
def open_container(
    engine: Engine,
    image: str,
    keeper: str,
    arguments: Sequence[str],
    *,
    limits: SandboxLimits,
    input_bytes: int,
    owner: str,
    users: tuple[int, int],
    compiles: bool,
    gpus: str,
    link: str = "",
    processors: Sequence[int] = (),
) -> Iterator[Container]:
    """A confined container, for as long as the context lasts. `users`: the keeper's id and the task's.

    No network, no capability, no new privilege, the engine's seccomp profile, a root file system that cannot be
    written, and two folders in memory: /in, the keeper's, and /out, the task's. `link`: a volume, seen as /link.
    `processors`: the only ones that it may use; none: any.
    """
    keeper_id, task_id = users
    room = max(64 << 20, 2 * input_bytes)
    execute = "exec" if compiles else "noexec"
    handed_over = {
        "nvidia": [DeviceRequest(count=-1, capabilities=[["gpu", "compute", "utility"]])],
        "cdi": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])],
    }
    with answering(), engine.client() as client:
        try:
            host_config = client.api.create_host_config(
                network_mode="none",
                ipc_mode="none",
                cgroupns="private" if engine.info.get("CgroupVersion") == "2" else None,
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                mem_limit=limits.memory_bytes,
                memswap_limit=limits.memory_bytes,
                pids_limit=limits.processes,
                cpuset_cpus=",".join(map(str, processors)) or None,
                ulimits=[Ulimit(name="core", soft=0, hard=0)],
                tmpfs={
                    "/in": f"rw,exec,nosuid,nodev,size={room},uid={keeper_id},gid={keeper_id},mode=0755",
                    "/out": f"rw,{execute},nosuid,nodev,size={limits.output_bytes},"
                    f"nr_inodes={limits.output_files},uid={task_id},gid={task_id},mode=1777",
                },
                log_config={"Type": "none"},
                auto_remove=True,
                binds=[f"{link}:{LINK}:rw"] if link else None,
                device_requests=handed_over.get(gpus),
            )
            created = client.api.create_container(
                image,
                entrypoint=["sh", "-c", keeper, "keeper"],
                command=list(arguments),
                user=f"{keeper_id}:{keeper_id}",
                hostname="sandbox",
                labels={OWNER: owner},
                stdin_open=True,
                working_dir="/out",
                host_config=host_config,
                # An engine whose default runtime is NVIDIA's hands GPUs over unasked.
                environment=None if gpus else {"NVIDIA_VISIBLE_DEVICES": "void"},
                use_config_proxy=False,  # it may hold a password
            )["Id"]
        except docker.errors.ImageNotFound:
            raise InfrastructureError(
                f"{image}: the engine has it no more", "start the same command again: it is built anew"
            ) from None
        sandbox = Container(client, created)
        try:
            sandbox.attach()
            client.api.start(created)
            yield sandbox
        finally:
            sandbox.close()
            if not _remove(client, created):
                engine.lost.add(created)


def _remove(client: docker.DockerClient, container: str) -> bool:
    """Until it is gone: the engine may be removing it already, since its first process has ended, and then refuses.

    False where the engine went away before it answered.
    """
    try:
        with contextlib.suppress(docker.errors.APIError):  # it is gone already
            try:
                client.api.remove_container(container, force=True, v=True)
            except docker.errors.APIError:
                client.api.wait(container, timeout=ANSWER_TIMEOUT_S, condition="removed")
    except GONE:
        return False
    return True


class ContainerDied(Exception):
    """The sandbox ended before it gave back what its task left."""


class Container:
    """A running container, and the connection to its first process."""

    def __init__(self, client: docker.DockerClient, container: str) -> None:
        self.client, self.container = client, container
        self.stream: Any = None
        self.socket: Any = None
        self.frames: Iterator[tuple[int, bytes]] = iter(())
        self.buffer = b""
        self.complaints = b""

    def attach(self) -> None:
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self.stream = self.client.api.attach_socket(self.container, params=parameters)
        self.socket = getattr(self.stream, "_sock", self.stream)
        self.socket.settimeout(ANSWER_TIMEOUT_S)  # of each read and write: the keeper is never silent for long
        self.frames = _frames(self.socket.makefile("rb", 1 << 20))

    def close(self) -> None:
        """An engine that still has output to send would not remove the container."""
        if self.socket is None:
            return  # it went away before it answered
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(OSError):
            self.socket.close()

    def send(self, archive: IO[bytes]) -> None:
        """Send what goes in, and wait until the keeper has it."""
        archive.seek(0)
        while block := archive.read(1 << 20):
            self.socket.sendall(block)
        if self.line() != "ready":
            raise ContainerDied("the keeper did not take what it was sent")

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
            self.complaints = (self.complaints + data)[-MOST_COMPLAINTS:]
        return False

    def run(
        self,
        command: Sequence[str],
        *,
        user: int,
        environment: Mapping[str, str],
        timeout_s: float,
        output: Callable[[bytes], None],
        until: threading.Event | None = None,
    ) -> tuple[int | None, bool]:
        """Run the task: (exit status, or None at its time limit; whether it ran out of time).

        ContainerDied where the container died under it.
        """
        api = self.client.api
        try:
            execution = api.exec_create(
                self.container, list(command), user=f"{user}:{user}", environment=dict(environment), workdir="/out"
            )["Id"]
        except docker.errors.APIError as error:
            raise ContainerDied(reason_of(error)) from None
        ended: queue.Queue[BaseException | None] = queue.Queue()

        def listen() -> None:
            try:
                for data in api.exec_start(execution, stream=True):
                    output(data)
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        threading.Thread(target=listen, daemon=True).start()
        timed_out, deadline, last_words = False, time.monotonic() + timeout_s, LastWords(until)
        try:
            problem = _next(ended, lambda: min(deadline - time.monotonic(), last_words.left_s()))
        except queue.Empty:
            timed_out = True
            with contextlib.suppress(docker.errors.APIError):
                api.kill(self.container)
            problem = None
            with contextlib.suppress(queue.Empty):
                problem = ended.get(timeout=ANSWER_TIMEOUT_S)
        if isinstance(problem, docker.errors.APIError):
            problem = ContainerDied(reason_of(problem))
        if timed_out:
            return None, True
        if problem is not None:
            raise problem
        return self._exit_status(execution), False

    def _exit_status(self, execution: str) -> int:
        """ContainerDied where the container is gone. The stream may end before the engine knows how the task ended."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                seen = self.client.api.exec_inspect(execution)
            except docker.errors.APIError as error:
                raise ContainerDied(reason_of(error)) from None
            if not seen["Running"] and seen["ExitCode"] is not None:
                return int(seen["ExitCode"])
            time.sleep(0.02)
        raise ContainerDied("the engine does not say how the task ended")

    def collect(self) -> tuple[dict[str, int], IO[bytes]]:
        """What the kernel counted (memory, processes), and a stream of the tar of what the task left."""
        self.socket.sendall(b"done\n")
        counts: dict[str, int] = {}
        while (line := self.line()) != "parcel":
            key, _, number = line.partition(" ")
            if not number.isdigit():
                raise ContainerDied("the keeper did not give what the task left")
            counts[key] = max(int(number), counts.get(key, 0))
        return counts, io.BufferedReader(_Printed(self), 1 << 20)


def _next(ended: queue.Queue[BaseException | None], time_left: Callable[[], float]) -> BaseException | None:
    """What comes in that time, which may grow short meanwhile; queue.Empty."""
    while (left_s := time_left()) > LOOK_S:
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=LOOK_S)
    return ended.get(timeout=max(0.0, left_s))


def _frames(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """(1 for standard output or 2 for standard error, data): how the engine sends both over one connection."""
    while len(header := file.read(8)) == 8:
        kind, size_bytes = struct.unpack(">BxxxL", header)
        yield kind, file.read(size_bytes)


class _Printed(io.RawIOBase):
    """What the keeper prints, as a file."""

    def __init__(self, sandbox: Container) -> None:
        self.sandbox = sandbox

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self.sandbox.buffer:
            self.sandbox._more()
        size = min(len(target), len(self.sandbox.buffer))
        target[:size] = self.sandbox.buffer[:size]
        self.sandbox.buffer = self.sandbox.buffer[size:]
        return size
