"""What a kernel's sources define and leave undefined, held against what will be called: by their objects where they
were compiled, else by their text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import shipped
from harness.config.kernels import Kernel
from harness.errors import Problem, meant
from harness.preflight.findings import Findings
from harness.run.build import BINDING_FILES, HEADER_SUFFIXES, LINK_FLAGS, kernel_files
from harness.schema.records import Device
from harness.worker import build, tools
from harness.worker.library import NEEDS_TORCH

LINK_S = 120
# Symbols without parameters, of which libraries in PyTorch's process define some.
IN_PROCESS = re.compile(
    r"_|.*_$|omp_|kmp|GOMP|GOACC|cblas_|LAPACKE?_|mkl_|MKL_|v[sd][A-Z]|vm[sd]|dnnl_|xnn_|nnp_|pthreadpool_|cpuinfo_|"
    r"Sleef_|uv_|cu[A-Z]|cuda|cublas|cudnn|nccl|nv"
)
MODULE = re.compile(r"PYBIND11|PyInit|_MODULE\b|_PLUGIN\b")
NAMED_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)\s*,")
NAMED_BY_BUILD = "TORCH_EXTENSION_NAME"
PASTED = re.compile(r"attention_\s*##|##\s*_")
DEFINITIONS = {
    "attention_error_string": 'extern "C" const char* attention_error_string(int) { return "refused"; }',
    "attention_tunables": 'extern "C" const char* attention_tunables(void) { return ""; }',
}
AS_DECLARED = 'as csrc/attention.h does: extern "C", not static, in no namespace, with the same parameters'


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A kernel's sources for a device."""

    root: Path
    kernel: Kernel
    device: Device
    sources: Sequence[str]

    @property
    def name(self) -> str:
        return f"{self.kernel.name} ({self.device})"

    @property
    def module(self) -> str:
        """The Python module that it defines, with a binding of its own."""
        return build.identifier(self.kernel.name)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The symbols that are called."""
        return build.C_INTERFACE if self.kernel.binding == "shipped" else (f"PyInit_{self.module}",)

    def texts(self) -> dict[str, str]:
        """Of all that is compiled with it and is not the interface itself, the sources first."""
        files = kernel_files(self.root, self.kernel, {self.device: list(self.sources)}, self.device)
        interface = {Path(name).name for name in BINDING_FILES}
        own = [name for name in files if name in self.sources or Path(name).name not in interface]
        return {name: tools.read_text(str(shipped.located(self.root, name))) for name in own}

    def place(self, name: str, texts: Mapping[str, str]) -> str:
        """File and line where a name is first written before a parenthesis, else anywhere; else the first source."""
        for pattern in (rf"\b{re.escape(name)}\s*\(", rf"\b{re.escape(name)}\b"):
            for file, text in texts.items():
                if found := re.search(pattern, text):
                    return f"{file}:{text.count(chr(10), 0, found.start()) + 1}"
        return f"{self.sources[0]}:1"


def in_text(subject: Subject, texts: Mapping[str, str]) -> list[Problem]:
    """What no file mentions, no file defines."""
    every = "\n".join(texts.values())
    if subject.kernel.binding == "shipped":
        missing = [name for name in build.C_INTERFACE if name not in every and not PASTED.search(every)]
        return [_lacks(subject, missing, texts)] if missing else []
    first, problems = f"{subject.sources[0]}:1", list[Problem]()
    add = 'add PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }'
    if not MODULE.search(every):
        what = "`binding: own`, and no source defines a Python module"
        problems.append(Problem(where=first, what=what, remedy=f"{add}, or remove `binding: own`"))
    elif "forward" not in every:
        problems.append(Problem(where=first, what="its Python module has no `forward`", remedy=add))
    else:
        names = NAMED_MODULE.findall(every)
        known = (NAMED_BY_BUILD, subject.module)
        if names and not any(name in known or re.search(rf"#\s*define\s+{name}\b", every) for name in names):
            what = f"defines the Python module {names[0]}, and the build looks for {subject.module}"
            where = subject.place("PYBIND11_MODULE", texts)
            problems.append(Problem(where=where, what=what, remedy=f"write PYBIND11_MODULE({NAMED_BY_BUILD}, m)"))
    return problems


def in_objects(subject: Subject, objects: Sequence[str], texts: Mapping[str, str]) -> Findings:
    """What they do not define, or not as it will be called; and of the CPU what keeps them from being linked."""
    found = Findings()
    listed = tools.run(["nm", "-C", *objects]) or ""
    defined = re.findall(r"^[0-9a-f]+ ([A-Za-z]) (.+)$", listed, re.MULTILINE)
    if not defined or "__gnu_lto_slim" in listed:  # left for the linker, with -flto
        found.unchecked.append(f"{subject.name}: its symbols, which nm does not tell")
        return found
    usable = {name for kind, name in defined if kind.isupper() or kind in "iuvw"}  # i: chosen when it is loaded
    missing = [name for name in subject.wanted if name not in usable]
    for name in list(missing):
        other = next((each for _, each in defined if re.search(rf"(^|::){name}(\(|$)", each)), "")
        if other or any(re.search(rf"\b{name}\b", text) for text in texts.values()):
            missing.remove(name)
            what = f"defines {other or 'nothing that can be called'}, and not the C function {name}"
            remedy = f"define it {AS_DECLARED}"
            found.problems.append(Problem(where=subject.place(name, texts), what=what, remedy=remedy))
    if missing:
        found.problems.append(_lacks(subject, missing, texts, usable))
    if subject.device == "cpu":
        found.problems += _linked(subject, objects, texts)
    if not found.problems:
        found.passed.append(f"{subject.name}: compiles, and defines {', '.join(subject.wanted)}")
    return found


def _lacks(subject: Subject, missing: Sequence[str], texts: Mapping[str, str], usable: Collection[str] = ()) -> Problem:
    if subject.kernel.binding == "own":
        what, remedy = f"defines no {missing[0]}", f"write PYBIND11_MODULE({NAMED_BY_BUILD}, m)"
        return Problem(where=subject.place("PYBIND11_MODULE", texts), what=what, remedy=remedy)
    what = f"defines no {' and no '.join(missing)}, which csrc/attention.h asks for"
    where = subject.place("attention_forward", texts)
    if any("PYBIND11_MODULE" in text for text in texts.values()):
        return Problem(where=where, what=what, remedy="add `binding: own` to the kernel: it defines a Python module")
    near = "".join(meant(name, set(usable) - set(subject.wanted), 0.8) for name in missing)
    lines = " and ".join(f"`{DEFINITIONS[name]}`" for name in missing if name in DEFINITIONS)
    return Problem(where=where, what=what, remedy=f"{near}add {lines or 'it as csrc/attention.h declares it'}")


def _linked(subject: Subject, objects: Sequence[str], texts: Mapping[str, str]) -> Iterator[Problem]:
    """Names defined twice, and names that nothing defines: no object, no library of the system, and, as far as a name
    tells, none of those in PyTorch's process."""
    warn = ["-Wl,--no-undefined", "-Wl,--warn-unresolved-symbols"]
    libraries = ["-Wl,--no-as-needed", "-lm", "-ldl", "-lrt", "-lpthread"]  # those of Python's own process
    link = [*LINK_FLAGS[subject.device], *libraries, *warn]
    command = [*tools.cxx(), "-shared", *objects, *link, "-o", f"{objects[0]}.so"]
    _, output = tools.attempt(command, LINK_S)
    for name in dict.fromkeys(re.findall(r"multiple definition of [`']([^'\n]+)'", output)):
        remedy = "keep one of them, or make each `static`; of a file that includes the other, list one in `sources`"
        yield Problem(where=subject.place(_plain(name), texts), what=f"defines {name} twice", remedy=remedy)
    for name in dict.fromkeys(re.findall(r"undefined (?:reference to|symbol:) [`']?([^'\n]+)", output)):
        if name not in subject.wanted and not NEEDS_TORCH.search(name) and _is_own(name, texts):
            elsewhere = _defining_file(subject, _plain(name)) or "the file that defines it"
            what = f"calls {name}, which no file listed in `sources` defines"
            remedy = f"add {elsewhere} to `sources` in matrix.yaml"
            yield Problem(where=subject.place(_plain(name), texts), what=what, remedy=remedy)


def _plain(name: str) -> str:
    """A symbol's last name: `f` of `a::f(int)`."""
    outer = name.replace("(anonymous namespace)", "_")
    words = re.split(r"[(<]", outer)[0].split("::")[-1].split()
    return words[-1] if words else name


def _is_own(name: str, texts: Mapping[str, str]) -> bool:
    """Whether a symbol that is undefined is declared in the kernel's own files, and is no library's."""
    every = "\n".join(texts.values())
    if not re.search(rf"\b{re.escape(_plain(name))}\b", every):
        return False
    outer = re.match(r"(?:vtable for |typeinfo for )?(\w+)::", name)
    if outer is not None:
        declared = re.search(rf"\b(namespace|class|struct)\s+{outer[1]}\b", every)
        return declared is not None and outer[1] != "std"
    return "(" in name or not IN_PROCESS.match(name)


def _defining_file(subject: Subject, name: str) -> str | None:
    """A source beside the listed ones that seems to define the name."""
    definition = re.compile(rf"\b{re.escape(name)}\s*\([^;{{}}]*\)\s*(const\s*)?(noexcept\s*)?\{{")
    listed = {shipped.located(subject.root, each) for each in subject.sources}
    suffixes = {path.suffix for path in listed} | {".cpp", ".cc", ".cxx"} - HEADER_SUFFIXES
    for folder in dict.fromkeys(path.parent for path in listed):
        for path in sorted(folder.iterdir()):
            if path not in listed and path.suffix in suffixes and definition.search(tools.read_text(str(path))):
                return shipped.name_of(subject.root, path)
    return None
