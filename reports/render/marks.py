"""The answers that matter as marks on source lines of a pull or merge request: the line that a checker or a
compiler named, else the first of the kernel's source. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from harness.schema.run_records import KernelInfo
from harness.source_marks import Mark
from reports.load.evidence import Evidence
from reports.render.answers import Answers

# As compilers for the CPU, nvcc and Python's tracebacks name a line.
NAMED = re.compile(r'(?:File ")?(?P<file>[\w./$+-]+\.(?:cuh?|cc|cpp|cxx|h|hpp|py))(?:", line |[:(])(?P<line>\d+)')


def marks(evidence: Evidence, answers: Answers, project: Path) -> list[Mark]:
    """One of each kernel that is wrong, slower or was not run."""
    found = []
    for answer in answers.kernels:
        if not answer.state.is_worse:
            continue
        text = "\n".join([answer.line, *(f"{label}: {each}" for label, texts in answer.rest for each in texts)])
        for name in answer.subjects:
            kernel = evidence.kernel(name)
            if kernel is not None and kernel.sources:
                place = _place(evidence, kernel, answer.device)
                found.append(Mark(place, f"{name}: {answer.state}", text, project))
    return found


def _place(evidence: Evidence, kernel: KernelInfo, device: str) -> str:
    mine = [source for source in kernel.sources if source.endswith(".cu") == (device == "cuda")] or kernel.sources
    sources = {PurePosixPath(source).name: source for source in mine}
    for text in _texts(evidence, kernel.name, device):
        for match in NAMED.finditer(text):
            source = sources.get(PurePosixPath(match["file"]).name)
            if source is not None:
                return f"{source}:{match['line']}"
    return mine[0]


def _texts(evidence: Evidence, kernel: str, device: str) -> Iterator[str]:
    """Where a line of its source may be named, the surest first."""
    for (_, name, _, on), entries in evidence.checkers.items():
        if (name, on) == (kernel, device):
            yield from (found.where for record, _ in entries for result in record.results for found in result.findings)
    for build in evidence.builds.values():
        if (build.kernel, build.device) == (kernel, device) and build.status != "ok":
            yield f"{build.message}\n{build.log_excerpt}"
    for validation in evidence.validations.values():
        if (validation.kernel, validation.device) == (kernel, device) and validation.status != "ok":
            yield validation.log_excerpt
