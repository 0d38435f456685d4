"""`kernel-matrix check`: what cannot work is named with its place and the way out, and what may work is not refused."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main, matrix
from harness.config.matrix import parse_matrix
from harness.errors import BAD_INPUT, DONE, InputError
from harness.preflight import preflight, sources
from harness.preflight.findings import Findings
from harness.preflight.memory import check_memory, shown
from harness.preflight.python_files import PROBLEM, SOLUTION, Surroundings, check_file
from harness.preflight.sources import HARMLESS
from harness.preflight.symbols import _plain
from harness.run.prepare import Options
from harness.schema.run_records import Selection
from harness.worker import tools
from tests.conftest import ROOT

FORWARD = """\
#include "attention.h"
extern "C" int attention_forward(const attention_problem* problem, const void* q, const void*, const void*, void* o,
                                 void*) {
"""
OTHERS = """\
extern "C" const char* attention_error_string(int) { return ""; }
extern "C" const char* attention_tunables(void) { return ""; }
"""
RIGHT = FORWARD + "    return ATTENTION_OK;\n}\n" + OTHERS
USES = FORWARD + "    return int(helper(static_cast<const float*>(q)));\n}\n" + OTHERS


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment, GPU or nvcc."""
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(preflight, "gpus", lambda: [])
    monkeypatch.setattr(preflight, "check_interpreters", lambda *given: Findings())
    monkeypatch.setattr(preflight, "check_packages", lambda *given: Findings())  # tests/unit/test_requirements.py
    monkeypatch.setattr(sources, "cuda_compiler", lambda: None)


def looked(folder: Path, yaml: str, files: Mapping[str, str], **selected: Any) -> Findings:
    folder = folder / "project"
    for name, text in {"matrix.yaml": yaml, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    options = Options(matrix_path=folder / "matrix.yaml", command=("test",), executor="venv")
    return preflight.preflight(options, Selection(**selected))


def of_source(folder: Path, text: str, more: str = "", **others: str) -> Findings:
    files = {name.replace("_dot_", "."): each for name, each in others.items()}
    yaml = f"kernels:\n  - {{name: k, sources: {{cpu: [k.cpp]}}{more}}}\n"
    return looked(folder, yaml, {"k.cpp": text, **files})


def only(found: Findings) -> tuple[str, str, str]:
    (problem,) = found.problems
    return problem.where, problem.what, problem.remedy


# -- native sources ---------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_source_that_works_passes_and_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = of_source(tmp_path, RIGHT)
    assert (first.problems, first.unchecked) == ([], []) and "k (cpu): compiles" in first.passed[0]
    monkeypatch.setattr(tools, "attempt", lambda *_: pytest.fail("compiled again"))
    assert of_source(tmp_path, RIGHT).passed == first.passed


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "more", "where", "what", "remedy"),
    [
        (RIGHT.replace("ATTENTION_OK;", "OKAY;"), "", "k.cpp:4", "does not compile: ", "correct the line"),
        (RIGHT.replace('"attention.h"', '"atention.h"'), "", "k.cpp:1", "atention.h: No such file", ""),
        (RIGHT.replace("tunables", "tunable"), "", "k.cpp:2", "no attention_tunables", "did you mean"),
        (FORWARD + "    return 0;\n}\n", "", "k.cpp:2", "_error_string and no attention_tunables", "add `ex"),
        (
            RIGHT.replace('extern "C" const char* attention_tunables(void)', "const char* attention_tunables(int)"),
            "",
            "k.cpp:7",
            "defines attention_tunables(int), and not the C function attention_tunables",
            'extern "C"',
        ),
        (
            RIGHT.replace('extern "C" const char* attention_tunables', "static const char* attention_tunables").replace(
                '#include "attention.h"\n', "struct attention_problem;\nenum { ATTENTION_OK };\n"
            ),
            "",
            "k.cpp:8",
            "not the C function attention_tunables",
            "not static",
        ),
        ("float helper(const float*);\n" + USES, "", "k.cpp:1", "calls helper(float const*), which", "add lib.cpp"),
        ('extern "C" float helper(const float*);\n' + USES, "", "k.cpp:1", "calls helper, which no", "to `sources`"),
        ("int twice() { return 1; }\n" + RIGHT, ", folder: ''", "", "", ""),
        (RIGHT, ", flags: {cxx: [-fno-such-flag]}", "kernel k", "-fno-such-flag", "correct its `flags`"),
        (
            "#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n",
            "",
            "k.cpp:1",
            "defines no attention_forward",
            "add `binding: own`",
        ),
        (
            "#include <torch/extension.h>\nint f();\n",
            ", binding: own",
            "k.cpp:1",
            "no source defines a Python module",
            "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)",
        ),
        (
            '#include <torch/extension.h>\nPYBIND11_MODULE(k, m) { m.def("run", &f); }\n',
            ", binding: own",
            "k.cpp:1",
            "no `forward`",
            'm.def("forward", &forward)',
        ),
        (
            '#include <torch/extension.h>\nPYBIND11_MODULE(other, m) { m.def("forward", &f); }\n',
            ", binding: own",
            "k.cpp:2",
            "the Python module other, and the build looks for k",
            "TORCH_EXTENSION_NAME",
        ),
    ],
)
def test_what_no_build_would_accept_is_named_with_its_line(
    text: str, more: str, where: str, what: str, remedy: str, tmp_path: Path
) -> None:
    if "folder" in more:  # two files that define the same
        yaml = "kernels:\n  - {name: k, sources: {cpu: [k.cpp, lib.cpp]}}\n"
        found = looked(tmp_path, yaml, {"k.cpp": text, "lib.cpp": "int twice() { return 2; }\n"})
        where, what, remedy = "k.cpp:1", "defines twice() twice", "keep one"
    else:
        found = of_source(tmp_path, text, more, lib_dot_cpp="float helper(const float* x) { return *x; }\n")
    seen = only(found)
    assert seen[0] == where and what in seen[1] and remedy in seen[2], seen


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "more"),
    [
        (
            "#include <omp.h>\n" + RIGHT.replace("return ATT", "return omp_get_max_threads() < 0 ? 1 : ATT"),
            ", flags: {cxx: [-O2, -fopenmp]}",
        ),
        (
            "#include <cmath>\n#include <thread>\nfloat helper(const float* x) { std::thread([] {}).join(); "
            "return std::exp(*x); }\n" + USES,
            "",
        ),
        ('extern "C" void sgemm_(const char*);\n' + RIGHT.replace("return ATT", 'sgemm_(""); return ATT'), ""),
        ("#if BLOCK != 32 || !defined(KIND_FAST)\n#error\n#endif\n" + RIGHT, ", tunables: {BLOCK: 32, KIND: fast}"),
        ("__attribute__((weak)) int helper(const float* x);\n" + USES, ""),
        ("namespace { template <class T> T helper(const T* x) { return *x; } }\n" + USES, ""),
        (RIGHT, ", flags: {cxx: [-O2, -flto]}"),
        ("#define DEFINE(name) attention_ ## name\n" + RIGHT.replace("attention_tunables", "DEFINE(tunables)"), ""),
    ],
    ids=[
        "OpenMP, which PyTorch has loaded",
        "the system's libraries",
        "a BLAS, which PyTorch may have",
        "tunables",
        "a weak symbol",
        "a template",
        "objects that the linker finishes",
        "a name that is pasted together",
    ],
)
def test_what_a_build_would_accept_is_not_refused(text: str, more: str, tmp_path: Path) -> None:
    found = of_source(tmp_path, text, more)
    assert found.problems == [] and (found.passed or "-flto" in more), found


@pytest.mark.process
def test_what_fails_in_some_environments_alone_is_a_result(tmp_path: Path) -> None:
    yaml = """\
environments:
  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}
  - {torch: "2.5.0", cuda: "12.1", python: "3.11", flags: {cxx: [-DNEW]}}
kernels:
  - {name: k, sources: {cpu: [k.cpp]}}
"""
    found = looked(tmp_path, yaml, {"k.cpp": "#ifdef NEW\n#error too new\n#endif\n" + RIGHT})
    assert found.problems == [] and "in some of the environments: k.cpp:2: does not compile" in found.unchecked[0]


@pytest.mark.process
def test_another_compiler_than_that_of_the_builds_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight.Preflight, "is_builder", lambda self: False)
    found = of_source(tmp_path, RIGHT.replace("ATTENTION_OK", "x"))
    assert found.problems == [] and "an image brings its own" in found.unchecked[0]
    assert only(of_source(tmp_path, FORWARD + "    return 0;\n}\n"))[1].startswith("defines no"), "whoever compiles it"


@pytest.mark.process
def test_a_machine_that_fails_is_no_fault_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, said in ((1, "k.cpp:1: fatal error: /tmp/x.s: No space left on device"), (None, ""), (127, "no c++")):
        monkeypatch.setattr(tools, "attempt", lambda *_, code=code, said=said: (code, said))
        found = of_source(tmp_path, RIGHT)
        assert found.problems == [] and found.unchecked and not found.passed


@pytest.mark.process
def test_what_is_not_compiled_is_said_and_its_text_is_read(tmp_path: Path) -> None:
    yaml = "kernels:\n  - {name: k, sources: {cuda: [k.cu]}}\n"
    found = looked(tmp_path, yaml, {"k.cu": RIGHT}, devices=("cuda",))
    assert found.problems == [] and found.unchecked == ["k (cuda): not compiled, for there is no nvcc here"]
    found = looked(tmp_path, yaml, {"k.cu": FORWARD + "}\n"}, devices=("cuda",))
    assert only(found)[:2] == (
        "k.cu:2",
        "defines no attention_error_string and no attention_tunables, which csrc/attention.h asks for",
    )
    both = yaml.replace("cuda: [", "cpu: [k.cpp], cuda: [")
    files = {"k.cu": FORWARD + "}\n", "k.cpp": RIGHT}
    found = looked(tmp_path, both, files, devices=("cpu",))
    assert (found.problems, found.unchecked) == ([], []), "this run compiles no CUDA"
    own = '#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &f); }\n'
    found = of_source(tmp_path, own, ", binding: own")
    assert found.problems == [] and "includes PyTorch's headers" in found.unchecked[0]


@pytest.mark.process
def test_pytorchs_headers_are_those_of_the_environments_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {}
    for release, name in (("2.1.0", "old_name"), ("2.5.0", "new_name")):
        header = tmp_path / release / "torch" / "extension.h"
        header.parent.mkdir(parents=True)
        header.write_text(
            f"inline void {name}() {{}}\n#define PYBIND11_MODULE(name, m) struct M {{ void def(...); }};"
            " inline void name(M m)\n"
        )
        folders[f"torch{release}-cu121-py311"] = [str(header.parents[1])]
    yaml = """\
environments:
  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}
  - {torch: "2.5.0", cuda: "12.1", python: "3.11"}
kernels: [{name: k, binding: own, sources: {cpu: [k.cpp]}}]
"""
    text = '#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward"); CALL(); }\n'
    old, new = folders

    def found(call: str, *there: str) -> Findings:
        monkeypatch.setattr(preflight.Preflight, "_includes", lambda self: {id: folders[id] for id in there})
        return looked(tmp_path, yaml, {"k.cpp": text.replace("CALL", call)})

    assert only(found("no_name", old, new))[:1] == ("k.cpp:2",)
    assert found("no_name", old).problems == [], "the other may have it"
    assert "in some of the environments: k.cpp:2" in found("new_name", old, new).unchecked[0]
    assert found("new_name", new).passed == [f"k (cpu): compiles with the headers of {new}"]


@pytest.mark.process
def test_the_kernels_of_this_repository_pass(tmp_path: Path) -> None:
    options = Options(matrix_path=ROOT / "matrix.yaml", command=("test",), executor="venv")
    found = preflight.preflight(options, Selection())
    assert found.problems == [] and any("attention_scalar (cpu)" in line for line in found.passed)


def test_files_that_are_not_there_are_all_named_with_their_line_in_the_yaml(tmp_path: Path) -> None:
    yaml = """\
kernels:
  - name: k
    sources:
      cpu:
        - mine/atention.cpp
  - {name: p, problem: problem.py, model_new: solution.py}
"""
    found = looked(tmp_path, yaml, {"mine/attention.cpp": RIGHT, "problem.py": "", "README": ""})
    file = tmp_path / "project" / "matrix.yaml"
    first, *_, last = [(each.where, each.what, each.remedy) for each in found.problems]
    assert first == (
        f"{file}:5",
        "mine/atention.cpp: no such file",
        "did you mean attention.cpp? correct the path in matrix.yaml",
    )
    assert last[:2] == (f"{file}:6", "solution.py: no such file")


# -- problem files and solutions --------------------------------------------------------------------------------

NOTHING = Surroundings(
    packages=["numpy==1.26.4"], pythons=lambda: {(3, 8)}, site_packages=[], complete=False, has_host=False
)
MODEL = """\
import torch
import numpy as np, math
class Model(torch.nn.Module): pass
def get_inputs(): return []
get_init_inputs = lambda: []
"""


def of_file(folder: Path, text: str, wanted: tuple[str, ...] = PROBLEM, around: Surroundings = NOTHING) -> Findings:
    path = folder / "file.py"
    path.write_text(text)
    return check_file(path, "file.py", wanted, around)


@pytest.mark.parametrize(
    ("text", "wanted", "where", "what", "remedy"),
    [
        (MODEL.replace("Model(torch.nn.Module)", "Model(torch.nn.Module"), PROBLEM, "file.py:3", "SyntaxError", ""),
        (MODEL + "return 1\n", PROBLEM, "file.py:6", "SyntaxError: 'return' outside function", "correct the line"),
        (MODEL.replace("get_inputs", "get_input"), PROBLEM, "file.py:4", "no get_inputs", "mean get_input? "),
        (MODEL, SOLUTION, "file.py:3", "defines no ModelNew", "add `class ModelNew(torch.nn.Module)`"),
        ("import torch\nclass ModelNeu: pass\n", SOLUTION, "file.py:2", "defines no ModelNew", "mean ModelNeu?"),
        ("\nimport einops.layers\n" + MODEL, PROBLEM, "file.py:2", "einops, which no environment", "`packages`"),
        ("from trch import nn\n" + MODEL, PROBLEM, "file.py:1", "imports trch", "did you mean torch?"),
        ("from .other import x\n" + MODEL, PROBLEM, "file.py:1", "from beside it", "into this file"),
        ("import helpers\n" + MODEL, PROBLEM, "file.py:1", "helpers from beside it", "into this file"),
    ],
)
def test_a_mistake_in_a_python_file_is_found_without_running_it(
    text: str, wanted: tuple[str, ...], where: str, what: str, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / "helpers.py").touch()
    seen = only(of_file(tmp_path, text, wanted))
    assert seen[0] == where and what in seen[1] and remedy in seen[2], seen


@pytest.mark.parametrize(
    "text",
    [
        MODEL,
        "raise SystemExit  # it is not run\n" + MODEL,
        "try:\n    import einops\nexcept ImportError:\n    einops = None\n" + MODEL,
        "if False:\n    import einops\ndef f():\n    import einops\n" + MODEL,
        "import imp, distutils.core, typing_extensions, triton.language as tl\n" + MODEL,
        "from torch import *\n",
        "globals()['Model'] = 1\n",
        "if True:\n    class Model: pass\nelse:\n    Model = None\nfor get_inputs in (): pass\n"
        "from torch import nn as get_init_inputs\n",
        "text = '\\d'\n" + MODEL,
    ],
)
def test_a_python_file_that_may_work_is_not_refused(text: str, tmp_path: Path) -> None:
    assert of_file(tmp_path, text).problems == []


def test_an_import_is_refused_only_where_no_environment_can_have_it(tmp_path: Path) -> None:
    text = "import einops\n" + MODEL

    def around(**changes: Any) -> Surroundings:
        known = {name: getattr(NOTHING, name) for name in NOTHING.__dataclass_fields__}
        return Surroundings(**(known | changes))

    site = tmp_path / "site-packages"
    (site / "einops").mkdir(parents=True)
    listed = around(packages=["numpy==1.26.4", "einops==0.8.0"])
    assert of_file(tmp_path, text, around=listed) == Findings(passed=[f"file.py: defines {', '.join(PROBLEM)}"])
    assert of_file(tmp_path, text, around=around(site_packages=[site])).problems == []
    for unsure in (around(has_host=True), around(packages=["opencv-python==4.9.0"])):
        found = of_file(tmp_path, text, around=unsure)
        assert found.problems == [] and "file.py:1: whether `packages`" in found.unchecked[0]
    assert of_file(tmp_path, text, around=around(packages=["opencv-python==4.9.0"], complete=True)).problems


def test_an_environment_without_the_packages_of_now_is_another(tmp_path: Path) -> None:
    there = tmp_path / "cache" / "environments" / "torch2.5.0-cu121-py311-0123456789ab"
    (there / "venv" / "lib" / "python3.11" / "site-packages" / "cv2").mkdir(parents=True)
    yaml = """\
environments: [{torch: "2.5.0", cuda: "12.1", python: "3.11"}]
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1, opencv-python==4.9.0]
kernels: [{name: p, problem: p.py, model_new: s.py}]
"""
    solution = "import cv2, dask\nclass ModelNew: pass\n"
    for wheels, names in (({}, "cv2 dask"), ({"opencv-python": ""}, "")):
        known = {"numpy": "", "ninja": "", "setuptools": ""} | wheels
        (there / "complete.json").write_text(json.dumps({"wheels": known}))
        found = looked(tmp_path, yaml, {"p.py": MODEL, "s.py": solution})
        assert [line.split()[-1] for line in found.unchecked] == names.split()
        assert [problem.what.split()[1] for problem in found.problems] == ([] if names else ["dask,"])


def test_syntax_that_a_newer_python_may_know_is_not_refused(tmp_path: Path) -> None:
    newer = Surroundings(packages=[], pythons=lambda: {(3, 99)}, site_packages=[], complete=False, has_host=False)
    found = of_file(tmp_path, "def f( -> 1\n", around=newer)
    assert found.problems == [] and "newer Python" in found.unchecked[0]


# -- memory -----------------------------------------------------------------------------------------------------

GIB = 1 << 30
LARGE = """\
kernels: [{name: k, sources: {cpu: [k.cpp], cuda: [k.cu]}}]
workloads:
  - name: small
    shape: {batch: 1, heads: 8, seq_len: 512, head_dim: 64}
    dtypes: {cpu: [float32]}
  - name: large
    shape: {batch: 1, heads: 8, seq_len: 1000000, head_dim: 64}
    dtypes: {cpu: [float32], cuda: [float16]}
"""


@pytest.mark.parametrize(
    ("yaml", "machine_gib", "gpu_gib", "said"),
    [
        (LARGE, 23, 0, ["large in float32 on cpu needs at least 58.2 TiB, and this machine has 23 GiB"]),
        (LARGE, 23, 80, ["in float32 on cpu", "in float16 on cuda needs at least 29.1 TiB, and its GPU has 80 GiB"]),
        (LARGE + "references: [flash, default]\n", 23, 80, []),
        (LARGE + "references: [flash, default]\n", 12, 80, ["5.72 GiB for Q, K and V, 1.91 GiB for output, 7.63 GiB"]),
        (LARGE + "references_cuda: [flash]\n", 1 << 20, 80, []),
        (LARGE, 1 << 20, 0, []),
    ],
)
def test_a_shape_that_cannot_fit_is_refused_with_the_numbers(
    yaml: str, machine_gib: int, gpu_gib: int, said: list[str]
) -> None:
    used = {"small": {"cpu"}, "large": {"cpu", "cuda"}}
    has = {"this machine": machine_gib * GIB, "its GPU": gpu_gib * GIB}
    found = check_memory(parse_matrix(yaml), yaml, Path("matrix.yaml"), used, has)  # type: ignore[arg-type]
    assert len(found.problems) == len(said)
    for problem, words in zip(found.problems, said, strict=True):
        assert problem.where == "matrix.yaml:7" and words in problem.what
        without = "leave math out" if "TiB" in problem.what else "take a smaller shape"
        assert without in problem.remedy


def test_sizes_are_shown_in_units_for_people() -> None:
    assert [shown(size) for size in (5, 3 * 1024, 256 * 10**12)] == ["5 B", "3 KiB", "233 TiB"]


# -- the command ------------------------------------------------------------------------------------------------

MISTAKES = """\
kernels:
  - {name: lacking, sources: {cpu: [k.cpp]}}
  - {name: pair, problem: problem.py, model_new: solution.py}
workloads:
  - name: large
    shape: {batch: 1, heads: 64, seq_len: 1000000, head_dim: 64}
    dtypes: {cpu: [float32]}
"""


@pytest.mark.process
def test_everything_is_told_at_once_and_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "matrix.yaml": MISTAKES,
        "k.cpp": FORWARD + "    return 0;\n}\n",
        "problem.py": MODEL,
        "solution.py": "class Model(:\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matrix, "run_matrix", lambda *_: pytest.fail("something was started"))
    for words in (["check"], ["matrix", "--quick"], ["eval", "--torch=2.5.0"], ["gate", "--make", "--quick"]):
        assert main.main([*words, "--executor=venv"]) == BAD_INPUT
        said = capsys.readouterr().err
        assert "3 problems" in said and "\n    -> " in said
        for place in ("matrix.yaml:6: workloads[0]: large", "k.cpp:2: defines no ", "solution.py:1: SyntaxError"):
            assert place in said
        assert ("Nothing was started" in said) == (words[0] != "check")
    monkeypatch.setattr(matrix, "run_matrix", lambda *_: (argparse.Namespace(folder="FOLDER"), []))
    assert main.main(["matrix", "--no-check", "--no-report", "--executor=venv"]) == DONE


def test_a_solution_of_many_that_cannot_work_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"matrix.yaml": LARGE, "problems/1_a.py": MODEL, "solutions/1_a.py": "import torch\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matrix, "run_matrix", lambda *_: (argparse.Namespace(folder="FOLDER"), []))
    words = ["kernelbench", "problems", "solutions", "--no-report", "--executor=venv"]
    assert main.main(words) == DONE
    assert "solutions/1_a.py:1: defines no ModelNew" in capsys.readouterr().out


def test_one_problem_is_told_in_one_line(tmp_path: Path) -> None:
    found = of_file(tmp_path, MODEL, SOLUTION)
    refusal = found.refusal(Path())
    assert isinstance(refusal, InputError) and refusal.message == "file.py:3: defines no ModelNew"
    assert Findings().refusal(Path()) is None


@pytest.mark.parametrize("flag", ["-fplugin=./x.so", "-wrapper", "-B./bin", "-ccbin=./sh", "-Wl,-x", "-MF", "-o"])
def test_a_flag_that_could_run_or_write_something_is_not_tried_outside_of_a_sandbox(flag: str) -> None:
    assert not HARMLESS.fullmatch(flag)


@pytest.mark.parametrize("flag", ["-O3", "-march=native", "-DBLOCK=32", "-std=c++20", "-ffast-math", "-Wall"])
def test_usual_flags_are_tried(flag: str) -> None:
    assert HARMLESS.fullmatch(flag)


def test_the_last_name_of_a_symbol() -> None:
    names = {"a::f(int)": "f", "(anonymous namespace)::f(int)": "f", "ns::(anonymous namespace)::g<int>(int)": "g"}
    assert {name: _plain(name) for name in names} == names
