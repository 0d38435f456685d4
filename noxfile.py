# /// script
# dependencies = ["nox>=2025.2.9", "pyyaml>=6", "uv>=0.4"]
# ///
"""Sessions only: each starts a `python -m harness` or `python -m reports` command, and decides nothing."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import nox
import yaml

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["matrix"]

PROJECT = nox.project.load_toml("pyproject.toml")
DONE, BUILD_FAILED, INFRASTRUCTURE = 0, 20, 30  # exit codes of `python -m harness`: harness/errors.py


def torch_versions() -> list[str]:
    """The versions of matrix.yaml, for `eval`'s parameters. A file that is not YAML is the harness's to refuse."""
    try:
        matrix = yaml.safe_load(Path("matrix.yaml").read_text(encoding="utf-8"))
        return list(dict.fromkeys(str(environment["torch"]) for environment in matrix["environments"]))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return []


def install(session: nox.Session, *groups: str) -> None:
    session.install(*PROJECT["project"]["dependencies"], *nox.project.dependency_groups(PROJECT, *groups))


def harness(session: nox.Session, verb: str, *arguments: str, options: Sequence[str] | None = None) -> None:
    """Run a verb, then report what it recorded. A failed build or environment is a row of the report."""
    options = session.posargs if options is None else options
    with tempfile.TemporaryDirectory() as folder:
        run_path = Path(folder, "run")
        session.run(
            "python",
            "-m",
            "harness",
            verb,
            *arguments,
            *options,
            f"--run-path={run_path}",
            success_codes=[DONE, BUILD_FAILED, INFRASTRUCTURE],
        )
        if "--list" in options:
            return
        if not run_path.exists():
            session.error("the run did not complete")
        gate = any(option.startswith("--fail-on") for option in options)
        session.run(
            "python",
            "-m",
            "reports",
            run_path.read_text(),
            *options,
            success_codes=[DONE] if gate else [DONE, BUILD_FAILED],
        )


@nox.session
def matrix(session: nox.Session) -> None:
    """Every environment of matrix.yaml: build, validate, time in blocks, report."""
    install(session)
    harness(session, "matrix")


@nox.session(name="eval")
@nox.parametrize("torch", torch_versions())
def evaluate(session: nox.Session, torch: str) -> None:
    """One environment, against the baseline's stored validation, timed alone."""
    install(session)
    harness(session, "eval", f"--torch={torch}")


@nox.session
def kernelbench(session: nox.Session) -> None:
    """Problems in KernelBench's form, and their solutions: `nox -s kernelbench -- PROBLEMS SOLUTIONS [OPTIONS]`."""
    folders, options = session.posargs[:2], session.posargs[2:]
    if len(folders) < 2 or any(folder.startswith("-") for folder in folders):
        session.error("give two folders first: nox -s kernelbench -- PROBLEMS SOLUTIONS")
    install(session)
    harness(session, "matrix", options=[f"--problems={folders[0]}", f"--solutions={folders[1]}", *options])


@nox.session
def bisect(session: nox.Session) -> None:
    """The first release between two that differs: `nox -s bisect -- --good 2.1.0 --bad 2.5.0 --target math`."""
    install(session)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bisection")
        session.run("python", "-m", "harness", "bisect", *session.posargs, f"--run-path={path}")
        if path.exists():  # not with --list
            session.run("python", "-m", "reports", "bisection", path.read_text())


@nox.session
def sweep(session: nox.Session) -> None:
    """The fastest setting of a kernel that is right everywhere: `nox -s sweep -- --kernel K --workload W`."""
    install(session)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sweep")
        session.run("python", "-m", "harness", "sweep", *session.posargs, f"--run-path={path}")
        if path.exists():  # not with --list
            session.run("python", "-m", "reports", "sweep", path.read_text())


@nox.session
def gate(session: nox.Session) -> None:
    """Is a kernel fast enough, and correct everywhere? `nox -s gate -- [RUN] [--reference flash]`; what stands after
    --make are options of `matrix`, whose run is then made and judged."""
    install(session)
    options, made = session.posargs, None
    if "--make" in options:
        options, made = options[: options.index("--make")], options[options.index("--make") + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        if made is not None:
            session.run(
                "python",
                "-m",
                "harness",
                "matrix",
                *made,
                f"--run-path={path}",
                success_codes=[DONE, BUILD_FAILED, INFRASTRUCTURE],
            )
            if not path.exists():
                session.error("the run did not complete, so there is nothing to judge")
            options = [path.read_text(), *options]
        session.run("python", "-m", "reports", "gate", *options)


@nox.session
def explain(session: nox.Session) -> None:
    """The experiments that a finished run calls for, of reports/latest or of the folder given; then its report."""
    install(session)
    with tempfile.TemporaryDirectory() as folder:
        run_path = Path(folder, "run")
        session.run(
            "python",
            "-m",
            "harness",
            "explain",
            *session.posargs,
            f"--run-path={run_path}",
            success_codes=[DONE, BUILD_FAILED, INFRASTRUCTURE],
        )
        if not run_path.exists():
            session.error("the run could not be explained")
        session.run("python", "-m", "reports", run_path.read_text(), success_codes=[DONE, BUILD_FAILED])


@nox.session
def report(session: nox.Session) -> None:
    """Render again from records: of reports/latest, or of the folder given."""
    install(session)
    session.run("python", "-m", "reports", *session.posargs)


@nox.session
def pins(session: nox.Session) -> None:
    """Resolve docker/pins/ again."""
    install(session)
    session.run("python", "-m", "harness", "pins", *session.posargs)


@nox.session
def images(session: nox.Session) -> None:
    """The container images: list, build, check, remove; `base` makes one from Debian's packages."""
    install(session)
    session.run("python", "-m", "harness", "images", *session.posargs)


@nox.session
def bundle(session: nox.Session) -> None:
    """The images for a host without engine or registry: `nox -s bundle -- --arch 90`."""
    install(session)
    session.run("python", "-m", "harness", "bundle", *session.posargs)


@nox.session
def doctor(session: nox.Session) -> None:
    """What this machine has and lacks, and what to do about it."""
    install(session)
    session.run("python", "-m", "harness", "doctor", *session.posargs)


@nox.session
def specimens(session: nox.Session) -> None:
    """Kernels whose true cause is known, run and explained: how often is the attribution right?"""
    install(session)
    session.run("python", "-m", "harness", "specimens", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The tests; those that need an engine, a GPU or a browser are skipped, with the reason, where there is none.

    Two at once, but for those that something beside them would disturb: they come last.
    """
    install(session, "tests")
    if session.posargs:
        session.run("python", "-m", "pytest", *session.posargs)
        return
    session.run("python", "-m", "pytest", "-m", "not alone", "-n2", "--dist=loadfile")
    session.run("python", "-m", "pytest", "-m", "alone")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and mypy."""
    install(session, "tests", "lint")
    session.run("ruff", "check", ".")
    session.run("mypy")


@nox.session
def screenshot(session: nox.Session) -> None:
    """A picture of a page: `nox -s screenshot -- reports/latest/index.html OUT.png`."""
    install(session, "tests")
    session.run("python", "-m", "reports.screenshot", *session.posargs)
