"""Mistakes around a command: variables, paths, records."""

from __future__ import annotations

from tests.bad_inputs.case import MATRIX, case

HOST = MATRIX.replace('torch: "2.5.0", cuda: "12.1", python: "3.11"', "torch: host")
LONG = "long" * 70 + ".cpp"
LIST = "matrix --list --executor venv"


def with_source(name: str) -> str:
    return MATRIX.replace("[mine.cpp]", f"['{name}']")


ENVIRONMENT = [
    case("a cache that is a file", LIST, "KERNEL_MATRIX_CACHE", "mine.cpp", variables={"KERNEL_MATRIX_CACHE": "mine.cpp"},
         code=30),
    case("a cache that cannot be made", "check", "KERNEL_MATRIX_CACHE", "/proc/cache",
         variables={"KERNEL_MATRIX_CACHE": "/proc/cache"}, code=30),
    case("a variable misspelt", LIST, "KERNEL_MATRIX_CAHCE", "did you mean KERNEL_MATRIX_CACHE?",
         variables={"KERNEL_MATRIX_CAHCE": "cache"}),
    case("a bundle's variable misspelt", LIST, "KERNEL_MATRIX_BUNDEL", "did you mean KERNEL_MATRIX_BUNDLE?",
         variables={"KERNEL_MATRIX_BUNDEL": "bundle"}),
    case("a bundle that is not there", "matrix --list", "KERNEL_MATRIX_BUNDLE", "nowhere",
         variables={"KERNEL_MATRIX_BUNDLE": "nowhere"}),
    case("a bundle that is none", "matrix --list", "KERNEL_MATRIX_BUNDLE", "src", "bundle",
         files={"src": None}, variables={"KERNEL_MATRIX_BUNDLE": "src"}),
    case("a host's Python that is not there", LIST, "KERNEL_MATRIX_HOST_PYTHON", "/nowhere/python",
         files={"matrix.yaml": HOST}, variables={"KERNEL_MATRIX_HOST_PYTHON": "/nowhere/python"}, code=30),
    case("a host's Python that is none", LIST, "KERNEL_MATRIX_HOST_PYTHON", "mine.cpp",
         files={"matrix.yaml": HOST}, variables={"KERNEL_MATRIX_HOST_PYTHON": "mine.cpp"}, code=30),
    case("a host's Python that is a folder", LIST, "KERNEL_MATRIX_HOST_PYTHON", "/usr",
         files={"matrix.yaml": HOST}, variables={"KERNEL_MATRIX_HOST_PYTHON": "/usr"}, code=30),
    case("a compiler that is not there", "check --device cpu", "CXX", "/nowhere/g++",
         variables={"CXX": "/nowhere/g++"}, code=30),
    case("a compiler that is none", "check --device cpu", "CXX", "matrix.yaml", variables={"CXX": "./matrix.yaml"},
         code=30),
    case("no compiler", "check --device cpu", "compiler", "g++", variables={"PATH": "/nowhere"}, code=30),
    case("a CUDA_HOME that is not there", "check --device cuda", "CUDA_HOME", "/nowhere/cuda",
         files={"matrix.yaml": MATRIX.replace("{cpu: [mine.cpp]}", "{cuda: [mine.cu]}"), "mine.cu": "int x;\n"},
         variables={"CUDA_HOME": "/nowhere/cuda"}, code=30),
    case("a GPU that is not there", "matrix --list --device cuda --executor venv", "GPU",
         files={"matrix.yaml": MATRIX.replace("{cpu: [mine.cpp]}", "{cuda: [mine.cu]}"), "mine.cu": "int x;\n"},
         variables={"CUDA_VISIBLE_DEVICES": "7"}, code=30),
    case("GPUs by a wrong name", "matrix --list --device cuda --executor venv", "CUDA_VISIBLE_DEVICES|GPU",
         files={"matrix.yaml": MATRIX.replace("{cpu: [mine.cpp]}", "{cuda: [mine.cu]}"), "mine.cu": "int x;\n"},
         variables={"CUDA_VISIBLE_DEVICES": "GPU-nope"}, code=30),
]  # fmt: skip

PATHS = [
    case("a missing file with spaces", LIST, "my sources/my kernel.cpp", "line 9",
         files={"matrix.yaml": with_source("my sources/my kernel.cpp")}),
    case("a missing file with accents", LIST, "kärnel.cpp", "line 9", files={"matrix.yaml": with_source("kärnel.cpp")}),
    case("a link to nothing", LIST, "link.cpp", "line 9", "link", "gone.cpp",
         files={"matrix.yaml": with_source("link.cpp"), "link.cpp": "-> gone.cpp"}),
    case("a link to itself", LIST, "link.cpp", "link",
         files={"matrix.yaml": with_source("link.cpp"), "link.cpp": "-> link.cpp"}),
    case("a link to outside", LIST, "link.cpp", "inside the folder",
         files={"matrix.yaml": with_source("link.cpp"), "link.cpp": "-> /etc/passwd"}),
    case("a name that is too long", LIST, "longlong", "name|too long", files={"matrix.yaml": with_source(LONG)}),
    case("a name of no file", LIST, "mine", "line 9|sources.cpu[0]",
         files={"matrix.yaml": MATRIX.replace("[mine.cpp]", '["mine\\0.cpp"]')}),
    case("a matrix that is a folder", "matrix --list --matrix src", "src", "folder", files={"src": None}),
    case("reports that are a file", "report done --out mine.cpp", "mine.cpp", "file", "--out"),
    case("a matrix that nobody may read", LIST, "matrix.yaml", "permission|not be read", locked="matrix.yaml"),
    case("a source that nobody may read", "check --device cpu", "mine.cpp", "permission|not be read", locked="mine.cpp"),
    case("a folder that nobody may write", "new other.cpp", "permission|not be written", locked=".", code=30),
    case("a page where nobody may write", "report done --out locked/page", "locked", "permission|not be written",
         locked="locked", code=30),
    case("a path that is not text", "report nowhere\udcff", "nowhere"),
]  # fmt: skip

OTHERS = [
    case("a record of a later format", "report done", "run.json", "later|newer", "version", 
         files={"done/run.json": lambda text: text.replace('"schema_version": ', '"schema_version": 9')}),
    case("a record that was cut off", "report done", "run.json", "JSON|cut|damaged", files={"done/run.json": '{"a": '}),
    case("a record that is empty", "compare done done", "run.json", "empty|JSON", files={"done/run.json": ""}),
    case("a record that is not text", "explain done", "run.json", "UTF-8|JSON|text",
         files={"done/run.json": b"\xff\xfe\x00"}),
    case("a record of another kind", "gate done", "run.json", files={"done/run.json": '{"schema_version": 1}'}),
    case("a validation that was cut off", "report done", "validations", "JSON|cut|damaged",
         files={"done/validations/*": '{"a": '}),
    case("a calibration that is none", "report done --calibration mine.cpp", "mine.cpp", "calibration|JSON"),
    case("a calibration that is not there", "report done --calibration none.json", "none.json", "no such file"),
    case("a pin file that was cut off", LIST, "torch2.1.0-cu121-py311", "pins",
         files={"docker/pins/torch2.1.0-cu121-py311.lock": "{"}),
]  # fmt: skip
