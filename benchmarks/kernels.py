"""Variants of the attention kernels on this machine's GPU: built, checked, then timed against PyTorch's own.

    python benchmarks/kernels.py --out kernels.json wgmma wgmma:BLOCK_N_128=176 wgmma:PINGPONG=0

A variant is a family (`FAMILIES`), or sources joined by +, then its tunables as matrix.yaml spells them. One that is
wrong anywhere, or gives other bits the second time, is reported and not timed. What is compared is timed in turn, in
an order drawn anew each round, so that a change of clocks meets all of them.

hot: replays of a CUDA graph of several calls on the same tensors; cold: single calls by the device's clock, each after
256 MiB were written, which leaves nothing of the tensors in the L2 cache. The reference is the fastest SDPA backend of
this PyTorch; "nothing" is a kernel that does nothing: what a launch alone takes. Needs PyTorch, NumPy and nvcc.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.attention_calls import (  # noqa: E402
    BACKENDS,
    CHECKED,
    TIMED,
    Library,
    Workload,
    check,
    make_inputs,
    measure,
    reference,
)
from harness.worker import tools  # noqa: E402

FAMILIES = {
    "scalar": ["csrc/attention_scalar.cu"],
    "mma": ["csrc/attention_mma.cu"],
    "wgmma": ["csrc/attention_wgmma.cu", "csrc/attention_mma.cu"],
    "cublas": ["csrc/attention_cublas.cu"],
    "auto": ["csrc/attention.cu", "csrc/attention_wgmma.cu", "csrc/attention_mma.cu"],
}
CHECK_TIMEOUT_S = 60


@dataclasses.dataclass(frozen=True)
class Variant:
    sources: tuple[str, ...]
    defines: tuple[tuple[str, str], ...]
    name: str


def parse_variant(text: str) -> Variant:
    """`wgmma:BLOCK_N_128=176,PINGPONG=0`. ValueError says what is wrong."""
    family, _, rest = text.partition(":")
    sources = FAMILIES.get(family) or family.split("+")
    missing = [source for source in sources if not (ROOT / source).is_file()]
    if missing:
        raise ValueError(
            f"{text}: no file {missing[0]}; a variant starts with one of {', '.join(FAMILIES)}, or sources"
        )
    pairs = [item.partition("=")[::2] for item in rest.split(",") if item]
    for name, value in pairs:
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name) or not re.fullmatch(r"\w+", value):
            raise ValueError(f"{text}: a tunable is NAME=value, as in BLOCK_N_128=176")
    return Variant(tuple(sources), tuple(pairs), text)


def parse_workload(text: str) -> Workload:
    """`1x8x2048x128`: batch, heads, seq_len and head_dim; behind it `,causal` and `,bfloat16`. ValueError as above."""
    shape, *words = text.split(",")
    sizes = [int(size) for size in shape.split("x") if size.isdigit()]
    if len(sizes) != 4 or shape.count("x") != 3 or not {"causal", "bfloat16"}.issuperset(words):
        raise ValueError(f"{text}: a workload is BATCHxHEADSxSEQ_LENxHEAD_DIM, as in 1x8x2048x128,causal")
    return Workload(text, *sizes, causal="causal" in words, dtype="bfloat16" if "bfloat16" in words else "float16")


def define_flags(defines: Iterable[tuple[str, str]]) -> list[str]:
    """As the harness passes them: a number as it is, a word as a switch of its own."""
    return [f"-D{n}={v}" if re.fullmatch(r"-?\d+", v) else f"-D{n}_{v.upper()}=1" for n, v in defines]


def build_command(variant: Variant, architecture: str, target: Path) -> list[str]:
    return [
        *("nvcc", "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v", "-I", str(ROOT / "csrc")),
        f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
        *define_flags(variant.defines),
        *(str(ROOT / source) for source in variant.sources),
        *(cublas_flags() if "cublas" in "".join(variant.sources) else []),
        *("-o", str(target)),
    ]


def cublas_flags() -> list[str]:
    """As the harness links it: PyTorch's own copy, which is loaded with it, where that is a wheel's."""
    found, nvcc = importlib.util.find_spec("torch"), shutil.which("nvcc")
    packages = str(Path(found.origin).parent.parent) if found and found.origin else ""
    home = os.environ.get("CUDA_HOME") or (str(Path(nvcc).resolve().parent.parent) if nvcc else "")
    try:
        includes, links = tools.find_cuda_libraries(["cublas"], packages, home)
    except LookupError:
        return ["-lcublas"]
    return [*(f"-I{folder}" for folder in includes), *links]


def build(variant: Variant, architecture: str, target: Path) -> dict[str, Any]:
    """What the compiler said that matters: whether it built, what spilled, and which products it serialised."""
    done = subprocess.run(build_command(variant, architecture, target), capture_output=True, text=True)
    log = done.stdout + done.stderr
    spills = sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", log))
    errors = [line for line in log.splitlines() if "error" in line]
    return {
        "built": done.returncode == 0,
        "spilled_bytes": spills,
        "serialised": len(re.findall(r"C75\d\d", log)),
        "error": (errors or log.splitlines() or ["nvcc failed"])[0] if done.returncode else "",
    }


def render(workload: Workload, rows: dict[str, dict[str, Any]]) -> str:
    """A table, fastest first; the ratio is to the fastest SDPA backend, below 1 where a kernel wins."""
    best = {
        kind: min((row[kind] for name, row in rows.items() if name.startswith("sdpa ")), default=math.nan)
        for kind in ("hot_us", "cold_us")
    }
    lines = [f"{workload.name}: {dataclasses.astuple(workload)[1:]}"]
    for name, row in sorted(rows.items(), key=lambda item: item[1]["hot_us"]):
        hot, cold = row["hot_us"], row["cold_us"]
        lines.append(
            f"  {hot:9.1f} us {workload.flop / hot / 1e6:6.0f} TFLOP/s  x{hot / best['hot_us']:5.2f}"
            f"   cold {cold:9.1f} us  x{cold / best['cold_us']:5.2f}   {name}"
        )
    return "\n".join(lines)


def load_all(paths: dict[str, Path], built: dict[str, dict[str, Any]]) -> dict[str, Library]:
    """Those that can be loaded here; `built` has the tunables of each, or why it cannot be."""
    libraries = {}
    for name, path in paths.items():
        try:
            libraries[name] = Library(path)
            built[name]["tunables"] = libraries[name].tunables
        except OSError as error:
            built[name]["wrong"] = f"cannot be loaded: {error}"
            print(f"{name}: {built[name]['wrong']}")
    return libraries


def bench(libraries: dict[str, Library], workload: Workload, rounds: int) -> dict[str, dict[str, Any]]:
    import torch

    inputs = make_inputs(workload, 1)
    calls: dict[str, Callable[[], Any]] = {}
    for name, library in libraries.items():
        calls[name] = library.caller(workload, *inputs, torch.empty_like(inputs[0]))
    for backend in BACKENDS:
        call = reference(backend, workload, inputs)
        try:
            call()
        except RuntimeError as error:
            print(f"  sdpa {backend}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        calls[f"sdpa {backend.split('_')[0].lower()}"] = call
    calls["nothing"] = lambda: torch.cuda._sleep(0)
    samples = measure(calls, rounds)
    return {
        name: {
            **{f"{kind}_us": statistics.median(values) for kind, values in kinds.items()},
            "samples_us": kinds,
            "choice": libraries[name].choice(workload) if name in libraries else "",
        }
        for name, kinds in samples.items()
    }


def check_apart(path: Path, workloads: Iterable[Workload] = ()) -> str:
    """`check` of everything in a process of its own: one that hangs or faults takes no other with it."""
    more = [word for workload in workloads for word in ("--workload", workload.name)]
    command = [sys.executable, __file__, "--check", str(path), *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {CHECK_TIMEOUT_S} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", type=parse_variant)
    parser.add_argument("--out", type=Path, default=Path("kernels.json"), help="all samples, as JSON")
    parser.add_argument("--architecture", default="90a", help="as nvcc writes it, without sm_")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="workloads whose names contain this are timed")
    parser.add_argument(
        "--workload", action="append", type=parse_workload, default=[], help="timed instead of the usual ones"
    )
    parser.add_argument("--build-only", action="store_true", help="needs no GPU")
    parser.add_argument(
        "--libraries", type=Path, default=None, help="keep built libraries in this folder, and use them"
    )
    parser.add_argument("--check", type=Path, help=argparse.SUPPRESS)  # what `check_apart` starts
    arguments = parser.parse_args()
    if arguments.check:
        library = Library(arguments.check)
        asked = (*CHECKED, *TIMED, *arguments.workload)
        print(next(filter(None, (check(library, workload) for workload in asked)), ""))
        return 0
    if not arguments.variants:
        parser.error("name a variant, such as wgmma")
    folder = arguments.libraries or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    paths = {variant.name: folder / (re.sub(r"\W", "_", variant.name) + ".so") for variant in arguments.variants}

    def make(variant: Variant) -> dict[str, Any]:
        if paths[variant.name].exists():
            return {"built": True, "kept": True}
        return build(variant, arguments.architecture, paths[variant.name])

    def verdict(name: str) -> str:
        return check_apart(paths[name], arguments.workload)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = dict(zip(paths, pool.map(make, arguments.variants), strict=True))
    result: dict[str, Any] = {"variants": built, "workloads": {}}
    for name, report in built.items():
        print(name, report)
    libraries = load_all({name: paths[name] for name in paths if built[name]["built"]}, built)
    if not arguments.build_only:
        import torch

        result["torch"], result["device"] = torch.__version__, torch.cuda.get_device_name()
        with ThreadPoolExecutor(4) as pool:
            verdicts = dict(zip(libraries, pool.map(verdict, libraries), strict=True))
        for name, wrong in verdicts.items():
            built[name]["wrong"] = wrong
            print(f"{name}: {wrong or 'right'}", flush=True)
        right = {name: library for name, library in libraries.items() if not verdicts[name]}
        for workload in arguments.workload or TIMED:
            if arguments.only in workload.name:
                result["workloads"][workload.name] = rows = bench(right, workload, arguments.rounds)
                print(render(workload, rows), flush=True)
                arguments.out.write_text(json.dumps(result, indent=1))  # what faults later takes nothing with it
    arguments.out.write_text(json.dumps(result, indent=1))
    return 0 if all(report["built"] and not report.get("wrong") for report in built.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
