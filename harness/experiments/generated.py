"""The generated code of one environment, run in another: Inductor's C++ kernels, where both generated the same set.

Each environment compiles once more, into caches that are kept. Then the graph of each runs with the machine code of
each: every combination, judged as swapped object code is (`harness.experiments.swap`). Results that go with the code
are the compiler's; those that go with the place are of what runs around it.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.experiments.compiled import Sampler
from harness.experiments.swap import Swap, swap_inputs, swap_key
from harness.run.context import Context
from harness.run.folders import now_utc
from harness.schema.compiled_records import CompiledRecord
from harness.schema.experiment_records import SwapRecord, SwapResult
from harness.schema.records import Device, ValidationRecord
from harness.schema.run_records import Cell, RunRecord
from harness.worker import generated, protocol, wire

Place = tuple[str, str, Device]


def moved_subjects(
    run: RunRecord, records: Iterable[CompiledRecord], validations: Iterable[ValidationRecord]
) -> dict[Place, tuple[str, ...]]:
    """Subjects with other outputs than in the baseline, and other generated code: in which environments, the baseline
    first."""
    of = {(r.kernel, r.workload, r.device, r.environment): r.samples[0].generated_sha256 for r in records if r.repeats}
    outputs = {(v.kernel, v.workload, v.device, v.environment): _outputs(v) for v in validations}
    found: dict[Place, tuple[str, ...]] = {}
    for kernel, workload, device in dict.fromkeys(key[:3] for key in of):
        base = (kernel, workload, device, run.baseline)
        others = [(kernel, workload, device, name) for name in run.environments if name != run.baseline]
        moved = [
            key[3]
            for key in others
            if key in of and base in of and of[key] != of[base] and outputs.get(key) != outputs.get(base)
        ]
        if moved:
            found[kernel, workload, device] = (run.baseline, *moved)
    return found


def _outputs(validation: ValidationRecord) -> list[str]:
    """The status, then the digests of the subject's outputs."""
    targets = [target for recipe in validation.recipes for target in recipe.targets]
    own = [each for each in targets if each.target == protocol.KERNEL] or targets
    return [validation.status, *(digest for each in own for digest in each.output_sha256)]


def why_not(kernels: Mapping[str, Sequence[generated.CppKernel]]) -> str:
    """'' where the environments' kernels can stand for each other, else why not. By environment."""
    for environment, own in kernels.items():
        if not own:
            return f"{environment} generated no C++ kernel: what Triton generates is started by code of its own version"
    (first, ours), *others = kernels.items()
    for environment, theirs in others:
        one, two = ([(each.name, each.signature) for each in own] for own in (ours, theirs))
        if one != two:
            apart = next((pair for pair in zip(one, two, strict=False) if pair[0] != pair[1]), (one[-1], two[-1]))
            told = " against ".join(f"{name}({takes})" for name, takes in apart)
            counts = f"{len(one)} and {len(two)} kernels" if len(one) != len(two) else told
            return f"{first} and {environment} generated kernels that cannot stand for each other: {counts}"[:500]
    return ""


def run_generated_swap(context: Context, place: Place, environments: Sequence[str]) -> SwapRecord:
    """Every combination of whose generated code and where; `not_run` with the reason where there is none."""
    kernel, workload, device = place
    info, builds = swap_inputs(context, kernel, workload, device, environments)
    identity: dict[str, Any] = {
        "kernel": kernel,
        "workload": workload,
        "device": device,
        "key": swap_key(context, builds, info),
        "trials": info.trials,
        "started_utc": now_utc(),
    }
    started = time.monotonic()
    folder = context.run.folder / "scratch" / "swap" / f"{kernel}-{device}-{workload}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        reason, caches = _compiled(context, place, environments, folder)
        if reason:
            return SwapRecord(
                **identity, status=protocol.NOT_RUN, message=reason, duration_s=round(time.monotonic() - started, 3)
            )
        file = context.kernel(kernel).model_new
        swap = Swap(context=context, kernel=kernel, workload=info, device=device, folder=folder, judge=environments[0])
        results = []
        for code_from, run_in in itertools.product(environments, repeat=2):
            request = wire.KernelRequest(
                name=kernel,
                device=device,
                model_new=str(context.root / file) if file else None,
                generated=str(caches[code_from]),
            )
            results.append(_whole(swap.run(code_from, request, run_in)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return SwapRecord(**identity, status=protocol.OK, results=results, duration_s=round(time.monotonic() - started, 3))


def _whole(result: SwapResult) -> SwapResult:
    """What did not call all of the generated kernels was not the exchange that was asked for."""
    called, _, rest = result.runtime.partition(" of ")
    if result.status not in protocol.RAN or rest == f"{called} kernels":
        return result
    message = f"its graph called {result.runtime or 'none of the generated kernels'}"
    return SwapResult(code_from=result.code_from, run_in=result.run_in, status=protocol.NOT_RUN, message=message)


def _compiled(context: Context, place: Place, environments: Sequence[str], folder: Path) -> tuple[str, dict[str, Path]]:
    """(why nothing can be exchanged, each environment's caches)."""
    kernel, workload, device = place
    caches = {}
    for environment in environments:
        sampler = Sampler(context, Cell(environment=environment, kernel=kernel, workload=workload, device=device))
        sampler.caches = caches[environment] = folder / f"{environment}.caches"
        if failed := sampler.compile_once():
            return f"{environment}: {failed}", {}
    return why_not({name: generated.cpp_kernels(str(path)) for name, path in caches.items()}), caches
