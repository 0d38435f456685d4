"""Scripts that reproduce a cause without this project: plain PyTorch, to be pasted into an upstream report. Pure.

Everything that comes from a record is in one literal, `SETTINGS`, and in the docstring, whose text cannot end it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.schema.environment_records import BuildRecord
from harness.schema.run_records import WorkloadInfo
from reports.attribute.causes import About, Cause, Kind
from reports.load.evidence import Evidence
from reports.render.explanations import Explanation
from reports.render.templating import TEMPLATES

OF_REFERENCES = (
    Kind.REFERENCE_MOVED,
    Kind.DEFAULT_BACKEND_MOVED,
    Kind.UNSUPPORTED_COMBINATION,
    Kind.WRONG_EVERYWHERE,
    Kind.LATENCY_OPERATOR,
)
RECIPES = ("independent", "shared_qkv", "large_logits")
TRIALS = 3
MOST_SCRIPTS = 20
PERTURB = (0, 85, 170)
COMPILED = re.compile(r"^build \S+: (?:cuda_)?compile (\S+)", re.MULTILINE)
ROOT = "$ROOT/"
TOOLS = ("cxx", "nvcc", "ld")


def with_scripts(evidence: Evidence, explained: Sequence[Explanation]) -> list[Explanation]:
    """The same, each with its script's name where one can be made."""
    named: list[Explanation] = []
    for each in explained:
        made = len([one for one in named if one.script])
        can = made < MOST_SCRIPTS and script_settings(evidence, each) is not None
        named.append(replace(each, script=f"reproduce-{each.number}.py") if can else each)
    return named


def script_settings(evidence: Evidence, explanation: Explanation) -> tuple[str, dict[str, Any]] | None:
    """(template, settings), or None where plain PyTorch cannot reproduce it."""
    lead = explanation.lead
    workload = _worst_workload(evidence, explanation)
    if workload is None or workload.problem or workload.seq_len is None or workload.has_options:
        return None
    shape = [workload.batch, workload.heads, workload.seq_len, workload.head_dim]
    common: dict[str, Any] = {
        "shape": shape,
        "dtype": workload.dtype,
        "causal": bool(workload.causal),
        "scale": workload.scale if workload.scale is not None else (workload.head_dim or 1) ** -0.5,
        "device": lead.device,
        "threads": _threads(evidence, lead),
        "recipes": [name for name in RECIPES if name in workload.trials] or ["independent"],
        "trials": TRIALS,
    }
    if explanation.lead.is_reference:
        if lead.cause not in OF_REFERENCES:
            return None
        timed = lead.about == About.LATENCY
        recipes = RECIPES[:1] if timed else common["recipes"]
        return "reference", {**common, "recipes": recipes, "references": explanation.subjects, "latency": timed}
    if lead.cause == Kind.NOTHING_MOVED or lead.about != About.CORRECTNESS:
        return None
    build = _built(evidence, lead)
    sources = COMPILED.findall(build.build_ninja) if build else []
    if not build or not sources or not all(source.startswith(ROOT) for source in sources):
        return None
    return "kernel", {
        **common,
        "name": re.sub(r"\W", "_", lead.kernel),
        "sources": [source.removeprefix(ROOT) for source in sources],
        "include": list(dict.fromkeys(re.findall(r"-I\$ROOT/(\S+)", build.build_ninja))),
        **{tool: [flag.partition(": ")[2] for flag in build.flags if flag.startswith(f"{tool}: ")] for tool in TOOLS},
        "patterns": [0.0, 1e4],
        "perturb": list(PERTURB),
    }


def _built(evidence: Evidence, lead: Cause) -> BuildRecord | None:
    """Of the environment, else of the baseline; the report shows the flags of both."""
    builds = [evidence.builds.get((name, lead.kernel, lead.device)) for name in (lead.environment, lead.baseline)]
    return next((build for build in builds if build is not None and build.build_ninja), None)


def _threads(evidence: Evidence, lead: Cause) -> int:
    stacks = [evidence.environments.get(name) for name in (lead.environment, lead.baseline)]
    return next((stack.observed.threads for stack in stacks if stack and stack.observed), 1)


def _worst_workload(evidence: Evidence, explanation: Explanation) -> WorkloadInfo | None:
    """The smallest: a script for a report of a fault is run many times."""
    infos = [info for name in explanation.lead.workloads if (info := evidence.workload(name)) is not None]
    return min(infos, key=lambda info: info.flops or 0.0, default=None)


def render_script(evidence: Evidence, explanation: Explanation) -> str:
    made = script_settings(evidence, explanation)
    if made is None:
        raise ValueError(f"explanation {explanation.number} cannot be reproduced by plain PyTorch")
    template, settings = made
    text = (TEMPLATES / f"reproduce_{template}.py.txt").read_text()
    lines = [explanation.lead.statement, "", "What was recorded:"]
    lines += [f"- {seen.text}" for seen in explanation.lead.evidence[:6]]
    details = "\n".join(textwrap.fill(_plain(line), 110, subsequent_indent="  ") for line in lines)
    values = {
        "TITLE": textwrap.fill(_plain(f"{explanation.lead.name}: {', '.join(explanation.subjects)}"), 110),
        "DETAILS": details,
        "NAME": explanation.script or "reproduce.py",
        "SETTINGS": _literal(settings),
    }
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], text)


def _literal(settings: dict[str, Any]) -> str:
    """A Python literal in ASCII."""
    lines = [f"    {json.dumps(key)}: {value!a}," for key, value in settings.items()]
    return "\n".join(["{", *lines, "}"])


def _plain(text: str) -> str:
    """Text of a docstring: on one line, and unable to end it."""
    flat = " ".join(text.split()).replace("\\", "/").replace('"""', "'''").replace('"', "'")
    return "".join(character if character.isprintable() else "?" for character in flat)
