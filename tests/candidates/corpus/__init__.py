"""Hostile candidates, and honest ones that look odd, by the hundred: what is judged is the judge.

A hostile one may be found out, or gain nothing by what it does; an honest one must be accepted. `python -m
tests.candidates.corpus` runs them against their honest twins and says so of each.
"""

from __future__ import annotations

from tests.candidates.corpus import breaks, evades, forges, gpu, honest, keeps
from tests.candidates.corpus.candidate import Candidate

CORPUS: dict[str, Candidate] = {
    candidate.name: candidate
    for candidate in (*honest.HONEST, *keeps.HOSTILE, *forges.HOSTILE, *evades.HOSTILE, *breaks.HOSTILE, *gpu.HOSTILE)
}
