"""What recording a script costs `kernel-matrix trace`: time, against the plain run beside it, and disk.

    python -m benchmarks.trace [--layers 2 8 32] [--repeats 3] [--device cuda]

Plain and recorded runs of benchmarks/encoder.py take turns in one tracer, which has imported PyTorch before, on one
thread. A ratio is of two runs side by side; the median of each repeat's is given, with the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from harness.trace.model import load_end
from harness.trace.runs import TracedVersion, make_matrix, parse_script, prepare

ROOT = Path(__file__).parent.parent
VERSION = "2.5.0"
MIB = 1 << 20


def seconds_and_folder(side: TracedVersion, is_recorded: bool) -> tuple[float, Path]:
    """Of the script alone, without the start of its process; and what the run wrote."""
    folder = side.run({"is_recorded": is_recorded})
    return load_end(folder).duration_s, folder


def measure(layers: int, device: str, repeats: int, out: Path) -> dict[str, Any]:
    script = parse_script(["python", str(ROOT / "benchmarks" / "encoder.py"), str(layers), device])
    matrix = make_matrix(ROOT / "matrix.yaml", (VERSION, VERSION), ())
    (side, _), _ = prepare(matrix, ROOT, script, out)
    plain, recorded = list[float](), list[float]()
    try:
        seconds_and_folder(side, False)  # the first run of a process is slower
        for _ in range(repeats):
            plain.append(seconds_and_folder(side, False)[0])
            taken_s, folder = seconds_and_folder(side, True)
            recorded.append(taken_s)
    finally:
        side.close()
    ratios = [many / few for many, few in zip(recorded, plain, strict=True)]
    size = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "layers": layers,
        "operators": len((folder / "trace.jsonl").read_text().splitlines()),
        "plain_s": round(median(plain), 3),
        "recorded_s": round(median(recorded), 3),
        "ratio": [round(each, 2) for each in (median(ratios), min(ratios), max(ratios))],
        "recorded_mib": round(size / MIB, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as out:
        for layers in given.layers:
            print(json.dumps(measure(layers, given.device, given.repeats, Path(out) / str(layers))), flush=True)


if __name__ == "__main__":
    main()
