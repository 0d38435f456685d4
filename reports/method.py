"""How it was measured, and which rule decides: what a reader needs to distrust a number with reason. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from reports.formats import percent
from reports.report import Report
from reports.statistics import POWER

NO_SANDBOX = ". A virtual environment is no sandbox: kernels ran with this user's rights"
GIB = 1 << 30
RULES = {
    "rounding": "largest error against the float64 truth, in units of what correct rounding to the dtype costs on "
    "that workload; the same yardstick in every environment",
    "kernelbench": "elementwise closeness at KernelBench's tolerance for the dtype",
    "strict": "elementwise closeness at the strict tolerance",
}


def _range(values: Iterable[float | None], form: str = "{:.3g}") -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "not recorded"
    low, high = form.format(known[0]), form.format(known[-1])
    return low if low == high else f"{low} to {high} (median {form.format(known[len(known) // 2])})"


def confinement_items(report: Report) -> list[tuple[str, str]]:
    """What kernels could reach, as each environment's own process found it; nothing where that was not recorded."""
    said: dict[str, list[str]] = {}
    for name, record in report.evidence.environments.items():
        seen = record.observed.confinement if record.observed else None
        if seen is None or record.executor == "venv":
            continue
        networks = sorted(set(seen.networks) - {"lo"})
        memory = f"{seen.memory_bytes / GIB:.3g} GiB of memory" if seen.memory_bytes else "memory without limit"
        words = [
            "root" if seen.user_id == 0 else f"user {seen.user_id}, not root",
            f"networks {', '.join(networks)}" if networks else "no network",
            "no capabilities" if not int(seen.capabilities or "1", 16) else f"capabilities {seen.capabilities}",
            "no new privileges" if seen.no_new_privileges else "new privileges possible",
            "a seccomp filter" if seen.seccomp == 2 else "no seccomp filter",
            "a writable root" if seen.root_writable else "a read-only root file system",
            memory,
            f"{seen.processes} processes" if seen.processes else "processes without limit",
        ]
        said.setdefault(", ".join(words), []).append(name)
    return [("Kernels ran as", f"{what} (observed inside {', '.join(names)})") for what, names in said.items()]


def method_items(report: Report) -> list[tuple[str, str]]:
    evidence = report.evidence
    run = evidence.run
    launches = [launch for group in evidence.launch_records.values() for launch in group]
    loads = [launch.load for launch in launches if launch.load is not None]
    threads = sorted({launch.threads for launch in launches if launch.threads is not None})
    clocks = sorted({timing.clock for launch in launches for timing in launch.timings if timing.clock})
    decides = sorted({record.decides for record in evidence.validations.values()})
    limits = sorted(
        {f"{name} {value:g}" for record in evidence.validations.values() for name, value in record.limits.items()}
    )
    overheads = [launch.overhead_s for launch in launches if launch.overhead_s is not None]
    costs = [
        cost for record in evidence.validations.values() for recipe in record.recipes for cost in recipe.rounding_cost
    ]
    tested = sum(row.latency.p_value is not None for row in report.rows)
    blocks = "interleaved in blocks" if run.mode == "matrix" else "one environment timed alone: not comparable"
    return [
        ("Command", shlex.join(run.command)),
        ("Run", f"{run.run_id}, {run.created_utc}, plan {run.plan_digest[:12]}" + (", quick" if run.quick else "")),
        ("Executor", f"{run.executor}: {run.executor_reason}" + (NO_SANDBOX if run.executor == "venv" else "")),
        *confinement_items(report),
        *(
            [
                (
                    "Fallbacks",
                    "; ".join(
                        f"{item.subject}: wanted {item.wanted}, got {item.got}: {item.reason}" for item in run.fallbacks
                    ),
                )
            ]
            if run.fallbacks
            else []
        ),
        ("Host", "; ".join(f"{name}: {value}" for name, value in run.host.items()) or "not recorded"),
        (
            "Launches",
            f"{run.launches} fresh processes per environment and kernel, {blocks}, order seed "
            f"{run.order_seed}; {len(launches)} recorded",
        ),
        *(
            [("Around a launch", f"{_range(overheads)} s for its container: made, filled, emptied, removed")]
            if any(overheads)
            else []
        ),
        (
            "Replicate",
            "one launch's median. Rows of one launch share its luck; a reference's times come from the first "
            "kernel in the plan whose launches have them in both environments, taken in its process",
        ),
        ("Threads", ", ".join(map(str, threads)) or "not recorded"),
        ("Clock", ", ".join(clocks) or "not recorded"),
        ("Load average around launches", _range(load.load_average for load in loads)),
        ("Processor time used by others", _range((load.busy_share_others for load in loads), "{:.1%}")),
        ("Processor time stolen", _range((load.steal_share for load in loads), "{:.1%}")),
        ("Processor clock, MHz", _range((load.cpu_mhz for load in loads), "{:.0f}")),
        ("Correctness is decided by", "; ".join(f"{rule}: {RULES.get(rule, '')}" for rule in decides) or "none ran"),
        ("Tolerances", "; ".join(f"{name} {value:g}" for name, value in run.tolerances.items())),
        ("Limits as applied", "; ".join(limits[:20]) or "none ran"),
        ("One unit", f"{_range(costs)}: the error of the correctly rounded truth, relative to its row's largest value"),
        (
            "Pass rates",
            f"exact (Clopper-Pearson) intervals at {percent(evidence.confidence)}; two partial rates are "
            "compared with Fisher's exact test",
        ),
        (
            "Ratio",
            "Hodges-Lehmann estimate on log launch medians, with the exact rank interval at "
            f"{percent(evidence.confidence)}; above 1 is slower than the baseline",
        ),
        (
            "Latency verdict",
            "regressed or improved: the whole interval lies beyond the minimum effect and the exact "
            f"Mann-Whitney q is at most {evidence.false_discovery_rate:g} (Benjamini-Hochberg over "
            f"{tested} rows); pass: the whole interval lies within it; undecided otherwise",
        ),
        (
            "Minimum effect",
            ", ".join(
                f"{device} {percent(evidence.min_effect(device))}"
                for device in sorted({row.device for row in report.rows})
            ),
        ),
        (
            "Smallest effect",
            f"the slow-down that this run calls with {percent(POWER)} probability if it is the "
            "only change among all rows, from this row's spread and launches",
        ),
    ]
