"""Native sources, compiled as a build compiles them. PyTorch's headers are an environment's: what includes them is
compiled where one exists, and its objects are not looked at.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from harness.config import shipped
from harness.config.environments import Environment
from harness.errors import Problem
from harness.isolate.process import temporary_folder
from harness.preflight.findings import Findings
from harness.preflight.symbols import Subject, in_objects, in_text
from harness.run.build import build_request
from harness.schema.records import Device
from harness.tools import cuda_compiler, host_compiler
from harness.worker import build, protocol, tools, wire

COMPILE_S = 60  # what takes longer is left to the build
# What PyTorch's helper adds for nvcc, in every release.
NVCC_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
    "--compiler-options",
    "-fPIC",
)
STANDARD, OTHER_STANDARDS = "-std=c++17", ("-std=c++14", "-std=c++20")
OF_STANDARD = re.compile(r"2\.[1-9]\.")  # releases whose helper asks for C++17; of others nothing is assumed
ERROR = re.compile(r"^(.+?)(?::(\d+)(?::\d+)?|\((\d+)\)): (?:fatal |catastrophic )?error(?: #\S+)?: (.*)$")
FLAG = re.compile(r"error: (unrecogni[sz]ed|unknown|bad value|unsupported option)")
MACHINE = re.compile(
    r"No space left|Cannot allocate memory|out of memory|Killed|internal compiler error|Permission denied"
    r"|unsupported GNU version|unsupported clang version"
)
# Flags that make a compiler read and warn otherwise, and neither start nor write anything: all that are tried here,
# outside of a sandbox.
HARMLESS = re.compile(
    r"-O\w*|-g\d?|--?std=[\w+]+|-m[\w.=-]+|-[DUI][^,]*|-W(?![lpa],)[\w=-]*|-w|-pedantic|-pthread|-lineinfo|-fopenmp"
    r"|-f(?!plugin|dump|profile|save|stack-usage|callgraph|opt-info|lto-dump)[\w=,-]+|--generate-line-info"
    r"|--?use_fast_math|--?(fmad|ftz|prec-\w+|maxrregcount)=\w+|--?(extra-device-vectorization|restrict)"
    r"|--?expt-[\w-]+|--?extended-lambda|--?default-stream=[\w-]+|-Xptxas=(-v|-O\d)|--threads=?\d*"
    r"|-gencode=?|arch=compute_\w+,code=\w+|--generate-code=[\w=,]+"
)
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

    def unsafe(self) -> str:
        """A flag that is not tried here; '' where there is none."""
        flags = build.compiler_flags(self.request)
        return next((flag for flag in (*flags["cxx"], *flags["nvcc"]) if not HARMLESS.fullmatch(flag)), "")

    def _command(self, source: str, to: str, headers: Sequence[str], standard: str) -> list[str]:
        flags = build.compiler_flags(self.request)
        folders = [f"-I{folder}" for folder in self.request.include_dirs]
        task = ["-c", source, "-o", to] if to else ["-fsyntax-only", source]
        if source.endswith(build.CUDA_SUFFIXES):
            chosen = [] if any("-std" in flag for flag in flags["nvcc"]) else [standard]
            host = ["-ccbin", os.environ["CC"]] if os.environ.get("CC") else []  # as PyTorch's helper
            return [self.nvcc, *host, *folders, *NVCC_FLAGS, *flags["nvcc"], *chosen, *task]
        folders += [f"-I{Path(self.nvcc).parents[1] / 'include'}"] if self.nvcc else []
        folders += [word for folder in headers for word in ("-isystem", folder)]
        module = [f"-DTORCH_EXTENSION_NAME={self.subject.module}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        return [*tools.cxx(), *module, *folders, "-fPIC", standard, *flags["cxx"], *task]

    def refused(self, output: str) -> Findings:
        """The compiler's first error. What has no place in a file says nothing certain of the sources."""
        line = build.first_error(output, []) or (output.strip().splitlines() or ["the compiler failed"])[-1]
        error = ERROR.match(line)
        if MACHINE.search(output) or not (error or FLAG.search(line)):
            return Findings(unchecked=[f"{self.subject.name}: {line}"])
        where, text, remedy = f"kernel {self.subject.kernel.name}", line, "correct its `flags` in matrix.yaml"
        if error:
            file = shipped.name_of(self.subject.root, Path(error[1])) or error[1]
            where, text, remedy = f"{file}:{error[2] or error[3]}", error[4], "correct the line"
        problem = Problem(where=where, what=f"does not compile: {text}", remedy=remedy)
        if self.machine.is_builder():
            return Findings(problems=[problem])
        return Findings(unchecked=[f"{where}: {problem.what}, by this machine's compiler; an image brings its own"])

    def examine(self, texts: Mapping[str, str]) -> Findings:
        """Compiled, and looked at; what needs an environment's headers, in those that exist."""
        found, name = Findings(), self.subject.name
        if flag := self.unsafe():
            return Findings(unchecked=[f"{name}: not compiled, for its flag {flag} is tried in a sandbox alone"])
        objects, waiting = list[str](), list[str]()
        with temporary_folder() as folder:
            for number, source in enumerate(self.request.sources):
                to = f"{folder}/{number}.o"
                code, output = self.compile(source, to)
                lacks = LACKS_HEADER.search(output) if code else None
                header = (lacks[1] or lacks[2]) if lacks else ""
                if code == 0:
                    objects.append(to)
                elif code in (None, 127):
                    why = f"it takes over {COMPILE_S} s" if code is None else "no compiler starts; `doctor` says more"
                    found.unchecked.append(f"{name}: not compiled: {why}")
                elif BROUGHT.match(header):
                    waiting.append(source)
                elif header and f'"{header}"' not in "".join(texts.values()):  # in <>: the system's, or PyTorch's
                    found.unchecked.append(f"{name}: not compiled, for {header} is not here")
                else:
                    found.add(self.refused(output))
            if len(objects) == len(self.request.sources):
                found.add(in_objects(self.subject, objects, texts))
        if waiting:
            found.add(self._in_environments(waiting))
        return found

    def _in_environments(self, sources: Sequence[str]) -> Findings:
        """Refused is what fails in all of them, and all exist: PyTorch's interfaces differ."""
        name, includes = self.subject.name, self.machine.includes
        there = [each for each in self.environments if each.id() in includes]
        if not there or any(source.endswith(build.CUDA_SUFFIXES) for source in sources):
            return Findings(unchecked=[f"{name}: not compiled, for it includes PyTorch's headers: a build will tell"])
        tried = []
        for environment in there:
            outcomes = [self.compile(source, headers=includes[environment.id()]) for source in sources]
            if any(code and LACKS_HEADER.search(output) for code, output in outcomes):  # of another package
                return Findings(unchecked=[f"{name}: not compiled, for a header is not here: a build will tell"])
            tried.append([self.refused(output) for code, output in outcomes if code])
        certain = all(tried) and len(tried) == len(self.environments)
        if any(tried):
            found = Findings()
            for each in tried[0] if certain else chain(*tried):
                found.add(each)
            return found if certain else doubted(found, name)
        return Findings(passed=[f"{name}: compiles with the headers of {', '.join(each.id() for each in there)}"])


def find_compiler(device: Device, environments: Sequence[Environment]) -> tuple[str, str] | str:
    """What compiles for the device here, and its version; or why nothing does that PyTorch would accept."""
    if device == "cpu":
        return host_compiler() or "there is no C++ compiler here"
    nvcc = cuda_compiler()
    if nvcc is None:
        return "there is no nvcc here"
    release = re.search(r"(?:release |cuda_)(\d+)\.", nvcc[1])
    accepted = release is None or any(each.cuda.partition(".")[0] in ("", release[1]) for each in environments)
    return nvcc if accepted or release is None else f"nvcc here is of CUDA {release[1]}"


def check_sources(subject: Subject, environments: Sequence[Environment], machine: Machine) -> Findings:
    """Refused is what fails with the flags of every environment: what fails in one alone is a result."""
    found, texts = Findings(), subject.texts()
    compiler = find_compiler(subject.device, environments)
    if isinstance(compiler, str):
        found.unchecked.append(f"{subject.name}: not compiled, for {compiler}")
    else:
        nvcc = compiler[0] if subject.device == "cuda" else ""
        tried = []
        for request, same in _requests(subject, environments):
            attempt = Attempt(subject=subject, environments=same, request=request, machine=machine, nvcc=nvcc)
            tried.append(_remembered(attempt, texts, compiler[1]))
        certain = all(each.problems for each in tried)
        for each in tried:
            found.add(each if certain else doubted(each, subject.name))
    if not (found.passed or found.problems) and not _has_flags(subject):
        found.add(Findings(problems=in_text(subject, texts)))
    return replace(found, passed=[]) if found.problems else found


def _has_flags(subject: Subject) -> bool:
    """Whether flags of its own may bring what its text does not show: headers, macros."""
    return any(flag.startswith(("-I", "-D", "-i")) for flag in (*subject.kernel.flags.cxx, *subject.kernel.flags.nvcc))


def doubted(found: Findings, name: str) -> Findings:
    """Of what some environments may accept."""
    words = [f"{name}, in some of the environments: {each.where}: {each.what}" for each in found.problems]
    return replace(found, problems=[], unchecked=[*found.unchecked, *words])


def _requests(
    subject: Subject, environments: Sequence[Environment]
) -> list[tuple[wire.BuildRequest, list[Environment]]]:
    """The builds that differ, each with its environments. One architecture is enough."""
    found: list[tuple[wire.BuildRequest, list[Environment]]] = []
    artifact = Path(f"{subject.module}.so")
    for environment in environments:
        request = build_request(subject.root, subject.kernel, subject.sources, environment, subject.device, artifact)
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
    code = [protocol.sha256_file(str(path)) for path in sorted(Path(__file__).parent.glob("*.py"))]
    variables = [os.environ.get(name, "") for name in ("CC", "CXX")]
    key = protocol.digest([repr(attempt.request), dict(texts), compiler, variables, repr(headers), code])
    done = attempt.machine.cache / "checks" / key[:32]
    if done.is_file():
        return Findings(passed=[done.read_text(encoding="utf-8")])
    found = attempt.examine(texts)
    if found.passed and not found.problems and not found.unchecked:
        with contextlib.suppress(OSError):  # a full disk costs time
            done.parent.mkdir(parents=True, exist_ok=True)
            protocol.write_atomically(str(done), found.passed[0].encode())
    return found
