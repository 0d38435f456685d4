"""What determines each record: the one place that says it, and every key is derived from it.

A record's key is the digest of its inputs. `DETERMINES` names them, kind by kind, and `harness.config.key_inputs`
says where the plan has each of them; an input that is a record itself is there by that record's key. A record is
taken again, from this run or from another, where its key is the same, and made again where it is not. What is in no
list changes nothing.

Two things are in no list:

* What only judges: `thresholds`. Where it was edited, the records are reported again, by the new ones.
* What only stops: `limits`. A record that ended before its limits does not depend on them, whether they are raised or
  lowered. One that ended at a limit is never taken from another run, and in its own it is made again, with what follows
  from it, where that limit was raised (`ENDED_AT`, `harness.run.reuse`).

The code that makes a record is an input of it, too: `CODE`. It is as fine as can be told from the sources: a task, with
what it imports of `harness.worker`, and the files that ask it and judge what it says. So is the rule that leaves
throttled samples out. A run of another harness is another run; of its records those are taken whose code is the same.

Keys of truths are made where they are used, in `harness.worker.truth`: no truth outlives the run it was computed for.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.worker import protocol
from harness.worker.tasks import MODULES

RUNS = ("machine", "gpu", "executor", "inherited")  # what every process of a cell depends on, whatever it runs
CASE = ("build", "workload", "problem", "seed", "threads", *RUNS, "code")  # a kernel on a workload
RULE = ("deterministic", "precision", "tolerances")  # by which its outputs are judged

DETERMINES: Mapping[str, tuple[str, ...]] = {
    # Environments, by who makes them. What they hold is observed again each time, and no part of their key.
    "venv": ("id", "wheels_from", "replica", "pins", "interpreter"),
    "image": ("id", "wheels_from", "python", "pins", "base", "recipe"),
    "bundled": ("manifest", "id"),
    "host": ("id", "host_python", "compiler", "nvcc"),
    "host_python": ("path", "version", "torch", "numpy", "wheels"),
    "proof": ("manifest", "id", "folder", "inode", "unpacked_ns", "cpu", "cpu_flags", "gpus", "protocol"),
    # An environment before it is made, for the plan.
    "planned": ("id", "wheels_from", "replica", "python", "pins", "interpreter", "base", "bundle"),
    # What is compiled. -march=native compiles for this very processor, and the compiler sees its system's headers.
    "build": (
        "environment",
        "variables",
        "kernel",
        "device",
        "files",
        "binds",
        "tunables",
        "flags",
        "architectures",
        "libraries",
        "compilers",
        "processor",
        "native_gpu",
        "system",
        "inherited",
        "code",
    ),
    # Of a kernel only its flags for C++, which may change the ABI.
    "binding": (
        "environment",
        "variables",
        "device",
        "binding_files",
        "cxx_flags",
        "compilers",
        "processor",
        "system",
        "inherited",
        "code",
    ),
    "probe": (
        "environment",
        "variables",
        "source",
        "architecture",
        "device",
        "compilers",
        "system",
        "inherited",
        "code",
    ),
    # The inputs of a problem file. They depend on the workload's trials, and on the environment that made them.
    # What does not fit into `output_gib` is not stored. What they are used for depends on what is in them.
    "store": ("environment", "variables", "problem_file", "seed", "trials", "dtype", "threads", "output_gib", "code"),
    "validation": (*CASE, "references", *RULE),
    "crossing": ("validations",),
    # A launch is compared with the others of its block: what determines one of them determines all of a block.
    # `called` are the workloads that its kernel is called on, which validation decides.
    "launch": ("environment", "kernel", "device", "index", "block", "called"),
    # Outputs of a launch that have other bits than were validated are judged by the rule.
    "in_block": (*CASE, "references", *RULE, "timing", "order_seed", "index", "position"),
    "ceiling": ("environment", "variables", "threads", *RUNS, "code"),
    # Experiments. `asked` is what each was asked beside: conditions, trials, the driver's digest.
    "conditions": (*CASE, "precision", "tolerances", "asked"),
    "checkers": (*CASE, "asked"),
    "compiled": (*CASE, "asked"),
    "profile": (*CASE, "asked"),
    "profile_of_reference": (
        "environment",
        "variables",
        "workload",
        "problem",
        "seed",
        "threads",
        *RUNS,
        "code",
        "asked",
    ),
    "swap": ("swapped", "asked", "workload", "seed", "precision", "tolerances", *RUNS, "code"),
    # Runs, and what is made of several. A run depends on what its records depend on, and on what it tells of them.
    "run": (
        "schema",
        "mode",
        "quick",
        "baseline",
        "measured",
        "kernels",
        "workloads",
        "cells",
        "fallbacks",
        "kernelbench",
        "records",
        "most_launches",
        "every_code",
    ),
    "components": ("run", "timed"),
}

# The code that makes a record: the worker's tasks, and files of `harness`, or of the repository beside it.
PROCESSES = (
    "executors/process.py",
    "executors/__init__.py",
    "executors/venv.py",
    "executors/host.py",
    "executors/sandbox.py",
    "executors/docker.py",
    "executors/archive.py",
    "executors/guard.py",
    "executors/bwrap.py",
)
ASKS = ("run/requests.py", "run/context.py", *PROCESSES)
CALLS = ("experiments/executable.py", *ASKS)
CODE: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "build": (("build", "take"), ("run/build.py",)),
    "binding": (("build",), ("run/build.py",)),
    "probe": (("library",), ("experiments/probes.py",)),
    "store": (("store", "batch"), ("run/stores.py", "run/batches.py")),
    "validation": (("candidate", "judge", "batch"), ("run/validate.py", "run/batches.py", *ASKS)),
    "in_block": (
        ("time", "host"),
        ("run/launch.py", "run/processors.py", "run/believed.py", "run/throttling.py", "gpu.py", *ASKS),
    ),
    "ceiling": (("ceilings",), ("run/ceilings.py", *PROCESSES)),
    "conditions": (
        ("conditions", "weigh", "library"),
        (
            "experiments/conditions.py",
            "experiments/jobs.py",
            "experiments/condition_list.py",
            "experiments/shrink.py",
            "experiments/probes.py",
            "csrc/probes/poison.cpp",
            "csrc/probes/poison.cu",
            *ASKS,
        ),
    ),
    "checkers": (("check",), ("experiments/checkers.py", *CALLS)),
    "compiled": (("compiled",), ("experiments/compiled.py", *ASKS)),
    "profile": (("profile",), ("experiments/profile.py", *ASKS)),
    "profile_of_reference": (("profile",), ("experiments/profile.py", *ASKS)),
    "swap": (
        ("link", "candidate", "judge"),
        ("experiments/swap.py", "run/validate.py", *ASKS),
    ),
}

# The limits that a status of a kind's records may mean.
KILLED_AT = ("memory_gib", "processes", "output_gib")
ENDED_AT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    kind: {**({protocol.TIMED_OUT: times} if times else {}), protocol.KILLED: KILLED_AT}
    for kind, times in {
        "build": ("build_s",),
        "validation": ("build_s", "validation_s"),  # its build's status is its own
        "launch": ("launch_s",),
        "ceiling": ("launch_s",),
        "profile": ("launch_s",),
        "compiled": ("launch_s",),
        "conditions": ("build_s", "validation_s"),  # it builds probes
        "swap": ("validation_s",),
        "checkers": (),
    }.items()
}


def of(kind: str, **inputs: Any) -> str:
    """The key of a record of this kind, of all its inputs and no others."""
    names = DETERMINES[kind]
    if set(names) != set(inputs):
        raise TypeError(f"{kind}: its inputs are {', '.join(names)}; got {', '.join(inputs)}")
    return protocol.digest([inputs[name] for name in names])


# -- the harness's own code, as digests -------------------------------------------------------------------------

HARNESS = Path(__file__).parents[1]
ALWAYS = ("__init__", "__main__", "protocol")  # what any task starts with


def code_digests(harness: Path = HARNESS) -> dict[str, str]:
    """Kind of record to the digest of the code that makes it."""
    return {kind: protocol.digest([_named(harness, p) for p in files_of(kind, harness)]) for kind in CODE}


def files_of(kind: str, harness: Path = HARNESS) -> list[Path]:
    tasks, files = CODE[kind]
    modules = [harness / "worker" / f"{name}.py" for name in sorted(imported(tasks, harness / "worker"))]
    return [*modules, *(harness.parent / name if name.startswith("csrc/") else harness / name for name in files)]


def _named(harness: Path, path: Path) -> list[str]:
    return [path.relative_to(harness.parent).as_posix(), protocol.sha256_file(str(path)) if path.exists() else ""]


def imported(tasks: Iterable[str], worker: Path) -> set[str]:
    """The modules of `harness/worker` that these tasks import, at once or later, directly or not.

    They import each other relatively and by name alone, which `tests.unit.test_keys` makes sure of.
    """
    found, left = set[str](), [*ALWAYS, *(MODULES[task] for task in tasks)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += imports_of((worker / f"{name}.py").read_text(encoding="utf-8"))
    return found


@functools.cache
def imports_of(source: str) -> tuple[str, ...]:
    """Sibling modules that a module's text imports, wherever in it that stands."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level == 1]
    return tuple(name for node in nodes for name in ([node.module] if node.module else [a.name for a in node.names]))
