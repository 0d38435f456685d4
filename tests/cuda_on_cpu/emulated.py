"""Kernels compiled for the emulator, once per source and session, and what they compute held against float64."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from filelock import FileLock

from harness.worker import rounding
from tests import numpy_attention
from tests.unit.test_csrc import BF16, FP16, FP32, decode, encode, truth

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
EMULATOR = Path(__file__).parent / "emulator"
INCLUDE_FLAGS = [f"-I{folder}" for folder in (EMULATOR, EMULATOR.parent, CSRC)]
COMPILER = shutil.which("g++")
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *("-fsanitize-sections=emulated_shared", "-ftrivial-auto-var-init=pattern"),
    *("-Wall", "-Werror", "-Wno-unknown-pragmas", *INCLUDE_FLAGS),
)
# How the linker finds a source's own `extern __shared__` array: it lies where all dynamic shared memory does.
SHARED = "_ZN16attention_scalar6sharedE"
DTYPES = {FP16: "float16", BF16: "bfloat16", FP32: "float32"}
# Errors, in units of what correct rounding costs on the same input: harness/worker/rounding.py.
MOST_UNITS = 4.0


def compile_object(folder: Path, source: Path, flags: Sequence[str] = ()) -> Path:
    """Compiled once for its flags, whichever process of the tests asks first."""
    assert COMPILER is not None
    told = hashlib.sha256(" ".join([str(source), *flags]).encode()).hexdigest()[:12]
    target = folder / f"{source.stem}-{told}.o"
    with FileLock(f"{target}.lock"):
        if not target.exists():
            command = [COMPILER, *FLAGS, *flags, "-x", "c++", "-c", str(source), "-o", str(target)]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0, done.stderr[:4000]
    return target


def compile_objects(folder: Path, sources: Sequence[Path], flags: Sequence[str] = ()) -> list[Path]:
    with ThreadPoolExecutor(len(sources)) as pool:
        return list(pool.map(lambda source: compile_object(folder, source, flags), sources))


def link(program: Path, objects: Sequence[Path]) -> Path:
    assert COMPILER is not None
    command = [COMPILER, "-fsanitize=address,undefined", *map(str, objects), "-o", str(program)]
    done = subprocess.run([*command, f"-Wl,--defsym={SHARED}=emulated_shared_memory"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return program


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    batch: int = 1
    heads: int = 1
    seq_len: int = 64
    head_dim: int = 64
    dtype: int = FP16
    causal: bool = False
    scale: float = 0.125

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.seq_len, self.head_dim


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    major: int = 9
    minor: int = 0
    multiprocessors: int = 132


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    code: int
    launches: int
    blocks: int
    bank_conflicts: int
    choice: str
    output: np.ndarray  # as stored


class Faulted(AssertionError):
    """The emulator or a sanitizer found a fault; the message is what it said."""


class Emulated:
    """An emulated kernel, as a process that answers problems until it finds a fault."""

    def __init__(self, program: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=program.parent))
        self.errors = (self.folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.tunables = self._line()

    def __call__(
        self, problem: Problem, inputs: Sequence[np.ndarray], schedule: int = 0, device: Device | None = None
    ) -> Answer:
        paths = self.folder / "inputs", self.folder / "output"
        paths[0].write_bytes(b"".join(tensor.tobytes() for tensor in inputs))
        device = device or Device()
        words = [*problem.shape, problem.dtype, int(problem.causal), problem.scale, schedule]
        words += [device.major, device.minor, device.multiprocessors, *paths]
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(*words, file=self.process.stdin, flush=True)
        code, launches, blocks, conflicts, choice = self._line().split(maxsplit=4)
        output = np.frombuffer(paths[1].read_bytes(), inputs[0].dtype).reshape(problem.shape)
        return Answer(
            code=int(code),
            launches=int(launches),
            blocks=int(blocks),
            bank_conflicts=int(conflicts),
            choice=choice,
            output=output,
        )

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise Faulted(f"exit status {self.process.returncode}: {self.errors.read()[:4000]}")
        return line.strip()

    def close(self) -> None:
        """Leaks are reported at the end, and count."""
        self.process.communicate()
        self.errors.seek(0)
        assert self.process.returncode in (0, None), self.errors.read()[:4000]


@contextlib.contextmanager
def emulated(program: Path) -> Iterator[Emulated]:
    kernel = Emulated(program)
    try:
        yield kernel
    finally:
        kernel.process.kill()
        kernel.process.wait()
        kernel.errors.close()


def make_inputs(problem: Problem, seed: int, spread: float = 1.0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [encode(spread * generator.standard_normal(problem.shape), problem.dtype) for _ in range(3)]


def right(
    kernel: Emulated,
    problem: Problem,
    seed: int = 0,
    schedule: int = 1,
    device: Device | None = None,
    inputs: Sequence[np.ndarray] | None = None,
) -> Answer:
    """What the kernel answers on these inputs, or on drawn ones, which is right."""
    inputs = inputs or make_inputs(problem, seed)
    answer = kernel(problem, inputs, schedule, device)
    assert answer.code == 0 and units(problem, inputs, answer.output) <= MOST_UNITS, (problem, device)
    return answer


def fault_shows(kernel: Emulated, problem: Problem, device: Device | None = None, *, conflicts: bool = False) -> bool:
    """Whether by one of six schedules it ends in a fault, is wrong or, where they count, has bank conflicts."""
    inputs = make_inputs(problem, 0)
    for schedule in range(6):
        try:
            answer = kernel(problem, inputs, schedule, device)
        except Faulted:
            return True
        if (conflicts and answer.bank_conflicts) or not units(problem, inputs, answer.output) <= MOST_UNITS:
            return True
    return False


def units(problem: Problem, inputs: Sequence[np.ndarray], output: np.ndarray) -> float:
    """The largest error of a head in units of the error scale, of any norm; infinite where it is not finite."""
    name = DTYPES[problem.dtype]
    q, k, v = (decode(tensor, problem.dtype).reshape(-1, *problem.shape[2:]) for tensor in inputs)
    exact = truth(list(inputs), problem.dtype, problem.causal, problem.scale).reshape(q.shape)
    got = decode(output, problem.dtype).reshape(q.shape)
    if not np.isfinite(got).all():
        return np.inf
    worst = 0.0
    for head in range(len(q)):
        tensors = (tensor[head] for tensor in (q, k, v))
        emulated = numpy_attention.emulated(*tensors, problem.causal, problem.scale, name)
        ruler = rounding.Ruler(exact[head], name)
        error_scale = rounding.ErrorScale(*rounding.measure([emulated], ruler), ruler)
        worst = max(worst, *error_scale.units(ruler.norms(got[head])).values())
    return worst
