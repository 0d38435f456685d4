"""Every CPU case compiles without a warning; those with a binding of their own in real runs, which have headers."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.config.shipped import CSRC
from tests.fault_cases.cases import HERE, load_cases

COMPILER = shutil.which("g++")
FLAGS = ["-std=c++17", "-O1", "-march=native", "-Wall", "-Wextra", "-Werror", "-pthread", "-c", "-o", "/dev/null"]
VERSIONS = ("2.1", "2.5")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH: the cases' sources cannot be compiled")
def test_every_cpu_case_compiles_for_both_versions(tmp_path: Path) -> None:
    """torch/version.h is all that a case without a binding takes of PyTorch."""
    for version in VERSIONS:
        major, minor = version.split(".")
        header = tmp_path / version / "torch" / "version.h"
        header.parent.mkdir(parents=True)
        header.write_text(f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n")

    def compiled(job: tuple[Path, str]) -> str:
        source, version = job
        include = [f"-I{folder}" for folder in (CSRC, HERE, tmp_path / version)]
        threads = ["-fopenmp"] if "#pragma omp" in source.read_text() else []  # as its own flags say
        command = [str(COMPILER), *FLAGS, *threads, *include, str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        return "" if done.returncode == 0 else f"{source} for {version}: {done.stderr[:2000]}"

    jobs = []
    for case in load_cases().values():
        if case.device != "cpu" or not case.kernel or case.kernel.binding != "shipped":
            continue
        folder = tmp_path / case.name
        for name, text in case.own_files().items():
            source = folder / name
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            if name.endswith(".cpp"):
                jobs += [(source, version) for version in (VERSIONS if "torch/version.h" in text else VERSIONS[:1])]
    assert len(jobs) > 12 and len({version for _, version in jobs}) == 2
    with ThreadPoolExecutor() as pool:
        assert not [error for error in pool.map(compiled, jobs) if error]
