"""The connection between the process that measures and one that computes: orders over a socket, elements in memory
that both have mapped.

Every order has a token that nobody can guess, and its answer repeats it: no answer can be sent before its order came.
Neither side can resize the memory and make the other fault (memfd_create(2), `F_SEAL_SHRINK`).

Standard library and Python 3.8 only: the connection stands before anything slow is imported.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import secrets
import select
import socket
import time

NAME = "orders"  # of the socket, in the folder where both meet
CONNECT_S = 120.0  # for the other side to come
LOOK_MS = 200  # between two looks whether it still can
ENDED = "ended"
MOST_BYTES = 1 << 17  # of a message
TOKEN_BYTES = 8
BUSY_S = 1.0  # at most, of waiting busily
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

# Kinds of orders, each a byte; `host` says what they do. FORGET and METER have no answer.
OPEN, MAP, WAKE, CALL, FORGET, DESCRIBE, OUTBOX, DELIVER, METER, TELL, COPY, COLD, HOT, REPLAY, MEMORY = (
    b"%c" % letter for letter in b"omwcfdbvutykhrp"
)
DONE, FAILED = b"+", b"-"  # kinds of answers


class Closed(Exception):
    """Whoever was at the other end is gone."""


class Unasked(Exception):
    """The other end sent something that is no answer to the last order."""


class Channel:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.is_busy = False  # whether an answer is waited for busily

    def send(self, kind: bytes, token: bytes, payload: bytes = b"", file: int | None = None) -> None:
        """`file`: a descriptor that the other side gets a copy of. Closed."""
        rights = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
        try:
            self.connection.sendmsg([kind + token + payload], rights)
        except OSError:
            raise Closed from None

    def receive(self) -> tuple[bytes, bytes, bytes, int | None]:
        """Return (kind, token, payload, a descriptor that came with it). Closed."""
        try:
            data, rights, _, _ = self.connection.recvmsg(MOST_BYTES, socket.CMSG_SPACE(4))
        except OSError:
            raise Closed from None
        if not data:
            raise Closed
        files = array.array("i")
        for level, kind, content in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(content[: len(content) - len(content) % files.itemsize])
        return data[:1], data[1 : 1 + TOKEN_BYTES], data[1 + TOKEN_BYTES :], files[0] if files else None

    def poll(self, seconds: float) -> None:
        """Wait busily until something has come, for so long at most.

        A processor that slept is slow at first, and a scheduler gives few processors to a process that mostly sleeps.
        """
        looking, deadline = select.poll(), time.monotonic() + seconds
        looking.register(self.connection, select.POLLIN)
        while not looking.poll(0) and time.monotonic() < deadline:
            os.sched_yield()

    def ask(self, kind: bytes, payload: bytes = b"", file: int | None = None) -> tuple[bytes, bytes]:
        """Return (DONE or FAILED, payload) of the answer. Closed, Unasked."""
        token = secrets.token_bytes(TOKEN_BYTES)
        self.send(kind, token, payload, file)
        if self.is_busy:
            self.poll(BUSY_S)
        answer, repeated, content, given = self.receive()
        if given is not None:
            os.close(given)
        if repeated != token or answer not in (DONE, FAILED):
            raise Unasked
        return answer, content

    def tell(self, kind: bytes) -> None:
        """An order without an answer. Closed."""
        self.send(kind, bytes(TOKEN_BYTES))

    def close(self) -> None:
        self.connection.close()


def listen(folder: str) -> socket.socket:
    """Listen where one process may connect. OSError."""
    path = os.path.join(folder, NAME)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path)
    os.chmod(path, 0o666)  # the other process may be another user
    listening.listen(1)
    return listening


def accept(listening: socket.socket) -> Channel:
    """The connection of the first that comes; nobody else can after it. Closed where nobody came in time, or whoever
    started the other process says that it has ended: by a file, `ENDED`, beside the socket."""
    path = listening.getsockname()
    ended, deadline = os.path.join(os.path.dirname(path), ENDED), time.monotonic() + CONNECT_S
    looking = select.poll()
    looking.register(listening, select.POLLIN)
    try:
        while not looking.poll(LOOK_MS):
            if os.path.exists(ended) or time.monotonic() > deadline:
                raise Closed
        connection, _ = listening.accept()
    except OSError:
        raise Closed from None
    finally:
        listening.close()
        with contextlib.suppress(OSError):
            os.unlink(path)
    connection.setblocking(True)
    return Channel(connection)


def connect(folder: str) -> Channel:
    """Wait for whoever listens there. Closed where nobody does in time."""
    deadline = time.monotonic() + CONNECT_S
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            connection.connect(os.path.join(folder, NAME))
            return Channel(connection)
        except OSError:
            if time.monotonic() > deadline:
                raise Closed from None
            time.sleep(0.01)


def pair() -> tuple[Channel, Channel]:
    """Return both ends of a connection, for a process and its child."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(one), Channel(other)


class SharedMemory:
    """Shared memory that is made here; `file` is its descriptor, to be sent."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = max(mmap.PAGESIZE, size_bytes)
        self.file = os.memfd_create("elements", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.file, self.size_bytes)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, SEALS)
        self.map = mmap.mmap(self.file, self.size_bytes)

    def close(self) -> None:
        """Its memory goes with the last array that uses it."""
        os.close(self.file)
