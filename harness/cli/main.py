"""`kernel-matrix VERB`: one command for what `python -m harness` runs and `python -m reports` renders.

Its exit code is that of whichever says more: see `harness.errors.PRECEDENCE`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.errors import (
    BAD_INPUT,
    BUILD_FAILED,
    CORRECTNESS_REGRESSED,
    DONE,
    INFRASTRUCTURE,
    LATENCY_REGRESSED,
    UNDECIDED,
    exit_code,
)

WENT_ON = (DONE, BUILD_FAILED, INFRASTRUCTURE)  # what a run may end with that has something to report
MEANINGS = {
    CORRECTNESS_REGRESSED: "correctness regressed",
    LATENCY_REGRESSED: "latency regressed, or a kernel is too slow for the gate",
    BUILD_FAILED: "a build failed",
    INFRASTRUCTURE: "this machine, its container engine or its network could not do it",
    UNDECIDED: "undecided: what was measured could not have told",
    BAD_INPUT: "bad input",
}
# Each verb, what it does, and the first words of the report of what it recorded; None where it has none.
VERBS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "init": ("a matrix.yaml and a noxfile.py for the kernels that lie here; nothing is overwritten", None),
    "matrix": ("every environment of matrix.yaml: build, validate, time in blocks, report", ()),
    "eval": ("one environment, against the baseline's stored validation: --torch 2.5.0", ()),
    "report": ("render again, from records: of reports/latest, or of the folder given", ()),
    "explain": ("the experiments that a finished run calls for, then its report", ()),
    "bisect": ("the first release between two that differs: --good 2.1.0 --bad 2.5.0 --target math", ("bisection",)),
    "sweep": ("the fastest setting of a kernel that is right everywhere: --kernel K --workload W", ("sweep",)),
    "gate": ("is a kernel fast enough, and correct everywhere?", ("gate",)),
    "kernelbench": ("problems in KernelBench's form, and their solutions: PROBLEMS SOLUTIONS", ()),
    "images": ("the container images: list, build, check, remove; `base` makes one", None),
    "bundle": ("the images for a host without engine or registry: --arch 90", None),
    "pins": ("resolve the pins of the environments again", None),
    "doctor": ("what this machine has and lacks, and what to do about it", None),
}


def usage() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:{width}}  {text}" for verb, (text, _) in VERBS.items()]
    return "\n".join(["usage: kernel-matrix VERB [OPTIONS]", "", *lines, "", "kernel-matrix VERB --help: its options"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. The exit code: 0 done, else as `harness.errors` names them; what it means is printed last."""
    code = _main(arguments)
    if code in MEANINGS:
        sys.stdout.flush()
        print(f"exit code {code}: {MEANINGS[code]}", file=sys.stderr)
    return code


def _main(arguments: Sequence[str] | None) -> int:
    verb, *options = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if verb in ("-h", "--help"):
        print(usage())
        return DONE
    if verb not in VERBS:
        return _refused(f"no such verb: {verb}")
    if verb == "kernelbench":
        if len(options) < 2 or any(folder.startswith("-") for folder in options[:2]):
            return DONE if _asks_for_help(options) else _refused("give two folders first: PROBLEMS SOLUTIONS")
        verb, options = "matrix", [f"--problems={options[0]}", f"--solutions={options[1]}", *options[2:]]
    if verb == "init":
        return _init(options)
    if verb == "report":
        return _reports(options)
    if verb == "gate":
        return _gate(options)
    words = VERBS[verb][1]
    if words is None:
        return _harness([verb, *options])
    # What a run's options say of its report (--fail-on, --count-missing), both parsers know.
    shared = options if verb in ("matrix", "eval") else []
    return _recorded([verb, *options], lambda path: _reports([*words, path, *_without_torch(shared)]))


def _without_torch(options: Sequence[str]) -> list[str]:
    """`--torch 2.5.0` is `eval`'s alone."""
    found, left = list[str](), iter(options)
    for word in left:
        if word == "--torch":
            next(left, None)
        elif not word.startswith("--torch="):
            found.append(word)
    return found


def _recorded(command: Sequence[str], then: Callable[[str], int]) -> int:
    """Run what records, then what becomes of its folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recorded")
        code = _harness([*command, f"--run-path={path}"])
        if code not in WENT_ON or not path.exists():  # it ended early, or only listed
            return code
        return exit_code([code, then(path.read_text())])


def _gate(options: list[str]) -> int:
    """What stands after --make are options of `matrix`, whose run is then made and judged."""
    if "--make" not in options:
        return _reports(["gate", *options])
    at = options.index("--make")
    return _recorded(["matrix", *options[at + 1 :]], lambda path: _reports(["gate", path, *options[:at]]))


def _init(options: Sequence[str]) -> int:
    from harness.cli.init import init
    from harness.errors import HarnessError

    if options:
        print("usage: kernel-matrix init    (in your project's folder)")
        return DONE if {"-h", "--help"} & set(options) else BAD_INPUT
    try:
        print("\n".join(init(Path.cwd())))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    return DONE


def _asks_for_help(options: Sequence[str]) -> bool:
    if not {"-h", "--help"} & set(options):
        return False
    print("usage: kernel-matrix kernelbench PROBLEMS SOLUTIONS [OPTIONS of kernel-matrix matrix]")
    return True


def _refused(what: str) -> int:
    print(f"error: {what}\n\n{usage()}", file=sys.stderr)
    return BAD_INPUT


def _harness(arguments: Sequence[str]) -> int:
    from harness.cli.commands import main as run

    return _code(lambda: run(list(arguments)))


def _reports(arguments: Sequence[str]) -> int:
    from importlib import import_module  # reports know the harness, not the other way round

    return _code(lambda: int(import_module("reports.__main__").main(list(arguments))))


def _code(run: Callable[[], int]) -> int:
    """argparse ends the process after --help."""
    try:
        return run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else DONE


if __name__ == "__main__":
    sys.exit(main())
