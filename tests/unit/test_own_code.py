"""The harness's own code as an input: an edit makes again what is made by the edited file, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.config import keys
from harness.worker import wire
from tests.conftest import ROOT


def copied(root: Path, to: Path) -> Path:
    """The harness's sources in a place where they can be edited."""
    for path in [*(root / "harness").rglob("*.py"), *(root / "csrc" / "probes").glob("*")]:
        target = to / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return to / "harness"


def test_every_file_of_code_is_there(root: Path) -> None:
    for kind in keys.CODE:
        assert all(path.is_file() for path in keys.files_of(kind)), kind


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(ROOT, tmp_path_factory.mktemp("sources"))


def edited(sources: Path, name: str) -> set[str]:
    """The kinds that are made again where a file of the harness was edited."""
    before, path = keys.code_digests(sources), sources / name
    text = path.read_bytes()
    path.write_bytes(text + b"\n# edited\n")
    after = keys.code_digests(sources)
    path.write_bytes(text)
    return {kind for kind in before if before[kind] != after[kind]}


def test_an_edit_of_what_runs_inside(sources: Path) -> None:
    """A module is an input of those records whose tasks import it, and `protocol` of all."""
    assert edited(sources, "worker/protocol.py") == set(keys.CODE)
    assert edited(sources, "worker/profile.py") == {"profile", "profile_of_reference"}
    assert edited(sources, "worker/agreement.py") == {"validation", "conditions", "swap", "in_block"}
    assert edited(sources, "worker/measuring.py") == {"in_block"}
    assert edited(sources, "worker/store.py") == {"store"}
    assert edited(sources, "worker/observe.py") == set(), "what an environment says of itself is asked each time"
    for task, module in keys.MODULES.items():
        kinds = {kind for kind, (tasks, _) in keys.CODE.items() if task in tasks}
        assert kinds <= edited(sources, f"worker/{module}.py")


def test_every_verb_makes_some_record_or_none_that_is_kept() -> None:
    """A new task belongs into `keys.CODE`, with the records that it makes."""
    kept = {task for tasks, _ in keys.CODE.values() for task in tasks}
    assert set(wire.TASKS) - kept == {"observe", "probe"}, "asked anew each time"


def test_every_step_and_experiment_makes_some_record(root: Path) -> None:
    """A new one belongs into `keys.CODE`, unless it reaches records through `asked` alone, or not at all."""
    named = {name for _, files in keys.CODE.values() for name in files}
    idle = {
        "run/__init__.py",
        "run/device.py",
        "run/environments.py",
        "run/extend.py",
        "run/folders.py",
        "run/pairwise.py",
        "run/parallel.py",
        "run/prepare.py",
        "run/reuse.py",
        "experiments/__init__.py",
        "experiments/admission.py",
        "experiments/findings.py",
        "experiments/plan.py",
        "experiments/run.py",
        "experiments/screen.py",
        "experiments/components.py",
    }
    found = {
        path.relative_to(root / "harness").as_posix()
        for folder in ("run", "experiments")
        for path in (root / "harness" / folder).glob("*.py")
    }
    assert found == idle | {name for name in named if name.startswith(("run/", "experiments/"))}


def test_an_edit_of_what_filters_samples_makes_launches_again(sources: Path) -> None:
    assert edited(sources, "run/throttling.py") == edited(sources, "gpu.py") == {"in_block"}
    assert edited(sources, "run/launch.py") == {"in_block"}
    assert edited(sources, "executors/process.py") == set(keys.CODE) - {"build", "binding", "probe", "store"}
    for name in ("config/plan.py", "schema/storage.py", "workflow/matrix.py", "config/matrix.py", "progress.py"):
        assert not edited(sources, name)


def test_modules_that_run_inside_import_each_other_by_name_alone(root: Path) -> None:
    """Else their imports could not be told from their text: `keys.imports_of`."""
    worker = root / "harness" / "worker"
    for path in worker.glob("*.py"):
        text = path.read_text()
        for imported in keys.imports_of(text):
            assert (worker / f"{imported}.py").is_file(), f"{path.name} imports {imported}"
        assert not re.search(r"from \.\.|from \.\w+\.|from harness|import harness|import worker|from worker", text)
        if path.name not in ("tasks.py", "prebuilt.py"):  # which imports the kernel
            assert "import_module(" not in text.replace("_import_module_from_library", "") and "__import__" not in text
    reachable = keys.imported(keys.MODULES, worker)
    assert {path.stem for path in worker.glob("*.py")} == reachable
