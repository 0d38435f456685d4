"""`python -m tests.faults.random_faults --count N --seed S --executor scripted|venv|docker|bundle --out FILE`.

The bundle is the one that KERNEL_MATRIX_BUNDLE names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.container.engines import OwnEngine
from tests.faults.random_faults.campaign import OK, Campaign, Row
from tests.faults.random_faults.faults import WEIGHTS, draw_fault
from tests.faults.random_faults.table import render_table


def run_faults(
    folder: Path, executor: str, seed: int, numbers: Sequence[int], *, at_once: int = 2, engine: OwnEngine | None = None
) -> Iterator[Row]:
    """Rows, as they come. A fault of this program ends it."""
    campaign = Campaign(folder, executor, seed, engine)
    with ThreadPoolExecutor(at_once) as pool:
        jobs = [pool.submit(campaign.run, draw_fault(seed, number, executor)) for number in numbers]
        for job in jobs:
            yield job.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.random_faults", description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="the number of the first fault")
    parser.add_argument("--only", type=int, action="append", help="this fault of the seed, and no other")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executor", choices=list(WEIGHTS), default="scripted")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--engine", type=Path, help="for docker: where an engine of its own keeps its images")
    parser.add_argument("--images", nargs="*", default=[], help="for docker: images that it takes from the machine's")
    parser.add_argument("--folder", type=Path, help="where projects are made; what failed stays there")
    parser.add_argument("--out", type=Path, help="rows, one a line, are added to this file")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of these files, and run nothing")
    options = parser.parse_args()
    if options.table:
        print(render_table(options.table))
        return 0
    numbers = options.only or range(options.first, options.first + options.count)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="random-faults-"))
    engine = None
    if options.executor == "docker":
        engine = OwnEngine(options.engine or folder / "engine")
        engine.start()
        engine.take(*options.images)
    bad = 0
    try:
        at_once = 1 if engine is not None else options.at_once
        for row in run_faults(
            folder / "projects", options.executor, options.seed, numbers, at_once=at_once, engine=engine
        ):
            bad += row.outcome != OK
            print(f"{row.number} {row.kind} ({row.what}; {row.when}): {row.outcome} {row.found or ''}", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps({"seed": options.seed, **row.as_json()}) + "\n")
    except Exception:
        traceback.print_exc()
        return 2
    finally:
        with contextlib.suppress(Exception):
            if engine is not None:
                engine.stop()
    print(f"{len(numbers)} faults, {bad} not ok; {folder}")
    return 1 if bad else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its engine ends, and its disks are unmounted
    sys.exit(main())
