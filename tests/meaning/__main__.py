"""`python -m tests.meaning`: run the cases of meaning that changed, and count how often the answer is right."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from harness.config.shipped import ROOT
from tests.archives import SUFFIX, read_archive
from tests.meaning.score import HERE, Outcome, load_cases, render, score

RUN = ("--launches=1", "--device=cpu", "--explain=never")


def make_project(folder: Path, project: Path) -> None:
    """Write the matrix of these cases with its problem files; reports of earlier runs stay."""
    problems = project / "problems"
    shutil.rmtree(problems, ignore_errors=True)
    problems.mkdir(parents=True)
    shutil.copyfile(folder / "matrix.yaml", project / "matrix.yaml")
    for name, text in read_archive(folder / f"problems{SUFFIX}").items():
        (problems / name).write_text(text, encoding="utf-8")


def main(argv: list[str]) -> int:
    """Exit code: 0 done, 1 an answer has a wrong culprit; otherwise that of the run that left no report."""
    parser = argparse.ArgumentParser(prog="python -m tests.meaning", description=__doc__)
    parser.add_argument("--again", action="store_true", help="score the last run, and run nothing")
    parser.add_argument("--second", action="store_true", help="the cases of an author who knew none of the rules")
    options = parser.parse_args(argv)
    folder = HERE / "second" if options.second else HERE
    project = ROOT / "reports" / "meaning" / folder.name
    latest = project / "reports" / "latest"
    if not options.again:
        make_project(folder, project)
        latest.unlink(missing_ok=True)
        command = [sys.executable, "-m", "harness", "matrix", f"--matrix={project / 'matrix.yaml'}", *RUN]
        code = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode
        if not latest.exists():
            return code or 1
    cases = load_cases(folder / "index.yaml")
    scores = score(cases, json.loads(Path(latest, "summary.json").read_text(encoding="utf-8")))
    print(render(scores))
    return int(any(each.outcome == Outcome.WRONG_CULPRIT for each in scores))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
