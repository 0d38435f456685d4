"""One program per emulated source, made on first use and kept for the session; its objects are all workers' own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .emulated import COMPILER, EMULATOR, Emulated, compile_objects, emulated, link


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """build(source, *flags, also=[...]): the path of a program, compiled once for each set of arguments."""
    if COMPILER is None:
        pytest.skip("no g++ on PATH: nothing can be emulated")
    own = tmp_path_factory.mktemp("programs")
    objects = (own.parents[1] if "PYTEST_XDIST_WORKER" in os.environ else own) / "objects"
    objects.mkdir(exist_ok=True)
    base: list[Path] = []
    programs: dict[tuple[Path, ...], Path] = {}

    def built(*sources: Path, flags: tuple[str, ...] = ()) -> Path:
        if not base:
            base.extend(compile_objects(objects, [EMULATOR / f"{name}.cpp" for name in ("emulator", "serve")]))
        key = (*sources, *map(Path, flags))
        if key not in programs:
            parts = [*base, *compile_objects(objects, sources, flags)]
            programs[key] = link(own / f"program{len(programs)}", parts)
        return programs[key]

    return built


@pytest.fixture
def planted(build: Callable[..., Path]) -> Iterator[Emulated]:
    with emulated(build(Path(__file__).parent / "planted.cu")) as kernel:
        yield kernel
