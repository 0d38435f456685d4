"""`python -m tests.meaning`: run the cases of meaning that changed, and count how often the answer is right."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from harness.config.shipped import ROOT
from tests.meaning.score import HERE, Outcome, load_cases, render, score

RUN = ("--launches=1", "--device=cpu", "--explain=never")


def main(argv: list[str]) -> int:
    """Exit code: 0 done, 1 an answer has a wrong culprit; otherwise that of the run that left no report."""
    parser = argparse.ArgumentParser(prog="python -m tests.meaning", description=__doc__)
    parser.add_argument("--again", action="store_true", help="score the last run, and run nothing")
    parser.add_argument("--second", action="store_true", help="the cases of an author who knew none of the rules")
    options = parser.parse_args(argv)
    folder = HERE / "second" if options.second else HERE
    latest = folder / "reports" / "latest"
    if not options.again:
        latest.unlink(missing_ok=True)
        command = [sys.executable, "-m", "harness", "matrix", f"--matrix={folder / 'matrix.yaml'}", *RUN]
        code = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode
        if not latest.exists():
            return code or 1
    cases = load_cases(folder / "index.yaml")
    scores = score(cases, json.loads(Path(latest, "summary.json").read_text(encoding="utf-8")))
    print(render(scores))
    return int(any(each.outcome == Outcome.WRONG_CULPRIT for each in scores))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
