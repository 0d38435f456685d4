"""``python -m worker VERB REQUEST.json RESULT.json``; see `protocol`.

A failure that a verb knows is a status in RESULT and exit code 0. Anything else is a traceback, exit code 1 and
no RESULT.
"""

from __future__ import annotations

import importlib
import os
import sys

from . import codec, protocol, wire

MODULES = {verb: verb for verb in wire.REQUESTS}
MODULES["time"] = "timing"
MODULES["prove"] = "prove_bundle"


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in MODULES:
        print("usage: python -m worker {{{}}} REQUEST RESULT".format(",".join(MODULES)), file=sys.stderr)
        return 64
    verb, request_path, result_path = arguments
    request = codec.read(wire.REQUESTS[verb], protocol.read_json(request_path))
    if verb != "observe":
        # numpy's matrix library starts its threads when numpy is imported, so before that. One: judging runs
        # whole trials in parallel, and no other verb multiplies matrices in numpy.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if verb in ("judge", "weigh", "appraise"):
        # Its own threads compare while PyTorch's wait for work: those must sleep, not spin.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler of PyTorch 2.1 talks of its stages
    module = importlib.import_module("." + MODULES[verb], __package__)
    protocol.write_json(result_path, getattr(module, MODULES[verb])(request))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the code under test left to be done at exit, or in a thread, is not waited for
