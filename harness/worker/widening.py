"""Integers of 64 bits wherever PyTorch is asked for fewer, so that none wraps in a narrower type."""

import torch
from torch.overrides import TorchFunctionMode

NARROWER = [torch.int8, torch.uint8, torch.int16, torch.int32]
NARROWER += [getattr(torch, name) for name in ("uint16", "uint32") if hasattr(torch, name)]
CASTS = (torch.Tensor.char, torch.Tensor.byte, torch.Tensor.short, torch.Tensor.int)
SAME_BITS = (torch.Tensor.view, torch.frombuffer, torch.from_file)  # by another name, and not another number


class AskedIntegers(TorchFunctionMode):
    """Sees what PyTorch's functions are asked for in this thread: a type as an argument, or by a method's name.

    `wide`: 64 bits are given in place of fewer. Otherwise nothing is changed, which is the control: under any such mode
    PyTorch's own modules leave their fast paths. Not seen: types that a text or a legacy class names
    (``torch.CharTensor``), arrays of NumPy, and what runs inside TorchScript. Tensors that are given keep their types.
    """

    def __init__(self, wide):
        super().__init__()
        self.wide = wide

    def __torch_function__(self, function, _types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.wide and function in CASTS:
            return torch.Tensor.long(args[0])
        if self.wide and function not in SAME_BITS:
            args = [_wide(value) for value in args]
            kwargs = {name: _wide(value) for name, value in kwargs.items()}
        return function(*args, **kwargs)


def _wide(value):
    return torch.int64 if isinstance(value, torch.dtype) and value in NARROWER else value
