"""Status and one sentence from what was counted; pure."""

import collections

from . import power, protocol, rounding


def describe_target(result, trials, decides, limits, deterministic=False):
    """(status, message) of a target on a recipe, whose agreements are complete.

    Other bits from run to run are a property, and no fault, where all of them pass: sums whose order is not fixed round
    otherwise each time. `deterministic`: the same bits were asked for."""
    against = next((item for item in result["against"] if item["against"] == protocol.TRUTH), None)
    faults = []
    if against is None:
        # No truth: a problem's own model is then all there is to agree with.
        against = next((item for item in result["against"] if item["against"] == protocol.MODEL), None)
    if against is None:
        return (
            (protocol.OK, "not judged: there is no truth")
            if result["target"] != protocol.KERNEL
            else (protocol.NOT_RUN, "cannot be judged: there is neither a truth nor a reference")
        )
    rule = decides if decides in against["passed"] else "kernelbench"
    passed = against["passed"][rule]
    if passed < trials:
        faults.append(
            "{} of {} trials pass the {} rule (limit {:g}) against {}, {}".format(
                passed, trials, rule, limits[rule], against["against"], _largest(against)
            )
        )
    unsteady = describe_repeats(result["repeats_differ"], trials, result.get("repeats_max_units"))
    if unsteady and deterministic:
        faults.append(f"`deterministic: true` asks for the same bits: {unsteady}")
    for key, words in (
        ("inputs_mutated", "changed their inputs"),
        ("unwritten_trials", "left output unwritten"),
    ):
        if result[key]:
            faults.append(f"{result[key]} of {trials} trials {words}")
    if not faults:
        return protocol.OK, unsteady
    return protocol.WRONG, "; ".join(faults if deterministic or not unsteady else [*faults, unsteady])


def describe_repeats(differ, trials, units):
    """In how many trials the second run gave other bits, and how far apart they are; empty where in none."""
    if not differ:
        return ""
    size = "" if units is None else f", at most {units:.3g} units apart"
    return f"not bit-repeatable: {differ} of {trials} trials gave other bits when run again{size}"


def _largest(against):
    parts = []
    if against["max_abs"] is not None:
        parts.append("largest error {:.3g}".format(against["max_abs"]))
    if against["max_units"] is not None:
        parts.append("{:.3g} units".format(against["max_units"]))
    if against["nonfinite_trials"]:
        parts.append("NaN or infinity in {}".format(against["nonfinite_trials"]))
    return ", ".join(parts)


def spelled(precision):
    """What is declared, as in matrix.yaml."""
    parts = ["products: tf32"] if any(name.startswith("tf32") for name in precision) else []
    parts += ["sums: float16"] if rounding.FLOAT16_SUMS in precision else []
    return "`precision: {{{}}}`".format(", ".join(parts))


def describe_validation(recipes, decides, no_truth=""):
    """(status, message) of the kernel over all recipes. What passes is undecidable where what is wrong would too."""
    kernels = [(r, t) for r in recipes for t in r["targets"] if t["target"] == protocol.KERNEL]
    if not kernels:
        return protocol.NOT_RUN, "no output of the kernel to judge"
    failed = [(recipe, target) for recipe, target in kernels if target["status"] != protocol.OK]
    if not failed:
        units = [target.get("repeats_max_units") for _, target in kernels]
        differ = sum(target.get("repeats_differ", 0) for _, target in kernels)
        largest = max((value for value in units if value is not None), default=None)
        said = describe_repeats(differ, sum(recipe["trials"] for recipe, _ in kernels), largest)
        return _decided(kernels, decides, no_truth, said)

    def failures(pair):
        recipe, target = pair
        against = target["against"][0] if target["against"] else None
        if against is None:
            return float(recipe["trials"])
        return recipe["trials"] - against["passed"].get(decides, 0)

    recipe, target = max(failed, key=failures)
    return target["status"], "{}: {}".format(recipe["recipe"], target["message"])


def _decided(kernels, decides, no_truth, said):
    """Of what passes: `said` with it, unless nothing is decided by that."""
    for recipe, kernel in kernels:
        why = power.undecidable(recipe["power"])
        if decides == "rounding" and all(item["against"] != protocol.TRUTH for item in kernel["against"]):
            some = bool(recipe["costs"])  # and then what was proven of the rule was proven with a truth
            lacks = "there is no truth{} ({})".format(
                " for every trial" if some else "", no_truth or "nobody computed it"
            )
            if some or not recipe["power"]:
                return protocol.UNDECIDABLE, "{}: {}".format(recipe["recipe"], lacks)
            said = "; ".join(filter(None, [said, lacks + ": held against Model, by KernelBench's tolerance"]))
        if why:
            return protocol.UNDECIDABLE, "{}: {}".format(recipe["recipe"], why)
    return protocol.OK, said


def nearer(rows, references):
    """Trials by the reference with the smallest mean difference; of equals the first in the request's order."""
    counts = collections.Counter()
    for row in rows:
        pairs = [(row["pairs"][protocol.KERNEL, name], name) for name in references]
        sums = [(pair["sum"], index) for index, (pair, _) in enumerate(pairs) if not pair["nonfinite"]]
        if sums:
            counts[references[min(sums)[1]]] += 1
    return dict(counts)
