"""Whether the calls that are timed compute their answers: outputs of some are looked at, on inputs that change.

Of a problem's kernel alone, whose Python sees when a clock stands around it. At moments that are drawn at random, and
from the same code that takes every sample, the inputs' memory gets another stored trial's elements, and the call that
follows must give the very bits that were validated for that trial, or others that pass the rule when they are judged
afterwards (`Kept`). What was kept by address, or is not ready when the call returns, is another trial's answer. On a
GPU the elements are written, and the output is copied, on the stream whose time is taken and without waiting: work on a
stream that does not wait for it reads the old ones, or is copied before it is done.

Each such trial is new to the process once. Where every call on new elements takes long, and calls on known ones do not,
answers are kept by content. Samples of these calls are not among those of the row.

Right answers are known by their digests. One that was computed here is kept on the device, as are the elements that the
inputs should hold: what comes next is compared there, bit for bit. `Model` ran in this process before, on the row's own
trial alone.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence

from . import kernels, tensors, wire

if TYPE_CHECKING:
    from .problem import ProblemWorkload

SHARE = 0.25  # of samples after which something is looked at, while there is something left
LOOKS = 4  # at outputs of samples of the row
KNOWN_CALLS = 1  # of each trial, once its elements have been there
MOST_US = 5e6  # of these calls: after that a slow kernel's other trials are left out
LEAST_NEW, LONGER = 3, 2.0  # as many calls on new elements, each so many times as long as the longest on known ones
SETTLE_S = 0.01  # before each: threads that waited for work sleep by then, however long its elements took to read
# Of one trial's tensors: what is larger is not kept beside what the kernel has, but made again when it is needed.
KEPT_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}
TIMED = "in a timed call"
NOT_VALIDATED = "its output in a timed call is not the validated one"
NOT_THE_INPUTS = "its output does not follow its inputs: it is not computed from them at each call"
CHANGED_INPUTS = "it changed its inputs when it was timed"


class Answers:
    """The validated outputs of one target on one workload: their digests by trial, and copies of those that were
    seen."""

    def __init__(self, digests: Sequence[str], device: str, kept: Kept, workload_id: str, target: str) -> None:
        self.digests, self.device = digests, device
        self.kept, self.workload_id, self.target = kept, workload_id, target
        self.seen: dict[int, Any] = {}
        self.other_bits = 0

    def holds(self, trial: int, output: Any, where: str = TIMED, must: bool = False) -> bool:
        """Whether this is that trial's, or may be."""
        return self._same(trial, output) or self.keep(output, trial, where, must)

    def keep(self, output: Any, trial: int, where: str, must: bool = False) -> bool:
        """As `Kept.add`, of what has other bits. `where` is said of it, should it turn out to be wrong."""
        self.other_bits += 1
        return self.kept.add(output, self.workload_id, self.target, trial, where, must)

    def _same(self, trial: int, output: Any) -> bool:
        known = self.seen.get(trial)
        if known is not None:
            return tensors.same_bits(output, known)
        if trial >= len(self.digests) or tensors.sha256(output) != self.digests[trial]:
            return False
        if output.numel() * output.element_size() <= KEPT_BYTES[self.device]:
            self.seen = {kept: copy for kept, copy in self.seen.items() if kept == 0}
            self.seen[trial] = output.clone()
        return True


class Audit:
    """Of one kernel's sampling. `answers`: the right ones; `arguments` hold the first's inputs.

    `elements(trial)` makes that trial's tensors, on the device.
    """

    def __init__(
        self,
        workload: ProblemWorkload,
        device: str,
        arguments: list[Any],
        elements: Callable[[int], list[Any]],
        answers: Answers,
    ) -> None:
        self.workload, self.device = workload, device
        self.inputs = list(tensors.flat(arguments))
        self.elements, self.answers = elements, answers
        self.pristine: dict[int, list[Any]] = {}  # elements by trial, which the kernel is not given
        self.random = random.SystemRandom()  # its state cannot be read
        others = list(range(1, len(answers.digests)))
        self.random.shuffle(others)
        # At last the row's own trial once more: after all that was in its place.
        self.steps = [trial for trial in others for _ in range(1 + KNOWN_CALLS)] + [0]
        self.present = 0  # the trial whose elements the inputs hold, or will when the next call begins
        self.staged: Sequence[Any] = ()  # those elements, while they are not there yet
        self.wanted = False  # whether to keep the next output
        self.kept: Any = None
        self.looks = LOOKS
        self.new_us: list[float] = []
        self.known_us: list[float] = []
        self.shown = {0}
        self.fault = ""

    def left(self) -> bool:
        return bool(self.steps) and not self.fault

    def begins(self, sampling: bool) -> bool:
        """Before a sample: whether it is one of ours. `sampling`: whether the row's are not yet enough."""
        ours = self.left() and (not sampling or self.random.random() < SHARE)
        self.wanted = ours or (self.looks > 0 and self.random.random() < SHARE)
        if self.wanted and not ours:
            self.looks -= 1
        if self.wanted:  # what is looked at must not have been helped, and elements about to go be those that came
            self._compare_inputs()
        trial = self.steps[0] if ours else 0
        if trial or self.present:
            self.staged = self._elements(trial)
        self.present = trial
        if ours:
            time.sleep(SETTLE_S)
        if self.device != "cuda" or not ours:  # the row's are there before the cache is written over
            self.write()
        return ours

    def write(self) -> None:
        """Just before the call; on a GPU behind whatever keeps it busy, in order and without waiting."""
        for tensor, new in zip(self.inputs, self.staged):
            tensor.data.copy_(new)
        self.staged = ()

    def keep(self, output: Any) -> None:
        """Just after the call."""
        if self.wanted:
            self.wanted = False
            try:
                output = kernels.checked(output, self.workload, self.device)
            except wire.Failed as error:
                self.fault = self.fault or f"in a timed call it {error.message}"
            else:
                self.kept = output.clone() if self.device == "cuda" else output

    def ended(self, time_us: float | None) -> None:
        """After a sample of ours; None: it has no time."""
        trial = self.steps.pop(0)
        times = self.known_us if trial in self.shown else self.new_us
        times += [] if time_us is None else [time_us]
        self.shown.add(trial)
        if sum(self.new_us + self.known_us) > MOST_US:
            self.steps = self.steps[-1:]
        self.look()

    def look(self) -> None:
        """After any sample."""
        output, self.kept = self.kept, None
        if output is not None and not self.fault and not self.answers.holds(self.present, output):
            self.fault = NOT_THE_INPUTS if self.present else NOT_VALIDATED

    def verdict(self) -> str:
        """'' or what is wrong, after the last sample."""
        self._compare_inputs()
        if not self.fault and keeps_answers(self.new_us, self.known_us):
            known, new = max(self.known_us), min(self.new_us)
            return (
                f"it takes {known:.3g} us at most on inputs that it has seen before, and {new:.3g} us at least on "
                "others: it keeps its answers"
            )
        return self.fault

    def _compare_inputs(self) -> None:
        if not self.fault:
            held = self._elements(self.present)
            if not all(tensors.same_bits(now, right) for now, right in zip(self.inputs, held)):
                self.fault = CHANGED_INPUTS

    def _elements(self, trial: int) -> list[Any]:
        """Of two trials they are kept, the row's own among them; of one where they are large."""
        if trial not in self.pristine:
            large = sum(tensor.numel() * tensor.element_size() for tensor in self.inputs) > KEPT_BYTES[self.device]
            own = {} if large else {kept: made for kept, made in self.pristine.items() if kept == 0}
            self.pristine = own  # before others are made
            self.pristine[trial] = list(tensors.flat(self.elements(trial)))
        return self.pristine[trial]


def keeps_answers(new_us: Sequence[float], known_us: Sequence[float]) -> bool:
    """Whether every call on new elements took that much longer than every one on known ones: a busy machine delays some
    of both."""
    enough = len(new_us) >= LEAST_NEW and len(known_us) >= LEAST_NEW
    return enough and min(new_us) > LONGER * max(known_us)


class Kept:
    """Outputs of a launch that have other bits than were validated, left as bytes, for who never loads the candidate.

    A kernel whose sums run in another order each time has other bits in every call. Whether they are right is not asked
    where the candidate runs, since no right answer may lie in its memory: `appraise` does, by the rule of validation.
    So nothing is to be had from wavering in validation. Without a folder other bits are a fault, as where determinism
    is asked for.
    """

    def __init__(self, request: wire.TimeRequest) -> None:
        self.folder, self.left_bytes = request.out, request.most_bytes
        self.rows: list[wire.KeptOutput] = []
        self.known: dict[tuple[str, int, str], str] = {}  # (workload, trial, digest) to the file that holds it

    def add(self, output: Any, workload: str, target: str, trial: int, where: str, must: bool) -> bool:
        """Whether it will be judged, or need not be: what does not fit."""
        if not self.folder:
            return False
        key = workload, trial, tensors.sha256(output)
        if key not in self.known:
            size_bytes = output.numel() * output.element_size()
            if size_bytes > self.left_bytes and not must:
                return True
            self.left_bytes -= size_bytes
            self.known[key] = f"{len(self.known)}.bin"
            os.makedirs(self.folder, exist_ok=True)  # a sandbox has only what it was given, and this starts empty
            with open(os.path.join(self.folder, self.known[key]), "wb") as file:
                file.write(tensors.to_bytes(output))
        described = tensors.dtype_name(output), list(output.shape)
        self.rows.append(wire.KeptOutput(workload, target, trial, where, self.known[key], *described))
        return True
