"""`conditions`: run the code under test under changed conditions, and store its output bytes, as `candidate` does.

Nothing here judges: `weigh` does, in a process that never loads the candidate. Unlike in `candidate`, references may
run here, just before the kernel: what they leave in memory is what is asked about.

A job is one condition on some trials. What it left is described by a file of its own, so that a process that dies
takes only the job that it died in.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from typing import Any, Callable, Iterator

import torch

from . import codec, kernels, poisoning, protocol, subjects, tensors, wire
from .loading import load_kernel

DELAY_CYCLES = 20000000  # 10 ms or so of the side stream's waiting before it has the inputs
DONE, LEAST_CALLS, BUSY_BYTES, BUSY_SIZE = "done.json", 4, 1 << 20, 2048


def conditions(request: wire.ConditionsRequest) -> wire.Outcome:
    """Call the kernel under each condition. The outcome is a failure if it cannot be loaded."""
    torch.set_num_threads(request.threads)
    if any(job.condition.site == "heap" for job in request.jobs):
        poisoning.keep_to_one_arena()
    workload = subjects.parse_workload(request.workload)
    kernel = load_kernel(request.kernel, workload)
    device = request.kernel.device
    for index, job in enumerate(ConditionJob(kernel, workload, request, job) for job in request.jobs):
        os.makedirs(job.folder, exist_ok=True)
        if index == 0 and job.condition.before != "fresh" and not job.condition.dtype:
            _warm_up(job)
        protocol.write_json(os.path.join(job.folder, DONE), codec.dump(_run_job(job)))
        if tensors.lost(device):  # nothing runs on the device again in this process
            break
    return wire.Outcome(protocol.OK)


class ConditionJob:
    """One condition, with what its calls need."""

    def __init__(
        self,
        kernel: kernels.Kernel,
        workload: subjects.Workload,
        request: wire.ConditionsRequest,
        job: wire.JobRequest,
    ) -> None:
        self.condition = job.condition
        self.workload = workload.on(self.condition.recipe).of_sizes(self.condition.sizes)
        self.kernel = kernel.on(self.workload)
        self.device = request.kernel.device
        self.seed, self.trials = request.seed, job.trials
        self.repeats, self.patience_s = job.repeats, job.patience_s
        self.folder, self.libraries = os.path.join(request.out, str(job.number)), request.libraries
        self.site: poisoning.Output | None = None

    def arguments(self, arrays: list[Any]) -> list[Any]:
        """Return the same numbers, in the type that is asked for and as they shall lie in memory."""
        made = self.workload.arguments(arrays, self.device)
        made = [tensors.arrange(each, self.condition.layout) for each in made]
        if site := self._site(made):
            made = [tensors.each_tensor(each, site.place) for each in made]
        if dtype := self.condition.dtype:
            made = [tensors.each_float(each, lambda tensor: tensor.to(getattr(torch, dtype))) for each in made]
        return made

    def _site(self, arguments: list[Any]) -> poisoning.Output | None:
        """Return which memory is filled, made once; `wire.Failed` where it cannot be."""
        site, pattern = self.condition.site, self.condition.pattern
        if site and self.site is None:
            data = poisoning.tile(pattern, self.workload.dtype)
            size_bytes = 2 * sum(tensor.numel() * tensor.element_size() for tensor in tensors.flat(arguments))
            wanted = poisoning.PrefillRequest(self.device, pattern, data, size_bytes, self.libraries.get(site))
            self.site = poisoning.SITES[site](wanted)
        return self.site

    def prepare(self, arguments: list[Any], fresh: Callable[[], list[Any]]) -> Callable[[], Any]:
        """Return what happens just before the call; `wire.Failed` where it cannot. A model may write to `fresh`."""
        if self.site is not None:
            return self.site.before
        name = self.condition.before
        if name in ("", "fresh"):
            return lambda: None
        if name == "unrelated":
            return unrelated(self.device)
        reference = self.workload.references([name], self.device)[0]
        try:
            reference.attempt(arguments if self.workload.problem is None else fresh())
        except wire.Failed as error:
            raise wire.Failed(protocol.NOT_RUN, f"{name} cannot run: {error}") from None
        call = reference.bind(fresh() if self.workload.writes else arguments)

        def before() -> None:
            with reference.active():
                call()

        return before

    def fill(self, tensor: Any) -> Any:
        """Return what the output holds before the call."""
        if self.condition.site == "output":
            assert self.site is not None
            return poisoning.fill(tensor, self.site.data)
        return tensors.poison(tensor)


def _warm_up(job: ConditionJob) -> None:
    """One call on the current device, so that no condition but `fresh` is the process's first. What it raises, the
    job's own calls do too."""
    arrays = job.workload.arrays("independent", job.trials[0], job.seed)
    with contextlib.suppress(wire.Failed), kernels.blamed("the first call"), torch.no_grad():
        job.kernel.bind(job.workload.arguments(arrays, job.device))()
        tensors.synchronise(job.device)


def _run_job(job: ConditionJob) -> wire.JobResult:
    """Shape and dtype of its outputs, and how often it ran on each trial: a slow kernel on fewer."""
    result = wire.JobResult(protocol.OK)
    beside = busy(job.device) if job.condition.load == "beside" else contextlib.nullcontext()
    deadline = time.monotonic() + job.patience_s
    try:
        if job.condition.dtype:
            assert isinstance(job.kernel, kernels.ModelKernel)
            job.kernel.cast(job.condition.dtype)
        with beside:
            for trial in job.trials:
                arrays = job.workload.arrays(job.condition.recipe, trial, job.seed)
                result.ran.append(0)
                for repeat in range(job.repeats):
                    output, data = _call(job, arrays, trial)
                    result.shape, result.dtype = list(output.shape), tensors.dtype_name(output)
                    with open(os.path.join(job.folder, f"{trial}-{repeat}.bin"), "wb") as file:
                        file.write(data)
                    result.ran[-1] += 1
                    if len(job.trials) == 1 and _enough(result.ran, deadline):
                        break
                if _enough(result.ran, deadline):
                    break
    except wire.Failed as error:
        result.fail(error)
        unusual = job.condition.layout != "contiguous" or bool(job.condition.dtype)
        if unusual and error.status == protocol.CRASHED and not tensors.lost(job.device):
            result.status = protocol.UNSUPPORTED
    return result


def _enough(ran: list[int], deadline: float) -> bool:
    return sum(ran) >= LEAST_CALLS and time.monotonic() > deadline


def _call(job: ConditionJob, arrays: list[Any], trial: int) -> tuple[Any, bytes]:
    """The output, and its bytes."""
    arguments = job.arguments(arrays)
    before = job.prepare(arguments, lambda: job.arguments(arrays))
    call = job.kernel.bind(arguments, fill=job.fill)
    run = on_a_side_stream if job.condition.stream == "side" else directly
    tensors.synchronise(job.device)
    job.workload.reseed()
    try:
        with kernels.blamed(f"trial {trial}"):
            with torch.no_grad():
                output = run(arguments, before, call)
            tensors.synchronise(job.device)
        output = kernels.checked(output, job.workload, job.device)
        with kernels.blamed(f"reading the output of trial {trial}"):
            return output, tensors.to_bytes(output)
    finally:
        if job.site is not None:
            job.site.after()


def directly(_arguments: list[Any], before: Callable[[], Any], call: kernels.Call) -> Any:
    before()
    return call()


def on_a_side_stream(arguments: list[Any], before: Callable[[], Any], call: kernels.Call) -> Any:
    """On another stream, which first waits, and then puts the inputs where zeros were: who does not work on that
    stream, or does not wait for it, sees the zeros."""
    side, exact = torch.cuda.Stream(), [tensor.clone() for tensor in tensors.flat(arguments)]
    for tensor in tensors.flat(arguments):
        tensor.zero_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(DELAY_CYCLES)
        for tensor, values in zip(tensors.flat(arguments), exact):
            tensor.copy_(values)
        before()
        output = call()
    torch.cuda.synchronize()
    return output


def unrelated(device: str) -> Callable[[], Any]:
    """Another operator, on numbers of its own."""
    size = 1024 if device == "cuda" else 256
    matrix = torch.linspace(-3, 3, size * size, device=device).reshape(size, size)
    return lambda: torch.softmax(matrix @ matrix.t(), dim=-1).cumsum(0)


@contextlib.contextmanager
def busy(device: str) -> Iterator[None]:
    """Other work meanwhile: on the CPU a thread for each processor, on a GPU another stream that is never empty."""
    stop = threading.Event()
    work, count = (_keep_a_stream_busy, 1) if device == "cuda" else (_keep_a_processor_busy, os.cpu_count() or 1)
    threads = [threading.Thread(target=work, args=(stop,), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _keep_a_processor_busy(stop: threading.Event) -> None:
    block = bytes(BUSY_BYTES)
    while not stop.is_set():
        hashlib.sha256(block).digest()  # lets go of the interpreter meanwhile


def _keep_a_stream_busy(stop: threading.Event) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        matrix = torch.ones(BUSY_SIZE, BUSY_SIZE, device="cuda", dtype=torch.float16)
        product = torch.empty_like(matrix)
        while not stop.is_set():
            for _ in range(20):
                torch.mm(matrix, matrix, out=product)
            torch.cuda.current_stream().synchronize()
