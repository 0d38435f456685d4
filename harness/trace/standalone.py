"""The first diverging operator as a script that stands alone: it runs the stored calls, and needs PyTorch only."""

from __future__ import annotations

import shutil
from pathlib import Path
from string import Template

from harness.trace.outcome import Outcome
from harness.trace.runs import Side, find_programs

TEMPLATE = Path(__file__).parent / "alone.py.txt"
FOLDER = "alone"


def write_script(outcome: Outcome, good: Side, bad: Side, out: Path) -> str:
    """Write the script, and the stored calls beside it; return its path, '' where no operator was stored."""
    for cause in outcome.causes:
        programs = {} if cause.program is None else find_programs(good, bad, cause.program)
        if programs:
            break
    else:
        return ""
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    for name, path in programs.items():
        shutil.copy(path, folder / f"{name}.pt")
    title = f"{cause.kind}: equal inputs, other outputs.\n\nSeen at {cause.line}."
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=title.replace("\\", "/").replace('"""', "'''"), good=good.version, bad=bad.version
    )
    script = folder / "alone.py"
    script.write_text(text, encoding="utf-8")
    return str(script)
