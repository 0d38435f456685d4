"""Damage to one file: what a full disk, a bad memory cell, a crash of the machine or another version leaves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.worker import protocol

RECORDS = (
    "run.json",
    "environments/**/*.json",
    "builds/**/*.json",
    "validations/**/*.json",
    "launches/**/*.json",
    "crossings/**/*.json",
    "experiments/**/*.json",
)
CACHED = ("builds/*/build.json", "builds/*/out/*.so", "environments/*/complete.json", "probes.json", "probes/*/*.json")
PAGES = ("summary.json", "index.html", "summary.md", "timings.csv", "junit.xml")


def truncate(path: Path, draw: random.Random) -> str:
    size = path.stat().st_size
    kept = draw.choice((0, draw.randrange(size) if size else 0))
    with path.open("r+b") as file:
        file.truncate(kept)
    return f"{kept} of {size} bytes are left"


def flip(path: Path, draw: random.Random) -> str:
    """One to three bits, anywhere."""
    data = bytearray(path.read_bytes())
    places = [draw.randrange(len(data) * 8) for _ in range(draw.randint(1, 3))] if data else []
    for place in places:
        data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    return f"bits {sorted(places)} are flipped"


def zero(path: Path, draw: random.Random) -> str:
    """A block of zeros, as after a power cut."""
    data = bytearray(path.read_bytes())
    start = draw.randrange(max(1, len(data)))
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    path.write_bytes(data)
    return f"zeros from byte {start}"


def renew_schema(path: Path, draw: random.Random) -> str:
    """A whole record, as the next version of the harness may write it: its digest is right."""
    value = json.loads(path.read_bytes())
    value["schema_version"] = protocol.SCHEMA_VERSION + 1
    if draw.random() < 0.5 and isinstance(value.get("body"), dict):
        value["body"]["a_key_of_tomorrow"] = 1
        value["digest"] = protocol.digest(value["body"])
    path.write_text(json.dumps(value))
    return f"is of schema {value['schema_version']}"


def delete(path: Path, draw: random.Random) -> str:
    path.unlink()
    return "is deleted"


WAYS: dict[str, Callable[[Path, random.Random], str]] = {
    "truncated": truncate,
    "bits flipped": flip,
    "zeros": zero,
    "newer schema": renew_schema,
    "deleted": delete,
}


def pick(folder: Path, patterns: Sequence[str], draw: random.Random) -> Path | None:
    """A file at random: first of the kinds that are there, so that each is met often, then of its files."""
    kinds = [files for pattern in patterns if (files := sorted(folder.glob(pattern)))]
    return draw.choice(draw.choice(kinds)) if kinds else None
