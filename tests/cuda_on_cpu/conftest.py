"""One program per emulated source, compiled on first use and kept for the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .emulated import COMPILER, EMULATOR, Emulated, compile_objects, emulated, link


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """build(source, *flags, also=[...]): the path of a program, compiled once for each set of arguments."""
    if COMPILER is None:
        pytest.skip("no g++ on PATH: nothing can be emulated")
    folder = tmp_path_factory.mktemp("emulator")
    base: list[Path] = []
    programs: dict[tuple[Path, ...], Path] = {}

    def built(*sources: Path, flags: tuple[str, ...] = ()) -> Path:
        if not base:
            base.extend(compile_objects(folder, [EMULATOR / f"{name}.cpp" for name in ("emulator", "serve")]))
        key = (*sources, *map(Path, flags))
        if key not in programs:
            own = folder / str(len(programs))
            own.mkdir()
            programs[key] = link(own / "program", [*base, *compile_objects(own, sources, flags)])
        return programs[key]

    return built


@pytest.fixture
def planted(build: Callable[..., Path]) -> Iterator[Emulated]:
    with emulated(build(Path(__file__).parent / "planted.cu")) as kernel:
        yield kernel
