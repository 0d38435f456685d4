"""The first origin as a script that stands alone, with its stored inputs beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.trace.answer import named, place
from harness.trace.outcome import Outcome
from harness.trace.runs import Side, stored_programs

TEMPLATE = Path(__file__).parent / "alone.py.txt"
FOLDER = "alone"


def extract(found: Outcome, good: Side, bad: Side, out: Path) -> Path | None:
    """The script; None where no origin was stored on both sides."""
    for cause in found.causes:
        stored = stored_programs(good, bad, cause.program) if cause.program is not None else {}
        if not stored:
            continue
        folder = out / FOLDER
        folder.mkdir(exist_ok=True)
        for name, path in stored.items():
            shutil.copy(path, folder / f"{name}.pt")
        title = f"{named(cause)}: equal inputs, other outputs, in PyTorch {good.version} and {bad.version}.\n\n"
        title += f"Seen at {place(cause)}."
        text = TEMPLATE.read_text(encoding="utf-8")
        for key, value in (("title", title), ("good", good.version), ("bad", bad.version)):
            text = text.replace("{{" + key + "}}", value.replace("\\", "/").replace('"""', "'''"))
        script = folder / "alone.py"
        script.write_text(text, encoding="utf-8")
        return script
    return None
