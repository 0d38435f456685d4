"""Whether the calls that are timed compute their answers: outputs of some are looked at, on inputs that change.

Of a problem's kernel alone, whose Python sees when a clock stands around it. At moments that are drawn at random, and
from the same code that takes every sample, the inputs' memory gets another stored trial's elements, and the call that
follows must give the very bits that were validated for that trial, or others that pass the rule when they are judged
afterwards (`kept`). What was kept by address, or is not ready when the call returns, is another trial's answer. On a
GPU the elements are written, and the output is copied, on the stream whose time is taken and without waiting: work on a
stream that does not wait for it reads the old ones, or is copied before it is done.

Each such trial is new to the process once. Where every call on new elements takes long, and calls on known ones do not,
answers are kept by content. Samples of these calls are not among those of the row.

Right answers are known by their digests. One that was computed here is kept on the device, as are the elements that the
inputs should hold: what comes next is compared there, bit for bit. `Model` ran in this process before, on the row's own
trial alone.
"""

import random
import time

from . import kernels, tensors

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
    """The validated outputs: their digests by trial, and copies of those that were seen. `keep(output, trial, where)`
    says whether one that has other bits will be judged afterwards."""

    def __init__(self, digests, device, keep):
        self.digests, self.device, self.keep = digests, device, keep
        self.seen = {}

    def holds(self, trial, output, where=TIMED, **more):
        """Whether this is that trial's, or may be."""
        return self._same(trial, output) or self.keep(output, trial, where, **more)

    def _same(self, trial, output):
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

    def __init__(self, workload, device, arguments, elements, answers):
        self.workload, self.device = workload, device
        self.inputs = list(tensors.flat(arguments))
        self.elements, self.answers = elements, answers
        self.pristine = {}  # elements by trial, which the kernel is not given
        self.random = random.SystemRandom()  # its state cannot be read
        others = list(range(1, len(answers.digests)))
        self.random.shuffle(others)
        # At last the row's own trial once more: after all that was in its place.
        self.steps = [trial for trial in others for _ in range(1 + KNOWN_CALLS)] + [0]
        self.present = 0  # the trial whose elements the inputs hold, or will when the next call begins
        self.staged = ()  # those elements, while they are not there yet
        self.wanted, self.kept = False, None  # whether to keep the next output; what was kept
        self.looks = LOOKS
        self.new_us, self.known_us, self.shown = [], [], {0}
        self.fault = ""

    def left(self):
        return bool(self.steps) and not self.fault

    def begins(self, sampling):
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

    def write(self):
        """Just before the call; on a GPU behind whatever keeps it busy, in order and without waiting."""
        for tensor, new in zip(self.inputs, self.staged):
            tensor.data.copy_(new)
        self.staged = ()

    def keep(self, output):
        """Just after the call."""
        if self.wanted:
            self.wanted = False
            try:
                output = kernels.checked(output, self.workload, self.device)
            except kernels.KernelFailure as error:
                self.fault = self.fault or f"in a timed call it {error.message}"
            else:
                self.kept = output.clone() if self.device == "cuda" else output

    def ended(self, time_us):
        """After a sample of ours; None: it has no time."""
        trial = self.steps.pop(0)
        times = self.known_us if trial in self.shown else self.new_us
        times += [] if time_us is None else [time_us]
        self.shown.add(trial)
        if sum(self.new_us + self.known_us) > MOST_US:
            self.steps = self.steps[-1:]
        self.look()

    def look(self):
        """After any sample."""
        output, self.kept = self.kept, None
        if output is not None and not self.fault and not self.answers.holds(self.present, output):
            self.fault = NOT_THE_INPUTS if self.present else NOT_VALIDATED

    def verdict(self):
        """'' or what is wrong, after the last sample."""
        self._compare_inputs()
        if not self.fault and keeps_answers(self.new_us, self.known_us):
            known, new = max(self.known_us), min(self.new_us)
            return (
                f"it takes {known:.3g} us at most on inputs that it has seen before, and {new:.3g} us at least on "
                "others: it keeps its answers"
            )
        return self.fault

    def _compare_inputs(self):
        if not self.fault:
            held = self._elements(self.present)
            if not all(tensors.same_bits(now, right) for now, right in zip(self.inputs, held)):
                self.fault = CHANGED_INPUTS

    def _elements(self, trial):
        """Of two trials they are kept, the row's own among them; of one where they are large."""
        if trial not in self.pristine:
            large = sum(tensor.numel() * tensor.element_size() for tensor in self.inputs) > KEPT_BYTES[self.device]
            own = {} if large else {kept: made for kept, made in self.pristine.items() if kept == 0}
            self.pristine = own  # before others are made
            self.pristine[trial] = list(tensors.flat(self.elements(trial)))
        return self.pristine[trial]


def keeps_answers(new_us, known_us):
    """Whether every call on new elements took that much longer than every one on known ones: a busy machine delays some
    of both."""
    enough = len(new_us) >= LEAST_NEW and len(known_us) >= LEAST_NEW
    return enough and min(new_us) > LONGER * max(known_us)
