"""The words of reports, as files: `python -m tests.unit.golden` writes those of tests/unit/golden anew.

`answers.md` holds what the first screen says of made-up runs; the others are whole summaries of stored runs, and the
text of one page. A change of words shows as a difference of these files, to be read before it is committed.
"""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.schema.records import Outcome
from harness.schema.storage import Run
from reports.load.evidence import load_evidence
from reports.render.answers import Answers
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary_text
from tests.unit.attributed import RECIPES, TIMED, WRONG, both, here, of_both, spec
from tests.unit.committed import committed
from tests.unit.experiments import checkers, conditions, result
from tests.unit.spec import BASE, NEXT, SEED_ONLY, Case, Spec, gpu_spec
from tests.unit.synthetic import write_run

FOLDER = Path(__file__).parent / "golden"
ANSWERS = FOLDER / "answers.md"
STORED = ("cpu-2.1.0-2.5.0", "h200-always-wrong", "h200-judged")
PAGES = ("h200-always-wrong",)  # of the others the text is too long to keep
THIRD = "torch2.11.0-cu121-py311"
MIB = 1 << 20
UNBUILT = Outcome(status="build_failed", message="x.cpp:1: error: no")
OPEN = Case(status="undecidable", message="independent: zeros would pass")
REFUSED = Case(status="unsupported", message="no code for Long")
CRASHED = Case(status="crashed", message="x died by SIGSEGV")
ATOMIC = Case(repeats_differ=9, repeats_units=0.42)
STEPS: dict[str, Any] = {"workloads": ("seed-fp32", "seed.backward-fp32"), "references": ("math",), "spread": 0.002}
USED = {(BASE, "kernel"): (40 * MIB, 0), (NEXT, "kernel"): (84 * MIB, 0)}


def changed_to(before: Case, now: Case, **changes: Any) -> Spec:
    return spec((BASE, "kernel", before), (NEXT, "kernel", now), **changes)


CASES: dict[str, Spec] = {
    "correct, same time": spec(**TIMED),
    "incorrect here": here(WRONG),
    "incorrect here, by chance": here(Case(passed=9, units=400.0, repeats_differ=7)),
    "incorrect in both": of_both(WRONG),
    "incorrect in both, at some lengths": of_both(WRONG),
    "incorrect at large logits": of_both(Case(recipes={"large_logits": (0, 400.0)}), recipes=RECIPES),
    "a proven fault, every trial passes": of_both(Case(), device="cuda", **TIMED),
    "a proven fault, trials fail": of_both(WRONG, device="cuda"),
    "incorrect in both, more often": changed_to(Case(passed=80), Case(passed=9), trials=100),
    "incorrect in two of three": of_both(WRONG, environments=(BASE, NEXT, THIRD)),
    "incorrect in one of three": here(WRONG, environments=(BASE, NEXT, THIRD)),
    "incorrect on one workload": Spec(cases={(NEXT, "kernel", "seed-fp16"): Case(passed=19, bits="new")}),
    "incorrect and slower": here(Case(passed=2, units=400.0, slowdown=1.34), **TIMED),
    "fixed": spec((BASE, "kernel", WRONG)),
    "crashes here": here(CRASHED),
    "crashes in both": of_both(CRASHED),
    "crashes, then incorrect": changed_to(CRASHED, WRONG),
    "unsupported here": here(REFUSED),
    "unsupported in both": of_both(REFUSED),
    "newly supported": spec((BASE, "kernel", REFUSED)),
    "unsupported, then incorrect": changed_to(REFUSED, WRONG),
    "builds now": spec(builds={BASE: UNBUILT}),
    "builds nowhere": spec(builds={BASE: UNBUILT, NEXT: UNBUILT}),
    "does not build here": spec(builds={NEXT: UNBUILT}),
    "incorrect when timed": of_both(Case(timed_wrong=True), **TIMED),
    "incorrect when timed here": here(Case(timed_wrong=True), **TIMED),
    "not testable, slower": changed_to(OPEN, Case(status="undecidable", message="zeros", slowdown=11.6), **TIMED),
    "not testable, faster": changed_to(OPEN, Case(status="undecidable", message="zeros", slowdown=0.5), **TIMED),
    "unsupported, then not testable": changed_to(REFUSED, OPEN),
    "not testable, then unsupported": changed_to(OPEN, REFUSED),
    "not testable, then crashes": changed_to(OPEN, CRASHED),
    "skipped here": spec(stacks={NEXT: Outcome(status="broken", message="another torch")}),
    "no record here": here(Case(missing=True), **TIMED),
    "one environment": spec(environments=(BASE,)),
    "one environment, incorrect": spec((BASE, "kernel", WRONG), environments=(BASE,)),
    "repeats with other bits": spec(*both("kernel", ATOMIC)),
    "must repeat and does not": of_both(Case(repeats_differ=7, deterministic=True)),
    "slower": here(Case(slowdown=1.34), **TIMED),
    "slower by a factor": here(Case(slowdown=3.6), **TIMED),
    "faster": here(Case(slowdown=0.7), **TIMED),
    "about the threshold": here(Case(slowdown=1.02), min_effect=0.02, launches=10),
    "time inconclusive": spec(launches=10, spread=0.02),
    "too few replicates": here(Case(slowdown=1.05), launches=2),
    "slower replays, faster calls": here(Case(slowdown=0.9, hot_slowdown=1.3), device="cuda", **TIMED),
    "more memory": Spec(**SEED_ONLY, **TIMED, peak_bytes=4 * MIB, peaks_bytes=USED),
    "a reference changed": spec(
        (BASE, "math", Case(passed=6, units=30.0, bits="old")), (BASE, "kernel", Case(agrees=6))
    ),
    "references changed on one workload each": Spec(
        trials=10,
        launches=1,
        cases={
            (BASE, "math", "seed-fp16"): Case(passed=6, units=30.0, bits="old"),
            (NEXT, "math", "seed-fp32"): Case(passed=0, units=30.0, bits="new"),
            (BASE, "kernel", "seed-fp16"): Case(agrees=6),
            (NEXT, "kernel", "seed-fp32"): Case(agrees=0),
        },
    ),
    "two kernels alike": spec(kernels=("one", "three"), **TIMED),
    "a reference is slower": spec((NEXT, "kernel", WRONG), (NEXT, "math", Case(slowdown=1.5)), busy=0.45, **TIMED),
    "a slower backward pass": Spec(**STEPS, cases={(NEXT, "math.backward", STEPS["workloads"][1]): Case(slowdown=1.4)}),
    "a GPU, three environments": gpu_spec(),
}


def _lengths(run: Run) -> None:
    checkers(run, "address", "out_of_bounds")
    lengths = (64, 65, 128, 129, 192, 224, 66)
    conditions(run, "lengths", [result("A", 0.0 if keys % 64 else 1.0, seq_len=keys) for keys in lengths])


def _large_logits(run: Run) -> None:
    steep = [result(each, 0.0, recipe=name) for each, name in (("C", "offset_logits"), ("D", "steep_logits"))]
    conditions(run, "inputs", [result("AA"), result("BB", 0.0, recipe="large_logits"), *steep])


# What experiments found, by the case whose run they are of.
EXPERIMENTS: dict[str, Callable[[Run], None]] = {
    "incorrect in both, at some lengths": _lengths,
    "incorrect at large logits": _large_logits,
    "a proven fault, every trial passes": lambda run: checkers(run, "initcheck", "uninitialised", device="cuda"),
    "a proven fault, trials fail": lambda run: checkers(run, "racecheck", "race", device="cuda"),
}


def answers_of(folder: Path, name: str) -> Answers:
    run = write_run(folder, CASES[name])
    EXPERIMENTS.get(name, lambda run: None)(run)
    return Report(load_evidence(folder)).answers


def lines_of(folder: Path, name: str) -> list[str]:
    """Return the states of one case's kernels, and what the first screen says."""
    answers = answers_of(folder, name)
    cells = [cell for each in answers.kernels for row in each.grid.values() for cell in row]
    grid = [f"{cell.outputs}: {cell.time or 'no time'}" for cell in cells]
    return [f"state: {each.state}" for each in answers.kernels] + [f"cells: {'; '.join(grid)}"] + answers.lines


def page_text(page: str) -> str:
    """Return the text that a page shows, an element a line."""
    shown = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    lines = re.sub(r"<[^>]*>", "", re.sub(r"(?=<(?:tr|p|li|dt|h\d|summary|div|section)\b)", "\n", shown)).splitlines()
    return "\n".join(" ".join(html.unescape(line).split()) for line in lines if line.strip()) + "\n"


def texts_of_run(folder: Path, name: str) -> dict[str, str]:
    """Return the files' names and texts of one stored run."""
    [run] = committed(folder, name)
    report = Report(load_evidence(run))
    texts = {f"{name}.summary.md": render_summary_text(report)}
    return texts | ({f"{name}.page.txt": page_text(render_page(report))} if name in PAGES else {})


def read_answers() -> Iterator[tuple[str, list[str]]]:
    for part in ANSWERS.read_text(encoding="utf-8").split("\n## ")[1:]:
        name, _, lines = part.partition("\n\n")
        yield name, [line.removeprefix("    ") for line in lines.strip("\n").splitlines()]


def main() -> None:
    """Write all files anew."""
    text = "# What the first screen says\n"
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            lines = lines_of(Path(folder), name)
        text += f"\n## {name}\n\n" + "".join(f"    {line}\n" for line in lines)
    ANSWERS.write_text(text, encoding="utf-8")
    for run in STORED:
        with tempfile.TemporaryDirectory() as folder:
            for name, written in texts_of_run(Path(folder), run).items():
                (FOLDER / name).write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
