"""Torch tensors from stored bytes and back, bit for bit; and poison, to see what a kernel did not write."""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from . import dtypes
from .blame import enters_subject

# Quiet NaNs with a payload that no arithmetic produces: a NaN that the kernel computed is not mistaken for one.
POISON = {"float16": 0x7EA5, "bfloat16": 0x7FE5, "float32": 0x7FE5A5A5}
OFFSET_ELEMENTS, GAP_ELEMENTS = {"offset": 16, "misaligned": 1}, 8  # of layouts
CLOSE = 0.01  # of the largest value
PART_BYTES = 1 << 24  # of arrays that are compared
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # of so many bytes an element
PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}  # what complex numbers are pairs of
# The code under test may put others in their place, on a tensor of its own too.
_detach, _view, _equal = torch.Tensor.detach, torch.Tensor.view, torch.equal


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).replace("torch.", "")


def to_tensor(array: Any, dtype: str, device: str) -> Any:
    """A tensor with memory of its own from an array in `dtype`'s storage."""
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(np.array(array)).to(device)


def on_memory(memory: Any, offset: int, dtype: str, shape: Sequence[int]) -> Any:
    """A tensor on memory that is not its own."""
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype))
    array = np.frombuffer(memory, dtypes.STORAGE[dtype], count, offset).reshape(tuple(shape))
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def ones(dtype: str, shape: Sequence[int], contiguous: bool, device: str) -> Any:
    """Return ones; those that are not contiguous are as far from it as they can be."""
    order = range(len(shape)) if contiguous else range(len(shape) - 1, -1, -1)
    made = torch.ones([shape[axis] for axis in order], dtype=getattr(torch, dtype), device=device)
    return made.permute(tuple(order))


def to_array(tensor: Any) -> Any:
    """A tensor's elements, C order, in its dtype's storage."""
    tensor = tensor.detach().contiguous().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def to_bytes(tensor: Any) -> bytes:
    data: bytes = to_array(tensor).tobytes()
    return data


def holds(tensor: Any, array: Any) -> bool:
    """Return whether a tensor has an array's bits, of its dtype's storage."""
    return list(tensor.shape) == list(array.shape) and same_arrays(to_array(tensor), array)


def same_arrays(one: Any, other: Any) -> bool:
    """Return whether two arrays of one shape and dtype have the same bits; by parts, so that none needs much room."""
    one, other = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    parts = (slice(start, start + PART_BYTES) for start in range(0, len(one), PART_BYTES))
    return len(one) == len(other) and all(np.array_equal(one[part], other[part]) for part in parts)


def sha256(tensor: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(to_array(tensor)).data).hexdigest()


def poison(tensor: Any) -> Any:
    """Fill with poison, in place; nothing where the dtype has no NaN."""
    name = dtype_name(tensor)
    if name in POISON:
        bits(tensor).fill_(POISON[name])
    return tensor


def has_poison(tensor: Any) -> bool:
    name = dtype_name(tensor)
    if name not in POISON:
        return False
    return bool((bits(tensor) == POISON[name]).any())


def bits(tensor: Any) -> Any:
    """Return the same memory as integers of the elements' size."""
    plain = _detach(tensor)
    return _view(plain, BITS[plain.element_size()])


def same_bits(one: Any, other: Any) -> bool:
    """Return whether two tensors, of one device, hold the same bits; compared there."""
    return bool(one.dtype == other.dtype and one.shape == other.shape and _equal(bits(one), bits(other)))


def close(output: Any, expected: Any) -> bool:
    """Return whether it is about the same, with other bits: what was not written is not."""
    if not expected.numel():
        return True
    apart = (output.double() - expected.double()).abs().max()
    return bool(apart <= CLOSE * expected.double().abs().max())


def alike(one: Any, other: Any) -> bool:
    """Return whether two tensors of one shape and device hold the same bits, or about the same values."""
    return same_bits(one, other) or close(one, other)


def leave_poison_behind(size_bytes: int, device: Any, fill: Callable[[Any], Any] = poison) -> None:
    """Poison a block of memory and free it: the allocator tends to hand it to the next one who asks."""
    fill(torch.empty(max(1, size_bytes // 4), dtype=torch.float32, device=device))


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors among a call's arguments, those in lists and dicts too, in the order in which they are stored."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from flat(value.values())
        elif isinstance(value, (list, tuple)):
            yield from flat(value)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same lists and dicts with `change` made to everything in them."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    return change(value)


def each_tensor(value: Any, change: Callable[[Any], Any]) -> Any:
    return mapped(value, lambda item: change(item) if isinstance(item, torch.Tensor) else item)


def each_float(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same value with `change` made to every floating-point tensor in it; others, indices and masks,
    stay."""
    return each_tensor(value, lambda tensor: change(tensor) if tensor.is_floating_point() else tensor)


def with_fractions(erring: Any, exact: Any) -> Any:
    """Of several results those that are floating-point numbers from the first, and what was counted from the other."""
    return type(exact)(
        one if isinstance(one, torch.Tensor) and one.is_floating_point() else other for one, other in zip(erring, exact)
    )


def promoted(given: list[Any]) -> Any:
    """PyTorch's result type, or its parts' where that is complex: of tensors with dimensions, else of those without."""
    chosen = [tensor for tensor in given if tensor.dim()] or given
    found = None
    for tensor in chosen:
        dtype = PARTS.get(tensor.dtype, tensor.dtype)
        found = dtype if found is None else torch.promote_types(found, dtype)
    return found


def loses(exact: Any, rounded: Any) -> bool:
    """Return whether rounding lost a number: to infinity, or to zero."""
    pairs = zip(flat([exact]), flat([rounded]))
    return any(bool((one.isinf() | ((one == 0) & (wide != 0))).any()) for wide, one in pairs if one.is_floating_point())


def pairs(schema: Any, before: Any, after: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(argument, its value before, and after it was widened) of those that are tensors."""
    for position, argument in enumerate(schema.arguments):
        if position < len(before[0]):
            values = before[0][position], after[0][position]
        else:
            values = before[1].get(argument.name), after[1].get(argument.name)
        if isinstance(values[0], torch.Tensor):
            yield (argument, *values)


def copies(values: Iterable[Any]) -> list[Any]:
    """Return a call's arguments with tensors of their own."""
    return [each_tensor(value, lambda tensor: tensor.clone()) for value in values]


def arrange(value: Any, layout: str) -> Any:
    """Return the same elements in memory that is laid out otherwise; what is no tensor of four dimensions stays as it
    is."""
    if layout == "contiguous" or not isinstance(value, torch.Tensor):
        return value
    if layout == "strided":
        return strided(value) if value.dim() == 4 else value
    start = OFFSET_ELEMENTS[layout]
    longer = torch.empty(value.numel() + start, dtype=value.dtype, device=value.device)
    return longer[start:].view(value.shape).copy_(value)


def strided(value: Any) -> Any:
    """[batch, row, head, column] in memory; of one head or one row, which that leaves as it is, rows with a gap."""
    moved = value.transpose(1, 2).contiguous().transpose(1, 2)
    if not moved.is_contiguous():
        return moved
    longer = torch.empty(*value.shape[:-1], value.shape[-1] + GAP_ELEMENTS, dtype=value.dtype, device=value.device)
    return longer[..., : value.shape[-1]].copy_(value)


def profiled(device: str) -> Any:
    """PyTorch's profiler, of the host and of this device."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=activities)


def copying(call: Callable[[], Any], like: Any) -> Callable[[], Any]:
    """The call, and a copy of its output into memory of this call's own."""
    place = torch.empty_like(like)
    return enters_subject(lambda: place.copy_(call()))


@enters_subject
def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def drawn(device: str) -> list[bytes]:
    """Return how far PyTorch's generators have come: their states, in bytes."""
    states = [torch.random.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else [])]
    return [to_bytes(state) for state in states]


def capability(device: str) -> tuple[int, int]:
    """The GPU's compute capability; (0, 0) of a CPU."""
    if device != "cuda" or not torch.cuda.is_available():
        return 0, 0
    major, minor = torch.cuda.get_device_capability()
    return major, minor


def lost(device: str) -> str:
    """The CUDA error that ended this process's use of the device, in one line; empty where there is none."""
    if device != "cuda" or not torch.cuda.is_initialized():
        return ""
    try:
        synchronise(device)
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return ""
