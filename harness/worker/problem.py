"""Problem files in KernelBench's form: ``Model``, ``get_inputs()``, ``get_init_inputs()``.

Weights are replayed from bytes. Inputs are made anew for each trial wherever they are needed, and dropped: by `draws`
they are the same bytes everywhere. Those of which it cannot promise that are replayed, too.

As in KernelBench's own evaluation (its eval.py) both models are constructed under one seed, stay in training mode, and
are cast to the dtype, as floating-point inputs are. Unlike there integer and boolean inputs stay what they are, the
problem file and the solution are modules of their own, which share no namespace, and the seed is set again before every
call that is judged, so that one that draws (dropout in training) draws the same.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Iterable, Iterator, List, Sequence, Tuple

import numpy as np
import torch

from . import dtypes, finite_differences, outputs, protocol, rounding, tensors, wire
from .arithmetic import DrawsNumbers, Realisation
from .blame import enters_subject
from .emulation import Arithmetic, doing, doubled, replaced
from .failures import failure
from .meaning import float64_difference
from .problem_files import Inputs, construct, lay_out, made, module_of
from .references import compile_forward
from .workload import BaseWorkload

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Each, Shape

Change = Callable[[Any], Any]  # what becomes of a tensor
Bound = Tuple[Callable[[], Any], List[Any]]  # a call, and its arguments
_seed = torch.manual_seed  # the code under test may put another in its place


class NoTruth(Exception):
    """There is no ground truth yet; its text says why."""


class Definition(torch.nn.Module):  # type: ignore[misc]
    """A problem's `truth` function as a model with the same inputs and parameters: its first parameter is given the
    model where it is named `model`, which has the weights."""

    def __init__(self, function: Callable[..., Any], model: Any) -> None:
        super().__init__()
        self.function, self.model = function, model
        self.names = list(inspect.signature(model.forward).parameters)
        self.takes_model = next(iter(inspect.signature(function).parameters), "") == "model"

    @enters_subject
    def forward(self, *inputs: Any) -> Any:
        return self.function(self.model, *inputs) if self.takes_model else self.function(*inputs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Yield the model's parameters, by the names that they have there."""
        yield from self.model.named_parameters(*args, **kwargs)


class ProblemWorkload(BaseWorkload):
    """A problem file, or an operator in its place, with its stored tensors. The only recipe is `independent`."""

    def __init__(self, value: wire.WorkloadRequest) -> None:
        super().__init__()
        assert value.problem is not None
        self.id = value.id
        self.dtype = value.dtype
        self.problem = value.problem.file
        self.operator, self.backward = value.problem.operator, value.problem.backward
        self.compiled = value.problem.compiled
        self.name = "Model" if self.operator is None else self.operator.name
        self.folder = value.problem.store
        self.recipes = {"independent": value.recipes["independent"]}
        self.index: dict[str, Any] = protocol.read_json(os.path.join(self.folder, "index.json"))
        self.outputs: dict[str, tuple[Shape, str]] = {}  # shape and dtype of each: known once the reference has run
        self.shape: Shape | None = None  # of the one that stands for all, and its dtype
        self.out_dtype = ""
        self.directions = outputs.Directions(self.dtype, self.operator.direction if self.operator else "")
        self.writes = {int(at): name for at, name in self.index.get("writes", {}).items()}  # `outputs.Writes`
        self.pristine: Any = None

    # -- tensors -----------------------------------------------------------------------------------------

    def _value(self, entry: dict[str, Any], device: str) -> Any:
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

    def on(self, _recipe: str) -> ProblemWorkload:
        return self

    def of_sizes(self, _sizes: tuple[int, int, int, int]) -> ProblemWorkload:
        return self

    def arrays(self, recipe: str, trial: int, _seed: int, each: Each = map) -> Inputs:
        """Arrays of the trial's tensors; sets that are stored repeat when there are fewer than trials."""
        sets = self.index["inputs"]
        continuous: list[bool] = []
        if sets:
            values = [self._value(entry, "cpu") for entry in sets[trial % len(sets)]]
        else:
            with self.drawing:
                values, _, continuous = made(self._module(self.problem), self.index["seed"], trial, self.dtype, each)
        factor = 2.0 ** -protocol.SCALED_RECIPES.get(recipe, 0)
        values = values if factor == 1 else tensors.each_float(values, lambda tensor: tensor * factor)
        return Inputs(values, continuous)

    def arguments(self, arrays: list[Array], device: str, cast: Change = lambda tensor: tensor) -> list[Any]:
        """Tensors with memory of their own; `cast` is what becomes of those of floating-point numbers."""
        assert isinstance(arrays, Inputs)
        copied = [tensors.each_tensor(value, lambda tensor: tensor.to(device, copy=True)) for value in arrays.values]
        return [tensors.each_float(value, cast) for value in copied]

    def _module(self, path: str) -> Any:
        return module_of(path, self.operator if path == self.problem else None)

    @functools.cached_property
    def definition(self) -> Callable[..., Any] | None:
        """The problem file's `truth`: what its model is meant to compute, written out by its user."""
        return None if self.operator is not None else getattr(self._module(self.problem), "truth", None)

    def defined(self, model: Any) -> Any:
        """Return what the ground truth is computed by: the definition where there is one, else the model itself."""
        return model if self.definition is None else Definition(self.definition, model)

    @enters_subject
    def model(self, path: str, name: str, device: str) -> tuple[Any, str]:
        """(an instance of the file's class with the stored weights, a note on what could not be given)."""
        self.reseed()
        module = self._module(path)
        self.reseed()
        if not hasattr(module, name):
            raise AttributeError(f"{os.path.basename(path)} defines no {name}")
        model = construct(getattr(module, name), [self._value(entry, "cpu") for entry in self.index["init"]])
        state = {key: self._value(entry, "cpu") for key, entry in self.index["state"].items()}
        own = model.state_dict()
        note = ""
        if {key: value.shape for key, value in own.items()} == {key: value.shape for key, value in state.items()}:
            model.load_state_dict(state, strict=True)
        elif state or own:
            note = f"{name}'s weights have other names or shapes than Model's: it keeps those of the same seed"
        return model.to(device=device, dtype=getattr(torch, self.dtype)), note

    def bind(self, model: Any, arguments: Sequence[Any], contiguous: bool = False) -> Bound:
        """Return a call that gives what the model returns and, with `backward`, gradients beside it; and its
        arguments. `contiguous`: on tensors that have no other layout, as its truth is computed."""
        given = lay_out(self.operator, arguments, contiguous)
        if not self.backward:
            return enters_subject(lambda: model(*given)), given
        return lambda: outputs.graph(self.directions, model, given, contiguous, self.writes).step(), given

    def named(self, returned: Any, given: Sequence[Any]) -> outputs.Outputs:
        """Return the outputs of such a call by name; what it wrote to its arguments is among them."""
        return outputs.with_written(returned, given, {} if self.backward else self.writes)

    def saw(self, found: outputs.Outputs) -> None:
        """The outputs of the reference, by name: from now on it is known what they are like."""
        self.outputs = {name: (tuple(tensor.shape), tensors.dtype_name(tensor)) for name, tensor in found.items()}
        self.shape, self.out_dtype = self.outputs[self.main]

    def is_like(self, shape: Shape, dtype: str) -> tuple[Shape, str]:
        """Both again: those of its one output, where the reference ran in another process."""
        self.outputs = {"": (shape, dtype)}
        self.shape, self.out_dtype = shape, dtype
        return shape, dtype

    @property
    def main(self) -> str:
        """Return which output stands for all."""
        return outputs.main({name: dtype for name, (_, dtype) in self.outputs.items()})

    def reseed(self) -> None:
        """Before a call that is judged."""
        _seed(self.index["seed"])

    def drawn_by_model(self, device: str) -> list[bytes] | None:
        """Return `tensors.drawn`, once Model was made; None where it cannot be."""
        try:
            self.model(self.problem, "Model", device)
        except Exception:
            return None
        return tensors.drawn(device)

    def draws(self, call: Callable[[], Any]) -> bool:
        """Return whether a call of the reference gives something else under another seed."""
        found = []
        for seed in (self.index["seed"], self.index["seed"] + 1):
            _seed(seed)
            found.append({name: tensor.clone() for name, tensor in outputs.with_written(call(), (), {}).items()})
        one, other = found
        return one.keys() != other.keys() or not all(tensors.same_bits(one[name], other[name]) for name in one)

    # -- what a target must give -------------------------------------------------------------------------

    def expected_output(self) -> tuple[Shape, str] | None:
        return None

    def expected(self) -> str:
        return "a tensor"

    def fits(self, _shape: Shape, dtype: str) -> bool:
        return dtype in dtypes.STORAGE

    def precision(self, device: str, _ran: Sequence[str] = ()) -> list[str]:
        """Return what PyTorch, by its switches or without, does in float32, once Model was loaded: a file may set
        them."""
        if self.dtype != "float32" or tensors.capability(device) < (8, 0):
            return []
        switches = {
            rounding.TF32_MATMUL: torch.backends.cuda.matmul.allow_tf32,
            rounding.TF32_CONVOLUTION: torch.backends.cudnn.allow_tf32,
            rounding.TF32X3_ATTENTION: True,  # of its efficient backend, which float32 mostly runs
        }
        return rounding.effective([name for name, is_on in switches.items() if is_on], self.dtype)

    def references(self, names: Iterable[str], device: str) -> list[ModelReference]:
        return [ModelReference(self, device) for name in names if name == protocol.MODEL]

    # -- truth -------------------------------------------------------------------------------------------

    def describe(self, output: str) -> tuple[str, Shape, str, Sequence[object]]:
        """Return an output's name, shape and dtype, and what beside its inputs determines it."""
        if self.shape is None:
            raise NoTruth(self.no_truth or "Model has not run here")
        name = output if output in self.outputs else self.main
        shape, dtype = self.outputs[name]
        weights = protocol.digest([self.index["state"], self.index["init"]])
        return name, shape, dtype, ["problem", self._digest(), weights, self.dtype, self.backward]

    def refuse_truth(self, error: Exception) -> None:
        """Say in `no_truth` why there is none."""
        self.draws_numbers |= isinstance(error, DrawsNumbers)
        super().refuse_truth(error)
        if isinstance(error, (DrawsNumbers, NoTruth)):
            self.no_truth = str(error)

    def check_shape(self, found: Shape, expected: Shape) -> None:
        """Raise ValueError where the truth has another shape than the output."""
        if found != expected and self.definition is not None:
            self.contradicts = f"returned {list(expected)}; its definition, truth(), gives {list(found)}"
        super().check_shape(found, expected)

    @property
    def parts(self) -> dict[str, Shape | None]:
        """Return the shape of the one output that a kernel is judged by; unknown until the reference has run."""
        return {"": self.shape}

    def split(self, output: Any) -> dict[str, Any]:
        return {"": output}

    def repeats(self, arrays: list[Array]) -> bool:
        """Return whether the ground truth is the same when it is computed again, to within its rounding."""
        with self.drawing:
            first, second = (self.exact(arrays) for _ in range(2))
        return all(float64_difference(first[name], second[name]) is None for name in first)

    def gradients_agree(self, arrays: list[Array]) -> dict[str, bool]:
        """Return `finite_differences.agree`; nothing where there are no gradients, or they cannot be checked."""
        if not self.backward or sum(array.size for array in arrays) > finite_differences.MOST_ELEMENTS:
            return {}
        return self._checked(lambda: finite_differences.agree(functools.partial(self._float64_graph, arrays)))

    def formula_agrees(self, arrays: list[Array]) -> dict[str, bool]:
        """Return, for each output of a model that calls PyTorch's attention, whether its float64 result is what the
        formula of attention gives, written out; nothing where it cannot be checked. Elements that the formula leaves
        undefined (a query without keys) do not count."""
        return self._checked(lambda: self._formula_agrees(arrays))

    def _formula_agrees(self, arrays: list[Array]) -> dict[str, bool]:
        results = []
        for writes_out in (False, True):
            arithmetic = Arithmetic()
            with replaced(arithmetic, writes_out) as calls:
                results.append(self._in_float64(arrays, arithmetic, self._copied()))
            if not calls:
                return {}
        computed, by_formula = results
        return {name: _agrees_where_finite(computed[name], by_formula[name]) for name in computed if name in by_formula}

    def _checked(self, check: Callable[[], dict[str, bool]]) -> dict[str, bool]:
        if self.definition is not None:  # which decides
            return {}
        try:
            with self.drawing:
                return check()
        except Exception as error:
            print(f"not checked: {type(error).__name__}: {error}", file=sys.stderr)
            return {}

    # -- arithmetic --------------------------------------------------------------------------------------

    def exact(self, arrays: list[Array]) -> dict[str, Array]:
        """Return the ground truth of the outputs in float64."""
        return self._defined_or_modelled(lambda model: self._in_float64(arrays, Arithmetic(), model))

    def emulations(
        self, arrays: list[Array], precision: Sequence[str] = (), realisation: int = 0
    ) -> tuple[dict[str, Array], bool]:
        """Return what straightforward arithmetic in the dtype gives, as arrays that hold it exactly, and whether it
        left the dtype's range on its way. What a definition gives is rounded to the dtype of the model's output."""
        arithmetic = Arithmetic(Realisation(realisation), precision)

        def compute(model: Any) -> dict[str, Array]:
            found = self._computed_by(model, self.arguments(arrays, "cpu"), arithmetic)
            values = {name: dtypes.decode(tensors.to_array(t), tensors.dtype_name(t)) for name, t in found.items()}
            if isinstance(model, Definition):
                for name, (_, dtype) in self.outputs.items():
                    if name in values and dtype in dtypes.UNIT_ROUNDOFF:
                        values[name] = dtypes.quantise(np.ascontiguousarray(values[name], np.float64), dtype)
            return values

        return self._defined_or_modelled(compute), arithmetic.leaves_range

    def _defined_or_modelled(self, compute: Callable[[Any], dict[str, Array]]) -> dict[str, Array]:
        """Return what the problem's definition gives, and what its model gives in place of what that does not give."""
        values = compute(self.defined(self._copied()))
        if not self.outputs.keys() <= values.keys():
            values = {**compute(self._copied()), **_without_gradients(values)}
        return values

    def _in_float64(self, arrays: list[Array], arithmetic: Arithmetic, model: Any) -> dict[str, Array]:
        found = self._computed_by(doubled(model), self._doubles(arrays), arithmetic)
        return {name: np.array(t.detach().numpy(), dtype=np.float64, order="C") for name, t in found.items()}

    def _computed_by(self, model: Any, arguments: list[Any], arithmetic: Arithmetic) -> outputs.Outputs:
        call, given = self.bind(model, arguments, contiguous=True)
        with doing(arithmetic):
            output = call()
        return self.named(output, given)

    def _doubles(self, arrays: list[Array]) -> list[Any]:
        return self.arguments(arrays, "cpu", lambda tensor: tensor.double())

    def _copied(self) -> Any:
        """Return a model of its own, for one computation."""
        if self.pristine is None:
            self.pristine, _ = self.model(self.problem, "Model", "cpu")
        try:
            return copy.deepcopy(self.pristine)
        except Exception:  # some hold what cannot be copied: then it is made again
            return self.model(self.problem, "Model", "cpu")[0]

    def _float64_graph(self, arrays: list[Array], moved: str = "", distance: Any = None) -> outputs.Graph:
        """Return the graph of a float64 call, with one argument or parameter moved by a distance."""
        model = doubled(self._copied())
        given = lay_out(self.operator, self._doubles(arrays), True)
        if moved:
            with torch.no_grad():
                {**outputs.by_argument(model, given), **dict(model.named_parameters())}[moved].add_(distance)
        self.reseed()
        with doing(Arithmetic()):
            return outputs.graph(self.directions, model, given, True, self.writes)

    def _digest(self) -> str:
        return protocol.sha256_file(self.problem) if self.operator is None else protocol.digest(asdict(self.operator))

    def alike(self, arrays: list[Array], _output: str = "") -> list[tuple[str, Array]]:
        """Return (name, values) of the inputs that have the output's shape and dtype."""
        assert isinstance(arrays, Inputs)
        pairs = enumerate(zip(tensors.flat(arrays.values), arrays))
        named = [(str(at), array) for at, (tensor, array) in pairs if tensors.dtype_name(tensor) == self.out_dtype]
        return self._alike(named, self.shape, self.out_dtype)


def _agrees_where_finite(own: Array, formula: Array) -> bool:
    if own.shape != formula.shape:
        return False
    defined = np.isfinite(formula)
    return float64_difference(np.where(defined, own, 0.0), np.where(defined, formula, 0.0)) is None


def _without_gradients(values: dict[str, Array]) -> dict[str, Array]:
    """Return what a definition gives without its gradients: those of some outputs alone are not the model's."""
    return {name: array for name, array in values.items() if not name.startswith(protocol.GRADIENT)}


class ModelReference:
    """The problem's own ``Model``, with the stored weights."""

    name = protocol.MODEL

    def __init__(self, workload: ProblemWorkload, device: str) -> None:
        self.workload = workload
        self.device = device
        self.model: Any = None

    def prove(self, arguments: list[Any]) -> list[str]:
        """Nothing is forced, so no operator is proven; the model must run."""
        self.attempt(arguments)
        return []

    def attempt(self, arguments: list[Any]) -> None:
        """`wire.Failed` where the model does not run, or gives what cannot be compared."""
        try:
            if self.model is None:
                self.model, _ = self.workload.model(self.workload.problem, "Model", self.device)
                if self.workload.compiled:
                    compile_forward(self.model)
            with torch.no_grad():
                call, given = self.workload.bind(self.model, arguments)
                before = [tensor.clone() for tensor in tensors.flat(given)]
                returned = call()
                outputs.learn_writes(self.workload.writes, self.model, before, given)
            found = self.workload.named(returned, given)
            self.workload.saw(found or outputs.named(returned))  # which refuses it, where there is no output
        except wire.Failed as error:
            if error.failure is not protocol.FailureKind.MISSING_OPERATOR:
                error.message = f"{self.workload.name} {error.message}"
            raise
        except Exception as error:
            failed = failure(error, self.workload.name)
            if failed.fault is protocol.Fault.SUBJECT:
                failed.status = protocol.UNSUPPORTED
            raise failed from None

    def active(self) -> ContextManager[None]:
        return contextlib.nullcontext()

    def bind(self, arguments: list[Any]) -> Callable[[], Any]:
        return self.workload.bind(self.model, arguments)[0]

    def graph(self, arguments: list[Any]) -> outputs.Graph:
        given = lay_out(self.workload.operator, arguments)
        return outputs.graph(self.workload.directions, self.model, given, writes=self.workload.writes)

    def judged(self, arguments: list[Any]) -> outputs.Outputs:
        call, given = self.workload.bind(self.model, arguments)
        with self.workload.drawing:
            self.workload.reseed()
            return self.workload.named(call(), given)
