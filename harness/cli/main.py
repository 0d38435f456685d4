"""`kernel-matrix VERB`, and `python -m harness VERB`, which is the same: each is in the COMMANDS of a module of this
folder.

Errors are caught here, once. Exit codes are those of `harness.errors`; what one means is printed last.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

from harness import errors
from harness.cli.options import Command, Parser
from harness.interrupts import as_interrupts, keep_interrupts

INTERRUPTED = 130
TIDY_S = 2.0
MEANINGS = {
    errors.CORRECTNESS_REGRESSED: "correctness regressed",
    errors.LATENCY_REGRESSED: "latency regressed",
    errors.MEMORY_REGRESSED: "memory regressed",
    errors.BUILD_FAILED: "a build failed",
    errors.INFRASTRUCTURE: "this machine, its container engine or its network could not do it",
    errors.UNDECIDED: "undecided: the measurements made could not have shown it",
    errors.BAD_INPUT: "bad input",
}
OF_GATE = {
    errors.CORRECTNESS_REGRESSED: "a kernel is not correct in some environment",
    errors.LATENCY_REGRESSED: "a kernel is not fast enough for the gate",
    errors.MEMORY_REGRESSED: "a kernel uses more memory than the gate allows",
}
VARIABLES = ("KERNEL_MATRIX_BUNDLE", "KERNEL_MATRIX_BY_NOX", "KERNEL_MATRIX_CACHE", "KERNEL_MATRIX_HOST_PYTHON")


VERBS = {
    "init": "write a matrix.yaml and a noxfile.py for the kernels in this folder",
    "check": "look for what cannot work, without an environment: in the sources, problem files and shapes",
    "matrix": "run every environment of matrix.yaml: build, validate, time, explain, report",
    "eval": "run one environment, against the baseline's stored validation",
    "collect": "gather what a matrix on many machines has so far, and say what is missing",
    "report": "render the report again, from records: of a run, a bisection or a sweep",
    "compare": "show what moved between two runs, of a branch and of main for one",
    "export": "print a run's times and memory for Bencher or github-action-benchmark",
    "explain": "run the experiments that a finished run calls for, then report",
    "bisect": "find the first PyTorch release between two that differs",
    "sweep": "find the fastest setting of a kernel's tunables that is correct everywhere",
    "trace": "find the first operator at which a script's results part between two versions, and prove it",
    "gate": "decide whether a kernel is fast enough, and correct everywhere",
    "kernelbench": "run KernelBench's problems with their solutions",
    "images": "list, build or remove the container images; `base` makes a base image",
    "bundle": "pack the environments for a host without a container engine or a registry",
    "pins": "resolve the environments' pinned packages again",
    "doctor": "say what this machine has and lacks, and what to do about it",
}
INTERNAL = {"schema": "print the JSON Schema of matrix.yaml"}  # not listed
# Modules that have several verbs; any other verb is in the module of its name.
MODULES = {
    "init": "start",
    "eval": "matrix",
    "kernelbench": "matrix",
    "collect": "shards",
    "compare": "report",
    "export": "report",
    "bisect": "search",
    "sweep": "search",
    "pins": "check",
    "schema": "check",
}


def find_command(verb: str) -> Command:
    """Return what a verb does; its module alone is imported."""
    commands: dict[str, Command] = import_module(f"harness.cli.{MODULES.get(verb, verb)}").COMMANDS
    return commands[verb]


def make_parser(verb: str) -> Parser:
    """Return the parser of a verb."""
    does = (VERBS | INTERNAL)[verb]
    parser = Parser(prog=f"kernel-matrix {verb}", description=f"{does[0].upper()}{does[1:]}.")
    find_command(verb).add_options(parser)
    return parser


def make_overview() -> Parser:
    """Return the parser of a command line without a verb."""
    parser = Parser(
        prog="kernel-matrix",
        description="Builds, validates and times GPU kernels under several pinned PyTorch releases, and says why "
        "results differ.",
        epilog="kernel-matrix COMMAND --help lists the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"kernel-matrix {version()}")
    verbs = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, does in VERBS.items():
        verbs.add_parser(name, help=does)
    return parser


def version() -> str:
    try:
        return metadata.version("torch-kernel-matrix")
    except metadata.PackageNotFoundError:
        return "of a checkout"


def parse(options: argparse.Namespace) -> None:
    """Add the options of a command. InputError where they are wrong: it names the command, and what may be meant."""
    refuse_misspelt_variables()
    verb = options.verb
    if verb in ("-h", "--help", "--version"):
        make_overview().parse_args([verb])
    if verb.startswith("-"):
        remedy = "begin with the command, such as: kernel-matrix matrix --quick; kernel-matrix --help lists them"
        raise errors.InputError(f"{verb}: an option before the command", remedy)
    if verb not in VERBS | INTERNAL:
        remedy = f"{errors.meant(verb, VERBS)}kernel-matrix --help lists them"
        raise errors.InputError(f"{verb}: no such command", remedy)
    make_parser(verb).parse_args(options.given, options)


def refuse_misspelt_variables() -> None:
    """Raise InputError where an environment variable is almost one of ours: it would do nothing, and nobody would see
    it."""
    for name in sorted(os.environ):
        near = errors.nearest(name, VARIABLES, 0.9) if name not in VARIABLES else ""
        if near:
            raise errors.InputError(f"{name}: no such variable", f"did you mean {near}? Else unset it")


def start() -> int:
    """Run the process's own arguments; return the exit code."""
    keep_interrupts()
    return main()


def main(arguments: Sequence[str] | None = None, machine: object = None) -> int:
    """Run one verb, on this machine or on a `harness.run.machine.Machine` that a test passes. Return the exit code: 0
    done, else as `harness.errors` names them."""
    verb, *given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    code = _run(argparse.Namespace(verb=verb, given=given, machine=machine))
    meanings = MEANINGS | OF_GATE if verb == "gate" else MEANINGS
    if code in meanings:
        sys.stdout.flush()
        print(f"exit code {code}: {meanings[code]}", file=sys.stderr)
    return code


def _run(options: argparse.Namespace) -> int:
    try:
        parse(options)
        with as_interrupts():
            return find_command(options.verb).run(options)
    except SystemExit:  # argparse ends the process after --help
        return errors.DONE
    except errors.HarnessError as error:
        return _report(error)
    except BrokenPipeError:  # `--list | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left in the buffer has nowhere to go
        return errors.DONE
    except OSError as error:
        known = find_remedy(error, getattr(options, "matrix", Path()))
        if known is None:
            raise
        return _report(known)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr, flush=True)
        _tidy_up()
        os._exit(INTERRUPTED)  # threads that still wait have nothing left to say


def _tidy_up() -> None:
    """Give threads whose processes were ended a moment to remove what those left."""
    process = sys.modules.get("harness.executors.process")  # not imported now: the interrupt may have cut an import off
    deadline = time.monotonic() + TIDY_S
    with contextlib.suppress(KeyboardInterrupt):  # who interrupts again does not want to wait
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join(max(0.0, deadline - time.monotonic()))
    if process is not None:
        process.remove_own_temporary()


def _report(error: errors.HarnessError) -> int:
    print(f"{'error' if isinstance(error, errors.InputError) else 'cannot go on'}: {error}", file=sys.stderr)
    return error.code


def find_remedy(error: OSError, matrix_path: Path) -> errors.HarnessError | None:
    """Return the error as one that the user can act on: a full disk, a folder that cannot be written to, or one that
    was removed meanwhile. None: a fault of ours."""
    from harness.schema.storage import fullest
    from harness.tools import CACHE_VARIABLE, cache_folder

    problem, cache, reports = error.strerror or str(error), cache_folder(), matrix_path.resolve().parent / "reports"
    place = error.filename2 or error.filename
    # An error of a whole tree has no number.
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or (isinstance(error, shutil.Error) and "No space left" in problem):
        return errors.DiskFull(place or fullest(reports / "runs", cache, Path(tempfile.gettempdir())), problem)
    if not place:
        return None
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = f"make it writable and readable for this user; or move the cache: {CACHE_VARIABLE}=DIR"
        return errors.InfrastructureError(f"{place}: {problem}", remedy)
    if Path(os.fsdecode(place)).is_relative_to(cache):
        remedy = f"{errors.START_AGAIN}; or name another folder: {CACHE_VARIABLE}=DIR"
        return errors.InfrastructureError(f"{place}: {problem}", remedy)
    if error.errno == errno.ENOENT and Path(os.fsdecode(place)).is_relative_to(reports):
        return errors.InfrastructureError(f"{place}: was removed while it was in use", errors.START_AGAIN)
    return None


if __name__ == "__main__":
    sys.exit(start())
