"""benchmarks/mutants.py: which mistakes are made, and where."""

from __future__ import annotations

import pytest

from benchmarks.mutants import find_mutants, mutated


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a < b", {"(a <= b)"}),
        ("a < b < c", set()),
        ("not a", {"(a)"}),
        ("a and b", {"(a or b)"}),
        ("a = 2", {"a = 3"}),
        ("a = True", {"a = False"}),
        ("a: int = a % b", {"a: int = (a * b)"}),
        ("if a:\n    b", {"if True:\n    b", "if False:\n    b"}),
        ("if TYPE_CHECKING:\n    b", set()),
        ("def é(a: 'Literal[1]') -> 2:\n    return 'é', b + c", {"return None", "return 'é', (b - c)"}),
        ("def f():\n    g()\n    b = c", {"pass\n    b = c", "g()\n    pass"}),
        ("@d(1)\nclass C:\n    '''doc'''", set()),
        ("f'{a + b}'", set()),
    ],
)
def test_a_mutant_has_one_mistake(text: str, expected: set[str]) -> None:
    found = [mutated(text, mutant) for mutant in find_mutants("area", "file.py", text)]
    assert len(found) == len(expected) and all(any(one.endswith(end) for one in found) for end in expected)


def test_a_mutant_says_where_it_is() -> None:
    text = "class A:\n    def f(self):\n        return 1\n"
    assert [(one.line, one.function, one.operator) for one in find_mutants("area", "file.py", text)] == [
        (3, "A.f", "return replaced"),
        (3, "A.f", "constant changed by one"),
    ]
