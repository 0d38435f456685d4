# /// script
# dependencies = ["nox>=2025.2.9", "pyyaml>=6", "uv>=0.4"]
# ///
"""Sessions only: each starts one command, and decides nothing."""

from pathlib import Path

import nox
import yaml

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["matrix"]

PROJECT = nox.project.load_toml("pyproject.toml")
PYTEST = ("python", "-m", "pytest")
DONE, BUILD_FAILED = 0, 20  # exit codes of `kernel-matrix`: harness/errors.py


def torch_versions() -> list[str]:
    """The versions of matrix.yaml, for `eval`'s parameters. A file that is not YAML is the harness's to refuse."""
    try:
        matrix = yaml.safe_load(Path("matrix.yaml").read_text(encoding="utf-8"))
        return list(dict.fromkeys(str(environment["torch"]) for environment in matrix["environments"]))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return []


def install(session: nox.Session, *groups: str) -> None:
    session.install(*PROJECT["project"]["dependencies"], *nox.project.dependency_groups(PROJECT, *groups))


def kernel_matrix(session: nox.Session, verb: str, *arguments: str) -> None:
    """One verb. A failed build is a row of its report; with --fail-on, what it names fails the session."""
    install(session)
    gate = verb == "gate" or any(option.startswith("--fail-on") for option in arguments)
    codes = [DONE] if gate else [DONE, BUILD_FAILED]
    session.run("python", "-m", "harness", verb, *arguments, success_codes=codes)


@nox.session
def matrix(session: nox.Session) -> None:
    """Every environment of matrix.yaml: build, validate, time in blocks, report."""
    kernel_matrix(session, "matrix", *session.posargs)


@nox.session(name="eval")
@nox.parametrize("torch", torch_versions())
def evaluate(session: nox.Session, torch: str) -> None:
    """One environment, against the baseline's stored validation, timed alone."""
    kernel_matrix(session, "eval", f"--torch={torch}", *session.posargs)


@nox.session
def kernelbench(session: nox.Session) -> None:
    """Problems in KernelBench's form, and their solutions: `nox -s kernelbench -- PROBLEMS SOLUTIONS [OPTIONS]`."""
    kernel_matrix(session, "kernelbench", *session.posargs)


@nox.session
def bisect(session: nox.Session) -> None:
    """The first release between two that differs: `nox -s bisect -- --good 2.1.0 --bad 2.5.0 --target math`."""
    kernel_matrix(session, "bisect", *session.posargs)


@nox.session
def sweep(session: nox.Session) -> None:
    """The fastest setting of a kernel that is right everywhere: `nox -s sweep -- --kernel K --workload W`."""
    kernel_matrix(session, "sweep", *session.posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Is a kernel fast enough, and correct everywhere? `nox -s gate -- [RUN] [--reference flash]`; what stands after
    --make are options of `matrix`, whose run is then made and judged."""
    kernel_matrix(session, "gate", *session.posargs)


@nox.session
def explain(session: nox.Session) -> None:
    """The experiments that a finished run calls for, of reports/latest or of the folder given; then its report."""
    kernel_matrix(session, "explain", *session.posargs)


@nox.session
def report(session: nox.Session) -> None:
    """Render again from records: of reports/latest, or of the folder given."""
    kernel_matrix(session, "report", *session.posargs)


@nox.session
def pins(session: nox.Session) -> None:
    """Resolve docker/pins/ again."""
    kernel_matrix(session, "pins", *session.posargs)


@nox.session
def images(session: nox.Session) -> None:
    """The container images: list, build, check, remove; `base` makes one from Debian's packages."""
    kernel_matrix(session, "images", *session.posargs)


@nox.session
def bundle(session: nox.Session) -> None:
    """The images for a host without engine or registry: `nox -s bundle -- --arch 90`."""
    kernel_matrix(session, "bundle", *session.posargs)


@nox.session
def doctor(session: nox.Session) -> None:
    """What this machine has and lacks, and what to do about it."""
    kernel_matrix(session, "doctor", *session.posargs)


@nox.session
def fault_cases(session: nox.Session) -> None:
    """Run and explain kernels whose true cause is known: how often is the attribution right?"""
    install(session)
    session.run("python", "-m", "tests.fault_cases", *session.posargs)


def run_tests(session: nox.Session, chosen: str) -> None:
    """The tests that a marker expression chooses: two files at a time, then those that run alone."""
    install(session, "tests")
    session.run("python", "-m", "tests.environments.pinned", success_codes=[0, 1])  # where it fails, its tests say so
    session.run(*PYTEST, "-m", f"{chosen}not alone", "-n2", "--dist=loadfile", "--no-loadscope-reorder")
    session.run(*PYTEST, "-m", f"{chosen}alone")


@nox.session
def tests(session: nox.Session) -> None:
    """The fast tests: unit tests, a real matrix, its page. `-- OPTIONS`: pytest with these options instead."""
    if session.posargs:
        install(session, "tests")
        session.run(*PYTEST, *session.posargs)
    else:
        run_tests(session, "not slow and ")


@nox.session
def tests_all(session: nox.Session) -> None:
    """Every test that this machine can run; `-- rest`: without those of `tests`. What is skipped says why."""
    run_tests(session, "slow and " if session.posargs == ["rest"] else "")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and mypy."""
    install(session, "tests", "lint")
    session.run("ruff", "check", ".")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """The documents as a site, in .site/; a link or an anchor that leads nowhere is an error."""
    session.install(*nox.project.dependency_groups(PROJECT, "docs"))
    session.run("mkdocs", "build", "--strict", *session.posargs, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def screenshot(session: nox.Session) -> None:
    """A picture of a page: `nox -s screenshot -- reports/latest/index.html OUT.png`."""
    install(session, "tests")
    session.run("python", "docs/screenshot.py", *session.posargs)
