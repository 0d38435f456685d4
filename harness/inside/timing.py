"""`time`: one launch. Every target of every workload, in random order, in this fresh process."""

import contextlib
import gc
import random

import torch

from . import kernels, protocol, sampling, tensors
from . import workload as workloads
from .load import LoadMeter
from .references import Unsupported


def timing(request):
    meter = LoadMeter()
    torch.set_num_threads(request["threads"])
    # A kernel that crashed on a workload in validation is not called there again: it would end the whole launch.
    calls_kernel = request["kernel_workloads"] if request["kernel"] else ()
    pairs = [
        (value, target)
        for value in request["workloads"]
        for target in request["targets"]
        if target != protocol.KERNEL or value["id"] in calls_kernel
    ]
    random.Random(request["order_seed"]).shuffle(pairs)
    prepared = {}
    rows = []
    gc.collect()
    gc.freeze()  # PyTorch's own objects are for good; to walk them before every target costs a second in all
    lost = ""
    for order, (value, target) in enumerate(pairs):
        row = {"workload": value["id"], "target": target, "order": order}
        row.update(status=protocol.OK, message="", log_excerpt="", correct=None)
        row.update(clock="", calls_per_sample=1, warmup_calls=0, samples_us=[])
        rows.append(row)
        if lost:
            row.update(status=protocol.NOT_RUN, message=lost)
            continue
        try:
            _measure(request, value, target, prepared, row)
        except kernels.KernelFailure as error:
            row.update(status=error.status, message=error.message, log_excerpt=error.excerpt)
        except Unsupported as error:
            row.update(status=protocol.UNSUPPORTED, message=str(error))
        fault = tensors.lost(_device(request)) if row["status"] != protocol.OK else ""
        if fault:
            lost = f"{target} on {value['id']} before it left the device unusable: {fault}"
    return {
        "status": protocol.OK,
        "message": "",
        "threads": torch.get_num_threads(),
        "load": meter.read(),
        "timings": rows,
    }


def _measure(request, value, target, prepared, row):
    device = _device(request)
    if value["id"] not in prepared:
        workload = workloads.parse_workload(value)
        arrays = workload.arrays("independent", 0, request["seed"])
        prepared[value["id"]] = workload, workload.arguments(arrays, device)
    workload, arguments = prepared[value["id"]]
    expected = request["expected_sha256"].get(value["id"]) if target == protocol.KERNEL else None
    with torch.no_grad(), contextlib.ExitStack() as stack:
        try:
            if target == protocol.KERNEL:
                call = kernels.load(request["kernel"], workload).bind(arguments)
            else:
                reference = workload.references([target], device)[0]
                reference.attempt(arguments)
                stack.enter_context(reference.active())
                call = reference.bind(arguments)
            first = tensors.sha256(kernels.checked(call(), workload, device)) if target == protocol.KERNEL else None
            gc.collect()
            gc.disable()
            try:
                row.update(sampling.sample(call, device, request["timing"]))
            finally:
                gc.enable()
            if expected is not None:
                # After the timed calls too: a kernel that is right once and wrong in a loop is wrong.
                row["correct"] = first == expected == tensors.sha256(call())
        except (kernels.KernelFailure, Unsupported):
            raise
        except Exception as error:
            raise kernels.failure(error, target) from None


def _device(request):
    """Where references run: where the kernel does."""
    return request.get("device") or (request["kernel"] or {}).get("device") or "cpu"
