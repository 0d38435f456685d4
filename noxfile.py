# /// script
# dependencies = ["nox>=2025.2.9", "pyyaml>=6", "uv>=0.4"]
# ///
"""Sessions only: each starts one command, and decides nothing."""

import difflib
import sys
from pathlib import Path

import nox
import yaml

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["matrix"]

PROJECT = nox.project.load_toml("pyproject.toml")
PYTEST = ("python", "-m", "pytest")
TYPED = {"KERNEL_MATRIX_BY_NOX": "1"}  # commands on pages and in messages are then sessions: harness/typed.py


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
    """One verb; any exit code but 0 fails the session."""
    install(session)
    session.run("python", "-m", "harness", verb, *arguments, env=TYPED)


def add_session(verb: str, does: str) -> None:
    def run(session: nox.Session) -> None:
        kernel_matrix(session, verb, *session.posargs)

    run.__doc__ = does
    nox.session(name=verb)(run)


add_session("check", "What cannot work, in seconds and without an environment; `matrix` and `eval` begin with it.")
add_session("matrix", "Every environment of matrix.yaml: build, validate, time in blocks, report.")
add_session("collect", "What a matrix on many machines has so far: -- [RUN], a folder of reports/shards.")
add_session("kernelbench", "KernelBench's problems and their solutions: -- PROBLEMS SOLUTIONS [OPTIONS]")
add_session("bisect", "The first release between two that differs: -- --good 2.1.0 --bad 2.5.0 --target math")
add_session("trace", "Where a script's results part: -- --good 2.1.0 --bad 2.5.0 -- python my_script.py")
add_session("sweep", "The fastest setting of a kernel that is correct everywhere: -- --kernel K --workload W")
add_session("gate", "Is a kernel fast enough, and correct everywhere? -- [RUN], or -- --make OPTIONS OF matrix")
add_session("explain", "The experiments that a finished run calls for, of reports/latest or -- RUN; then its report.")
add_session("report", "Render again from records: reports/latest, or -- RUN.")
add_session("compare", "What moved between two runs: -- A B, their folders.")
add_session("export", "A run's times and memory, for Bencher or github-action-benchmark: -- [RUN] --format NAME")
add_session("pins", "Resolve docker/pins/ again.")
add_session("images", "The container images: -- list|build|remove; `base` makes one from Debian's packages.")
add_session("bundle", "The environments for a host without engine or registry.")
add_session("doctor", "What this machine has and lacks, and what to do about it.")


@nox.session(name="eval")
@nox.parametrize("torch", torch_versions())
def evaluate(session: nox.Session, torch: str) -> None:
    """One environment, against the baseline's stored validation, timed alone."""
    kernel_matrix(session, "eval", f"--torch={torch}", *session.posargs)


@nox.session
def fault_cases(session: nox.Session) -> None:
    """Run and explain kernels whose true cause is known: how often is the attribution right?"""
    install(session)
    session.run("python", "-m", "tests.fault_cases", *session.posargs)


@nox.session
def traces(session: nox.Session) -> None:
    """Trace small programs whose true cause is known: how often is the right operator and line named?"""
    install(session)
    session.run("python", "-m", "tests.programs", *session.posargs)


def run_tests(session: nox.Session, beside: str, alone: str = "") -> None:
    """Run the tests that marker expressions choose: two files at a time, and then one after another."""
    install(session, "tests")
    session.run("python", "-m", "tests.environments.pinned", success_codes=[0, 1])  # where it fails, its tests say so
    session.run(*PYTEST, "-m", beside, "-n2", "--dist=loadfile", "--no-loadscope-reorder")
    if alone:
        session.run(*PYTEST, "-m", alone)


@nox.session
def tests(session: nox.Session) -> None:
    """The fast tests: unit tests, a real matrix, its page. `-- OPTIONS`: pytest with these options instead."""
    if session.posargs:
        install(session, "tests")
        session.run(*PYTEST, *session.posargs)
    else:
        run_tests(session, "not slow")


@nox.session
def tests_all(session: nox.Session) -> None:
    """What this machine can run but for two groups (CONTRIBUTING.md); `-- rest`: without those of `tests`; `-- ci`:
    without long ones too."""
    chosen = {(): "", ("rest",): "slow and ", ("ci",): "slow and not heavy and "}[tuple(session.posargs)]
    run_tests(session, f"{chosen}not alone", f"{chosen}alone")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy, the direction of imports, and the budget of the house."""
    install(session, "tests", "lint")
    session.run("python", "ci/house.py")
    session.run("lint-imports")
    session.run("ruff", "format", "--check", ".")
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
    session.run("python", "-m", "docs.screenshot", *session.posargs)


def refuse_unknown(versions: list[str]) -> None:
    """Of a session that is misspelt, or given without its quotes, nox says only that there is none."""
    from nox import registry

    known = [*registry.get(), *(f"eval(torch='{version}')" for version in versions)]
    for option, name in zip(sys.argv, sys.argv[1:], strict=False):
        if option in ("-s", "--session", "--sessions") and name.replace('"', "'") not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f'did you mean nox -s "{near[0]}"? ' if near else ""
            sys.exit(f"error: {name}: no such session\n  remedy: {meant}nox -l lists them")


if "nox" in (Path(sys.argv[0]).name, Path(sys.argv[0]).parent.name):  # not where a test reads this file
    refuse_unknown(torch_versions())
