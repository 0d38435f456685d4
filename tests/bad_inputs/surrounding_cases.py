"""Mistakes around a command: variables, paths, records."""

from __future__ import annotations

from tests.bad_inputs.case import MATRIX, case

HOST = MATRIX.replace('torch: "2.5.0", cuda: "12.1", python: "3.11"', "torch: host")
CUDA = MATRIX.replace("{cpu: [mine.cpp]}", "{cuda: [mine.cu]}").replace("{cpu: [float32]}", "{cuda: [float16]}")
LONG = "long" * 70 + ".cpp"
LIST = "matrix --list --executor venv"


def with_source(name: str) -> str:
    return MATRIX.replace("[mine.cpp]", f"['{name}']")


ENVIRONMENT = [
    case(
        "a cache that is a file",
        LIST,
        "KERNEL_MATRIX_CACHE",
        "mine.cpp",
        variables={"KERNEL_MATRIX_CACHE": "mine.cpp"},
        code=30,
    ),
    case(
        "a cache that cannot be made",
        LIST,
        "KERNEL_MATRIX_CACHE",
        "/proc/cache",
        variables={"KERNEL_MATRIX_CACHE": "/proc/cache"},
        code=30,
    ),
    case(
        "a variable misspelt",
        LIST,
        "KERNEL_MATRIX_CAHCE",
        "did you mean KERNEL_MATRIX_CACHE?",
        variables={"KERNEL_MATRIX_CAHCE": "cache"},
    ),
    case(
        "a bundle's variable misspelt",
        LIST,
        "KERNEL_MATRIX_BUNDEL",
        "did you mean KERNEL_MATRIX_BUNDLE?",
        variables={"KERNEL_MATRIX_BUNDEL": "bundle"},
    ),
    case(
        "a bundle that is not there",
        "matrix --list",
        "KERNEL_MATRIX_BUNDLE",
        "nowhere",
        variables={"KERNEL_MATRIX_BUNDLE": "nowhere"},
    ),
    case(
        "a bundle that is none",
        "matrix --list",
        "KERNEL_MATRIX_BUNDLE",
        "src",
        "bundle",
        files={"src": None},
        variables={"KERNEL_MATRIX_BUNDLE": "src"},
    ),
    case(
        "a host's Python that is not there",
        LIST,
        "KERNEL_MATRIX_HOST_PYTHON",
        "/nowhere/python",
        files={"matrix.yaml": HOST},
        variables={"KERNEL_MATRIX_HOST_PYTHON": "/nowhere/python"},
        code=30,
    ),
    case(
        "a host's Python that is none",
        LIST,
        "KERNEL_MATRIX_HOST_PYTHON",
        "mine.cpp",
        files={"matrix.yaml": HOST},
        variables={"KERNEL_MATRIX_HOST_PYTHON": "mine.cpp"},
        code=30,
    ),
    case(
        "a host's Python that is a folder",
        LIST,
        "KERNEL_MATRIX_HOST_PYTHON",
        "/usr",
        files={"matrix.yaml": HOST},
        variables={"KERNEL_MATRIX_HOST_PYTHON": "/usr"},
        code=30,
    ),
    case(
        "a compiler that is not there",
        "check --device cpu --executor venv",
        "CXX",
        "/nowhere/g++",
        variables={"CXX": "/nowhere/g++"},
        code=30,
    ),
    case(
        "a compiler that is none",
        "check --device cpu --executor venv",
        "CXX",
        "matrix.yaml",
        variables={"CXX": "./matrix.yaml"},
        code=30,
    ),
    case(
        "a CUDA_HOME that is not there",
        "matrix --list --device cuda --executor venv",
        "CUDA_HOME",
        "/nowhere/cuda",
        files={"matrix.yaml": CUDA, "mine.cu": "int x;\n"},
        variables={"CUDA_HOME": "/nowhere/cuda"},
        code=30,
    ),
]

PATHS = [
    case(
        "a missing file with spaces",
        LIST,
        "my sources/my kernel.cpp",
        ":9:",
        files={"matrix.yaml": with_source("my sources/my kernel.cpp")},
    ),
    case("a missing file with accents", LIST, "kärnel.cpp", ":9:", files={"matrix.yaml": with_source("kärnel.cpp")}),
    case(
        "a link to nothing",
        LIST,
        "link.cpp",
        ":9:",
        "link",
        "gone.cpp",
        files={"matrix.yaml": with_source("link.cpp"), "link.cpp": "-> gone.cpp"},
    ),
    case(
        "a link to itself",
        LIST,
        "link.cpp",
        "link",
        files={"matrix.yaml": with_source("link.cpp"), "link.cpp": "-> link.cpp"},
    ),
    case("a name that is too long", LIST, "longlong", "no such file", files={"matrix.yaml": with_source(LONG)}),
    case(
        "a name of no file", LIST, "mine", ":9:", files={"matrix.yaml": MATRIX.replace("[mine.cpp]", '["mine\\0.cpp"]')}
    ),
    case("a matrix that is a folder", "matrix --list --matrix src", "src", "folder", files={"src": None}),
    case("reports that are a file", "report done --out mine.cpp", "mine.cpp", "file", "--out"),
    case("a matrix that nobody may read", LIST, "matrix.yaml", "permission|not be read", locked="matrix.yaml"),
    case(
        "a source that nobody may read",
        "matrix --list --device cpu --executor venv",
        "mine.cpp",
        "permission|not be read",
        locked="mine.cpp",
        code=30,
    ),
    case(
        "a page where nobody may write",
        "report done --out locked/page",
        "locked",
        "permission|not be written",
        locked="locked",
    ),
]

OTHERS = [
    case(
        "a record of a later format",
        "report done",
        "run.json",
        "later|newer",
        "version",
        files={"done/run.json": lambda text: text.replace('"schema_version": ', '"schema_version": 9')},
    ),
    case("a record that was cut off", "report done", "run.json", "JSON|cut|damaged", files={"done/run.json": '{"a": '}),
    case("a record that is empty", "compare done done", "run.json", "empty|JSON", files={"done/run.json": ""}),
    case(
        "a record that is not text",
        "explain done",
        "run.json",
        "UTF-8|JSON|text",
        files={"done/run.json": b"\xff\xfe\x00"},
    ),
    case("a record of another kind", "gate done", "run.json", files={"done/run.json": '{"schema_version": 1}'}),
    case(
        "a validation that was cut off",
        "report done",
        "validations",
        "JSON|cut|damaged",
        files={"done/validations/**/*.json": '{"a": '},
    ),
]
