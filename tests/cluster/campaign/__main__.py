"""`python -m tests.cluster.campaign --count N --seed S --rounds-of K --mode real|scripted --out FILE`."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from tests.cluster.campaign.checks import undisturbed
from tests.cluster.campaign.faults import ADDED, WEIGHTS, draw_fault
from tests.cluster.campaign.nodes import Nodes
from tests.cluster.campaign.rounds import Round, save
from tests.cluster.campaign.subjects import MODES, Subject, build_library
from tests.cluster.campaign.table import render_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.campaign", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the number of the first fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds-of", type=int, default=8, metavar="K", help="faults in a round")
    parser.add_argument("--mode", choices=MODES, default="real")
    parser.add_argument("--port", type=int, default=26917, help="of the controller; its nodes have the four after it")
    parser.add_argument("--folder", type=Path, help="where projects are made; what failed stays there")
    parser.add_argument("--out", type=Path, help="rows, one a line, are added to this file")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of these files, and run nothing")
    parser.add_argument("--added", action="store_true", help="draw from the kinds that were added later")
    options = parser.parse_args()
    kinds = ADDED if options.added else WEIGHTS
    if options.table:
        print(render_table(options.table))
        return 0
    if os.getuid() != 0:
        parser.error("a Slurm of one's own takes root")
    # Not below /tmp, of which each node has its own.
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cluster-faults-", dir="/var/tmp"))
    libraries, cache = build_library(folder / "libraries"), folder / f"cache-{options.mode}"
    known = undisturbed(Subject(folder / "one-host", options.mode, cache, libraries))
    bad = 0
    shutil.rmtree(folder / "cluster", ignore_errors=True)
    with Nodes(folder / "cluster", options.port) as nodes:
        for start in range(options.first, options.first + options.count, options.rounds_of):
            numbers = range(start, min(start + options.rounds_of, options.first + options.count))
            number = start // options.rounds_of
            place = nodes.folder / f"round-{options.seed}-{number}"
            faults = [draw_fault(options.seed, each, kinds) for each in numbers]
            rows = Round(nodes, Subject(place, options.mode, cache, libraries), faults).run(known, options.seed, number)
            nodes.wait_idle()
            for row in rows:
                bad += row.outcome != "ok"
                told = "" if row.met else " [met nothing]"
                print(f"{row.number} {row.kind} ({row.what}; {row.when}){told}: {row.outcome}", flush=True)
            print(
                f"round {number}: {rows[0].typed} commands, {rows[0].round_s} s; "
                + "; ".join(sorted({each[:300] for row in rows for each in row.found})),
                flush=True,
            )
            if options.out:
                save(rows, options.out)
    print(f"{options.count} faults, {bad} not ok; {folder}")
    return 1 if bad else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its nodes end, and its disks are unmounted
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(2)
