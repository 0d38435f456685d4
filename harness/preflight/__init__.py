"""What cannot work, found before anything long begins: without an environment, and without running code under test.

It refuses what is certain, and says what it did not check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import InputError, InputProblem, refusal
from harness.source_marks import Mark, for_github, in_actions


@dataclass
class Findings:
    """What a check found."""

    problems: list[InputProblem] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)  # what was not checked, or is not certain, and why
    passed: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        self.problems += [each for each in other.problems if each not in self.problems]
        self.unchecked += [each for each in other.unchecked if each not in self.unchecked]
        self.passed += other.passed

    def refusal(self, project: Path) -> InputError | None:
        """Return all problems as one error; None where there is none. In GitHub Actions, mark their files too."""
        if in_actions():
            for each in self.problems:
                if (project / each.where.partition(":")[0]).is_file():
                    print(for_github(Mark(each.where, "kernel-matrix", f"{each.what}\n{each.remedy}", project)))
        return refusal(self.problems)
