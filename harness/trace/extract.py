"""The first diverging operator as a script that stands alone: it runs the stored calls, and needs PyTorch only."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.trace.answer import place
from harness.trace.outcome import Outcome
from harness.trace.runs import Side, stored_programs
from harness.trace.wording import named

TEMPLATE = Path(__file__).parent / "alone.py.txt"
FOLDER = "alone"


def extract(found: Outcome, good: Side, bad: Side, out: Path) -> list[str]:
    """Write the script and the stored calls; return lines that say where they are."""
    causes = (cause for cause in found.causes if cause.program is not None)
    stored = next(((cause, files) for cause in causes if (files := stored_programs(good, bad, cause.program))), None)
    if stored is None:
        return ["nothing to extract: no operator was stored in both versions"]
    cause, programs = stored
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    for name, path in programs.items():
        shutil.copy(path, folder / f"{name}.pt")
    title = f"{named(cause.kind)}: equal inputs, other outputs, in PyTorch {good.version} and {bad.version}."
    title = f"{title}\n\nSeen at {place(cause)}.".replace("\\", "/").replace('"""', "'''")
    text = TEMPLATE.read_text(encoding="utf-8")
    for key, value in (("title", title), ("good", good.version), ("bad", bad.version)):
        text = text.replace("{{" + key + "}}", value)
    script = folder / "alone.py"
    script.write_text(text, encoding="utf-8")
    return [f"alone: {script}"]
