"""``python -m worker TASK REQUEST.json RESULT.json``; see `protocol`.

A failure that a task knows is a status in RESULT and exit code 0. Anything else is a traceback, exit code 1 and
no RESULT.
"""

from __future__ import annotations

import importlib
import os
import sys

from . import codec, protocol, wire

MODULES = {name: task.module or name for name, task in wire.TASKS.items()}


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in MODULES:
        print("usage: python -m worker {{{}}} REQUEST RESULT".format(",".join(MODULES)), file=sys.stderr)
        return 64
    name, request_path, result_path = arguments
    task = wire.TASKS[name]
    request = codec.read(task.request, protocol.read_json(request_path))
    if name != "observe":
        # numpy's matrix library starts its threads when numpy is imported, so before that. One: judging runs
        # whole trials in parallel, and no other task multiplies matrices in numpy.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if name in ("judge", "weigh"):
        # Its own threads compare while PyTorch's wait for work: those must sleep, not spin.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler of PyTorch 2.1 talks of its stages
    protocol.set_caches(os.path.join(os.path.dirname(os.path.abspath(result_path)), "caches"))
    module = importlib.import_module("." + MODULES[name], __package__)
    try:
        result = getattr(module, task.function or name)(request)
    except wire.Failed as error:
        result = task.result(error.status, error.message, error.log_excerpt)
    protocol.write_json(result_path, codec.dump(result))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the code under test left to be done at exit, or in a thread, is not waited for
