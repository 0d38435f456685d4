"""Environments that were made for one question, and are removed when it is answered."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.executors.choose import Choice
from harness.executors.process import is_orphan, owner
from harness.tools import cache_lock

ENDED = ".ended"
Add = Callable[[str, str], None]  # an environment's id and key


def remove_environment(choice: Choice, cache: Path, id: str, key: str, since_utc: str) -> bool:
    """Remove an environment if it was made after `since_utc`: an older one was made for something else."""
    since = datetime.datetime.fromisoformat(since_utc).timestamp()
    if not key or choice.bundle is not None:
        return False
    if choice.engine is not None:
        from harness.executors.images import REPOSITORY

        tag = f"{REPOSITORY}/{id}:{key[:12]}"
        image = choice.engine.image(tag)
        if image is None or datetime.datetime.fromisoformat(image.created[:19] + "+00:00").timestamp() < since:
            return False
        choice.engine.remove_image(tag)
        return True
    folder = cache / "environments" / f"{id}-{key[:12]}"
    marker = folder / "complete.json"
    if not folder.is_dir() or (marker.exists() and marker.stat().st_mtime < since):
        return False
    with cache_lock(cache, folder.name):
        marker.unlink(missing_ok=True)  # first: half an environment must not pass for a whole one
        shutil.rmtree(folder)
    return True


@contextmanager
def shared_environments(choice: Choice, cache: Path, since_utc: str) -> Iterator[Add]:
    """Environments that other processes may need at the same time: the last one that ends removes all that were added,
    those of processes that were killed too."""
    folder = cache / "exchanged"
    own = folder / owner()
    made: dict[str, str] = {}

    def write() -> None:
        own.write_text(json.dumps({"since": since_utc, "made": made}))

    def add(id: str, key: str) -> None:
        with cache_lock(cache, folder.name):
            made[id] = key
            write()

    with cache_lock(cache, folder.name):
        folder.mkdir(parents=True, exist_ok=True)
        write()
    try:
        yield add
    finally:
        with cache_lock(cache, folder.name):
            own.replace(own.with_name(f"{own.name}{ENDED}"))
            users = list(folder.iterdir())
            if all(path.name.endswith(ENDED) or is_orphan(path.name) for path in users):
                for path in users:
                    left = json.loads(path.read_text())
                    for id, key in left["made"].items():
                        remove_environment(choice, cache, id, key, left["since"])
                    path.unlink()
