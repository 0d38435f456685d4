"""What a candidate of the corpus is, and the templates that its source is made with."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

from tests.candidates.corpus import templates

Form = Literal["python", "cpp", "cuda", "python_cuda"]
DEVICES: dict[Form, str] = {"python": "cpu", "cpp": "cpu", "cuda": "cuda", "python_cuda": "cuda"}
SUFFIXES: dict[Form, str] = {"python": ".py", "cpp": ".cpp", "cuda": ".cu", "python_cuda": ".py"}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One kernel. `says`: what it does, in one sentence.

    `twin`: the honest one whose time is the measure of a hostile one's, '' where it is itself a twin. `alone`:
    it attacks what runs it, and shares a run with its twin only. `hidden`: text that no page may hold as it is.
    """

    name: str
    says: str
    family: str
    form: Form
    problem: str
    hostile: bool
    source: str
    twin: str = ""
    alone: bool = False
    hidden: str = ""
    own_binding: bool = False
    tunables: tuple[tuple[str, str], ...] = ()

    @property
    def device(self) -> str:
        return DEVICES[self.form]

    @property
    def file(self) -> str:
        return self.name + SUFFIXES[self.form]


def _indented(text: str, spaces: int) -> str:
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * spaces)


def python(
    name: str,
    says: str,
    body: str,
    *,
    family: str,
    hostile: bool = True,
    before: str = "",
    init: str = "pass",
    problem: str = "chain",
    cuda: bool = False,
    alone: bool = False,
    hidden: str = "",
) -> Candidate:
    """A ModelNew. `body` is its forward, in which `self.right(x)` is the honest work; `before` stands before the class,
    `init` at the end of its constructor."""
    source = templates.SOLUTIONS[problem].format(
        before=textwrap.dedent(before).strip("\n"), init=_indented(init, 8), body=_indented(body, 8)
    )
    form: Form = "python_cuda" if cuda else "python"
    twin = f"twin_{problem}_cuda" if cuda else f"twin_{problem}"
    return Candidate(
        name=name,
        says=says,
        family=family,
        form=form,
        problem=problem,
        hostile=hostile,
        source=source,
        twin="" if name == twin else twin,
        alone=alone,
        hidden=hidden,
    )


def cpp(
    name: str,
    says: str,
    body: str,
    *,
    family: str,
    hostile: bool = True,
    before: str = "",
    after: str = "",
    alone: bool = False,
    hidden: str = "",
) -> Candidate:
    """An attention behind csrc/attention.h. `body` is in attention_forward, in which `right(p, q, k, v, o)` is the
    honest work; `after` replaces what follows it."""
    source = templates.CPP.replace("@BEFORE@", textwrap.dedent(before).strip("\n"))
    source = source.replace("@BODY@", _indented(body, 4))
    source = source.replace("@AFTER@", textwrap.dedent(after).strip("\n") or templates.CPP_AFTER)
    return Candidate(
        name=name,
        says=says,
        family=family,
        form="cpp",
        problem="attention",
        hostile=hostile,
        source=source,
        twin="" if name == "twin_cpp" else "twin_cpp",
        alone=alone,
        hidden=hidden,
    )


def own_binding(name: str, says: str, body: str, *, family: str, hostile: bool, before: str = "") -> Candidate:
    """A Python module of its own: `body` fills the tensor `out`, by `right(problem, q, k, v, out)`."""
    source = templates.OWN_BINDING.replace("@BEFORE@", textwrap.dedent(before).strip("\n"))
    source = source.replace("@BODY@", _indented(body, 4))
    return Candidate(
        name=name,
        says=says,
        family=family,
        form="cpp",
        problem="attention",
        hostile=hostile,
        source=source,
        twin="twin_cpp",
        own_binding=True,
    )


def cuda(
    name: str,
    says: str,
    body: str,
    *,
    family: str,
    hostile: bool = True,
    before: str = "",
) -> Candidate:
    """The same on a GPU: `right(p, q, k, v, o, stream)` queues the honest work."""
    source = templates.CUDA.replace("@BEFORE@", textwrap.dedent(before).strip("\n"))
    source = source.replace("@BODY@", _indented(body, 4))
    return Candidate(
        name=name,
        says=says,
        family=family,
        form="cuda",
        problem="attention",
        hostile=hostile,
        source=source,
        twin="" if name == "twin_cuda" else "twin_cuda",
    )
