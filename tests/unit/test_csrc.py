"""The CPU twin of the attention kernel, compiled for a handful of tunables and held against numpy in float64.

It is called through its C interface: no PyTorch, no extension builder. What only a GPU can show is in tests/gpu.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from harness.worker import dtypes
from tests import numpy_attention

CSRC = Path(__file__).resolve().parents[2] / "csrc"
COMPILER = shutil.which("g++")
FLAGS = ["-std=c++17", "-O2", "-march=native", "-Wall", "-Wextra", "-Werror", "-pthread", "-fPIC", "-shared"]
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH: the CPU kernel cannot be compiled"),
]

SEED = {"BLOCK_M": "32", "NUM_WARPS": "8", "VEC_WIDTH": "4", "SYNC_POLICY": "2", "REDUCE": "warp"}
# Each value of each tunable at least once, and the three policies with all else equal.
SETTINGS = {
    "seed": SEED,
    "policy0": SEED | {"SYNC_POLICY": "0"},
    "policy5": SEED | {"SYNC_POLICY": "5"},
    "small": {"BLOCK_M": "16", "NUM_WARPS": "8", "VEC_WIDTH": "1", "SYNC_POLICY": "2", "REDUCE": "serial"},
    "large": {"BLOCK_M": "64", "NUM_WARPS": "4", "VEC_WIDTH": "2", "SYNC_POLICY": "0", "REDUCE": "serial"},
}
FP16, BF16, FP32 = 0, 1, 2
DTYPES = {"fp16": FP16, "bf16": BF16, "fp32": FP32}
NAMES = {number: name for name, number in dtypes.C_INTERFACE.items()}
# Half a unit in the last place of the output dtype, relative to the row's largest value, and what fp32 sums cost.
TOLERANCES = {FP16: 2.0**-11 + 2e-6, BF16: 2.0**-8 + 2e-6, FP32: 4e-6}


class Problem(ctypes.Structure):
    """`attention_problem` of csrc/attention.h."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("batch", "heads", "seq_len", "head_dim", "dtype", "causal", "threads")),
        ("scale", ctypes.c_float),
    ]


def flags_for(tunables: dict[str, str]) -> list[str]:
    """Numbers as -DNAME=value, choices as -DNAME_VALUE=1: the convention of the build."""
    return [f"-D{n}={v}" if v.lstrip("-").isdigit() else f"-D{n}_{v.upper()}=1" for n, v in tunables.items()]


def compile_twin(output: Path, flags: list[str]) -> subprocess.CompletedProcess[str]:
    assert COMPILER is not None
    command = [COMPILER, *FLAGS, *flags, str(CSRC / "attention_scalar_cpu.cpp"), "-o", str(output)]
    return subprocess.run(command, capture_output=True, text=True)


def load_library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.attention_forward.argtypes = [ctypes.POINTER(Problem), *[ctypes.c_void_p] * 5]
    library.attention_error_string.restype = ctypes.c_char_p
    library.attention_tunables.restype = ctypes.c_char_p
    return library


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ctypes.CDLL]:
    """One shared library per setting, compiled once for the whole session."""
    folder = tmp_path_factory.mktemp("csrc")

    def build(name: str) -> ctypes.CDLL:
        result = compile_twin(folder / f"{name}.so", flags_for(SETTINGS[name]))
        assert result.returncode == 0, result.stderr
        return load_library(folder / f"{name}.so")

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(SETTINGS, pool.map(build, SETTINGS), strict=True))


@pytest.fixture(params=list(SETTINGS))
def library(request: pytest.FixtureRequest, libraries: dict[str, ctypes.CDLL]) -> ctypes.CDLL:
    return libraries[request.param]


@pytest.fixture(scope="session")
def seed(libraries: dict[str, ctypes.CDLL]) -> ctypes.CDLL:
    return libraries["seed"]


def encode(values: np.ndarray, dtype: int) -> np.ndarray:
    """float64 to the kernel's storage."""
    return dtypes.encode(values, NAMES[dtype])


def decode(stored: np.ndarray, dtype: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaNs, in the test of all 65,536 values
        return dtypes.decode(stored, NAMES[dtype]).astype(np.float64)


def make_inputs(shape: tuple[int, ...], dtype: int, seed: int = 0, spread: float = 1.0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [encode(spread * generator.standard_normal(shape), dtype) for _ in range(3)]


def truth(inputs: list[np.ndarray], dtype: int, causal: bool, scale: float) -> np.ndarray:
    q, k, v = (decode(tensor, dtype) for tensor in inputs)
    scores = scale * q @ np.swapaxes(k, -1, -2)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], dtype=bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ v)


def attend(
    library: ctypes.CDLL,
    inputs: list[np.ndarray],
    dtype: int,
    *,
    causal: bool = False,
    scale: float = 0.125,
    threads: int = 2,
) -> np.ndarray:
    """The kernel's output, as stored; it starts out as NaN throughout, so that an element left out shows."""
    batch, heads, seq_len, head_dim = inputs[0].shape
    output = encode(np.full(inputs[0].shape, np.nan), dtype)
    problem = Problem(batch, heads, seq_len, head_dim, dtype, causal, threads, scale)
    code = library.attention_forward(ctypes.byref(problem), *(t.ctypes.data for t in (*inputs, output)), None)
    assert code == 0, library.attention_error_string(code)
    return output


def assert_close(output: np.ndarray, expected: np.ndarray, dtype: int) -> None:
    """Relative to the largest value of the row: what a weighted mean of such values can be held to."""
    error = np.abs(decode(output, dtype) - expected)
    limit = TOLERANCES[dtype] * np.abs(expected).max(axis=-1, keepdims=True)
    # Written so that NaN fails.
    assert (error <= limit).all(), f"largest error {np.nanmax(error / limit):.3g} of what is allowed"


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("seq_len", [1, 17, 239, 512])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_matches_float64(library: ctypes.CDLL, dtype: int, head_dim: int, seq_len: int, causal: bool) -> None:
    inputs = make_inputs((1, 2, seq_len, head_dim), dtype)
    scale = head_dim**-0.5
    output = attend(library, inputs, dtype, causal=causal, scale=scale)
    assert_close(output, truth(inputs, dtype, causal, scale), dtype)


@pytest.mark.parametrize("scale", [0.0, -0.125, 0.03, 0.5])
def test_any_scale(library: ctypes.CDLL, scale: float) -> None:
    inputs = make_inputs((2, 3, 65, 64), FP32)
    assert_close(attend(library, inputs, FP32, scale=scale), truth(inputs, FP32, False, scale), FP32)


def test_large_logits_stay_finite(library: ctypes.CDLL) -> None:
    inputs = make_inputs((1, 1, 130, 64), FP32, spread=20.0)
    output = attend(library, inputs, FP32, causal=True, scale=1.0)
    # Scores reach thousands, where one fp32 unit is 2e-4: weights cannot be better than that.
    expected = truth(inputs, FP32, True, 1.0)
    assert (np.abs(output - expected) <= 2e-3 * np.abs(expected).max()).all()


@pytest.mark.parametrize("heads", [1, 5])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_bits_do_not_depend_on_threads_or_run(library: ctypes.CDLL, heads: int, causal: bool) -> None:
    inputs = make_inputs((1, heads, 239, 64), FP32)
    first = attend(library, inputs, FP32, causal=causal, threads=1).tobytes()
    for threads in (0, 1, 2, 2, 3, 16):
        assert attend(library, inputs, FP32, causal=causal, threads=threads).tobytes() == first


def test_policies_agree_to_the_bit(libraries: dict[str, ctypes.CDLL]) -> None:
    inputs = make_inputs((1, 2, 239, 64), FP32)
    outputs = {attend(libraries[n], inputs, FP32, causal=True).tobytes() for n in ("seed", "policy0", "policy5")}
    assert len(outputs) == 1


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_nan_reaches_every_row_that_sees_it(library: ctypes.CDLL, dtype: int) -> None:
    for tensor, causal in ((0, False), (1, False), (2, False), (1, True)):
        inputs = make_inputs((1, 1, 100, 64), dtype)
        inputs[tensor][0, 0, 70, 5] = encode(np.array(np.nan), dtype)
        missing = np.isnan(decode(attend(library, inputs, dtype, causal=causal), dtype))[0, 0]
        rows = np.arange(100)
        expected = rows == 70 if tensor == 0 else rows >= (70 if causal else 0)
        columns = [5] if tensor == 2 else slice(None)
        assert (missing[:, columns] == expected[:, None]).all()


def test_writes_its_output_and_nothing_else(library: ctypes.CDLL) -> None:
    for dtype in DTYPES.values():
        inputs = make_inputs((1, 2, 33, 64), dtype)
        size = inputs[0].nbytes
        arena = np.full(size + 256, 0xA5, dtype=np.uint8)
        problem = Problem(1, 2, 33, 64, dtype, 0, 2, 0.125)
        address = arena.ctypes.data + 128
        code = library.attention_forward(ctypes.byref(problem), *(t.ctypes.data for t in inputs), address, None)
        assert code == 0
        assert (arena[:128] == 0xA5).all() and (arena[128 + size :] == 0xA5).all()
        written = arena[128 : 128 + size].tobytes()
        assert written == attend(library, inputs, dtype).tobytes()


@pytest.mark.parametrize("dtype", [FP16, BF16], ids=["fp16", "bf16"])
def test_16_bit_conversions_are_exact(seed: ctypes.CDLL, dtype: int) -> None:
    """With one key the output is V itself: every one of the 65,536 values must come back as it was."""
    v = np.arange(65536, dtype=np.uint16).view(np.float16 if dtype == FP16 else np.uint16).reshape(1, 1024, 1, 64)
    zeros = encode(np.zeros(v.shape), dtype)
    output = attend(seed, [zeros, zeros, v], dtype)
    values, results = decode(v, dtype), decode(output, dtype)
    assert np.array_equal(results, values, equal_nan=True)


def test_fp16_rounds_to_nearest_even(seed: ctypes.CDLL) -> None:
    """Two keys of equal weight: the output is the mean of two neighbours, a tie each time."""
    bits = np.arange(0x7BFF, dtype=np.uint16)
    pairs = np.stack([bits, bits + np.uint16(1)])[:, : 64 * 495].view(np.float16)
    v = np.ascontiguousarray(pairs.reshape(2, 495, 64).transpose(1, 0, 2))[None]
    zeros = np.zeros(v.shape, dtype=np.float16)
    output = attend(seed, [zeros, zeros, v], FP16)
    mean = v.astype(np.float64).mean(axis=2, keepdims=True)
    assert np.array_equal(output, np.broadcast_to(mean.astype(np.float16), output.shape))


def test_reports_what_was_built(libraries: dict[str, ctypes.CDLL]) -> None:
    for name, tunables in SETTINGS.items():
        assert libraries[name].attention_tunables().decode() == " ".join(f"{n}={v}" for n, v in tunables.items())


def refuse(library: ctypes.CDLL, change: dict[str, int], pointers: dict[int, int | None] | None = None) -> int:
    """The code for a problem that must be refused; `pointers` replaces q, k, v or o (0 to 3)."""
    fields = {"batch": 1, "heads": 1, "seq_len": 4, "head_dim": 64, "dtype": FP32, "causal": 0, "threads": 1}
    problem = Problem(**{**fields, **change}, scale=0.125)
    tensors = [np.zeros(4 * 128, dtype=np.float32) for _ in range(4)]
    tensors[3][:] = 7.0
    addresses = {i: t.ctypes.data for i, t in enumerate(tensors)} | (pointers or {})
    code = int(library.attention_forward(ctypes.byref(problem), *addresses.values(), None))
    assert (tensors[3] == 7.0).all(), "a refused problem must leave the output alone"
    return code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"batch": 0}, -2),
        ({"heads": -1}, -2),
        ({"seq_len": 0}, -2),
        ({"head_dim": 32}, -3),
        ({"head_dim": 96}, -3),
        ({"dtype": 3}, -4),
        ({"dtype": -1}, -4),
        ({"batch": 2**30, "heads": 2**30}, -6),
        ({"seq_len": 2**31 - 1}, -6),
        ({"threads": -1}, -7),
    ],
    ids=str,
)
def test_refuses_bad_problems(seed: ctypes.CDLL, change: dict[str, int], code: int) -> None:
    assert refuse(seed, change) == code
    assert seed.attention_error_string(code).decode() not in ("ok", "unknown error code")


def test_refuses_bad_pointers(seed: ctypes.CDLL) -> None:
    for position in range(4):
        assert refuse(seed, {}, {position: None}) == -1
    assert seed.attention_forward(None, 1, 1, 1, 1, None) == -1
    odd = np.zeros(64, dtype=np.float32).ctypes.data + 1
    assert refuse(seed, {}, {1: odd}) == -5


def test_explains_every_code(seed: ctypes.CDLL) -> None:
    texts = [seed.attention_error_string(code).decode() for code in range(0, -9, -1)]
    assert texts[0] == "ok" and len(set(texts)) == len(texts)
    assert seed.attention_error_string(-99).decode() == "unknown error code"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (flags_for(SEED | {"BLOCK_M": "48"}), "BLOCK_M must be 16, 32 or 64"),
        (flags_for(SEED | {"NUM_WARPS": "5"}), "NUM_WARPS must be 4 or 8"),
        (flags_for(SEED | {"VEC_WIDTH": "8"}), "VEC_WIDTH must be 1, 2 or 4"),
        (flags_for(SEED | {"SYNC_POLICY": "1"}), "SYNC_POLICY must be 0, 2 or 5"),
        (flags_for(SEED | {"REDUCE": "block"}), "REDUCE must be one of warp"),
        (["-DREDUCE_WARP=1", "-DREDUCE_SERIAL=1"], "REDUCE must be one of warp"),
        (["-ffast-math"], "without -ffast-math"),
    ],
    ids=["BLOCK_M", "NUM_WARPS", "VEC_WIDTH", "SYNC_POLICY", "REDUCE", "REDUCE-both", "fast-math"],
)
def test_illegal_settings_do_not_compile(tmp_path: Path, flags: list[str], reason: str) -> None:
    result = compile_twin(tmp_path / "illegal.so", [*flags, "-fsyntax-only"])
    assert result.returncode != 0
    assert reason in result.stderr


def test_header_is_plain_c(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc on PATH: the header cannot be compiled as C")
    source = tmp_path / "user.c"
    source.write_text('#include "attention.h"\nint size(void) { return (int)sizeof(attention_problem); }\n')
    command = [compiler, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", "-c", str(source)]
    result = subprocess.run([*command, "-o", str(tmp_path / "user.o")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert ctypes.sizeof(Problem) == 32


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    assert COMPILER is not None
    path = tmp_path_factory.mktemp("plain") / "plain.so"
    subprocess.run([COMPILER, *FLAGS, str(CSRC / "attention_plain_cpu.cpp"), "-o", str(path)], check=True)
    return load_library(path)


def test_the_plain_kernel_gives_gradients_whatever_its_threads(plain: ctypes.CDLL) -> None:
    call = plain.attention_backward
    call.argtypes = [ctypes.POINTER(Problem), *[ctypes.c_void_p] * 10]
    q, d_out = make_inputs((2, 4, 17, 8), FP32)[:2]
    k, v = make_inputs((2, 2, 23, 8), FP32)[:2]
    options = np.array([48, 2, 23, *[0] * 9], np.int32)

    def answers(threads: int, *, missing: bool = False) -> tuple[int, list[np.ndarray]]:
        found = [np.full(like.shape, np.nan, np.float32) for like in (q, q, k, v)]
        given = [tensor.ctypes.data for tensor in (q, k, v, d_out, *found)]
        given[-1] = None if missing else given[-1]
        problem = Problem(2, 4, 17, 8, FP32, 1, threads, 0.125)
        return call(ctypes.byref(problem), options.ctypes.data, *given, None), found

    (code, one), (_, three) = answers(1), answers(3)
    exact = numpy_attention.exact(*(each.astype(np.float64) for each in (q, k, v)), True, 0.125, d_out)
    assert code == 0 and all(np.array_equal(*each) for each in zip(one, three, strict=True))
    for got, want in zip(one, exact, strict=True):
        assert np.abs(got - want).max() < 4e-6 * np.abs(want).max()
    code, untouched = answers(1, missing=True)
    assert code == -1 and all(np.isnan(each).all() for each in untouched)


def test_the_plain_kernel_takes_options_and_refuses_what_it_does_not_know(plain: ctypes.CDLL) -> None:
    library = plain
    q, k, v = make_inputs((2, 4, 17, 8), FP32)
    assert_close(attend(library, [q, k, v], FP32, causal=True), truth([q, k, v], FP32, True, 0.125), FP32)

    def attended(size: int, heads: int, keys: int) -> tuple[int, np.ndarray]:
        shared = [np.ascontiguousarray(tensor[:, :heads, :keys]) for tensor in (k, v)]
        # struct_size, kv_heads, kv_len, then three pointers and a factor, which are not set.
        options = np.array([size, heads, keys, *[0] * 9], np.int32)
        output, problem = np.full(q.shape, np.nan, np.float32), Problem(2, 4, 17, 8, FP32, 0, 2, 0.125)
        given = (tensor.ctypes.data for tensor in (q, *shared, output))
        call = library.attention_forward_options
        call.argtypes = [ctypes.POINTER(Problem), *[ctypes.c_void_p] * 6]
        return call(ctypes.byref(problem), options.ctypes.data, *given, None), output

    known = 48  # bytes of attention_options
    code, output = attended(known, 2, 5)
    repeated = [tensor[:, :2, :5].repeat(2, axis=1) for tensor in (k, v)]
    assert code == 0
    assert_close(output, truth([q, *repeated], FP32, False, 0.125), FP32)
    older, same = attended(12, 2, 5)
    assert older == 0 and np.array_equal(same, output), "a smaller struct is an older caller's"
    assert attended(known + 8, 2, 5)[0] == -9
    assert attended(known, 3, 5)[0] == -2
