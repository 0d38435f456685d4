"""`python -m harness VERB`: a run, and what serves it. `python -m reports` renders what it records."""

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
from typing import TYPE_CHECKING

from harness.cli.arguments import make_parser
from harness.config.plan import Plan, Selection
from harness.errors import INFRASTRUCTURE, DiskFull, HarnessError, InfrastructureError, InputError, exit_code
from harness.interrupts import as_interrupts

if TYPE_CHECKING:
    from harness.config.kernelbench import Folders
    from harness.run.prepare import Options
    from harness.schema.run_records import RunRecord
    from harness.schema.storage import Run


UNNAMED = Path("DIR")  # what a recorded command says instead of a bundle's folder


def _more(plan: Plan) -> str:
    if plan.most_launches == plan.launches_each:
        return ""
    return f", up to {plan.most_launches} instead of {plan.launches_each} of each kernel whose rows stay undecided"


def _print_plan(plan: Plan) -> None:
    print(f"executor: {plan.facts.executor_reason}")
    print(
        f"baseline {plan.baseline}; {len(plan.cells)} cells; {len(plan.launches)} launches{_more(plan)}; "
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


def _selection(arguments: argparse.Namespace) -> Selection:
    return Selection(
        mode=arguments.verb,
        torch=getattr(arguments, "torch", None),
        kernels=tuple(arguments.kernel),
        workloads=tuple(arguments.workload),
        devices=arguments.device,
        launches=arguments.launches,
        trials=arguments.trials,
        quick=arguments.quick,
    )


def _options(arguments: argparse.Namespace, command: tuple[str, ...]) -> Options:
    from harness.run.prepare import Options

    return Options(
        matrix_path=arguments.matrix,
        command=command,
        strict=arguments.strict,
        fresh=arguments.fresh,
        executor=arguments.executor,
        base_image=arguments.base_image,
        bundle=arguments.bundle,
        explain=arguments.explain == "auto" and arguments.problems is None,  # a hundred solutions may be wrong
        profile=arguments.profile,
        kernelbench=_kernelbench(arguments),
    )


def _kernelbench(arguments: argparse.Namespace) -> Folders | None:
    from harness.config.kernelbench import Folders

    if (arguments.problems is None) != (arguments.solutions is None):
        raise InputError("--problems and --solutions belong together", "give both folders")
    if arguments.problems is None:
        return None
    return Folders(
        problems=arguments.problems, solutions=arguments.solutions, sample=arguments.sample, dtype=arguments.dtype
    )


def _run(arguments: argparse.Namespace) -> int:
    from harness.run.prepare import make_plan
    from harness.run.workflow import run_matrix

    selection = _selection(arguments)
    command = ["nox", "-s", f"eval(torch='{arguments.torch}')" if arguments.verb == "eval" else "matrix"]
    given = [_unnamed(word, arguments.bundle) for word in arguments.given if word]
    options = _options(arguments, (*command, *(["--", *given] if given else [])))
    if arguments.list:
        _print_plan(make_plan(options, selection, write_pins=False).plan)
        return 0
    run, codes = run_matrix(options, selection)
    if arguments.run_path:
        arguments.run_path.write_text(str(run.folder))
    print(f"records: {run.folder}")
    return exit_code(codes)


def _explain(arguments: argparse.Namespace) -> int:
    from harness.experiments.plan import Focus
    from harness.run.workflow import run_explain
    from harness.schema.storage import Run

    root = arguments.matrix.resolve().parent
    run = Run((arguments.run_folder or root / "reports" / "latest").resolve())
    if not run.run_path().exists():
        raise InputError(f"{run.run_path()}: no such file", "start `nox -s matrix` first, or name the folder of a run")
    record = run.load()
    made = make_parser().parse_args(_words_of(run, record))
    made.matrix = arguments.matrix
    if arguments.bundle or made.bundle == UNNAMED:
        made.bundle = _bundle_of(arguments.bundle, run.folder)
    focus = Focus(
        kernels=tuple(arguments.kernel),
        workloads=tuple(arguments.workload),
        torches=tuple(arguments.torch),
        everything=arguments.all,
    )
    codes = run_explain(_options(made, tuple(record.command)), _selection(made), run, focus)
    if arguments.run_path:
        arguments.run_path.write_text(str(run.folder))
    print(f"records: {run.folder}")
    return exit_code(codes)


def _bundle_of(given: Path | None, run: Path) -> Path:
    """Where the bundle that a run used lies now: its record does not say."""
    named = given or os.environ.get("KERNEL_MATRIX_BUNDLE")
    if not named:
        raise InputError(f"{run}: it used a bundle", "say where that is unpacked: --bundle DIR")
    return Path(named)


def _words_of(run: Run, record: RunRecord) -> list[str]:
    """The arguments that plan a recorded run again: its mode and environments are the record's, the rest was given."""
    given = record.command[record.command.index("--") + 1 :] if "--" in record.command else []
    if record.mode == "matrix":
        return ["matrix", *given]
    chosen = record.environments[1:] or record.environments  # the baseline is always planned, and stands first
    torch = chosen[0] if len(chosen) == 1 else next(e.torch for e in run.environments() if e.id == chosen[0])
    return ["eval", f"--torch={torch}", *given]


def _pins(arguments: argparse.Namespace) -> int:
    """Pins of every environment whose index answers; an index that was never reached gets none."""
    from harness.config.indexes import probe_index
    from harness.config.matrix import load_matrix
    from harness.config.pins import ensure_pins
    from harness.config.plan import PlannedEnvironment

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
                path, _ = ensure_pins(root, environment, matrix, again=True)
                written += 1
                print(f"{path.relative_to(root)}: resolved")
    if not written:
        raise HarnessError("no index answers, so nothing was resolved", "check the network with: nox -s doctor")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from harness.cli.doctor import examine, render
    from harness.config.matrix import load_matrix

    matrix, _ = load_matrix(arguments.matrix)
    if arguments.base_image:
        matrix = matrix.with_base(arguments.base_image)
    checks = examine(matrix, arguments.matrix.resolve().parent)
    print(render(checks))
    return INFRASTRUCTURE if any(check.needed and not check.ok for check in checks) else 0


def _images(arguments: argparse.Namespace) -> int:
    from harness.cli.images import run_images

    return run_images(
        arguments.action,
        arguments.matrix,
        base_image=arguments.base_image,
        every=arguments.all,
        strict=arguments.strict,
    )


def _bundle(arguments: argparse.Namespace) -> int:
    from harness.isolate.bundle.pack import Options, run_bundle

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


def _bisect(arguments: argparse.Namespace) -> int:
    from harness.search.bisect.command import run_command

    return run_command(arguments)


def _sweep(arguments: argparse.Namespace) -> int:
    from harness.search.sweep.command import run_command

    given = [_unnamed(word, arguments.bundle) for word in arguments.given if word]
    return run_command(arguments, ["nox", "-s", "sweep", "--", *given])


def _specimens(arguments: argparse.Namespace) -> int:
    from harness.gpu import gpus
    from harness.specimens.again import ask_again
    from harness.specimens.format import load_specimens
    from harness.specimens.running import SPECIMENS, Options, chosen, coverage, run_specimens

    devices = arguments.device
    if not devices and not arguments.list and not arguments.again and not gpus():
        print("no GPU here: those for CUDA are left out")
        devices = ["cpu"]
    where = [f"--executor={arguments.executor}"]
    where += [f"--bundle={arguments.bundle.absolute()}"] if arguments.bundle else []
    where += [f"--base-image={arguments.base_image}"] if arguments.base_image else []
    options = Options(
        matrix_path=arguments.matrix,
        half=arguments.half,
        devices=tuple(devices),
        only=tuple(arguments.only),
        out=arguments.out.absolute() if arguments.out else None,
        executor=tuple(where),
        causes=not arguments.no_causes,
    )
    if arguments.list:
        specimens = chosen(load_specimens(options.root / SPECIMENS), options)
        for name, specimen in specimens.items():
            print(f"{name} ({specimen.device}, {specimen.half}): {', '.join(specimen.causes)}\n    {specimen.story}")
        print(coverage(specimens))
        return 0
    if arguments.again:
        ask_again(options, arguments.again)
        return 0
    code, path = run_specimens(options)
    print(f"results: {path}")
    return code


def _schema(arguments: argparse.Namespace) -> int:
    from harness.config.matrix import json_schema
    from harness.worker import protocol

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
        "explain": _explain,
        "pins": _pins,
        "doctor": _doctor,
        "images": _images,
        "bundle": _bundle,
        "bisect": _bisect,
        "sweep": _sweep,
        "schema": _schema,
        "specimens": _specimens,
    }
    arguments = argparse.Namespace()
    try:
        arguments = make_parser().parse_args(argv)
        arguments.given = _without_plumbing(argv[1:])
        with as_interrupts():
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
        from harness.schema.storage import fullest
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
        word.replace(str(bundle), str(UNNAMED))
        if bundle is not None and word in (str(bundle), f"--bundle={bundle}")
        else word
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

