# /// script
# dependencies = ["nox>=2025.2.9", "pyyaml>=6", "uv>=0.4"]
# ///
"""Sessions only: each starts a `python -m harness` or `python -m reports` command, and decides nothing."""

import tempfile
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


def harness(session: nox.Session, verb: str, *arguments: str) -> None:
    """Run a verb, then report what it recorded. A failed build or environment is a row of the report."""
    options = session.posargs
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
def tests(session: nox.Session) -> None:
    """The tests; those that need an engine, a GPU or a browser are skipped, with the reason, where there is none."""
    install(session, "tests")
    session.run("python", "-m", "pytest", *session.posargs)


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
