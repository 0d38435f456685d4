"""Environments that were made for one question, and are removed when it is answered."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

from harness.isolate.choose import Choice
from harness.tools import cache_lock


def remove_environment(choice: Choice, cache: Path, id: str, key: str, since_utc: str) -> bool:
    """Remove an environment if it was made after `since_utc`: an older one was made for something else."""
    since = datetime.datetime.fromisoformat(since_utc).timestamp()
    if not key or choice.bundle is not None:
        return False
    if choice.engine is not None:
        from harness.isolate.docker.images import REPOSITORY

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
