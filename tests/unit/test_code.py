"""Words and places of code change no key, and what it does changes the keys of just the jobs that it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config import code, keys
from harness.worker import wire
from tests.conftest import ROOT

MODULE = '''
"""What it is for."""
from .tools import first as start

LEVEL = 3

class Kept:
    """Words."""
    size: int = LEVEL

def total(values: list[int], level: int = LEVEL) -> int:
    """Return the sum."""
    found = start(values)
    for value in values:
        found += value * level  # a comment
    def again() -> int:
        nonlocal found
        found += 1
        return found
    try:
        return again() + sum(each for each in values if each)
    except ValueError as error:
        return print(error)
'''


def digest(source: str) -> str:
    return code.module_digest(source, Path("/harness/worker/module.py"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""What it is for."""', '"""Its purpose."""'),
        ('    """Words."""\n', '    """Other words, and\n    more of them."""\n'),
        ('    """Return the sum."""\n', ""),
        ("  # a comment", ""),
        ("found", "result"),
        ("value ", "number "),
        ("each", "one"),
        (" -> int", ""),
        (": list[int]", ": tuple[int, ...]"),
        ("from .tools import", "from ..elsewhere.tools import"),
        ("from .tools import", "from harness.worker.tools import"),
    ],
)
def test_words_names_and_places_change_nothing(old: str, new: str) -> None:
    assert old in MODULE and digest(MODULE.replace(old, new)) == digest(MODULE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value * level", "value + level"),
        ("LEVEL = 3", "LEVEL = 4"),
        ("size: int", "size: float"),  # of a dataclass it is read
        ("start(values)", "start(level)"),
        ("nonlocal found", "found = 0"),
        ("values if each", "values if level"),
        ("import first as", "import last as"),
        ("from .tools", "from .others"),
        ("def total(values", "def total(numbers"),  # it may be given by name
        ("print(error)", "len(error)"),
    ],
)
def test_what_it_does_changes_it(old: str, new: str) -> None:
    assert old in MODULE and digest(MODULE.replace(old, new)) != digest(MODULE)


def test_a_variable_that_is_looked_up_by_its_name_keeps_it() -> None:
    source = "def f():\n    one = 1\n    return locals()\n"
    assert digest(source) != digest(source.replace("one", "two"))


def test_a_global_of_the_name_of_another_scope_s_variable_is_another() -> None:
    source = "def f():\n    def g():\n        x = 1\n        return x\n    return x, g()\n"
    assert digest(source) != digest(source.replace("return x, g", "return y, g"))


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    """The harness's sources in a place where they can be edited."""
    for path in (ROOT / "harness").rglob("*.py"):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return tmp_path / "harness"


def edited(harness: Path, name: str, text: str = "\nEDITED = 1\n") -> set[str]:
    """The kinds of jobs whose code is another where a module of the harness has some more text."""
    path, before = harness / name, keys.code_digests(ROOT / "harness")
    kept = path.read_text()
    path.write_text(kept + text)
    keys.code_digests.cache_clear()
    after = keys.code_digests(harness)
    path.write_text(kept)
    keys.code_digests.cache_clear()
    return {kind for kind in before if before[kind] != after[kind]}


def test_an_edit_does_again_what_the_edited_module_does(harness: Path) -> None:
    every = set(keys.KINDS)
    assert edited(harness, "worker/protocol.py") == every
    assert edited(harness, "worker/protocol.py", "\n# words\n") == set()
    assert edited(harness, "worker/profile.py") == {"profile", "profile_of_reference"}
    assert edited(harness, "worker/agreement.py") == {"validation", "conditions", "factor", "launch"}
    assert edited(harness, "worker/store.py") == {"store"}
    assert edited(harness, "run/throttling.py") == {"launch"}
    assert edited(harness, "run/launch.py") == {"launch"}
    assert edited(harness, "run/validate.py") == {"validation", "factor"}
    assert edited(harness, "executors/bwrap.py") == every
    for name in ("worker/observe.py", "config/plan.py", "workflow/matrix.py", "executors/process.py"):
        assert edited(harness, name) == set(), name


def test_a_module_that_is_moved_changes_no_key(harness: Path) -> None:
    before = keys.code_digests(ROOT / "harness")
    worker = harness / "worker"
    (worker / "numbers").mkdir()
    (worker / "numbers" / "__init__.py").write_text("")
    (worker / "draws.py").rename(worker / "numbers" / "draws.py")
    moved = worker / "numbers" / "draws.py"
    moved.write_text(moved.read_text().replace("from .", "from .."))
    importer = worker / "problem_files.py"
    text = importer.read_text()
    assert "from . import draws, " in text
    importer.write_text(text.replace("from . import draws, ", "from .numbers import draws\nfrom . import "))
    keys.code_digests.cache_clear()
    after = keys.code_digests(harness)
    assert any(moved in keys.files_of(kind, harness) for kind in keys.KINDS), "it is found where it is now"
    assert after == before


def test_every_task_makes_some_record_or_none_that_is_kept() -> None:
    kept = {task for kind in keys.KINDS.values() for task in kind.tasks}
    assert set(wire.TASKS) - kept == {"observe", "probe"}, "asked anew each time"


def test_the_closure_of_all_tasks_is_the_whole_worker() -> None:
    """So no import is missed: another form of import would leave a module out."""
    worker = ROOT / "harness" / "worker"
    reached = code.closure([*(worker / f"{module}.py" for module in keys.MODULES.values()), worker / "__main__.py"])
    assert {path for path in worker.rglob("*.py") if path.name != "__init__.py"} <= reached
