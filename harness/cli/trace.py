"""`kernel-matrix trace`: the first operator at which a script's two versions diverge, proven by substitution."""

from __future__ import annotations

import argparse
import hashlib
import shutil
from pathlib import Path

from harness.cli.options import Command, Parser, add_matrix, at_least
from harness.errors import DONE, UNDECIDED, InputError
from harness.tools import cache_folder
from harness.trace.model import SUMMARY, load_summary, save_summary

FOLDER = Path("reports") / "traces"
OWN = ("run-", "store-", "tracer-", "alone", "index.html", SUMMARY)  # beginnings of names in its folder


def add_options(parser: Parser) -> None:
    parser.usage = "kernel-matrix trace --good V --bad V [OPTIONS] -- python SCRIPT.py ARGUMENTS"
    good = "the version whose result is wanted, such as 2.1.0, or host: this machine's own"
    parser.add_argument("--good", required=True, metavar="V", help=good)
    parser.add_argument("--bad", required=True, metavar="V", help="the version whose result is asked about")
    needs = "what the script needs besides torch: NAME==VERSION, a line each"
    parser.add_argument("--requirements", type=Path, metavar="FILE", help=needs)
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"folder of the page; default: one below {FOLDER}")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    extract = "also write a script that shows the first diverging operator without this project"
    parser.add_argument("--extract", action="store_true", help=extract)
    parser.add_argument("--keep", action="store_true", help="keep the recorded runs and stored tensors")
    limit = "limit of one run, in seconds; default: 3600"
    parser.add_argument("--timeout", type=at_least(1), default=3600, metavar="S", help=limit)
    add_matrix(parser)
    command = "python SCRIPT.py ..., python -m MODULE ... or pytest ..."
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="-- COMMAND", help=command)


def run(options: argparse.Namespace) -> int:
    from harness.trace.runs import load_requirements, make_matrix, parse_script, prepare
    from harness.trace.trace import trace, write_script
    from reports.render.trace_page import render, render_terminal

    words = options.script[1:] if options.script[:1] == ["--"] else options.script
    script = parse_script(words, eager=options.eager, timeout_s=options.timeout)
    requirements = load_requirements(options.requirements) if options.requirements else []
    versions = (options.good, options.bad)
    matrix = make_matrix(options.matrix, versions, requirements)
    digest = hashlib.sha256(repr((versions, words, requirements, options.eager)).encode()).hexdigest()
    out = (options.out or FOLDER / f"{Path(script.target).stem}-{digest[:8]}").resolve()
    if out.exists() and not all(path.name.startswith(OWN) for path in out.iterdir()):
        raise InputError(f"{out}: holds other things than a trace", "name a new folder")
    pins = hashlib.sha256(repr((versions, requirements)).encode()).hexdigest()[:12]
    root = cache_folder() / "trace-pins" / pins if requirements else options.matrix.resolve().parent
    (good, bad), notes = prepare(matrix, root, script, out)

    def say(text: str) -> None:
        print(f"run: {text}", flush=True)

    try:
        outcome = trace(good, bad, words, notes, say)
    finally:
        good.close()
        bad.close()
    if options.extract:
        outcome.script = write_script(outcome, good, bad, out)
    save_summary(outcome, out)
    if not options.keep:
        for folder in [*out.glob("run-*"), *out.glob("store-*")]:
            shutil.rmtree(folder)
    render(out)
    print(render_terminal(load_summary(out)))
    print(f"page: {out / 'index.html'}")
    return UNDECIDED if outcome.verdict.is_inconclusive else DONE


COMMANDS = {"trace": Command(add_options, run)}
