"""The factors of a comparison, each as the records show it: same, differs, or unknown. Attribution reasons over these.

A factor that no record covers is `unknown`, which is never read as `same`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.schema.environment_records import BINDING_OBJECT, BuildRecord
from harness.schema.records import Crossing, CrossingRecord, ValidationRecord
from harness.schema.run_records import Cell
from harness.worker import protocol
from reports.compare.rows import OPERATOR
from reports.load.evidence import Evidence
from reports.model import Bits, Comparison, CorrectnessSide, Seen
from reports.text import apart

SAME, DIFFERS, UNKNOWN = "same", "differs", "unknown"


@dataclass(frozen=True, kw_only=True)
class Factor:
    state: str
    seen: Seen


def _factor(state: str, text: str, record: str | None = None) -> Factor:
    return Factor(state=state, seen=Seen(text=text, record=record))


def operator_names(operators: list[str]) -> set[str]:
    """Names as one version would spell them: CPU flash is the same operator with and without its suffix."""
    return {name.removesuffix("_for_cpu") for name in operators}


def operators_seen(base: CorrectnessSide, this: CorrectnessSide, versions: tuple[str, str]) -> Seen:
    one, two = (", ".join(side.operators) or "not recorded" for side in (base, this))
    if one == two:
        return Seen(text=f"operator: {one} in both", record=this.record)
    renamed = operator_names(base.operators) == operator_names(this.operators)
    note = " (the same operator under another name)" if renamed else ""
    return Seen(text=f"operator: {apart(versions, one, two)}{note}", record=this.record)


def _validations(evidence: Evidence, row: Comparison) -> tuple[ValidationRecord | None, ValidationRecord | None]:
    cell = Cell(environment=row.baseline, kernel=_crossing_kernel(row), workload=row.workload, device=row.device)
    this = replace(cell, environment=row.environment)
    return evidence.validations.get(cell.id), evidence.validations.get(this.id)


def _digests(base: ValidationRecord, this: ValidationRecord, name: str) -> tuple[int, int]:
    """(trials compared, trials that differ) of digests, trial by trial, over the recipes both have."""
    theirs = {recipe.recipe: getattr(recipe, name) for recipe in this.recipes}
    pairs = [
        pair
        for recipe in base.recipes
        for pair in zip(getattr(recipe, name), theirs.get(recipe.recipe, []), strict=False)
    ]
    return len(pairs), sum(one != two for one, two in pairs)


def inputs(evidence: Evidence, row: Comparison) -> Factor:
    base, this = _validations(evidence, row)
    record = row.correctness.this.record
    compared, differ = _digests(base, this, "input_sha256") if base and this else (0, 0)
    if not compared:
        return _factor(UNKNOWN, "no input digests of both environments", record)
    if differ:
        return _factor(DIFFERS, f"input bytes differ in {differ} of {compared} trials", record)
    return _factor(SAME, f"input bytes are identical in all {compared} trials", record)


def yardstick(evidence: Evidence, row: Comparison) -> Factor:
    """Truth digests, the deciding rule and its limits: the error scale must not move."""
    base, this = _validations(evidence, row)
    record = row.correctness.this.record
    if base is None or this is None or not base.recipes or not this.recipes:
        return _factor(UNKNOWN, "no error scale of both environments", record)
    if (base.decides, base.limits) != (this.decides, this.limits):
        text = f"the rule changed: {base.decides} {base.limits} against {this.decides} {this.limits}"
        return _factor(DIFFERS, text, record)
    one, two = row.correctness.baseline.precision, row.correctness.this.precision
    if one != two:
        return _factor(DIFFERS, f"judged as {one} in the baseline, and as {two} here", record)
    _, differ = _digests(base, this, "truth_sha256")
    if differ and row.correctness.meaning is None and crossing_record(evidence, row) is not None:
        return _factor(SAME, f"same rule ({this.decides}), same truth to within float64's rounding", record)
    if differ:
        return _factor(DIFFERS, f"the truth's bytes differ in {differ} trials", record)
    return _factor(SAME, f"same rule ({this.decides}), same truth, same tolerance", record)


def _code(record: BuildRecord) -> dict[str, str]:
    """Hashes of the kernel's own code. Raw ones, of files that nothing could disassemble, differ by chance."""
    objects = {
        name: value for name, value in record.objects.items() if name != BINDING_OBJECT and not value.startswith("raw:")
    }
    functions = {f"{item.name} {item.architecture}": item.disassembly_sha256 for item in record.functions}
    return functions | objects


def native_code(evidence: Evidence, kernel: str, device: str, environment: str) -> dict[str, Seen]:
    """Machine code that a Python kernel brought into its processes, by digest."""
    found = {}
    for record in evidence.validations_of(environment, kernel, device):
        for name, sha256 in record.native.items():
            found[sha256] = Seen(text=name, record=evidence.validation_pointer(record))
    return found


def _brought(base: dict[str, Seen], this: dict[str, Seen]) -> Factor:
    names = ", ".join(sorted({seen.text for seen in (*base.values(), *this.values())}))
    pointer = next(iter((this or base).values())).record
    code = "the code that its Python file compiles or loads by itself"
    if base.keys() == this.keys():
        return _factor(SAME, f"{code} is identical ({names})", pointer)
    return _factor(DIFFERS, f"{code} differs ({names})", pointer)


def machine_code(evidence: Evidence, kernel: str, device: str, baseline: str, environment: str) -> Factor:
    """Normalised disassemblies; without them only identical files are proof, and different files prove nothing."""
    base, this = (evidence.builds.get((name, kernel, device)) for name in (baseline, environment))
    natives = [native_code(evidence, kernel, device, name) for name in (baseline, environment)]
    if any(natives):
        return _brought(*natives)
    if base is None or this is None or base.status != "ok" or this.status != "ok":
        return _factor(UNKNOWN, "the machine code of both environments is not recorded")
    record = evidence.build_pointer(environment, kernel, device)
    one, two = _code(base), _code(this)
    if one and one == two:
        noun = "disassembly" if len(one) == 1 else "disassemblies"
        text = f"the kernel's machine code is identical ({len(one)} normalised {noun})"
        return _factor(SAME, text, record)
    if base.artifact_sha256 and base.artifact_sha256 == this.artifact_sha256:
        return _factor(SAME, "the built file is identical, byte for byte", record)
    if not one or not two:
        return _factor(UNKNOWN, "no disassembly hash of both builds", record)
    changed = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
    text = f"the kernel's machine code differs in {len(changed)} of {len(one.keys() | two.keys())}: {changed[0]}"
    return _factor(DIFFERS, text, record)


def build_inputs(evidence: Evidence, kernel: str, device: str, baseline: str, environment: str) -> list[Seen]:
    """Flags and compiler, where they differ."""
    base, this = (evidence.builds.get((name, kernel, device)) for name in (baseline, environment))
    if base is None or this is None:
        return []
    record = evidence.build_pointer(environment, kernel, device)
    found = []
    if base.compiler != this.compiler:
        versions = evidence.names[baseline], evidence.names[environment]
        found.append(Seen(text=f"compiler: {apart(versions, base.compiler, this.compiler)}", record=record))
    if not base.flags or not this.flags:  # it did not come that far
        return found
    gone, new = ([flag for flag in a if flag not in b] for a, b in ((base.flags, this.flags), (this.flags, base.flags)))
    if gone or new:
        parts = [f"{what} flags: {' '.join(flags)}" for what, flags in (("new", new), ("dropped", gone)) if flags]
        found.append(Seen(text=", ".join(parts), record=record))
    return found


def output(row_bits: Bits, evidence: Evidence, row: Comparison, target: str, moved: bool) -> Factor:
    """A target's output bits across environments: digests of every trial, or the crossing's stored arrays. Of what is
    not bit-repeatable they say nothing: it is another output where its verdict `moved`."""
    pair = crossing(evidence, row, target)
    pointer = row.correctness.this.record
    size = ""
    if pair is not None and pair.max_abs is not None and pair.identical_trials < pair.trials:
        size = f"; largest difference {pair.max_abs:.3g} over {pair.trials} stored trials"
    name = row.target if row.kind == OPERATOR else "the kernel" if target == protocol.KERNEL else target
    if row_bits.unsteady:
        text = f"{name} is not bit-repeatable: {row_bits.unsteady} trials gave other bits when repeated right away"
        return _factor(DIFFERS if moved else UNKNOWN, text, pointer)
    if row_bits.compared:
        same = row_bits.identical == row_bits.compared
        text = f"{name}'s output bits are identical in {row_bits.identical} of {row_bits.compared} trials{size}"
        return _factor(SAME if same else DIFFERS, text, pointer)
    if pair is not None and pair.trials:
        same = pair.identical_trials == pair.trials
        text = f"{name}'s stored outputs are identical in {pair.identical_trials} of {pair.trials} trials{size}"
        return _factor(SAME if same else DIFFERS, text, record=crossing_pointer(evidence, row))
    return _factor(UNKNOWN, f"{name}'s outputs were not compared between environments")


def _crossing_kernel(row: Comparison) -> str:
    return row.correctness.this.measured_with or row.correctness.baseline.measured_with or row.target


def crossing_pointer(evidence: Evidence, row: Comparison) -> str:
    return evidence.crossing_pointer(_crossing_kernel(row), row.device, row.workload)


def crossing_record(evidence: Evidence, row: Comparison) -> CrossingRecord | None:
    return evidence.crossings.get((_crossing_kernel(row), row.device, row.workload))


def crossing(evidence: Evidence, row: Comparison, target: str, other: str = "") -> Crossing | None:
    """The pair of this target's outputs here and in another environment, by default the baseline, with the largest
    difference over recipes."""
    record = crossing_record(evidence, row)
    wanted = {f"{other or row.baseline}:{target}", f"{row.environment}:{target}"}
    pairs = [pair for pair in (record.pairs if record else []) if {pair.left, pair.right} == wanted]
    return max(pairs, key=lambda pair: pair.max_abs or 0.0, default=None)
