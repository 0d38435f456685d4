"""`counters`: a kernel's C entry point in an executable of its own, once, under Nsight Compute.

The very objects of the build, linked with csrc/probes/attention_call.cpp as for the checkers: no Python and no PyTorch
stands between, so every device function that is counted is the kernel's. What the tool printed goes back as it is.

ncu runs each device function several times, with other counters each time, and restores its memory in between. Caches
are flushed before each, as before a single cold call; clocks stay as they are.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from typing import Any

from . import build, check, protocol, tools, wire

# By their names since Volta, the same on sm_80, sm_89 and sm_90 (`ncu --query-metrics --chips ga100`, ad102, gh100).
METRICS = (
    "gpu__time_duration.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "launch__registers_per_thread",
    "regex:^smsp__average_warps_issue_stalled_.*_per_issue_active",
)
OPTIONS = ("--csv", "--page", "raw", "--print-units", "base", "--cache-control", "all", "--clock-control", "none")
# Where NVIDIA's own packages put it, the newest last.
PACKAGED = "/opt/nvidia/nsight-compute/*/ncu"


def counters(request: wire.CallRequest) -> dict[str, Any]:
    """request: as of `check`, for device cuda."""
    result: dict[str, Any] = {
        "status": protocol.OK,
        "message": "",
        "log_excerpt": "",
        "tool": "",
        "builds": {},
        "run": None,
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            nvcc = check.need_cuda()
            ncu = find_ncu(os.path.dirname(nvcc))
            if ncu is None:
                raise build.NotRun("ncu is missing; it comes with the CUDA toolkit (nsight-compute)")
            result["tool"] = (tools.attempt([ncu, "--version"], request.run_s)[1].strip().splitlines() or [""])[-1]
            program = check.Program(request, folder)
            executable = check.link_cuda(nvcc, request, folder, result["builds"])
            if executable is not None:
                before = [ncu, *OPTIONS, "--metrics", ",".join(METRICS)]
                called = program.run(executable, "", 0, before=before)
                result["run"] = dict(called, build="call", tool="ncu")
        except build.NotRun as error:
            result.update(status=protocol.NOT_RUN, message=str(error))
    return result


def find_ncu(folder: str) -> str | None:
    """ncu beside nvcc, on the PATH, or where NVIDIA's packages put it; None."""
    found = shutil.which("ncu", path=folder) or shutil.which("ncu")
    return found or next(reversed(sorted(glob.glob(PACKAGED))), None)
