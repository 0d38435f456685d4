"""How it was measured, and which rule decides: what a reader needs to distrust a number with reason. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from harness.stats.decide import POWER
from harness.stats.effects import BIWEIGHT_BLOCKS
from reports.compare.gpus import gpu_launches
from reports.render.formats import card_text, ceiling_text, percent
from reports.render.report import Report

NO_SANDBOX = ". A virtual environment is no sandbox: kernels ran with this user's rights"
GIB = 1 << 30
RULES = {
    "rounding": "error against the float64 truth, in units of what straightforward arithmetic in the dtype errs there: "
    "largest, of a row, a row's and a common factor, and the mean; the same yardstick in every environment",
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
        if seen is None or record.executor in ("venv", "host"):
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


def gpu_items(report: Report) -> list[tuple[str, str]]:
    if not report.cards:
        return []
    found = [("GPU", f"{card_text(card)}, {card.uuid}") for card in report.cards]
    found += [
        (
            "Ceilings",
            f"{ceiling_text(card)} (measured in this run"
            + (f" by {card.ceiling.environment})" if card.ceiling else ")"),
        )
        for card in report.cards
    ]
    busy = report.measuring
    found.append(
        (
            "GPU measured",
            "not recorded"
            if busy is None
            else (
                f"{percent(busy.share)} of the {busy.span_s:.0f} s between the first launch's start and the last "
                f"one's end: {busy.sampling_s:.0f} s of {busy.launches_s:.0f} s in {busy.launches} launches"
            ),
        )
    )
    watched = [launch.gpu for launch in gpu_launches(report.evidence) if launch.gpu is not None]
    return [
        *found,
        (
            "GPU around launches",
            f"power at most {_range((w.power_w for w in watched), '{:.0f}')} W, temperature at "
            f"most {_range((w.temperature_c for w in watched), '{:.0f}')} \N{DEGREE SIGN}C, SM "
            f"clock {_range((w.sm_mhz for w in watched), '{:.0f}')} MHz, memory clock "
            f"{_range((w.memory_mhz for w in watched), '{:.0f}')} MHz",
        ),
        ("Cold", "single calls between device events; the GPU's L2 is written over before each"),
        ("Hot", "replays of a CUDA graph that holds many calls back to back: no launch gaps, inputs maybe cached"),
        ("Host's time to enqueue", "of one call, on the processor; it is part of neither cold nor hot"),
        (
            "Shares of ceilings",
            "operations and least bytes of the workload over its time, by what the large product of "
            "its dtype and the large copy reached on that GPU in this run",
        ),
    ]


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
    tested = sum(timed.p_value is not None for row in report.rows for timed in row.timed)
    added = sum(launch.index >= run.launches for launch in launches)
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
        *((f"Bundle: {name}", value) for name, value in run.bundle.items()),
        *gpu_items(report),
        ("Host", "; ".join(f"{name}: {value}" for name, value in run.host.items()) or "not recorded"),
        (
            "Launches",
            f"{run.launches} fresh processes planned per environment and kernel, {blocks}, "
            f"order seed {run.order_seed}; {len(launches)} recorded"
            + (
                f", {added or 'none'} of them added for undecided rows (at most {run.most_launches} each)"
                if run.most_launches and run.most_launches > run.launches
                else ""
            ),
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
        (
            "One unit",
            "the error of straightforward arithmetic in that dtype on the same input, and never less than rounding of "
            "the output costs; an output's error is the worst of four norms. Of the largest error, relative to its "
            f"row's largest value, one unit is {_range(costs)}",
        ),
        (
            "Pass rates",
            f"exact (Clopper-Pearson) intervals at {percent(evidence.confidence)}; two partial rates are "
            "compared with Fisher's exact test",
        ),
        (
            "Ratio",
            "of the differences of log launch medians within blocks: their biweight mean, which what lies far from the "
            f"bulk cannot move, with its interval at {percent(evidence.confidence)}; with fewer than {BIWEIGHT_BLOCKS} "
            "blocks their mean and Student's interval. Above 1 is slower than the baseline",
        ),
        (
            "Latency verdict",
            "regressed or improved: the whole interval lies beyond the minimum effect, and q is at most "
            f"{evidence.false_discovery_rate:g} (t test of the differences without their largest and smallest tenth, "
            f"their scatter taken to be at least what all {tested} rows say; Benjamini-Hochberg over these"
            + (f", and over {evidence.looks} looks" if evidence.looks > 1 else "")
            + "); moved about the threshold: q is as small, and the interval straddles the minimum effect; pass: the "
            "whole interval lies within it; undecided otherwise",
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
            f"the smallest slow-down that this run would have called with {percent(POWER)} probability, had it been "
            "the only change among all rows; from this row's own spread and launches",
        ),
    ]
