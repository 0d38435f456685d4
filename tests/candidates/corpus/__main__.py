"""`python -m tests.candidates.corpus`: run candidates through the real command, and say what became of each."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.candidates.corpus import CORPUS
from tests.candidates.corpus.run import ACCUSED, BREAKS, THROUGH, Row, Settings, as_json, groups, measure, settle

BAD = (THROUGH, ACCUSED, BREAKS)


def main(arguments: list[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends, too
    parser = argparse.ArgumentParser(prog="python -m tests.candidates.corpus", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these alone")
    parser.add_argument("--family", nargs="+", default=[], help="of these families alone")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--executor", default="venv", help="venv, docker or bundle")
    parser.add_argument("--torch", default="2.5.0", metavar="V")
    parser.add_argument("--launches", type=int, default=3, metavar="N")
    parser.add_argument("--group", type=int, default=8, metavar="N", help="candidates that share a run; default: 8")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every Nth group, from the Ith on")
    parser.add_argument("--out", type=Path, metavar="FILE", help="as JSON, added to what is in it")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the projects of the runs here")
    parser.add_argument("--list", action="store_true", help="the corpus, and run nothing")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only if name not in CORPUS]
    if unknown:
        parser.error(f"no such candidate: {', '.join(unknown)}")
    names = options.only or [c.name for c in CORPUS.values() if c.device == options.device]
    names = [name for name in names if not options.family or CORPUS[name].family in options.family]
    if options.list:
        for name in names:
            one = CORPUS[name]
            print(f"{name:34} {'hostile' if one.hostile else 'honest':8} {one.form:12} {one.family:28} {one.says}")
        print_counts()
        return 0
    settings = Settings(torch=options.torch, executor=options.executor, launches=options.launches)
    settings = replace(settings, group=options.group, keep=options.keep)
    first, _, of = options.part.partition("/")
    rows: list[Row] = []
    for candidates in list(groups(names, settings.group))[int(first) - 1 :: int(of)]:
        began = time.monotonic()
        found = measure(candidates, settings)
        rows += found
        for row in found:
            print(line(row), flush=True)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        if options.out:
            add(options.out, found)
    print(summary(rows))
    return 1 if any(row.outcome in BAD for row in rows) else 0


def line(row: Row) -> str:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} x its twin's time"
    if row.speedup_ratio is not None and row.hostile:
        ratio += f", {1 / max(row.speedup_ratio, 1e-9):.2f} x its speed-up"
    doubt = " (doubtful)" if row.doubtful else ""
    return f"{row.outcome + doubt:26} {row.name:34} {row.status:10} {ratio}  {row.message[:110]}".replace("\n", " ")


def summary(rows: Iterable[Row]) -> str:
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())


def print_counts() -> None:
    for kind, count in sorted(Counter((c.hostile, c.form) for c in CORPUS.values()).items()):
        print(f"{'hostile' if kind[0] else 'honest'} {kind[1]}: {count}")


def add(path: Path, found: Iterable[Row]) -> None:
    """A candidate that was run again replaces its row. What times decide is decided anew, of all of them."""
    known = {row["name"]: Row(**row) for row in json.loads(path.read_text())} if path.exists() else {}
    known.update((row.name, row) for row in found)
    settle(known.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(known.values()), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
