"""Installed distributions, by the digest of the RECORD file that lists each one's files."""

from __future__ import annotations

import base64
import concurrent.futures
import csv
import hashlib
import importlib.metadata
import os
import pathlib
import re
import sys
from typing import Iterator

from . import protocol

MAX_DAMAGED = 20
WITHIN = re.compile(r"[/\\](site|dist)-packages[/\\].")
INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def folders() -> list[str]:
    """This environment's own folders of packages: what the base Python brings elsewhere on the path is not its, nor is
    a folder within a package, which may hold copies of others. setuptools puts its own on the path."""
    prefix = os.path.realpath(sys.prefix) + os.sep
    real = dict.fromkeys(os.path.realpath(folder) for folder in sys.path)
    own = [folder for folder in real if folder.startswith(prefix) and os.path.isdir(folder)]
    return [folder for folder in own if not WITHIN.search(folder)]


def distributions() -> Iterator[tuple[importlib.metadata.Distribution, str]]:
    """(metadata, text of RECORD) of those in this environment's own folders."""
    for real in folders():
        for name in sorted(os.listdir(real)):
            if name.endswith(".dist-info"):
                path = pathlib.Path(real, name)
                record = path / "RECORD"
                text = record.read_bytes().decode("utf-8", "replace") if record.exists() else ""
                yield importlib.metadata.Distribution.at(path), text


def normalise(name: str) -> str:
    """A project's name as package indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def record_digest(record: str) -> str:
    """SHA-256 of RECORD's lines, sorted, without those that the installer and the place decide.

    Scripts start with the path of the environment, installers sign with files of their own, and compiled
    files come and go: with them the same wheel would look different in two environments.
    """
    kept = [
        ",".join(row)
        for row in csv.reader(record.splitlines())
        if len(row) >= 2
        and row[1]
        and not row[0].startswith("..")
        and os.path.basename(row[0]) not in INSTALLERS
        and not row[0].endswith(".pyc")
    ]
    return hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()


def installed() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for distribution, record in distributions():
        name = distribution.metadata["Name"]
        if name:
            entry = {"version": distribution.version, "record_sha256": record_digest(record)}
            found.setdefault(normalise(name), entry)
    return dict(sorted(found.items()))


def recorded_files() -> dict[str, set[str]]:
    """The expected digests of every file that a RECORD has a SHA-256 for: one of each wheel that brings the file.

    Not of bytecode, which some wheels bring and installers compile again.
    """
    found: dict[str, set[str]] = {}
    for distribution, record in distributions():
        for row in csv.reader(record.splitlines()):
            if len(row) >= 2 and row[1].startswith("sha256=") and not row[0].endswith(".pyc"):
                path = os.path.normpath(str(distribution.locate_file(row[0])))
                found.setdefault(path, set()).add(row[1][len("sha256=") :])
    return found


def intact(path: str, expected: set[str]) -> bool:
    """Return whether a file is as one of the wheels brought it that bring it: the last one that was installed wrote
    it."""
    try:
        digest = bytes.fromhex(protocol.sha256_file(path))
    except OSError:
        return False
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() in expected


def damaged(threads: int) -> list[str]:
    """Paths, at most 20, of files that are missing or not what the wheel brought."""
    files = list(recorded_files().items())
    with concurrent.futures.ThreadPoolExecutor(max(1, threads)) as pool:
        good = pool.map(lambda pair: intact(*pair), files, chunksize=1)
        bad = sorted(path for (path, _), whole in zip(files, good) if not whole)
    return bad[:MAX_DAMAGED]
