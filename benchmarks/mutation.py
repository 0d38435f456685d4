"""Measure how many small mistakes the unit tests find: a mutation score of five areas.

    python -m benchmarks.mutation --out benchmarks/mutation_before.json [--tree FOLDER] [--area NAME ...]

A mutant is the committed code with one small mistake. A fixed seed draws the same number of mutants in each area from
all that the seven operators below could make. A mutant is killed if a test fails, or if it uses too much time; a
mutant that computes the same as the original counts as a survivor. Run it with the interpreter of the unit tests.

The tests of a mutant are the ten files nearest to its module: of those that import it, directly or through up to two
other modules. They run, the nearest first, until their processor time reaches `--budget`. Before any mutant they run
on code without a mistake and with a line added: a test that fails then is left out. Processor time does not depend on
other work. A run that was stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401  # this and the next: imported once here, and by no fork
import numpy as np  # noqa: F401
import pydantic  # noqa: F401
import pytest
import scipy.stats  # noqa: F401

from benchmarks.mutants import AREAS, draw, mutated

# Judging needs PyTorch, which the unit tests' interpreter lacks: these start the pinned interpreters.
BESIDE = {"judging": ["tests/environments/test_worker_problems.py", "tests/environments/test_worker_operators.py"]}
FAR, MOST = 3, 10  # imports between a test and the code that it tests, and such test files, at most
LIMIT_CPU_S, LIMIT_S = 200, 2400
NOTHING_RAN = 5  # an exit code of pytest
UNTESTED = {"code": NOTHING_RAN, "failed": []}


def imported(module: str, path: Path, known: set[str]) -> set[str]:
    """Return the project's modules that a file imports, anywhere in it."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found & known - {module}


def tests_by_distance(tree: Path) -> dict[str, list[tuple[int, str]]]:
    """Return, for each file, the unit test files that import it and the number of imports between them, at most FAR."""
    paths = {path.relative_to(tree) for top in ("harness", "reports", "tests") for path in (tree / top).rglob("*.py")}
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in sorted(paths)}
    graph = {module: imported(module, tree / path, set(modules)) for module, path in modules.items()}
    found: dict[str, list[tuple[int, str]]] = {}
    for module, path in modules.items():
        distances, queue = {module: 0}, [module] if path.match("tests/unit/test_*.py") else []
        for at in queue:
            for after in sorted(graph[at] - distances.keys()):
                distances[after] = distances[at] + 1
                queue += [after] if distances[after] < FAR else []
                found.setdefault(str(modules[after]), []).append((distances[after], str(path)))
    return {
        file: sorted(tests, key=lambda test: (test[0], (tree / test[1]).stat().st_size))
        for file, tests in found.items()
    }


class Outcomes:
    """A plugin of pytest: which tests failed, and the processor time of each file."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = os.times()
        yield
        spent = sum(os.times()[:4]) - sum(before[:4])
        self.seconds[item.nodeid.partition("::")[0]] = self.seconds.get(item.nodeid.partition("::")[0], 0.0) + spent

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def run_tests(tree: Path, options: Sequence[str]) -> dict[str, Any] | None:
    """Run pytest in a fork, in `tree`; {code, failed, seconds}, or None where it took too long or died."""
    result = tree / ".mutation.json"
    result.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(tree)
        sys.path[0] = str(tree)
        for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
            del sys.modules[name]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_CPU_S, LIMIT_CPU_S + 5))
        outcomes = Outcomes()
        code = pytest.main(["-q", "-p", "no:cacheprovider", *options], plugins=[outcomes])
        result.write_text(json.dumps({"code": int(code), "failed": outcomes.failed, "seconds": outcomes.seconds}))
        os._exit(0)
    end = time.monotonic() + LIMIT_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.1)
    return json.loads(result.read_text()) if result.is_file() else None


def write(tree: Path, file: str, text: str) -> None:
    """Write a module, and forget what Python has compiled of it: its time and size may be the same."""
    (tree / file).write_text(text)
    for compiled in (tree / file).parent.glob(f"__pycache__/{Path(file).stem}.*.pyc"):
        compiled.unlink()


def prove(tree: Path, files: set[str], tests: Sequence[str]) -> tuple[list[str], dict[str, float]]:
    """Run tests on files with a line more and no mistake; (tests that fail, processor time of each test file)."""
    texts = {file: (tree / file).read_text() for file in sorted(files)}
    for file, text in texts.items():
        write(tree, file, text + "\n_UNUSED = None\n")
    done = run_tests(tree, tests)
    for file, text in texts.items():
        write(tree, file, text)
    assert done is not None and done["code"] in (0, 1), f"{tests}: pytest did not end"
    return done["failed"], done["seconds"]


def choose_tests(near: Sequence[tuple[int, str]], seconds: dict[str, float], budget: float) -> list[str]:
    """Return the nearest test files, of those as near the quickest, until their processor time reaches the budget."""
    chosen: list[str] = []
    for _, _, test in sorted((distance, seconds.get(test, 0.0), test) for distance, test in near):
        if sum(seconds.get(one, 0.0) for one in chosen) < budget:
            chosen.append(test)
    return chosen


def score(mutants: Sequence[dict[str, Any]], sizes: dict[str, Any]) -> dict[str, Any]:
    """Return each area's counts, and the share of its mutants that was killed."""
    areas = {}
    for area in sorted({mutant["area"] for mutant in mutants}):
        killed = [mutant["killed"] for mutant in mutants if mutant["area"] == area]
        areas[area] = {**sizes[area], "mutants": len(killed), "killed": sum(killed)}
        areas[area]["score"] = round(sum(killed) / len(killed), 3)
    return areas


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--tree", type=Path, default=Path(), help="the repository; its commit is measured in a copy")
    add("--out", type=Path, required=True, help="the results; those of the same commit stay")
    add("--area", nargs="+", choices=AREAS, default=list(AREAS))
    add("--count", type=int, default=30, help="of mutants, in each area")
    add("--budget", type=float, default=6.0, help="processor time of a mutant's tests, in seconds")
    add("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder).resolve()
        subprocess.run(
            ["git", "clone", "-q", "-c", "advice.detachedHead=false", "--shared", str(given.tree.resolve()), str(tree)],
            check=True,
        )
        commit = subprocess.check_output(["git", "-C", str(tree), "rev-parse", "HEAD"], text=True).strip()
        settings = {"commit": commit, "seed": given.seed, "count": given.count, "budget_cpu_s": given.budget}
        result = json.loads(given.out.read_text()) if given.out.exists() else {}
        if {key: result.get(key) for key in settings} != settings:
            result = {**settings, "areas": {}, "left_out": [], "test_cpu_s": {}, "mutants": []}
        mutants, sizes = draw(tree, given.area, given.count, given.seed)
        nearest = tests_by_distance(tree)
        near = {mutant.file: nearest.get(mutant.file, [])[:MOST] for mutant in mutants}
        for mutant in mutants:
            beside = BESIDE.get(mutant.area, [])
            near[mutant.file] = [
                *(test for test in near[mutant.file] if test[1] not in beside),
                *((FAR, test) for test in beside),
            ]
        unproven = sorted({test for tests in near.values() for _, test in tests} - result["test_cpu_s"].keys())
        for start in range(0, len(unproven), 12):
            failed, seconds = prove(tree, set(near), unproven[start : start + 12])
            result["left_out"] += failed
            result["test_cpu_s"] |= {test: round(seconds.get(test, 0.0), 1) for test in unproven[start : start + 12]}
            given.out.write_text(json.dumps(result, indent=1) + "\n")
            print(f"tests proven: {min(start + 12, len(unproven))} of {len(unproven)} files", flush=True)
        known = {tuple(one[key] for key in asdict(mutants[0])) for one in result["mutants"]}
        for mutant in mutants:
            if tuple(asdict(mutant).values()) in known:
                continue
            tests = choose_tests(near[mutant.file], result["test_cpu_s"], given.budget)
            text = (tree / mutant.file).read_text()
            write(tree, mutant.file, mutated(text, mutant))
            done = (
                run_tests(tree, ["-x", *(f"--deselect={name}" for name in result["left_out"]), *tests])
                if tests
                else UNTESTED
            )
            write(tree, mutant.file, text)
            failed = done["failed"][:1] if done else ["too long"]
            killed = done is None or done["code"] not in (0, NOTHING_RAN)
            result["mutants"].append({**asdict(mutant), "tests": len(tests), "killed": killed, "by": failed})
            result["areas"] = score(result["mutants"], sizes)
            given.out.write_text(json.dumps(result, indent=1) + "\n")
            print(f"{mutant.file}:{mutant.line} {mutant.operator}: {failed or 'survived'}", flush=True)
    print(json.dumps(result["areas"], indent=1))


if __name__ == "__main__":
    main()
