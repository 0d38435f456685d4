"""Outputs that the candidate's process left: untrusted files, read where that was never loaded."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from . import protocol

STATUSES = (protocol.OK, protocol.WRONG, protocol.UNSUPPORTED, protocol.CRASHED, protocol.NOT_RUN)  # a candidate's


class Failed(Exception):
    def __init__(self, status: str, message: str, excerpt: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.excerpt = excerpt


def read_output(folder: str, name: str, wanted: int) -> bytes:
    """The bytes of an output, exactly `wanted` of them; Failed, blaming who left it."""
    try:
        with open_plain(folder, name) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(wanted) if size == wanted else b""
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            words = "is a link, or something else that is no plain file: links are not followed"
            raise Failed(protocol.WRONG, f"output {name} {words}") from None
        raise Failed(protocol.CRASHED, f"output {name} cannot be read: {error.strerror}") from None
    if size != wanted or len(data) != wanted:
        raise Failed(protocol.WRONG, f"output {name} has {size} bytes; expected {wanted}")
    return data


def open_plain(folder: str, name: str) -> BinaryIO:
    """Open a regular file below `folder` to read; OSError where any part of the way, `folder` included, is a link.

    What is behind a name cannot change between looking and reading: each step is looked at after it was opened.
    ENXIO stands for what is no file; opening a pipe without a writer does not wait.
    """
    *parts, last = name.split("/")
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        handle = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    return os.fdopen(handle, "rb")
