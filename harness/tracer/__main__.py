"""`python -m tracer REQUEST.json`: run a script unmodified, with or without the recorder, or replay operators.

A request is an object: `task` ("run" or "replay"), `out` (a folder) and what that task takes. Of a run: `kind` ("file"
or "module"), `target`, `arguments`, `record`, `eager`, and of the recorder `store`, `programs`, `guards` and `puts`.
"""

import json
import sys


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    if request["task"] == "replay":
        from tracer.replay import replay_all

        return replay_all(request)
    from tracer.script import run_script

    return run_script(request)


if __name__ == "__main__":
    sys.exit(main())
