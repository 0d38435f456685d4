"""What is computed: an attention of one shape, with its inputs and truth. `problem.py` has the other kind."""

import copy
import itertools
from typing import Any

from . import dtypes, inputs, protocol, truth, wire


def parse_workload(value: wire.WorkloadRequest) -> Any:
    if value.problem:
        from . import problem

        return problem.ProblemWorkload(value)
    return AttentionWorkload(value)


class AttentionWorkload:
    """Self-attention over [batch, heads, seq_len, head_dim] in one dtype; the request's W, see `protocol`."""

    problem = None
    no_truth = ""

    def __init__(self, value):
        self.id = value.id
        self.dtype = value.dtype
        self.shape = value.batch, value.heads, value.seq_len, value.head_dim
        self.causal = bool(value.causal)
        self.scale = float(value.scale)
        self.recipes = dict(value.recipes)

    def on(self, recipe):
        """The workload of a recipe: where Q and K are halved the scale makes up for it, and the weights stay."""
        halvings = protocol.SCALED_RECIPES.get(recipe, 0)
        if not halvings:
            return self
        found = copy.copy(self)
        found.scale = self.scale * 4.0**halvings
        return found

    def of_length(self, seq_len):
        """The workload at another sequence length; 0: its own."""
        if not seq_len:
            return self
        found = copy.copy(self)
        found.shape = (*self.shape[:2], seq_len, self.shape[3])
        return found

    def arrays(self, recipe, trial, seed, each=map):
        """Input arrays in `dtype`'s storage; `each` as for `inputs.deviates`."""
        return inputs.generate(recipe, self.dtype, self.shape, seed, trial, each)

    def arguments(self, arrays, device):
        from . import tensors

        return [tensors.to_tensor(array, self.dtype, device) for array in arrays]

    def reseed(self):
        """Before a call that is judged: nothing is drawn in one."""

    def draws(self, _call):
        """Whether a call of the reference draws random numbers."""
        return False

    def precision(self, _device):
        """What the references do beyond plain arithmetic in the dtype."""
        return []

    def truth(self, arrays, inputs_sha256, cache, precision=()):
        """The `truth.Exact` of these inputs, measured by arithmetic of that precision."""
        key = ["attention", self.dtype, list(self.shape), self.causal, self.scale.hex()]

        def compute(_known):
            exact, emulated = self.computed(arrays, cache.each, precision)
            more = (self.computed(arrays, cache.each, precision, number)[1] for number in ([1] if precision else []))
            return exact, itertools.chain([emulated], more)

        return cache.get(inputs_sha256, key, self.shape, self.dtype, precision, compute)

    def computed(self, arrays, each=map, precision=(), realisation=0):
        """(truth, emulation)."""
        return truth.attention(*arrays, self.causal, self.scale, self.dtype, each, precision, realisation)

    def emulated(self, arrays, precision=()):
        return self.computed(arrays, precision=precision)[1]

    def alike(self, arrays):
        """(name, values) of the inputs that have the output's shape and dtype."""
        return [(name, dtypes.decode(array, self.dtype)) for name, array in zip("QKV", arrays)]

    def wrong_answers(self, arrays, each):
        """See `power.specific`."""
        return truth.wrong(*arrays, self.causal, self.scale, self.dtype, each)

    def expected(self):
        return f"{self.shape} {self.dtype}"

    def expected_output(self):
        return self.shape, self.dtype

    def fits(self, shape, dtype):
        return tuple(shape) == self.shape and dtype == self.dtype

    def references(self, names, device):
        from . import references

        return [SdpaReference(name, self, references) for name in names]


class SdpaReference:
    """A forced SDPA backend on one workload."""

    def __init__(self, name, workload, module):
        self.name = name
        self.workload = workload
        self.module = module

    def attempt(self, arguments):
        """references.Unsupported where PyTorch refuses."""
        self.module.attempt(self.name, *arguments, self.workload.causal, self.workload.scale)

    def prove(self, arguments):
        """Operators that ran; references.Unsupported."""
        return self.module.prove(self.name, *arguments, self.workload.causal, self.workload.scale)

    def active(self):
        """The context in which a bound call uses the backend."""
        return self.module.forced(self.name)

    def bind(self, arguments):
        q, k, v = arguments
        attention, causal, scale = self.module.attention, self.workload.causal, self.workload.scale
        return lambda: attention(q, k, v, causal, scale)

    def judged(self, call):
        """A bound call whose output is looked at."""
        return call()
