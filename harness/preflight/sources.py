"""Native sources, compiled as a build compiles them. PyTorch's headers are an environment's: what includes them is
compiled where one exists, and its objects are not looked at.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.config import shipped
from harness.config.environments import Environment
from harness.preflight.findings import Findings, Problem
from harness.preflight.symbols import Subject, in_objects, in_text
from harness.run.build import build_request
from harness.tools import cuda_compiler, host_compiler
from harness.worker import build, protocol, tools, wire

COMPILE_S = 300
# What PyTorch's helper adds for nvcc, in every release.
NVCC_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", "--compiler-options", "-fPIC",
)  # fmt: skip
STANDARD, OTHER_STANDARDS = "-std=c++17", ("-std=c++14", "-std=c++20")
OF_STANDARD = re.compile(r"2\.[1-9]\.")  # releases whose helper asks for C++17; of others nothing is assumed
ERROR = re.compile(r"^(.+?)(?::(\d+)(?::\d+)?|\((\d+)\)): (?:fatal |catastrophic )?error(?: #\S+)?: (.*)$")
LACKS_HEADER = re.compile(
    r"""error: ['"]?([^\s'"]+)['"]?(?:: No such file or directory| file not found)|cannot open source file "([^"]+)\""""
)
# Headers that PyTorch, Python or a CUDA toolkit brings.
BROUGHT = re.compile(
    r"(torch|ATen|c10|caffe2|THC?|pybind11|kineto|tensorpipe|fmt|google|numpy|nlohmann|cute|cutlass|thrust|cub|cuda)/"
    r"|(Python|structmember|cpuinfo|clog|fp16|fxdiv|psimd|sleef|libshm|pthreadpool)\.h$|\w*nnpack|dnnl|cu|nv|nccl|mma"
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What compiles here. `includes`: by environment that exists, the folders of its PyTorch's and its Python's
    headers. `is_builder`: whether this machine's own compilers make the builds, and not those of an image."""

    cache: Path
    includes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_builder: Callable[[], bool] = lambda: True


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The same build in some of the environments."""

    subject: Subject
    environments: Sequence[Environment]
    request: wire.BuildRequest
    machine: Machine
    nvcc: str

    def compile(self, source: str, to: str = "", headers: Sequence[str] = ()) -> tuple[int | None, str]:
        """Exit status and output, by the first of the standards that PyTorch may ask for that will do. Without `to`
        nothing is written. `headers`: folders of an environment's."""
        known = all(OF_STANDARD.match(each.torch) for each in self.environments)
        outcomes = []
        for standard in (STANDARD,) if known else (STANDARD, *OTHER_STANDARDS):
            outcome = tools.attempt(self._command(source, to, headers, standard), COMPILE_S)
            if outcome[0] == 0:
                return outcome
            outcomes.append(outcome)
        return outcomes[0]

    def _command(self, source: str, to: str, headers: Sequence[str], standard: str) -> list[str]:
        flags = build.compiler_flags(self.request)
        folders = [f"-I{folder}" for folder in self.request.include_dirs]
        task = ["-c", source, "-o", to] if to else ["-fsyntax-only", source]
        if source.endswith(build.CUDA_SUFFIXES):
            chosen = [] if any("-std" in flag for flag in flags["nvcc"]) else [standard]
            return [self.nvcc, *folders, *NVCC_FLAGS, *flags["nvcc"], *chosen, *task]
        folders += [f"-I{Path(self.nvcc).parents[1] / 'include'}"] if self.nvcc else []
        folders += [word for folder in headers for word in ("-isystem", folder)]
        module = [f"-DTORCH_EXTENSION_NAME={self.subject.module}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        return [*tools.cxx(), *module, *folders, "-fPIC", standard, *flags["cxx"], *task]

    def refused(self, source: str, output: str) -> Problem:
        """The compiler's first error, with its place."""
        line = build.first_error(output, []) or (output.strip().splitlines() or ["the compiler failed"])[-1]
        error = ERROR.match(line)
        file, number, text = (error[1], error[2] or error[3], error[4]) if error else (source, "1", line)
        shown = shipped.name_of(self.subject.root, Path(file)) or file
        return Problem(where=f"{shown}:{number}", what=f"does not compile: {text}", remedy="correct the line")

    def examine(self, texts: Mapping[str, str]) -> Findings:
        """Compiled, and looked at; what needs an environment's headers, in those that exist."""
        found, name = Findings(), self.subject.name
        objects, waiting = list[str](), list[str]()
        with tempfile.TemporaryDirectory() as folder:
            for number, source in enumerate(self.request.sources):
                to = f"{folder}/{number}.o"
                code, output = self.compile(source, to)
                header = LACKS_HEADER.search(output) if code else None
                if code == 0:
                    objects.append(to)
                elif code in (None, 127):
                    found.unchecked.append(f"{name}: the compiler did not end: {output[-200:]}")
                elif header and BROUGHT.match(header[1] or header[2]):
                    waiting.append(source)
                elif header and f'"{header[1]}"' not in output:
                    found.unchecked.append(f"{name}: {self.refused(source, output).what}")
                else:
                    found.problems.append(self.refused(source, output))
            if len(objects) == len(self.request.sources):
                found.add(in_objects(self.subject, objects, texts))
        if waiting:
            found.add(self._in_environments(waiting))
        if not self.machine.is_builder():
            found.unchecked += [f"{each.where}: this machine's compiler, which is not what builds it: {each.what}"
                                for each in found.problems if each.what.startswith("does not compile")]  # fmt: skip
            found.problems = [each for each in found.problems if not each.what.startswith("does not compile")]
        return found

    def _in_environments(self, sources: Sequence[str]) -> Findings:
        """Refused is what fails in all of them, and all exist: PyTorch's interfaces differ."""
        name, includes = self.subject.name, self.machine.includes
        there = [each for each in self.environments if each.id() in includes]
        if not there or any(source.endswith(build.CUDA_SUFFIXES) for source in sources):
            return Findings(unchecked=[f"{name}: not compiled, for it includes PyTorch's headers: a build will tell"])
        failed: dict[str, Problem] = {}
        for environment in there:
            for source in sources:
                code, output = self.compile(source, headers=includes[environment.id()])
                if code:
                    failed.setdefault(environment.id(), self.refused(source, output))
        if len(failed) == len(self.environments):
            return Findings(problems=list(dict.fromkeys(failed.values())))
        if failed:
            return Findings(unchecked=[f"{id}: {each.where}: {each.what}" for id, each in failed.items()])
        return Findings(passed=[f"{name}: compiles with the headers of {', '.join(each.id() for each in there)}"])


def check_sources(subject: Subject, environments: Sequence[Environment], machine: Machine) -> Findings:
    """Refused is what fails with the flags of every environment: what fails in one alone is a result."""
    found, texts = Findings(), subject.texts()
    nvcc = cuda_compiler() if subject.device == "cuda" else None
    compiler = nvcc if subject.device == "cuda" else host_compiler()
    release = re.search(r"(?:release |cuda_)(\d+)\.", nvcc[1]) if nvcc else None
    if compiler is None:
        what = "nvcc" if subject.device == "cuda" else "C++ compiler"
        found.unchecked.append(f"{subject.name}: not compiled, for there is no {what} here")
    elif release and not any(each.cuda.partition(".")[0] in ("", release[1]) for each in environments):
        found.unchecked.append(f"{subject.name}: not compiled, for nvcc here is of CUDA {release[1]}")
    else:
        tried = [
            _remembered(Attempt(subject=subject, environments=same, request=request, machine=machine,
                                nvcc=nvcc[0] if nvcc else ""), texts, compiler[1])
            for request, same in _requests(subject, environments)
        ]  # fmt: skip
        certain = all(each.problems for each in tried)
        for each in tried:
            words = [f"{subject.name}, with some environments' flags: {p.where}: {p.what}" for p in each.problems]
            found.add(each if certain else replace(each, problems=[], unchecked=[*each.unchecked, *words]))
    if subject.kernel.binding == "own" or not (found.passed or found.problems):
        found.add(Findings(problems=in_text(subject, texts)))
    return found


def _requests(
    subject: Subject, environments: Sequence[Environment]
) -> list[tuple[wire.BuildRequest, list[Environment]]]:
    """The builds that differ, each with its environments. One architecture is enough."""
    found: list[tuple[wire.BuildRequest, list[Environment]]] = []
    artifact = Path(f"{subject.module}.so")
    for environment in environments:
        request = build_request(
            subject.root, subject.kernel, subject.sources, environment, subject.device, artifact
        )
        request = replace(request, architectures=request.architectures[:1])
        same = next((each for known, each in found if known == request), None)
        if same is None:
            found.append((request, [environment]))
        else:
            same.append(environment)
    return found


def _remembered(attempt: Attempt, texts: Mapping[str, str], compiler: str) -> Findings:
    """What passed before, and is the same now, is not compiled again."""
    headers = {each.id(): attempt.machine.includes.get(each.id()) for each in attempt.environments}
    key = protocol.digest([repr(attempt.request), dict(texts), compiler, repr(headers), protocol.sha256_file(__file__)])
    done = attempt.machine.cache / "checks" / key[:32]
    if done.is_file():
        return Findings(passed=[done.read_text(encoding="utf-8")])
    found = attempt.examine(texts)
    if found.passed and not found.problems and not found.unchecked:
        done.parent.mkdir(parents=True, exist_ok=True)
        protocol.write_atomically(str(done), found.passed[0].encode())
    return found
