"""`python -m tracer`: reads names of requests, a line each, and answers each with an exit code.

PyTorch is imported once; every request runs in a process of its own, forked before any operator ran. A request is a
file with an object: `task` ("run" or "replay"), `out` (a folder, where what is printed goes too) and what that task
takes. A run is one of the user's script, as Python would run it; it takes `kind` ("file" or "module"), `target`,
`arguments`, `eager`, `is_recorded`, and of the recorder `store`, `programs`, `guards`, `puts` and `feeds`. It leaves
end.json, a replay leaves result.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import threading
import time
import traceback
from typing import Any

import torch

from .programs import replay
from .record import Recorder


class Unsupported(Exception):
    """What the recorder cannot see; the message says why."""


def main() -> int:
    """Answer requests until standard input ends."""
    for line in iter(sys.stdin.readline, ""):
        process = os.fork()
        if not process:
            return handle(line.strip())
        _, status = os.waitpid(process, 0)
        print(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), flush=True)
    return 0


def handle(path: str) -> int:
    """Do one request, in a process of its own; return its exit code."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    for number, name in ((1, "stdout.txt"), (2, "stderr.txt")):
        os.dup2(os.open(os.path.join(request["out"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    if request["task"] == "run":
        return run_script(request)
    with open(os.path.join(request["out"], "result.json"), "w", encoding="utf-8") as file:
        json.dump(replay(request), file)
    return 0


def run_script(request: dict[str, Any]) -> int:
    """Run the script; return its exit code. `end.json` says how it ended, and how long it took."""
    is_file = request["kind"] == "file"
    sys.argv = [request["target"], *request["arguments"]]
    sys.path[0] = os.path.dirname(os.path.abspath(request["target"])) if is_file else os.getcwd()
    notes: list[str] = []
    _watch(notes, request["eager"])
    recorder = Recorder(request) if request["is_recorded"] else None
    end: dict[str, Any] = {"torch": torch.__version__, "exception": "", "unsupported": "", "code": 0}
    started = time.perf_counter()
    held = None
    try:
        held = _run(request, recorder)
    except SystemExit as error:
        end["code"] = _exit_code(error)
    except Unsupported as error:
        end.update(code=1, unsupported=str(error))
    except BaseException as error:  # the script's own, whatever it is: that is its result
        end.update(code=1, exception=_describe(error))
        if recorder is not None:
            end["raised"] = recorder.locate_error(error)
        traceback.print_exc()
    with contextlib.suppress(RuntimeError):  # of what the GPU still does: the script did not wait for it
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    end["duration_s"] = time.perf_counter() - started
    if recorder is not None:
        if recorder.fault:  # that is no answer, whatever the script made of it
            print(recorder.fault, file=sys.stderr)
            return 1
        end.update(recorder.close())
    del held
    end["notes"] = sorted(set(notes))
    with open(os.path.join(request["out"], "end.json"), "w", encoding="utf-8") as file:
        json.dump(end, file)
    sys.stdout.flush()
    return int(end["code"])


def _run(request: dict[str, Any], recorder: Recorder | None) -> Any:
    """Return the script's globals, which keep alive what it still holds at its end."""
    with contextlib.ExitStack() as stack:
        if recorder is not None:
            # Autograd calls operators of a GPU in a thread of its own, unless it is told not to.
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(recorder)
        if request["kind"] == "file":
            return runpy.run_path(request["target"], run_name="__main__")
        return runpy.run_module(request["target"], run_name="__main__", alter_sys=True)


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _describe(error: BaseException) -> str:
    """Return the error's type and message, and those of the exceptions that it was raised from."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return ", raised from ".join(f"{type(each).__name__}: {str(each)[:2000]}" for each in chain)


def _watch(notes: list[str], eager: bool) -> None:
    """Refuse what the recorder cannot see, or note it."""

    def compile_nothing(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not eager:
            raise Unsupported("torch.compile: what it compiles is not seen by the recorder; --eager leaves it out")
        notes.append("torch.compile was left out: --eager")
        return (lambda function: function) if model is None else model

    def refuse_graph(*args: Any, **kwargs: Any) -> Any:
        raise Unsupported("CUDA graphs: what is captured cannot be read while it is recorded")

    def start_noted(thread: threading.Thread) -> None:
        notes.append("the script started threads of its own: what PyTorch computes in them is not recorded")
        start(thread)

    start = threading.Thread.start
    threading.Thread.start = start_noted  # type: ignore[assignment, method-assign]
    torch.compile = compile_nothing
    torch.cuda.graph.__enter__ = refuse_graph
    forked = "the script started processes of its own: what PyTorch computes in them is not recorded"
    os.register_at_fork(before=lambda: notes.append(forked))


if __name__ == "__main__":
    sys.exit(main())
