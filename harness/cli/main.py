"""`kernel-matrix VERB`, and `python -m harness VERB`, which is the same: each verb is a module of this folder.

Errors are caught here, once. Exit codes are those of `harness.errors`; what one means is printed last.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

from harness import errors
from harness.cli.options import Parser
from harness.interrupts import as_interrupts, keep_interrupts
from harness.typed import typed

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
    "new": "write a kernel's template, and a matrix file of its own",
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
    "images": "list, build, check or remove the container images; `base` makes a base image",
    "bundle": "pack the environments for a host without a container engine or a registry",
    "pins": "resolve the environments' pinned packages again",
    "doctor": "say what this machine has and lacks, and what to do about it",
}
INTERNAL = {
    "schema": "print the JSON Schema of matrix.yaml",
}


def make_parser(wanted: str) -> Parser:
    """The parser of the command. Only the verb that is wanted has its options: its module alone is imported."""
    parser = Parser(
        prog="kernel-matrix",
        description="Builds, validates and times GPU kernels under several pinned PyTorch releases, and says why "
        "results differ.",
        epilog="kernel-matrix COMMAND --help lists the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"kernel-matrix {version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND", title="commands")
    for name, does in VERBS.items():
        verbs.add_parser(name, help=does)
    for name in INTERNAL:  # without `help`, it is not listed
        verbs.add_parser(name)
    if wanted in verbs.choices:
        verb, does = verbs.choices[wanted], (VERBS | INTERNAL)[wanted]
        verb.description = f"{does[0].upper()}{does[1:]}."
        import_module(f"harness.cli.{wanted}").add_options(verb)
    return parser


def version() -> str:
    try:
        return metadata.version("torch-kernel-matrix")
    except metadata.PackageNotFoundError:
        return "of a checkout"


def parse(words: Sequence[str], options: argparse.Namespace) -> None:
    """InputError names the command whose options are wrong, and those that may have been meant."""
    verb = words[0]
    refuse_misspelt_variables()
    if verb.startswith("-") and verb not in ("-h", "--help", "--version"):
        remedy = "begin with the command, such as: kernel-matrix matrix --quick; kernel-matrix --help lists them"
        raise errors.InputError(f"{verb}: an option before the command", remedy)
    if not verb.startswith("-") and verb not in VERBS | INTERNAL:
        raise errors.InputError(
            f"{verb}: no such command", f"{errors.meant(verb, VERBS)}kernel-matrix --help lists them"
        )
    _, unknown = make_parser(verb).parse_known_args(words, options)
    if verb.startswith("-"):
        return
    parser = Parser(prog=f"kernel-matrix {verb}")
    import_module(f"harness.cli.{verb}").add_options(parser)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
        meant = errors.meant(unknown[0].partition("=")[0], known)
        raise errors.InputError(f"unrecognized arguments: {' '.join(unknown)}", f"{meant}see: {typed(verb, '--help')}")
    parser.refuse_twice(words[1 : words.index("--make") if "--make" in words else None])


def refuse_misspelt_variables() -> None:
    """InputError where an environment variable is almost one of ours: it would do nothing, and nobody would see it."""
    for name in sorted(os.environ):
        near = errors.nearest(name, VARIABLES, 0.9) if name not in VARIABLES else ""
        if near:
            raise errors.InputError(f"{name}: no such variable", f"did you mean {near}? Else unset it")


def start() -> int:
    """The process's own entry: `main` of its arguments."""
    keep_interrupts()
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. The exit code: 0 done, else as `harness.errors` names them."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    code = _run(words)
    meanings = MEANINGS | OF_GATE if words[0] == "gate" else MEANINGS
    if code in meanings:
        sys.stdout.flush()
        print(f"exit code {code}: {meanings[code]}", file=sys.stderr)
    return code


def _run(words: list[str]) -> int:
    options = argparse.Namespace(given=words[1:])
    try:
        parse(words, options)
        with as_interrupts():
            return int(import_module(f"harness.cli.{options.verb}").run(options))
    except SystemExit:  # argparse ends the process after --help
        return errors.DONE
    except errors.HarnessError as error:
        return _failed(error)
    except BrokenPipeError:  # `--list | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left in the buffer has nowhere to go
        return errors.DONE
    except OSError as error:
        known = _explained(error, getattr(options, "matrix", Path()))
        if known is None:
            raise
        return _failed(known)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr, flush=True)
        _tidy_up()
        os._exit(INTERRUPTED)  # threads that still wait have nothing left to say


def _tidy_up() -> None:
    """Threads whose processes were ended have a moment to remove what those left."""
    process = sys.modules.get("harness.executors.process")  # not imported now: the interrupt may have cut an import off
    deadline = time.monotonic() + TIDY_S
    with contextlib.suppress(KeyboardInterrupt):  # who interrupts again does not want to wait
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join(max(0.0, deadline - time.monotonic()))
    if process is not None:
        process.remove_own_temporary()


def _failed(error: errors.HarnessError) -> int:
    print(f"{'error' if isinstance(error, errors.InputError) else 'cannot go on'}: {error}", file=sys.stderr)
    return error.code


def _explained(error: OSError, matrix_path: Path) -> errors.HarnessError | None:
    """What the user can act on: a full disk, a folder that cannot be written to, or one that
    was removed meanwhile. None: a fault of ours."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):  # of a whole tree: what failed, as text
        _, to, text = error.args[0][0]
        number = re.match(r"\[Errno (\d+)\]", text)
        error = OSError(int(number[1]), os.strerror(int(number[1])), to) if number else error
    problem = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        from harness.schema.storage import fullest
        from harness.tools import cache_folder

        runs = matrix_path.resolve().parent / "reports" / "runs"
        place = error.filename2 or error.filename
        return errors.DiskFull(place or fullest(runs, cache_folder(), Path(tempfile.gettempdir())), problem)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename:
        return errors.InfrastructureError(
            f"{error.filename}: {problem}",
            "make it readable for this user"
            if os.path.isfile(error.filename) and not os.access(error.filename, os.R_OK, effective_ids=True)
            else "make it writable for this user; the cache can be moved with KERNEL_MATRIX_CACHE",
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST) and error.filename:
        from harness.tools import CACHE_VARIABLE, cache_folder

        place = Path(os.fsdecode(error.filename))
        if place == cache_folder() or (cache_folder().is_file() and place.is_relative_to(cache_folder())):
            why = "a file, and a folder belongs there" if cache_folder().is_file() else f"cannot be made: {problem}"
            return errors.InfrastructureError(f"{cache_folder()}: {why}", f"name another folder: {CACHE_VARIABLE}=DIR")
    if error.errno == errno.ENOENT and error.filename:
        from harness.tools import cache_folder

        ours = (cache_folder(), matrix_path.resolve().parent / "reports")
        if any(Path(os.fsdecode(error.filename)).is_relative_to(folder) for folder in ours):
            return errors.InfrastructureError(
                f"{error.filename}: was removed while it was in use",
                errors.START_AGAIN,
            )
    return None


if __name__ == "__main__":
    sys.exit(start())
