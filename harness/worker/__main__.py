"""``python -m worker TASK REQUEST.json RESULT.json``; see `protocol`.

A failure that a task knows is a status in RESULT and exit code 0. Anything else is a traceback, exit code 1 and
no RESULT.
"""

from __future__ import annotations

import os
import sys

from . import codec, protocol, tasks, wire


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in wire.TASKS:
        print("usage: python -m worker {{{}}} REQUEST RESULT".format(",".join(wire.TASKS)), file=sys.stderr)
        return 64
    name, request_path, result_path = arguments
    request = codec.read(wire.TASKS[name].request, protocol.read_json(request_path))
    protocol.set_caches(os.path.join(os.path.dirname(os.path.abspath(result_path)), "caches"))
    protocol.write_json(result_path, codec.dump(tasks.prepared(name)(request)))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the code under test left to be done at exit, or in a thread, is not waited for
