"""`python -m harness`: plan, pins, doctor, and the run itself. `python -m reports` renders what it records."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from harness.errors import INFRASTRUCTURE, DiskFull, HarnessError, InfrastructureError, InputError, exit_code
from harness.options import Parser, positive, run_options
from harness.plan import Plan, Selection


def _parser() -> Parser:
    parser = Parser(prog="python -m harness", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    shared = Parser(add_help=False)
    shared.add_argument("--matrix", type=Path, default=Path("matrix.yaml"), help="default: matrix.yaml")
    running = run_options()
    verbs.add_parser("matrix", parents=[shared, running], help="every environment, in blocks")
    only = verbs.add_parser("eval", parents=[shared, running], help="one environment, timed alone")
    only.add_argument("--torch", required=True, help="a PyTorch version of matrix.yaml")
    pins = verbs.add_parser("pins", parents=[shared], help="resolve docker/pins/ again")
    pins.add_argument("--missing", action="store_true", help="only the files that do not exist")
    verbs.add_parser("doctor", parents=[shared], help="what this machine has and lacks")
    images = verbs.add_parser("images", parents=[shared], help="the container images: list, build, check, remove, base")
    images.add_argument("action", choices=["list", "build", "check", "remove", "base"], nargs="?", default="list")
    images.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    images.add_argument("--all", action="store_true", help="remove: also those that this matrix uses, and bases")
    images.add_argument("--strict", action="store_true", help="refuse every fallback")
    bundle = verbs.add_parser("bundle", parents=[shared], help="the images, for a host without engine or registry")
    bundle.add_argument(
        "--arch", type=_architecture, required=True, help="the GPUs' compute capability without its dot, such as 90"
    )
    bundle.add_argument("--part-mb", type=positive, default=60, metavar="N", help="most megabytes a part, default 60")
    bundle.add_argument("--out", type=Path, metavar="DIR", help="default: bundle-ARCH")
    bundle.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    bundle.add_argument("--torch", action="append", default=[], metavar="V", help="that version; may be repeated")
    bundle.add_argument("--level", type=int, choices=range(1, 20), default=12, metavar="N", help="zstd's, default 12")
    bundle.add_argument("--strict", action="store_true", help="refuse every fallback")
    schema = verbs.add_parser("schema", help="the JSON Schema of matrix.yaml")
    schema.add_argument("--write", type=Path, metavar="FILE")
    return parser


def _print_plan(plan: Plan) -> None:
    print(f"executor: {plan.facts.executor_reason}")
    print(
        f"baseline {plan.baseline}; {len(plan.cells)} cells; {len(plan.launches)} launches; "
        f"{plan.threads} threads; plan {plan.digest[:12]}"
    )
    for fallback in plan.fallbacks:
        print(f"fallback: {fallback.subject}: {fallback.got} instead of {fallback.wanted}")
    for build in plan.builds:
        print(
            f"build    {build.environment}/{build.kernel}/{build.device}{'' if build.runnable else ' (compile only)'}"
        )
    for cell in plan.cells:
        trials = ", ".join(f"{count} {recipe}" for recipe, count in plan.workload(cell.workload).trials.items())
        alone = "" if cell.environment in plan.measured else " (stored validation)"
        print(f"cell     {cell.id}: {trials}{alone}")
    for launch in plan.launches:
        print(
            f"launch   {launch.position:3d} block {launch.index} {launch.environment}/{launch.kernel}/{launch.device}"
        )


def _run(arguments: argparse.Namespace) -> int:
    from harness.gathering import Options, make_plan
    from harness.runner import run_matrix

    selection = Selection(
        mode=arguments.verb,
        torch=getattr(arguments, "torch", None),
        kernels=tuple(arguments.kernel),
        workloads=tuple(arguments.workload),
        devices=arguments.device,
        launches=arguments.launches,
        trials=arguments.trials,
        quick=arguments.quick,
    )
    command = ["nox", "-s", f"eval(torch='{arguments.torch}')" if arguments.verb == "eval" else "matrix"]
    given = [_unnamed(word, arguments.bundle) for word in arguments.given if word]
    options = Options(
        matrix_path=arguments.matrix,
        command=(*command, *(["--", *given] if given else [])),
        strict=arguments.strict,
        fresh=arguments.fresh,
        executor=arguments.executor,
        base_image=arguments.base_image,
        bundle=arguments.bundle,
    )
    if arguments.list:
        _print_plan(make_plan(options, selection, write_pins=False).plan)
        return 0
    run, codes = run_matrix(options, selection)
    if arguments.run_path:
        arguments.run_path.write_text(str(run.folder))
    print(f"records: {run.folder}")
    return exit_code(codes)


def _pins(arguments: argparse.Namespace) -> int:
    """Pins of every environment whose index answers; an index that was never reached gets none."""
    from harness.indexes import probe_index
    from harness.matrix import load_matrix
    from harness.pins import ensure_pins
    from harness.plan import PlannedEnvironment

    matrix, _ = load_matrix(arguments.matrix)
    root, written = arguments.matrix.resolve().parent, 0
    problems: dict[str, str] = {}
    for spec in matrix.pinned_environments:
        for index in dict.fromkeys(index for index in (spec.wheel_index, spec.fallback_index) if index):
            if index not in problems:
                problems[index] = probe_index(index)
                if problems[index]:
                    print(f"no pins from {index}: {problems[index]}")
            if not problems[index]:
                environment = PlannedEnvironment(id=spec.id(index), spec=spec, index=index)
                path, new = ensure_pins(root, environment, matrix, again=not arguments.missing)
                written += 1
                print(f"{path.relative_to(root)}: {'resolved' if new else 'kept'}")
    if not written:
        raise HarnessError("no index answers, so nothing was resolved", "check the network with: nox -s doctor")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from harness.doctor import examine, render
    from harness.matrix import load_matrix

    matrix, _ = load_matrix(arguments.matrix)
    checks = examine(matrix, arguments.matrix.resolve().parent)
    print(render(checks))
    return INFRASTRUCTURE if any(check.needed and not check.ok for check in checks) else 0


def _images(arguments: argparse.Namespace) -> int:
    from harness.imaging import run_images

    return run_images(
        arguments.action,
        arguments.matrix,
        base_image=arguments.base_image,
        every=arguments.all,
        strict=arguments.strict,
    )


def _architecture(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no compute capability without its dot, such as 80 or 90")
    return text


def _bundle(arguments: argparse.Namespace) -> int:
    from harness.bundling.pack import Options, run_bundle

    return run_bundle(
        Options(
            matrix_path=arguments.matrix,
            architecture=arguments.arch,
            out=(arguments.out or Path(f"bundle-{arguments.arch}")).absolute(),
            part_mb=arguments.part_mb,
            level=arguments.level,
            base_image=arguments.base_image,
            torch=tuple(arguments.torch),
            strict=arguments.strict,
        )
    )


def _schema(arguments: argparse.Namespace) -> int:
    from harness.inside import protocol
    from harness.matrix import json_schema

    text = json.dumps(json_schema(), indent=2) + "\n"
    if arguments.write:
        protocol.write_atomically(str(arguments.write), text.encode())
    else:
        print(text, end="")
    return 0


def main(argv: list[str]) -> int:
    """Exit code: 0 done, 64 bad input, 30 infrastructure, 20 a build failed."""
    verbs = {
        "matrix": _run,
        "eval": _run,
        "pins": _pins,
        "doctor": _doctor,
        "images": _images,
        "bundle": _bundle,
        "schema": _schema,
    }
    arguments = argparse.Namespace()
    try:
        arguments = _parser().parse_args(argv)
        arguments.given = _without_plumbing(argv[1:])
        return verbs[arguments.verb](arguments)
    except HarnessError as error:
        kind = "error" if isinstance(error, InputError) else "cannot go on"
        print(f"{kind}: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:  # `--list | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left in the buffer has nowhere to go
        return 0
    except OSError as error:
        known = _explained(error, arguments)
        if known is None:
            raise
        print(f"cannot go on: {known}", file=sys.stderr)
        return known.code
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr, flush=True)
        os._exit(130)  # threads that wait for what was ended have nothing left to say


def _explained(error: OSError, arguments: argparse.Namespace) -> HarnessError | None:
    """What the user can act on: a full disk, or a folder that cannot be written to. None: a fault of ours."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):  # of a whole tree: what failed, as text
        _, to, said = error.args[0][0]
        number = re.match(r"\[Errno (\d+)\]", said)
        error = OSError(int(number[1]), os.strerror(int(number[1])), to) if number else error
    problem = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        from harness.storage import fullest
        from harness.tools import cache_folder

        reports = getattr(arguments, "matrix", Path()).resolve().parent / "reports"
        place = error.filename2 or error.filename
        return DiskFull(place or fullest(reports / "runs", cache_folder(), Path(tempfile.gettempdir())), problem)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename:
        return InfrastructureError(
            f"{error.filename}: {problem}",
            "make it writable for this user; the cache can be moved with KERNEL_MATRIX_CACHE",
        )
    return None


def _unnamed(word: str, bundle: Path | None) -> str:
    """A word of the command without this machine's folder of the bundle: records and pages are sent on."""
    return (
        word.replace(str(bundle), "DIR") if bundle is not None and word in (str(bundle), f"--bundle={bundle}") else word
    )


def _without_plumbing(words: list[str]) -> list[str]:
    """What the user gave, without what a session adds for itself."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith(("--run-path=", "--torch=")):
            skip = False
        elif word in ("--run-path", "--torch"):
            skip = True
        else:
            kept.append(word)
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
