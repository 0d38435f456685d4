"""benchmarks/kernels.py: what needs no GPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import attention_calls, kernels
from benchmarks.attention_calls import TIMED, Library, Problem, Workload
from tests.unit.test_worker_events import Device


def test_a_variant_is_a_family_and_its_tunables() -> None:
    variant = kernels.parse_variant("wgmma:BLOCK_N_128=176,REDUCE=serial")
    assert variant.sources == ("csrc/attention_wgmma.cu", "csrc/attention_mma.cu")
    assert kernels.define_flags(variant.defines) == ["-DBLOCK_N_128=176", "-DREDUCE_SERIAL=1"]
    command = kernels.build_command(variant, "90a", Path("x.so"))
    assert "-gencode=arch=compute_90a,code=sm_90a" in command
    assert command[-4].endswith("attention_wgmma.cu")  # the first one's entry points are the library's
    linked = kernels.build_command(kernels.parse_variant("cublas"), "90a", Path("x.so"))
    assert any(flag.startswith(("-lcublas", "-l:libcublas.so.")) for flag in linked)


@pytest.mark.parametrize(
    ("text", "words"), [("wgmna", "no file wgmna"), ("wgmma:block=3", "NAME=value"), ("wgmma:A=3;4", "NAME=value")]
)
def test_what_is_no_variant(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kernels.parse_variant(text)


def test_a_workload_is_a_shape() -> None:
    assert kernels.parse_workload("1x8x2048x128") == Workload("1x8x2048x128", 1, 8, 2048, 128)
    wanted = Workload("2x3x40x64,causal,bfloat16", 2, 3, 40, 64, causal=True, dtype="bfloat16")
    assert kernels.parse_workload("2x3x40x64,causal,bfloat16") == wanted
    for text in ("1x8x2048", "1x8x2048x64x1", "1xax2048x64", "1x8x2048x64,cause"):
        with pytest.raises(ValueError, match="a workload is BATCHxHEADS"):
            kernels.parse_workload(text)


@pytest.mark.parametrize(("causal", "pairs"), [(False, 16), (True, 10)])
def test_flop(causal: bool, pairs: int) -> None:
    assert Workload("w", 2, 3, 4, 64, causal).flop == 2 * 3 * pairs * 64 * 4


def test_the_table_is_sorted_and_relative_to_the_best_of_sdpa() -> None:
    rows = {
        "wgmma": {"hot_us": 80.0, "cold_us": 99.0},
        "sdpa flash": {"hot_us": 100.0, "cold_us": 110.0},
        "sdpa cudnn": {"hot_us": 160.0, "cold_us": 90.0},
    }
    lines = kernels.render(TIMED[0], rows).splitlines()
    assert [line.split("   ")[-1] for line in lines[1:]] == ["wgmma", "sdpa flash", "sdpa cudnn"]
    assert "x 0.80" in lines[1] and "x 1.10" in lines[1]


@pytest.mark.process
def test_a_library_is_called_by_the_c_interface(tmp_path: Path) -> None:
    """Built by a C compiler, with the header itself: the structure has its layout."""
    (tmp_path / "k.c").write_text(
        '#include "attention.h"\n'
        "int attention_forward(const attention_problem* p, const void* q, const void* k, const void* v, void* o,"
        " void* s) { return p->batch * 1000 + p->heads * 100 + p->seq_len * 10 + p->head_dim + p->dtype + p->causal"
        " + p->threads + (int)p->scale; }\n"
        'const char* attention_error_string(int code) { return "wrong"; }\n'
        'const char* attention_tunables(void) { return "A=1"; }\n'
    )
    library = tmp_path / "k.so"
    command = ["gcc", "-shared", "-fPIC", f"-I{kernels.ROOT / 'csrc'}", str(tmp_path / "k.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = Library(library)
    assert loaded.tunables == "A=1" and loaded.choice(TIMED[0]) == ""
    problem = Problem(1, 2, 3, 4, 1, 1, 1, 7.0)
    assert loaded.functions.attention_forward(ctypes.byref(problem), None, None, None, None, None) == 1234 + 10


@pytest.mark.process
def test_a_check_that_faults_takes_nobody_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.check_apart(tmp_path / "none.so") != ""
    script = tmp_path / "hangs.py"
    script.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(kernels, "__file__", str(script))
    monkeypatch.setattr(kernels, "CHECK_TIMEOUT_S", 0.5)
    assert kernels.check_apart(tmp_path / "none.so") == "no answer within 0.5 s"


def test_a_library_that_cannot_be_loaded_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.so").write_text("no library")
    built: dict[str, dict[str, object]] = {"mma": {"built": True}}
    assert kernels.load_all({"mma": tmp_path / "none.so"}, built) == {}
    assert "cannot be loaded" in str(built["mma"]["wrong"]) and "mma: cannot be loaded" in capsys.readouterr().out


def test_what_the_host_takes_is_nobodys_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a replay nor of a single call: the device has other work until they are queued."""
    device = Device()
    monkeypatch.setitem(sys.modules, "torch", device.module())

    def capture(call: Callable[[], None], calls: int) -> object:
        return SimpleNamespace(replay=lambda: device.work(5e-6 * calls, 20e-6))

    monkeypatch.setattr(attention_calls, "capture", capture)
    found = attention_calls.measure({"k": lambda: device.work(5e-6, 20e-6)}, rounds=3)
    assert found["k"]["hot"] == pytest.approx([5.0] * 3) and found["k"]["cold"] == pytest.approx([5.0] * 3)


@pytest.mark.process
def test_usage() -> None:
    done = subprocess.run([sys.executable, kernels.__file__], capture_output=True, text=True)
    assert done.returncode == 2 and "name a variant" in done.stderr
