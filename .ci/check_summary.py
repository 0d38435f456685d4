"""Fail unless a summary.json names both shipped versions as observed inside, holds every shipped cell of the CPU, and
names the executor that was expected."""

import json
import sys
from pathlib import Path

import yaml

summary = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
matrix = yaml.safe_load(Path("matrix.yaml").read_text(encoding="utf-8"))
observed = {environment["torch"].partition("+")[0] for environment in summary["environments"]}
wanted = {environment["torch"] for environment in matrix["environments"]}
assert observed == wanted, f"observed {observed}, wanted {wanted}"
executor = summary["run"]["executor"]
assert executor == sys.argv[2], f"ran by {executor}, expected {sys.argv[2]}"

short = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
cells = {
    (cell["environment"], cell["kernel"], cell["workload"]): cell
    for cell in summary["cells"]
    if cell["device"] == "cpu"
}
for environment in summary["environments"]:
    for kernel in (kernel for kernel in matrix["kernels"] if kernel["sources"].get("cpu")):
        for workload in matrix["workloads"]:
            for dtype in workload["dtypes"].get("cpu", []):
                cell = cells[environment["id"], kernel["name"], f"{workload['name']}-{short[dtype]}"]
                assert cell["status"] == "ok" and cell["launches"] > 0 and cell["median_us"] > 0, cell
print(f"{len(cells)} cells, all measured; {summary['verdict']}")
