"""Problem files in KernelBench's form: ``Model``, ``get_inputs()``, ``get_init_inputs()``.

Weights are replayed from bytes. Inputs are made anew for each trial wherever they are needed, and dropped: by `draws`
they are the same bytes everywhere. Those of which it cannot promise that are replayed, too.

As in KernelBench's own evaluation (its eval.py) both models are constructed under one seed, stay in training mode, and
are cast to the dtype, as floating-point inputs are. Unlike there integer and boolean inputs stay what they are, the
problem file and the solution are modules of their own, which share no namespace, and the seed is set again before every
call that is judged, so that one that draws (dropout in training) draws the same.
"""

import contextlib
import hashlib
import importlib.util
import os
import sys
import threading
import traceback

import numpy as np
import torch

from . import draws, dtypes, protocol, rounding, tensors

PERTURBATION_SEED = 20240517
_seed = torch.manual_seed  # the code under test may put another in its place


def load_module(path):
    name = "problem_" + hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def excerpt():
    return traceback.format_exc()[-8000:]


def construct(model, initial):
    """An instance by KernelBench's convention: positional, or, for one dict, by keyword."""
    if len(initial) == 1 and isinstance(initial[0], dict):
        return model(**initial[0])
    return model(*initial)


class ProblemWorkload:
    """A problem file with its stored tensors. The only recipe is `independent`."""

    def __init__(self, value):
        self.id = value["id"]
        self.dtype = value["dtype"]
        self.problem = value["problem"]["file"]
        self.folder = value["problem"]["store"]
        self.recipes = {"independent": value["recipes"]["independent"]}
        self.index = protocol.read_json(os.path.join(self.folder, "index.json"))
        self.shape = None  # known once the reference has run
        self.drawn = None  # whether Model draws random numbers at each call, once a truth was asked for
        self.drawing = threading.RLock()  # truths are computed in other threads, and PyTorch's generator is one

    # -- tensors -----------------------------------------------------------------------------------------

    def _value(self, entry, device):
        if "tensor" in entry:
            with open(os.path.join(self.folder, entry["tensor"]), "rb") as file:
                array = dtypes.from_bytes(file.read(), entry["dtype"], entry["shape"])
            return tensors.to_tensor(array, entry["dtype"], device)
        if "value" in entry:
            return entry["value"]
        if "dict" in entry:
            return {key: self._value(item, device) for key, item in entry["dict"].items()}
        kind, items = next(iter(entry.items()))
        return (tuple if kind == "tuple" else list)(self._value(item, device) for item in items)

    def on(self, _recipe):
        return self

    def of_length(self, _seq_len):
        return self

    def arrays(self, recipe, trial, _seed, each=map):
        """Arrays of the trial's tensors; sets that are stored repeat when there are fewer than trials."""
        sets = self.index["inputs"]
        if sets:
            values = [self._value(entry, "cpu") for entry in sets[trial % len(sets)]]
        else:
            with self.drawing:
                values, _ = made(load_module(self.problem), self.index["seed"], trial, self.dtype, each)
        factor = 2.0 ** -protocol.SCALED_RECIPES.get(recipe, 0)
        return Inputs(values if factor == 1 else each_float(values, lambda tensor: tensor * factor))

    def arguments(self, arrays, device):
        """Tensors with memory of their own."""
        return [each_tensor(value, lambda tensor: tensor.to(device, copy=True)) for value in arrays.values]

    def model(self, path, name, device):
        """(an instance of the file's class with the stored weights, a note on what could not be given)."""
        self.reseed()
        module = load_module(path)
        self.reseed()
        model = construct(getattr(module, name), [self._value(entry, "cpu") for entry in self.index["init"]])
        state = {key: self._value(entry, "cpu") for key, entry in self.index["state"].items()}
        own = model.state_dict()
        note = ""
        if {key: value.shape for key, value in own.items()} == {key: value.shape for key, value in state.items()}:
            model.load_state_dict(state, strict=True)
        elif state or own:
            note = f"{name}'s weights have other names or shapes than Model's: it keeps those of the same seed"
        return model.to(device=device, dtype=getattr(torch, self.dtype)), note

    def reseed(self):
        """Before a call that is judged."""
        _seed(self.index["seed"])

    def drawn_by_model(self, device):
        """As `drawn`, once Model was made; None where it cannot be."""
        try:
            self.model(self.problem, "Model", device)
        except Exception:
            return None
        return drawn(device)

    def draws(self, call):
        """Whether a call of the reference gives something else under another seed."""
        outputs = []
        for seed in (self.index["seed"], self.index["seed"] + 1):
            _seed(seed)
            outputs.append(call().clone())  # it may give the same memory twice
        return not tensors.same_bits(*outputs)

    # -- what a target must give -------------------------------------------------------------------------

    def expected_output(self):
        return None

    def expected(self):
        return "a tensor"

    def fits(self, _shape, dtype):
        return dtype in dtypes.STORAGE

    def references(self, names, device):
        return [ModelReference(self, device) for name in names if name == protocol.MODEL]

    # -- truth -------------------------------------------------------------------------------------------

    def truth(self, arrays, inputs_sha256, cache, _trial):
        """(float64 output of Model on the CPU, its SHA-256, the cost of rounding); Nones where it cannot be."""
        if self.shape is None:
            return None, "", None
        weights = protocol.digest([self.index["state"], self.index["init"]])
        key = ["problem", protocol.sha256_file(self.problem), weights, list(self.shape), self.dtype]
        try:
            with self.drawing:
                return cache.get(inputs_sha256, key, self.shape, lambda: self._exact(arrays))
        except Exception as error:
            print(f"no truth: {type(error).__name__}: {error}", file=sys.stderr)
            return None, "", None

    def _exact(self, arrays):
        """Truth, and one unit: how far it moves when every input and weight is moved by one rounding.

        An algorithm that is exact up to correctly rounded inputs makes an error of about one unit. Nothing
        better is known of a model that can be anything; unlike a reference's own error it is the same
        everywhere. It knows nothing of accumulators, so float32 models with long sums stand at several units
        by right: KernelBench's tolerance is the better judge of these.
        """
        model, _ = self.model(self.problem, "Model", "cpu")
        model = model.double()
        arguments = [_double(argument) for argument in self.arguments(arrays, "cpu")]
        unit = dtypes.UNIT_ROUNDOFF.get(self.dtype, 2.0**-53)
        with torch.no_grad():
            if self.drawn is None:
                self.drawn = self.draws(lambda: model(*arguments))
            if self.drawn:
                raise ValueError("Model draws random numbers at each call: only the same draws can be compared")
            exact = model(*arguments).numpy()
            generator = np.random.Philox(key=np.array([PERTURBATION_SEED, 0], dtype=np.uint64))
            for weight in model.parameters():
                weight.copy_(_perturbed(weight, unit, generator))
            moved = model(*[_perturbed(argument, unit, generator) for argument in arguments]).numpy()
        if exact.shape != tuple(self.shape):
            raise ValueError(f"the float64 model gives {exact.shape}")
        rounded = dtypes.quantise(np.ascontiguousarray(moved, dtype=np.float64), self.dtype)
        return exact.astype(np.float64), rounding.cost(rounded, exact, self.dtype)


def drawn(device):
    """How far PyTorch's generators have come: their states, in bytes."""
    states = [torch.random.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else [])]
    return [tensors.to_bytes(state) for state in states]


class Inputs(list):
    """The arrays of a trial's tensors, in order, which share memory with those in `values`, the whole arguments."""

    def __init__(self, values):
        super().__init__(tensors.to_array(tensor) for tensor in tensors.flat(values))
        self.values = values


def made(module, seed, trial, dtype, each=map):
    """(a trial's arguments on the CPU, names of what `draws` does not answer for): floating-point tensors are cast to
    the dtype, all others stay what they are."""
    values, foreign = draws.make(module.get_inputs, seed, trial, each)
    cast = each_float(values, lambda tensor: tensor.to(getattr(torch, dtype)))
    return [each_tensor(value, lambda tensor: tensor.detach().contiguous()) for value in cast], foreign


def each_float(value, change):
    """The same value with `change` made to every floating-point tensor in it; others, indices and masks, stay."""
    return each_tensor(value, lambda tensor: change(tensor) if tensor.is_floating_point() else tensor)


def each_tensor(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: each_tensor(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(each_tensor(item, change) for item in value)
    return value


def _double(value):
    return each_float(value, torch.Tensor.double)


def _perturbed(value, unit, generator):
    """Every element of a float64 tensor times 1 + unit or 1 - unit."""

    def change(tensor):
        signs = (generator.random_raw(tensor.numel()) >> np.uint64(63)).astype(np.float64) * 2 - 1
        return tensor * (1 + unit * torch.from_numpy(signs.reshape(tuple(tensor.shape))))

    return each_float(value, change)


class ModelReference:
    """The problem's own ``Model``, with the stored weights."""

    name = protocol.MODEL

    def __init__(self, workload, device):
        self.workload = workload
        self.device = device
        self.model = None

    def prove(self, arguments):
        """Nothing is forced, so no operator is proven; the model must run."""
        self.attempt(arguments)
        return []

    def attempt(self, arguments):
        """references.Unsupported where the model does not run, or gives something else than a tensor."""
        from . import references

        try:
            if self.model is None:
                self.model, _ = self.workload.model(self.workload.problem, "Model", self.device)
            with torch.no_grad():
                output = self.model(*arguments)
        except Exception as error:
            raise references.Unsupported(f"Model raised {type(error).__name__}: {error}") from None
        if not isinstance(output, torch.Tensor) or tensors.dtype_name(output) not in dtypes.STORAGE:
            raise references.Unsupported(f"Model returns {type(output).__name__}, not one tensor")
        self.workload.shape = tuple(output.shape)

    def active(self):
        return contextlib.nullcontext()

    def bind(self, arguments):
        return lambda: self.model(*arguments)

    def judged(self, call):
        with self.workload.drawing:
            self.workload.reseed()
            return call()
