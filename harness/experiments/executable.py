"""The kernel's C entry point, called from an executable of its own: so that tools can look into it."""

from __future__ import annotations

import re
from pathlib import Path

from harness.config import shipped
from harness.executors import Task
from harness.experiments.factors import no_entry_point
from harness.run.build import kernel_files
from harness.run.context import Context
from harness.run.requests import workload_request
from harness.schema.environment_records import BuildRecord
from harness.schema.run_records import Cell
from harness.worker import protocol, wire

DRIVER = "csrc/probes/attention_call.cpp"


def driver_sha256(context: Context) -> str:
    driver = shipped.located(context.root, DRIVER)
    return protocol.sha256_file(str(driver)) if driver.is_file() else ""


def unavailable(context: Context, cell: Cell) -> str:
    """'' where the kernel can be called from an executable, else why not."""
    kernel, built = context.kernel(cell.kernel), context.builds[cell.environment, cell.kernel, cell.device]
    if reason := no_entry_point(kernel):
        return reason
    if context.plan.workload(cell.workload).has_options:
        return "its workload has options or gradients, and the executable calls attention_forward alone"
    if built.status != protocol.OK:
        return f"its build is {built.status.replace('_', ' ')}: {built.message}"
    return ""


def call_request(
    context: Context, cell: Cell, shape: tuple[int, int], recipe: str, trial: int, run_s: float
) -> tuple[wire.CallRequest, tuple[Path, ...]]:
    """What a task needs to call the C entry point from an executable, and the files it reads. `shape`: batch, heads."""
    plan, root = context.plan, context.root
    built = context.builds[cell.environment, cell.kernel, cell.device]
    driver = shipped.located(root, DRIVER)
    sources = [shipped.located(root, name) for name in context.sources[cell.kernel][cell.device]]
    folder = context.build_folder(built, built.key) / "out"
    objects = [folder / name for name in built.own_objects]
    files = kernel_files(root, context.kernel(cell.kernel), context.sources[cell.kernel], cell.device)
    request = wire.CallRequest(
        device=cell.device,
        driver=str(driver),
        sources=list(map(str, sources)),
        objects=list(map(str, objects)),
        include_dirs=[str(folder) for folder in (*shipped.include_folders(root), *(each.parent for each in sources))],
        flags=flags_of(built),
        workload=workload_request(context, plan.workload(cell.workload)),
        batch=shape[0],
        heads=shape[1],
        recipe=recipe,
        trial=trial,
        seed=plan.seed,
        threads=plan.threads_in(cell.environment),
        run_s=run_s,
    )
    return request, (driver, *(shipped.located(root, name) for name in files), *objects)


def call_task(
    context: Context, cell: Cell, name: str, request: wire.CallRequest, reads: tuple[Path, ...], timeout_s: float
) -> Task:
    """A task on what `call_request` gave."""
    about = f"{cell.kernel}-{cell.device}-{cell.workload}"
    return context.task(name, request, cell.environment, about, timeout_s=timeout_s, reads=reads)


def flags_of(built: BuildRecord) -> wire.FlagsRequest:
    """The kernel's own flags and tunables, by compiler, and the language and ABI that PyTorch's helper chose."""
    flags: dict[str, list[str]] = {"cxx": [], "nvcc": [], "ld": []}
    for entry in built.flags:
        kind, _, flag = entry.partition(": ")
        flags[kind].append(flag)
    chosen = dict.fromkeys(re.findall(r"-std=c\+\+\w+|-D_GLIBCXX_USE_CXX11_ABI=\d", built.build_ninja))
    flags["cxx"] = [*(chosen or ["-std=c++17"]), *flags["cxx"]]
    return wire.FlagsRequest(**flags)
