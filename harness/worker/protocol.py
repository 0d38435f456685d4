"""What the harness and the pinned environments say to each other.

The harness starts ``python -m worker TASK REQUEST RESULT`` with the interpreter of a pinned environment:
REQUEST is a JSON file that it wrote, RESULT a JSON file that the task writes, atomically, as its last act.
A missing RESULT means that the process died; its exit status and its log say how. `wire` has their types.

Both sides import it: standard library and Python 3.8 only. It is the only home of the schema version.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import os
import stat
import tempfile
from typing import Any, Final, Literal

SCHEMA_VERSION = 1
MOST_RESULT_BYTES = 32 << 20
MOST_LEVELS = 64  # lists within lists

Status = Literal[
    "ok", "wrong", "undecidable", "unsupported", "build_failed", "crashed", "timed_out", "killed", "broken", "not_run"
]

# Statuses of anything that was attempted; every failure is one of these, with a message.
OK: Final = "ok"
WRONG: Final = "wrong"  # it ran, and its output is not correct
UNDECIDABLE: Final = "undecidable"  # it passes, and so would an answer that is known to be wrong
UNSUPPORTED: Final = "unsupported"  # PyTorch or the kernel refused the problem, and said why
BUILD_FAILED: Final = "build_failed"
CRASHED: Final = "crashed"  # the process died by a signal, or raised
TIMED_OUT: Final = "timed_out"
KILLED: Final = "killed"  # at a limit other than time: memory, processes, output
BROKEN: Final = "broken"  # the environment is not the one that was asked for, or could not be made
NOT_RUN: Final = "not_run"  # something before it failed, or the machine lacks what it needs


class Fault(str, enum.Enum):
    """Who failed, of what did not end well."""

    SUBJECT = "subject"  # the code under test
    TOOL = "tool"  # kernel-matrix
    ENVIRONMENT = "environment"  # it does not hold what it should
    LIMIT = "limit"  # of memory, processes, files or rights, which kernel-matrix sets


class FailureKind(str, enum.Enum):
    """How the code under test failed, where its status does not say it."""

    OTHER = "other"
    MISSING_OPERATOR = "missing_operator"  # this PyTorch has no operator of that name
    OTHER_TYPE = "other_type"  # what it returned has another type, shape or device than was asked for
    SIGNAL = "signal"  # a signal ended its process, at no limit of kernel-matrix's
    CUDA_ERROR = "cuda_error"
    OTHER_BITS = "other_bits"  # its output is not, bit for bit, the one that was validated


RAN = (OK, WRONG, UNDECIDABLE)  # it ran to its end, and what it gave was looked at

DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}

RECIPES = ("independent", "shared_qkv", "large_logits")
# Of the experiments alone: validation's own never grow.
EXTRA_RECIPES = ("dominant_tail", "steep_logits", "offset_logits", "flat_logits", "constant_v", "zero_q")
# Said of a result that fails, where plain arithmetic in the dtype loses numbers on its way.
LEAVES_RANGE = "plain arithmetic in this dtype overflows or underflows in an intermediate step"
# `independent` times a power of two, which every floating-point operation but an overflow takes along exactly.
SCALED_RECIPES = {"halved_4": 4, "halved_8": 8}  # recipe to how many times every floating input is halved
MESSAGE_CHARACTERS = 500  # of a message that a stranger has a say in
OTHER_BITS = "its output is not the validated one"
LEFT_RUNNING = "it left processes running when its call had returned ({}), and they were ended"
GONE = "its process ended"  # the message of a target whose process did
LOADING, CONSTRUCTING = "loading ", "constructing ModelNew"  # begin the message of a kernel that fails then
MAKING = "making the inputs of "  # begins that of a problem file that fails
UNPACKED = "site"  # the folder of an unpacked wheel, beside it
COMPILED = ".compiled"  # ends the name of an operator that is compiled
THREADS = "OMP_NUM_THREADS"  # the variable that says how many threads an environment computes with
KERNEL = "kernel"  # the target's name of the code under test
MODEL = "model"  # the reference of a problem file: its own ``Model``
CONTROL = "control:"  # begins the target's name of a reference that is timed in the kernel's process, before the kernel
BACKWARD = ".backward"  # ends the name of a workload with gradients; of a target: its backward pass by itself


class DifferenceKind(str, enum.Enum):
    """How two float64 results of one computation differ (`meaning.float64_difference`)."""

    SHAPE = "shape"
    NONFINITE = "nonfinite"  # NaN or an infinity stands where the other has something else
    VALUE = "value"


TRUTH = "truth"  # the stored float64 result of the output that stands for all
GRADIENT = "grad of "  # begins the name of an output that is a gradient
WRITTEN = "written to "  # begins the name of an output that a model leaves in one of its inputs
OF_OUTPUT = "truth of "  # begins the name of that of another output
RULES = ("rounding", "kernelbench", "strict")
# Where Inductor and Triton keep what they compiled at run time: variable to a folder's name.
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def forward_of(workload: str) -> str:
    """The id of the workload without gradients that stands beside this one: seed-fp16 of seed.backward-fp16."""
    name, _, dtype = workload.rpartition("-")
    return f"{name[: -len(BACKWARD)]}-{dtype}" if name.endswith(BACKWARD) else workload


def set_caches(folder: str) -> None:
    """From now on this process, and what it starts, finds there what was compiled at run time, and nothing elsewhere.
    Both read their variable when they compile."""
    for variable, name in CACHES.items():
        os.environ[variable] = os.path.join(folder, name)


def digest(value: Any) -> str:
    """SHA-256, in hex, of a JSON value, with sorted keys and no spaces; ValueError where it holds NaN or infinity."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_file(path: str) -> str:
    """SHA-256, in hex, of a file's bytes."""
    state = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            state.update(block)
    return state.hexdigest()


def write_atomically(path: str, *data: bytes | memoryview, sync: bool = True) -> None:
    """Write bytes so that a reader, or a crash, sees the old file or the new one, never a part. Without `sync` a crash
    of the machine may leave a part."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.getpid()}-", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            for part in data:
                file.write(part)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = path  # a write that fails names no file
        raise


def write_json(path: str, value: Any) -> None:
    """Write a JSON value atomically. ValueError where it holds NaN or infinity."""
    write_atomically(path, json.dumps(value, indent=1, allow_nan=False).encode() + b"\n")


def read_json(path: str) -> Any:
    with open(path, "rb") as file:
        return json.load(file)


def read_result(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Read what a task wrote; None where there is nothing that can be read. The code under test may have written it."""
    try:
        status = os.lstat(path)  # neither a link nor a pipe is opened
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_RESULT_BYTES:
            return None
        value = read_json(os.fspath(path))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _is_sound(value, MOST_LEVELS) else None


def _is_sound(value: Any, levels: int) -> bool:
    """Tell whether a value can be passed on: neither NaN nor infinity is in it, and no deep nesting."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, (dict, list)):
        items = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_is_sound(item, levels - 1) for item in items)
    return True


def written_path(output: str, place: int, again: bool) -> str:
    """Return where lies what a run left in one of its inputs, beside the file of its output."""
    return f"{output[: -len('.bin')]}.written-{place}{'.repeat' if again else ''}.bin"
