"""Runs the user's script as Python would, and records how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import runpy
import sys
import threading
import time
import traceback
from typing import Any, Callable

import torch

from .places import OWN
from .record import Recorder


class Unsupported(Exception):
    """What the recorder cannot see; the message says why."""


def run_script(request: dict[str, Any]) -> int:
    """Run it; its exit code. `end.json` says how it ended, how long it took, its peak of resident memory, and what was
    resident at its start: PyTorch itself."""
    sys.argv = [request["target"], *request["arguments"]]
    if request["kind"] == "file":
        sys.path[0] = os.path.dirname(os.path.abspath(request["target"]))
    else:
        sys.path[0] = os.getcwd()
    notes: list[str] = []
    _watch(notes, request["eager"])
    recorder = Recorder(request) if request["with"] == "record" else None
    end: dict[str, Any] = {"start_bytes": _peak_bytes(), "elsewhere": []}
    end.update({"torch": torch.__version__, "exception": "", "unsupported": "", "code": 0})
    started = time.perf_counter()
    try:
        held = _run(request, recorder)
    except SystemExit as error:
        held, end["code"] = None, _exit_code(error)
    except Unsupported as error:
        held, end["code"], end["unsupported"] = None, 1, str(error)
    except BaseException as error:  # the script's own, whatever it is: that is its result
        held, end["code"] = None, 1
        end["exception"] = _told(error)
        if recorder is not None:
            end["raised"] = recorder.where_raised(error)
        _print_own(error)
    with contextlib.suppress(RuntimeError):  # of what the GPU still does: the script did not wait for it
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    end["duration_s"] = time.perf_counter() - started
    end["peak_bytes"] = _peak_bytes()
    if recorder is not None:
        if recorder.failed:  # that is no answer, whatever the script made of it
            print(recorder.failed, file=sys.stderr)
            return 1
        end.update(recorder.close())
    del held
    end["notes"] = sorted(set(notes + end.get("notes", [])))
    with open(os.path.join(request["out"], "end.json"), "w", encoding="utf-8") as file:
        json.dump(end, file)
    sys.stdout.flush()
    return int(end["code"])


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _run(request: dict[str, Any], recorder: Recorder | None) -> Any:
    """The script's globals, which keep alive what it still holds at its end."""
    if recorder is None:
        return _start(request)
    # Autograd calls operators of a GPU in a thread of its own, unless it is told not to.
    with torch.autograd.set_multithreading_enabled(False), recorder:
        return _start(request)


def _start(request: dict[str, Any]) -> dict[str, Any]:
    if request["kind"] == "file":
        return runpy.run_path(request["target"], run_name="__main__")
    return runpy.run_module(request["target"], run_name="__main__", alter_sys=True)


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _print_own(error: BaseException) -> None:
    """The traceback from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _told(error: BaseException) -> str:
    """Its type and message, and those of the exceptions that it was raised from."""
    texts: list[str] = []
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        texts.append(f"{type(cause).__name__}: {str(cause)[:2000]}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return ", raised from ".join(texts)


def _is_ours(name: str) -> bool:
    return name.startswith(OWN) or "runpy" in name


def _watch(notes: list[str], eager: bool) -> None:
    """Refuse what the recorder cannot see, or note it."""

    def compiled(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not eager:
            raise Unsupported("torch.compile: what it compiles is not seen by the recorder; --eager leaves it out")
        notes.append("torch.compile was left out: --eager")
        keep: Callable[[Any], Any] = lambda function: function  # noqa: E731
        return keep if model is None else model

    torch.compile = compiled

    def captured(*args: Any, **kwargs: Any) -> Any:
        raise Unsupported("CUDA graphs: what is captured cannot be read while it is recorded")

    torch.cuda.graph.__enter__ = captured
    if hasattr(os, "register_at_fork"):
        text = "the script started processes of its own: what PyTorch computes in them is not recorded"
        os.register_at_fork(before=lambda: notes.append(text))

    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        notes.append("the script started threads of its own: what PyTorch computes in them is not recorded")
        start(thread)

    threading.Thread.start = noted  # type: ignore[assignment, method-assign]
